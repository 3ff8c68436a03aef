//! The HTTP client towards engines: pooled connections over Unix sockets, or loopback ports for engines that cannot.
//!
//! In: where an engine listens, a path, a body. Out: its answer's head and body stream, or how it failed. Dropping the future or the
//! body closes the connection, which is how an engine learns that nobody waits any more. Never connects anywhere but to an
//! `Endpoint`.

use std::{
    io,
    net::SocketAddr,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::http::{HeaderValue, Request, Response, Uri, header};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{
        Client,
        connect::{Connected, Connection},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};
use warden_domain::{ids::RequestId, replica::Endpoint};

use crate::spliced::Spliced;

/// End of the made-up host names that stand for Unix sockets.
const UNIX: &str = ".unix";
/// Engines close idle connections after about 5 s; ours are given up before.
const IDLE: Duration = Duration::from_secs(3);
/// Idle connections kept per engine.
const IDLE_EACH: usize = 32;

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

/// The pooled client.
pub(crate) struct EngineClient(Client<Connector, Spliced>);

impl EngineClient {
    pub(crate) fn new(connect: Duration) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_EACH)
            .pool_timer(TokioTimer::new())
            .set_host(false)
            .build(Connector { limit: connect });
        Self(client)
    }

    /// Posts a body and waits for the head of the answer. Only the headers made here are sent, and the kind of the body where it is no
    /// JSON. A connection that was kept from an earlier request may have been closed by the engine meanwhile: that says nothing about
    /// the engine, and the request is sent again on another one.
    pub(crate) async fn post(
        &self,
        to: &Endpoint,
        path: &str,
        request: &RequestId,
        kind: Option<&HeaderValue>,
        body: Spliced,
    ) -> Result<Response<Incoming>, SendFailure> {
        let (begun, mut left) = (Instant::now(), KEPT_TRIES);
        loop {
            let made = Request::post(format!("http://{}{path}", authority(to)))
                .header(header::HOST, "localhost")
                .header(header::CONTENT_TYPE, kind.unwrap_or(&HeaderValue::from_static("application/json")))
                .header(header::ACCEPT, "application/json, text/event-stream, */*")
                .header("x-request-id", request.as_str())
                .body(body.clone());
            let made = made.map_err(|cause| SendFailure::Connect(cause.to_string()))?;
            let error = match self.0.request(made).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let failure = classify(&error);
            if left == 0 || !matches!(failure, SendFailure::Closed(_)) || !was_kept(&error, begun) {
                return Err(failure);
            }
            left -= 1;
        }
    }
}

/// When a connection was made.
#[derive(Clone, Copy)]
struct Born(Instant);

/// Whether the connection that failed is older than the request that was sent on it.
fn was_kept(error: &hyper_util::client::legacy::Error, begun: Instant) -> bool {
    let mut extras = hyper::http::Extensions::new();
    error.connect_info().inspect(|info| info.get_extras(&mut extras));
    extras.get::<Born>().is_some_and(|born| born.0 < begun)
}

fn classify(error: &hyper_util::client::legacy::Error) -> SendFailure {
    let text = chain(error);
    if error.is_connect() {
        return SendFailure::Connect(text);
    }
    let mut cause = std::error::Error::source(error);
    while let Some(at) = cause {
        if let Some(h) = at.downcast_ref::<hyper::Error>()
            && (h.is_incomplete_message() || h.is_canceled() || h.is_closed())
        {
            return SendFailure::Closed(text);
        }
        if at.downcast_ref::<io::Error>().is_some() {
            return SendFailure::Closed(text);
        }
        cause = at.source();
    }
    SendFailure::Garbled(text)
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(at) = cause {
        text.push_str(": ");
        text.push_str(&at.to_string());
        cause = at.source();
    }
    text
}

/// A socket path as a host name, because the pool knows connections by host.
fn authority(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Unix(path) => format!("{}{UNIX}", hex::encode(path.as_os_str().as_bytes())),
        Endpoint::Loopback(address) => address.to_string(),
    }
}

fn endpoint(uri: &Uri) -> io::Result<Endpoint> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidInput, "no engine's address");
    let authority = uri.authority().ok_or_else(wrong)?.as_str();
    match authority.strip_suffix(UNIX) {
        Some(path) => Ok(Endpoint::Unix(PathBuf::from(std::ffi::OsString::from_vec(hex::decode(path).map_err(|_| wrong())?)))),
        None => authority.parse::<SocketAddr>().ok().filter(|a| a.ip().is_loopback()).map(Endpoint::Loopback).ok_or_else(wrong),
    }
}

#[derive(Clone)]
struct Connector {
    limit: Duration,
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Link>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Link>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let limit = self.limit;
        Box::pin(async move {
            let link = async {
                Ok(match endpoint(&uri)? {
                    Endpoint::Unix(path) => Link::Unix(UnixStream::connect(path).await?),
                    Endpoint::Loopback(address) => {
                        let stream = TcpStream::connect(address).await?;
                        stream.set_nodelay(true)?;
                        Link::Tcp(stream)
                    }
                })
            };
            tokio::time::timeout(limit, link).await.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no connection in time"))?.map(TokioIo::new)
        })
    }
}

/// A connection to an engine.
enum Link {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Connection for Link {
    fn connected(&self) -> Connected {
        Connected::new().extra(Born(Instant::now()))
    }
}

impl AsyncRead for Link {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(s) => Pin::new(s).poll_read(cx, buf),
            Self::Tcp(s) => Pin::new(s).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Link {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Unix(s) => Pin::new(s).poll_write(cx, buf),
            Self::Tcp(s) => Pin::new(s).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(s) => Pin::new(s).poll_flush(cx),
            Self::Tcp(s) => Pin::new(s).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(s) => Pin::new(s).poll_shutdown(cx),
            Self::Tcp(s) => Pin::new(s).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Unix(s) => Pin::new(s).poll_write_vectored(cx, bufs),
            Self::Tcp(s) => Pin::new(s).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Unix(s) => s.is_write_vectored(),
            Self::Tcp(s) => s.is_write_vectored(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_being_written_as_a_host_name() {
        for e in [Endpoint::Unix("/run/warden-engine/tiny 1/ä.sock".into()), Endpoint::Loopback(([127, 0, 0, 1], 8181).into())] {
            let uri: Uri = format!("http://{}/v1/x", authority(&e)).parse().unwrap();
            assert_eq!(endpoint(&uri).unwrap(), e);
        }
    }

    #[test]
    fn the_client_connects_nowhere_but_to_this_machine() {
        assert!(endpoint(&"http://10.0.0.1:80/".parse().unwrap()).is_err());
        assert!(endpoint(&"http://example/".parse().unwrap()).is_err());
    }
}
