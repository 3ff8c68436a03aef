//! Asking an engine over its Unix socket whether it answers, and how large its window is.
//!
//! One short HTTP request per question, on a connection of its own, with a limit on time and on the size of the answer.

use std::{path::Path, time::Duration};

use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{net::UnixStream, time::timeout};
use warden_domain::units::Tokens;

/// Health answers within milliseconds even when all slots work; an engine that needs longer is not well.
const LIMIT: Duration = Duration::from_secs(2);
/// The properties hold the chat template, which can be long.
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
pub(crate) async fn health(socket: &Path) -> Health {
    match get(socket, "/health").await {
        Some((200, _)) => Health::Ready,
        Some(_) => Health::Loading,
        None => Health::Silent,
    }
}

/// Asks for the window per request; `None` when the engine does not say.
pub(crate) async fn context(socket: &Path) -> Option<Tokens> {
    let (status, body) = get(socket, "/props").await?;
    let properties: serde_json::Value = serde_json::from_slice(&body).ok()?;
    let window = properties.get("default_generation_settings")?.get("n_ctx")?.as_u64()?;
    (status == 200 && window > 0).then_some(Tokens(window))
}

async fn get(socket: &Path, path: &str) -> Option<(u16, Bytes)> {
    timeout(LIMIT, ask(socket, path)).await.ok().flatten()
}

async fn ask(socket: &Path, path: &str) -> Option<(u16, Bytes)> {
    let stream = UnixStream::connect(socket).await.ok()?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    let conversation = async {
        let request = Request::get(path).header("host", "engine").header("connection", "close").body(Empty::<Bytes>::new()).ok()?;
        let answer = sender.send_request(request).await.ok()?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), LARGEST_ANSWER).collect().await.ok()?;
        Some((status, body.to_bytes()))
    };
    // The connection must be driven for the conversation to go on; whichever ends first, the socket is closed on return.
    let driven = async {
        let _ = connection.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        answer = conversation => answer,
        () = driven => None,
    }
}
