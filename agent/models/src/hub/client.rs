//! The one client towards hubs: http or https, a few redirects, no cookies, no compression; every answer is bounded in size and every
//! wait in time. The access token goes to the origin it was given for and is dropped by a redirect to any other.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as Pool, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use warden_domain::{Problem, Secret};

use super::fault::{Fault, Refusal};

const CONNECTS_WITHIN: Duration = Duration::from_secs(10);
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
const MOST_REDIRECTS: usize = 5;

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// Where.
    pub(crate) uri: Uri,
    /// The first byte and, if known, the last one.
    pub(crate) range: Option<(u64, Option<u64>)>,
    /// The token, when the address is of the origin it was given for.
    pub(crate) token: Option<Secret<String>>,
}

/// The head of an answer, its body still coming.
pub(crate) struct Answer {
    pub(crate) response: Response<Incoming>,
    /// What the first answer on the way said of the file, before any redirect to another host.
    pub(crate) first: HeaderMap,
}

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
            .map_err(|cause| Problem::internal(format!("The client for hubs cannot be set up: {cause}.")))?
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let pool = Pool::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).pool_idle_timeout(Duration::from_secs(10)).build(connector);
        Ok(Self { pool, name: format!("lm-warden/{version}").into() })
    }

    /// A success, after redirects.
    pub(crate) async fn get(&self, wanted: &Wanted) -> Result<Answer, Fault> {
        let start = origin_of(&wanted.uri);
        let mut at = wanted.uri.clone();
        let mut first: Option<HeaderMap> = None;
        for _ in 0..=MOST_REDIRECTS {
            let at_home = origin_of(&at) == start;
            let token = wanted.token.as_ref().filter(|_| at_home);
            let response = self.once(&at, wanted.range, token).await?;
            let status = response.status();
            if at_home {
                first = Some(response.headers().clone());
            }
            if status.is_redirection() && status != StatusCode::NOT_MODIFIED {
                at = next(&at, response.headers())?;
                continue;
            }
            if status.is_success() {
                let first = first.unwrap_or_default();
                return Ok(Answer { response, first });
            }
            return Err(Fault::Answer(Refusal::read(status, response.headers(), !at_home)));
        }
        Err(Fault::Redirect { to: "one address after the other".to_owned() })
    }

    async fn once(&self, uri: &Uri, range: Option<(u64, Option<u64>)>, token: Option<&Secret<String>>) -> Result<Response<Incoming>, Fault> {
        let host = uri.authority().map(ToString::to_string).unwrap_or_default();
        let unreachable = |cause: String| Fault::Unreachable { host: host.clone(), cause };
        let mut request = Request::get(uri).body(Empty::new()).map_err(|cause| unreachable(cause.to_string()))?;
        let headers = request.headers_mut();
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Ok(name) = self.name.parse() {
            headers.insert(header::USER_AGENT, name);
        }
        if let Some((from, to)) = range {
            let to = to.map(|to| to.to_string()).unwrap_or_default();
            if let Ok(value) = HeaderValue::from_str(&format!("bytes={from}-{to}")) {
                headers.insert(header::RANGE, value);
            }
        }
        if let Some(token) = token
            && let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {}", token.expose()))
        {
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        match tokio::time::timeout(ANSWERS_WITHIN, self.pool.request(request)).await {
            Err(_) => Err(unreachable(format!("no answer within {} s", ANSWERS_WITHIN.as_secs()))),
            Ok(Err(error)) => Err(unreachable(plain(&chain(&error)))),
            Ok(Ok(answer)) => Ok(answer),
        }
    }

    /// A whole answer of at most `limit` bytes.
    pub(crate) async fn small(&self, wanted: &Wanted, what: &str, limit: usize) -> Result<(HeaderMap, Vec<u8>), Fault> {
        let answer = self.get(wanted).await?;
        let headers = answer.response.headers().clone();
        let content = read(answer.response.into_body(), limit).await?;
        if content.len() > limit {
            return Err(Fault::TooLarge { what: what.to_owned(), limit: limit as u64 });
        }
        Ok((headers, content))
    }

    /// The bytes of a file from `from` to before `to`, fewer at its end, and where they begin: a server that does not know ranges begins
    /// at 0 again, and is read only so far.
    pub(crate) async fn piece(&self, wanted: &Wanted, from: u64, to: u64) -> Result<(u64, Vec<u8>), Fault> {
        let wanted = Wanted { range: Some((from, Some(to.saturating_sub(1)))), ..wanted.clone() };
        let response = self.get(&wanted).await?.response;
        let begins = if response.status() == StatusCode::PARTIAL_CONTENT { from } else { 0 };
        let length = usize::try_from(to.saturating_sub(begins)).unwrap_or(usize::MAX);
        let mut content = read(response.into_body(), length).await?;
        content.truncate(length);
        Ok((begins, content))
    }
}

/// Reads until the end, or until a little more than `limit`.
async fn read(mut body: Incoming, limit: usize) -> Result<Vec<u8>, Fault> {
    let mut content = Vec::new();
    let reading = async {
        while content.len() <= limit {
            let Some(frame) = body.frame().await else { break };
            let frame = frame.map_err(|cause| Fault::BrokeOff { cause: chain(&cause) })?;
            if let Ok(data) = frame.into_data() {
                content.extend_from_slice(&data);
            }
        }
        Ok(())
    };
    match tokio::time::timeout(ANSWERS_WITHIN, reading).await {
        Ok(done) => done.map(|()| content),
        Err(_) => Err(Fault::BrokeOff { cause: format!("it did not arrive within {} s", ANSWERS_WITHIN.as_secs()) }),
    }
}

/// Scheme, host and port: whom a token may be told.
pub(crate) fn origin_of(uri: &Uri) -> (String, String, u16) {
    let scheme = uri.scheme_str().unwrap_or_default().to_ascii_lowercase();
    let port = uri.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    (scheme, uri.host().unwrap_or_default().to_ascii_lowercase(), port)
}

fn next(at: &Uri, headers: &HeaderMap) -> Result<Uri, Fault> {
    let text = headers.get(header::LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    // A signed address is a key to the file for a while; only its host is ever shown.
    let refused = || Fault::Redirect { to: "an address that cannot be used".to_owned() };
    let text = text.split('#').next().unwrap_or_default();
    let whole = if text.starts_with("//") {
        format!("{}:{text}", at.scheme_str().unwrap_or("https"))
    } else if text.starts_with('/') {
        format!("{}://{}{text}", at.scheme_str().unwrap_or("https"), at.authority().map(ToString::to_string).unwrap_or_default())
    } else {
        text.to_owned()
    };
    let to: Uri = whole.parse().map_err(|_| refused())?;
    let downgrade = at.scheme_str() == Some("https") && to.scheme_str() == Some("http");
    if to.host().is_none_or(str::is_empty) || !matches!(to.scheme_str(), Some("http" | "https")) {
        return Err(refused());
    }
    if downgrade {
        return Err(Fault::Redirect { to: format!("{} without encryption", to.host().unwrap_or_default()) });
    }
    Ok(to)
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

/// The causes people meet, in words they know.
fn plain(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let known = [
        ("dns error", "its name is not known to the name servers"),
        ("failed to lookup", "its name is not known to the name servers"),
        ("connection refused", "it refuses the connection"),
        ("network is unreachable", "there is no way to it from this network"),
        ("no route to host", "there is no way to it from this network"),
        ("deadline has elapsed", "it does not answer"),
        ("timed out", "it does not answer"),
        ("certificate", "its certificate is not one this box trusts"),
    ];
    known.iter().find(|(sign, _)| lower.contains(sign)).map_or_else(|| text.to_owned(), |(_, words)| (*words).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn led(from: &str, to: &str) -> Result<String, Fault> {
        let headers: HeaderMap = [(header::LOCATION, to.parse().unwrap())].into_iter().collect();
        next(&from.parse().unwrap(), &headers).map(|uri| uri.to_string())
    }

    #[test]
    fn redirects_lead_to_web_addresses_and_never_out_of_encryption() {
        assert_eq!(led("https://a/x/y", "/z").unwrap(), "https://a/z");
        assert_eq!(led("https://a/x", "https://cdn.b/z?sig=1").unwrap(), "https://cdn.b/z?sig=1");
        assert_eq!(led("http://a:81/x", "//b/z").unwrap(), "http://b/z");
        for (from, to) in [("https://a/", "http://a/"), ("http://a/", "file:///etc/passwd"), ("http://a/", ""), ("http://a/", "javascript:x")] {
            assert!(led(from, to).is_err(), "{to}");
        }
    }

    #[test]
    fn another_port_or_scheme_is_another_origin() {
        let origin = |text: &str| origin_of(&text.parse().unwrap());
        assert_eq!(origin("https://Hub.Example/x"), origin("https://hub.example:443/y"));
        assert_ne!(origin("https://hub.example"), origin("http://hub.example"));
        assert_ne!(origin("http://127.0.0.1:81"), origin("http://127.0.0.1:82"));
    }
}
