//! Asks the console as its users do: over TLS at an address of the box, trusting the box's own authority only; and the agent's local socket
//! for one token of a model.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::facts::Told;

/// No page or document that is asked for here is longer.
const LONGEST: usize = 1 << 20;

/// An answer.
struct Reply {
    status: StatusCode,
    location: Option<String>,
    html: bool,
    body: Bytes,
}

/// The box's own authority, as its plain port hands it to visitors.
pub(super) async fn authority(patience: Duration) -> Told<Vec<u8>> {
    within(patience, async {
        let stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], 80))).await.map_err(|e| format!("port 80: {e}"))?;
        let reply = ask(stream, Method::GET, "127.0.0.1", "/ca.crt", None).await?;
        if reply.status == StatusCode::OK {
            Ok(reply.body.to_vec())
        } else {
            Err(format!("port 80 answers {} instead of the certificate", reply.status))
        }
    })
    .await
}

/// Trust in this authority alone.
pub(super) fn trust(pem: &[u8]) -> Told<Arc<ClientConfig>> {
    let certificate = CertificateDer::from_pem_slice(pem).map_err(|e| format!("the box's authority cannot be read: {e:?}"))?;
    let mut roots = RootCertStore::empty();
    roots.add(certificate).map_err(|e| format!("the box's authority cannot be used: {e}"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

/// The console at one address.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) address: IpAddr,
    pub(super) port: u16,
    pub(super) trust: Arc<ClientConfig>,
}

impl Door {
    /// The version it says it is.
    pub(super) async fn version(&self, patience: Duration) -> Told<String> {
        within(patience, async {
            let reply = self.get("/healthz").await?;
            let document: serde_json::Value = serde_json::from_slice(&reply.body).unwrap_or_default();
            match (reply.status, document["ok"].as_bool(), document["version"].as_str()) {
                (StatusCode::OK, Some(true), Some(version)) => Ok(version.to_owned()),
                (status, ..) => Err(format!("/healthz answers {status} and names no version")),
            }
        })
        .await
    }

    /// Whether its door is a page with the form of a door; that of theme and language, which is on every page, is none. A box that nobody has claimed yet leads on to its setup.
    pub(super) async fn shows_form(&self, patience: Duration) -> Told<bool> {
        within(patience, async {
            let mut path = "/ui/login".to_owned();
            for _ in 0..3 {
                let reply = self.get(&path).await?;
                match reply.location {
                    Some(next) if reply.status.is_redirection() && next.starts_with('/') => path = next,
                    _ if reply.status != StatusCode::OK => return Err(format!("{path} answers {}", reply.status)),
                    _ => return Ok(reply.html && is_a_door(&String::from_utf8_lossy(&reply.body))),
                }
            }
            Err(format!("/ui/login leads in circles, at last to {path}"))
        })
        .await
    }

    async fn get(&self, path: &str) -> Told<Reply> {
        let to = SocketAddr::new(self.address, self.port);
        let stream = TcpStream::connect(to).await.map_err(|e| format!("port {}: {e}", self.port))?;
        let name = ServerName::IpAddress(self.address.into());
        let stream = TlsConnector::from(self.trust.clone()).connect(name, stream).await.map_err(|e| format!("no encrypted connection: {e}"))?;
        ask(stream, Method::GET, &to.to_string(), path, None).await
    }
}

/// Whether a page lets somebody in: by signing in, or by claiming a box that nobody has claimed.
fn is_a_door(page: &str) -> bool {
    page.contains("<form") && ["action=\"/ui/login\"", "action=\"/ui/setup\""].iter().any(|door| page.contains(door))
}

/// Asks for one token of a model through the agent's local socket.
pub(super) async fn token(socket: &Path, model: &str, patience: Duration) -> Told<()> {
    within(patience, async {
        let stream = UnixStream::connect(socket).await.map_err(|e| format!("{}: {e}", socket.display()))?;
        let wish = serde_json::json!({"model": model}).to_string();
        let reply = ask(stream, Method::POST, "localhost", "/gate/token", Some(wish)).await?;
        let document: serde_json::Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        if reply.status == StatusCode::OK && document["tokens"].as_u64() >= Some(1) {
            return Ok(());
        }
        let said = document["detail"]["message"].as_str();
        Err(said.map_or_else(|| format!("the agent answers {}", reply.status), |text| text.trim_end_matches('.').to_owned()))
    })
    .await
}

async fn within<T>(patience: Duration, work: impl Future<Output = Told<T>>) -> Told<T> {
    timeout(patience, work).await.unwrap_or_else(|_| Err(format!("no answer within {} seconds", patience.as_secs())))
}

async fn ask(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    method: Method,
    host: &str,
    path: &str,
    json: Option<String>,
) -> Told<Reply> {
    let said = |e: hyper::Error| format!("{path}: {e}");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(said)?;
    let connection = tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path).header(header::HOST, host).header(header::ACCEPT, "text/html, application/json");
    if json.is_some() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    let request = request.body(Full::new(Bytes::from(json.unwrap_or_default()))).map_err(|e| format!("{path}: {e}"))?;
    let answer = sender.send_request(request).await.map_err(said)?;
    let (head, body) = answer.into_parts();
    let text = |name: header::HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (location, kind) = (text(header::LOCATION), text(header::CONTENT_TYPE));
    let body = Limited::new(body, LONGEST).collect().await.map_err(|e| format!("{path}: {e}"))?.to_bytes();
    drop(sender);
    connection.abort();
    Ok(Reply { status: head.status, location, html: kind.is_some_and(|kind| kind.starts_with("text/html")), body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_theme_and_language_is_no_door() {
        let look = r#"<form class="look" method="post" action="/ui/look"></form>"#;
        assert!(!is_a_door(look));
        assert!(is_a_door(&format!(r#"{look}<form class="panel" method="post" action="/ui/login">"#)));
        assert!(is_a_door(&format!(r#"{look}<form class="panel" method="post" action="/ui/setup">"#)));
    }
}
