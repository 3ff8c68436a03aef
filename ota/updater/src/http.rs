//! The one client towards update servers: http or https, no redirects, no cookies, no compression. Every answer is bounded in size and
//! every wait in time. What is fetched is believed only after its signatures, so TLS is privacy here and not trust.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use warden_domain::{Problem, ProblemKind};

use crate::fault::Fault;

/// A server that has not begun to answer by then is taken for dead.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
/// A connection that is not there by then is given up.
const CONNECTS_WITHIN: Duration = Duration::from_secs(15);

/// The client; cheap to clone.
#[derive(Clone)]
pub(crate) struct Client {
    pool: Pool<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    name: Arc<str>,
}

impl Client {
    /// One that calls itself `lm-warden/<version>`.
    pub(crate) fn new(version: &str) -> Result<Self, Problem> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECTS_WITHIN));
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(provider)
            .map_err(|cause| Problem::internal(format!("The client for update servers cannot be set up: {cause}.")))?
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let pool = Pool::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).pool_idle_timeout(Duration::from_secs(10)).build(connector);
        Ok(Self { pool, name: format!("lm-warden/{version}").into() })
    }

    /// The head of an answer, whatever it is, but never a redirect.
    pub(crate) async fn get(&self, uri: &Uri, headers: &HeaderMap) -> Result<Response<Incoming>, Fault> {
        let host = uri.authority().map(ToString::to_string).unwrap_or_default();
        let unreachable = |cause: String| Fault::Unreachable { host: host.clone(), cause };
        let mut request = Request::get(uri).body(Empty::new()).map_err(|cause| unreachable(cause.to_string()))?;
        request.headers_mut().extend(headers.clone());
        if let Ok(name) = self.name.parse() {
            request.headers_mut().insert(header::USER_AGENT, name);
        }
        let answer = match tokio::time::timeout(ANSWERS_WITHIN, self.pool.request(request)).await {
            Err(_) => return Err(unreachable(format!("no answer within {} s", ANSWERS_WITHIN.as_secs()))),
            Ok(Err(error)) => return Err(unreachable(chain(&error))),
            Ok(Ok(answer)) => answer,
        };
        if answer.status().is_redirection() {
            let to = answer.headers().get(header::LOCATION).and_then(|v| v.to_str().ok()).unwrap_or("an address it does not name");
            return Err(Fault::Moved { to: to.chars().filter(|c| !c.is_control()).take(300).collect() });
        }
        Ok(answer)
    }

    /// A small file as a whole; `None` when the server has none.
    pub(crate) async fn small(&self, uri: &Uri, limit: usize) -> Result<Option<Vec<u8>>, Fault> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-cache"));
        let answer = self.get(uri, &headers).await?;
        let path = uri.path().to_owned();
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND | StatusCode::GONE => return Ok(None),
            other => return Err(Fault::Status { status: other.as_u16(), path }),
        }
        let mut body = answer.into_body();
        let mut content = Vec::new();
        let reading = async {
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|cause| Fault::BrokeOff { got: content.len() as u64, cause: chain(&cause) })?;
                let Ok(data) = frame.into_data() else { continue };
                if content.len() + data.len() > limit {
                    return Err(Fault::TooLarge { path: path.clone(), limit: limit as u64 });
                }
                content.extend_from_slice(&data);
            }
            Ok(())
        };
        let read = tokio::time::timeout(ANSWERS_WITHIN, reading).await;
        match read {
            Ok(done) => done?,
            Err(_) => return Err(Fault::BrokeOff { got: 0, cause: format!("{path} did not arrive within {} s", ANSWERS_WITHIN.as_secs()) }),
        }
        Ok(Some(content))
    }
}

/// The address of a channel as it is used: `http` or `https`, no user name, no query, no slash at the end.
///
/// # Errors
/// `Invalid`, naming what is wrong.
pub fn channel_address(text: &str) -> Result<String, Problem> {
    let wrong = |why: &str| {
        Problem::new(ProblemKind::Invalid, format!("The address of the channel cannot be used: {why}."))
            .hint("Give the address of the folder that holds metadata and targets, such as https://updates.example/stable.")
            .param("channel_url")
    };
    let text = text.trim().trim_end_matches('/');
    if text.len() > 500 {
        return Err(wrong("it is longer than 500 characters"));
    }
    let uri: Uri = text.parse().map_err(|_| wrong("it is no address"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(wrong("it begins neither with http:// nor with https://"));
    }
    let authority = uri.authority().ok_or_else(|| wrong("it names no server"))?;
    if authority.as_str().contains('@') {
        return Err(wrong("it holds a user name or password, which would end up in logs"));
    }
    if authority.host().is_empty() {
        return Err(wrong("it names no server"));
    }
    if uri.query().is_some() || text.contains('#') {
        return Err(wrong("it holds a query or a fragment"));
    }
    Ok(text.to_owned())
}

/// A file below the channel's address.
pub(crate) fn below(channel: &str, file: &str) -> Result<Uri, Fault> {
    format!("{channel}/{file}").parse().map_err(|_| Fault::Unreachable { host: channel.to_owned(), cause: "the address is no address".to_owned() })
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(at) = cause {
        text.push_str(": ");
        text.push_str(&at.to_string());
        cause = at.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_secrets_and_tricks_is_taken() {
        assert_eq!(channel_address(" http://10.0.0.5:8000/stable/ ").unwrap(), "http://10.0.0.5:8000/stable");
        assert_eq!(channel_address("https://updates.example").unwrap(), "https://updates.example");
        for bad in ["", "updates.example", "ftp://x/y", "https://me:pw@x/y", "https://x/y?token=1", "https://x/#y", "file:///etc", "https:///x"] {
            assert!(channel_address(bad).is_err(), "{bad}");
        }
    }
}
