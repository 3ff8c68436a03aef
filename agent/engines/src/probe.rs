//! Asking an engine where it listens: whether it answers, and for its pages.
//!
//! One short HTTP request per question, on a connection of its own, with a limit on time and on the size of the answer.

use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::timeout,
};
use warden_domain::replica::Endpoint;

/// Health answers within milliseconds even when all slots work; an engine that needs longer is not well.
const LIMIT: Duration = Duration::from_secs(2);
/// The properties hold the chat template, which can be long, and a count of tokens may come with all of them.
const LARGEST_ANSWER: usize = 4 * 1024 * 1024;

/// What a health question brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// It answers requests.
    Ready,
    /// It answers that it is still loading.
    Loading,
    /// Nobody answers, or not in time.
    Silent,
}

/// Asks for health.
pub(crate) async fn health(endpoint: &Endpoint) -> Health {
    match ask(endpoint, Method::GET, "/health", String::new()).await {
        Some((200, _)) => Health::Ready,
        Some(_) => Health::Loading,
        None => Health::Silent,
    }
}

/// A page; `None` when it does not come with status 200 in time.
pub(crate) async fn get(endpoint: &Endpoint, path: &str) -> Option<String> {
    page(ask(endpoint, Method::GET, path, String::new()).await)
}

/// The answer to a JSON body; `None` as for a page.
pub(crate) async fn post(endpoint: &Endpoint, path: &str, body: String) -> Option<String> {
    page(ask(endpoint, Method::POST, path, body).await)
}

fn page(answer: Option<(u16, Bytes)>) -> Option<String> {
    let (status, body) = answer?;
    if status == 200 { String::from_utf8(body.into()).ok() } else { None }
}

async fn ask(endpoint: &Endpoint, method: Method, path: &str, body: String) -> Option<(u16, Bytes)> {
    let conversation = async {
        match endpoint {
            Endpoint::Unix(socket) => converse(UnixStream::connect(socket).await.ok()?, method, path, body).await,
            Endpoint::Loopback(address) => converse(TcpStream::connect(address).await.ok()?, method, path, body).await,
        }
    };
    timeout(LIMIT, conversation).await.ok().flatten()
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin>(stream: S, method: Method, path: &str, body: String) -> Option<(u16, Bytes)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    let conversation = async {
        let mut request = Request::builder().method(method).uri(path).header("host", "engine").header("connection", "close");
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        let answer = sender.send_request(request.body(Full::new(Bytes::from(body))).ok()?).await.ok()?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), LARGEST_ANSWER).collect().await.ok()?;
        Some((status, body.to_bytes()))
    };
    // The connection must be driven for the conversation to go on; whichever ends first, the stream is closed on return.
    let driven = async {
        let _ = connection.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        answer = conversation => answer,
        () = driven => None,
    }
}
