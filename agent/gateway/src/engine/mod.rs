//! The HTTP client towards engines: kept connections over Unix sockets, or loopback ports for engines that cannot.
//!
//! In: where an engine listens, a path, a body. Out: its answer's head and body stream, or how it failed. Dropping the future or the
//! body closes the connection, which is how an engine learns that nobody waits any more. Never connects anywhere but to an
//! `Endpoint`.

mod answer;
mod link;
mod pool;
mod wire;

use std::{error::Error, io, sync::Arc, time::Duration};

pub(crate) use answer::AnswerBody;
use axum::http::{HeaderValue, Method, Request, Response, Uri, header};
use link::Link;
use pool::{Pool, Shelf};
use warden_domain::{ids::RequestId, replica::Endpoint};
use wire::Wire;

use crate::spliced::Spliced;

/// How an engine could not be asked. No byte of an answer has come in any of these cases.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendFailure {
    /// Nothing listens, or nothing took the connection in time.
    #[error("the engine could not be reached: {0}")]
    Connect(String),
    /// The connection ended before the answer began.
    #[error("the engine closed the connection before it answered: {0}")]
    Closed(String),
    /// It answers that it cannot work, and another replica may.
    #[error("the engine answered {0}")]
    Refused(u16),
    /// The answer cannot be read.
    #[error("the engine's answer is no HTTP: {0}")]
    Garbled(String),
}

/// So many kept connections may turn out closed before one failure counts.
const KEPT_TRIES: usize = 4;

/// The client, with the connections it keeps.
pub(crate) struct EngineClient {
    /// Longest time for a connection to be made.
    connect: Duration,
    pool: Arc<Pool>,
}

impl EngineClient {
    pub(crate) fn new(connect: Duration) -> Self {
        Self { connect, pool: Arc::default() }
    }

    /// Posts a body and waits for the head of the answer. Only the headers made here are sent, and the kind of the body where it is no
    /// JSON. A connection that was kept from an earlier request may have been closed by the engine meanwhile: that says nothing about
    /// the engine, and the request is sent again on another one.
    pub(crate) async fn post(
        &self,
        to: &Endpoint,
        path: &'static str,
        request: &RequestId,
        kind: Option<&HeaderValue>,
        body: Spliced,
    ) -> Result<Response<AnswerBody>, SendFailure> {
        let (shelf, mut left) = (self.pool.of(to), KEPT_TRIES);
        loop {
            let (wire, kept) = self.wire(to, &shelf, left > 0).await?;
            match ask(wire, &shelf, made(path, request, kind, body.clone())?).await {
                Err(SendFailure::Closed(_)) if kept => left -= 1,
                done => return done,
            }
        }
    }

    /// A connection, and whether it was kept from an earlier request.
    async fn wire(&self, to: &Endpoint, shelf: &Shelf, may_be_kept: bool) -> Result<(Wire, bool), SendFailure> {
        if may_be_kept && let Some(wire) = shelf.take().await {
            return Ok((wire, true));
        }
        let link = tokio::time::timeout(self.connect, Link::to(to)).await.map_err(|_| SendFailure::Connect("no connection in time".to_owned()))?;
        let link = link.map_err(|cause| SendFailure::Connect(cause.to_string()))?;
        Ok((Wire::over(link).await.map_err(|cause| classify(&cause))?, false))
    }
}

fn made(path: &'static str, request: &RequestId, kind: Option<&HeaderValue>, body: Spliced) -> Result<Request<Spliced>, SendFailure> {
    let mut made = Request::new(body);
    *made.method_mut() = Method::POST;
    *made.uri_mut() = Uri::from_static(path);
    let headers = made.headers_mut();
    headers.insert(header::HOST, HeaderValue::from_static("localhost"));
    headers.insert(header::CONTENT_TYPE, kind.cloned().unwrap_or_else(|| HeaderValue::from_static("application/json")));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream, */*"));
    let id = HeaderValue::from_str(request.as_str()).map_err(|cause| SendFailure::Connect(cause.to_string()))?;
    headers.insert("x-request-id", id);
    Ok(made)
}

async fn ask(mut wire: Wire, shelf: &Arc<Shelf>, request: Request<Spliced>) -> Result<Response<AnswerBody>, SendFailure> {
    let answer = wire.ask(request).await.map_err(|error| classify(&error))?;
    Ok(answer.map(|body| AnswerBody::new(body, wire, Arc::clone(shelf))))
}

fn classify(error: &hyper::Error) -> SendFailure {
    let ended = error.is_incomplete_message() || error.is_canceled() || error.is_closed();
    let (mut text, mut broken, mut cause) = (error.to_string(), false, error.source());
    while let Some(at) = cause {
        text.push_str(": ");
        text.push_str(&at.to_string());
        broken |= at.is::<io::Error>();
        cause = at.source();
    }
    if ended || broken { SendFailure::Closed(text) } else { SendFailure::Garbled(text) }
}
