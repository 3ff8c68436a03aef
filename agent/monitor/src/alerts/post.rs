//! One try to hand a message over. Bounded in everything: time to connect, time in all, bytes read back. Follows no redirect, sends no
//! header but its own, keeps no connection.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::target::Target;

const CONNECT: Duration = Duration::from_secs(5);
const WHOLE: Duration = Duration::from_secs(15);
/// What is read of an answer, at most; it is not kept.
const ANSWER: usize = 16 * 1024;
/// How long the rest of an answer is taken in once its status is known.
const REST: Duration = Duration::from_secs(1);

/// A message ready to go.
pub(crate) struct Message<'a> {
    pub(crate) id: &'a str,
    pub(crate) event: &'a str,
    pub(crate) signature: &'a str,
    pub(crate) body: &'a str,
    pub(crate) version: &'a str,
}

/// Why a try failed; a sentence for the page.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotTaken {
    /// Nobody could be reached.
    #[error("The receiver could not be reached: {0}.")]
    Connect(String),
    /// The exchange took too long.
    #[error("The receiver did not answer within {} s.", WHOLE.as_secs())]
    Slow,
    /// The connection broke, or what came was no HTTP.
    #[error("The receiver broke off: {0}.")]
    Broke(String),
    /// It answered with a status that is not a success.
    #[error("The receiver answered with status {0}{hint}.", hint = if (300..400).contains(.0) { "; redirects are not followed" } else { "" })]
    Status(u16),
}

/// Tries once; the status when the receiver took it.
pub(crate) async fn post(target: &Target, message: &Message<'_>) -> Result<u16, NotTaken> {
    let (answer, _connection) = tokio::time::timeout(WHOLE, exchange(target, message)).await.unwrap_or(Err(NotTaken::Slow))?;
    let status = answer.status().as_u16();
    // The status decides. The rest is taken in so that the receiver can finish, and thrown away; one that never ends changes nothing.
    let _ = tokio::time::timeout(REST, Limited::new(answer.into_body(), ANSWER).collect()).await;
    if (200..300).contains(&status) { Ok(status) } else { Err(NotTaken::Status(status)) }
}

/// The connection's task; ends with whoever holds it.
struct Driven(tokio::task::JoinHandle<()>);

impl Drop for Driven {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn exchange(target: &Target, message: &Message<'_>) -> Result<(Response<Incoming>, Driven), NotTaken> {
    let stream = match tokio::time::timeout(CONNECT, TcpStream::connect((target.host.as_str(), target.port))).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(cause)) => return Err(NotTaken::Connect(cause.to_string())),
        Err(_) => return Err(NotTaken::Connect(format!("no connection within {} s", CONNECT.as_secs()))),
    };
    let broke = |cause: &dyn std::fmt::Display| NotTaken::Broke(cause.to_string());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| broke(&e))?;
    let driven = Driven(tokio::spawn(async move {
        // What went wrong is said by the request as well.
        let _ = connection.await;
    }));
    let request = Request::post(&target.path)
        .header(header::HOST, &target.authority)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, format!("lm-warden/{}", message.version))
        .header(header::CONNECTION, "close")
        .header("x-warden-delivery", message.id)
        .header("x-warden-event", message.event)
        .header("x-warden-signature", message.signature)
        .body(Full::new(Bytes::copy_from_slice(message.body.as_bytes())))
        .map_err(|e| broke(&e))?;
    let answer = sender.send_request(request).await.map_err(|e| broke(&e))?;
    Ok((answer, driven))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn against(answer: &'static str) -> (Result<u16, NotTaken>, String) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut heard = Vec::new();
            let mut piece = [0u8; 4096];
            while !heard.ends_with(b"{}") {
                let n = stream.read(&mut piece).await.unwrap();
                assert!(n > 0);
                heard.extend_from_slice(&piece[..n]);
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            // Kept open until the sender hangs up.
            let _ = stream.read(&mut piece).await;
            String::from_utf8(heard).unwrap()
        });
        let target = Target { host: "127.0.0.1".into(), port, authority: format!("127.0.0.1:{port}"), path: "/in?x=1".into() };
        let message = Message { id: "dlv_1", event: "test", signature: "t=1,v1=00", body: "{}", version: "0" };
        (post(&target, &message).await, server.await.unwrap())
    }

    #[tokio::test]
    async fn a_receiver_gets_identity_event_and_signature_and_its_yes_is_understood() {
        let (outcome, heard) = against("HTTP/1.1 204 No Content\r\n\r\n").await;
        assert_eq!(outcome.unwrap(), 204);
        let heard = heard.to_lowercase();
        for line in ["post /in?x=1 http/1.1", "x-warden-delivery: dlv_1", "x-warden-event: test", "x-warden-signature: t=1,v1=00"] {
            assert!(heard.contains(line), "{heard}");
        }
    }

    #[tokio::test]
    async fn a_redirect_is_not_followed_and_a_refusal_is_told_with_its_status() {
        let (outcome, _) = against("HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n").await;
        assert!(outcome.unwrap_err().to_string().contains("302; redirects are not followed"));
        let (outcome, _) = against("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n").await;
        assert!(outcome.unwrap_err().to_string().contains("503"));
    }

    #[tokio::test]
    async fn a_receiver_that_said_yes_and_never_ends_its_answer_has_taken_it() {
        let begun = std::time::Instant::now();
        for endless in [
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
        ] {
            let (outcome, _) = against(endless).await;
            assert_eq!(outcome.unwrap(), 200, "{endless:?}");
        }
        assert!(begun.elapsed() < WHOLE);
    }

    #[tokio::test]
    async fn whoever_speaks_no_http_is_not_taken_for_a_receiver() {
        let (outcome, _) = against("hello\r\n").await;
        assert!(matches!(outcome, Err(NotTaken::Broke(_))));
    }

    #[tokio::test]
    async fn a_closed_port_is_a_sentence() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let target = Target { host: "127.0.0.1".into(), port, authority: "x".into(), path: "/".into() };
        let message = Message { id: "d", event: "test", signature: "s", body: "{}", version: "0" };
        assert!(post(&target, &message).await.unwrap_err().to_string().contains("could not be reached"));
    }
}
