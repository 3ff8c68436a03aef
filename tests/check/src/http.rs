//! A small blocking HTTP client: one base address, plain answers, statuses are not errors. Over TLS it trusts one authority and no
//! other.
//!
//! In: method, path, headers, body. Out: status, headers and body, or a stream of lines with the moment each one came. It follows no
//! redirect and keeps no cookie; the caller decides about both.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Longest answer read as a whole.
const LONGEST: u64 = 16 * 1024 * 1024;

/// One base address.
#[derive(Clone, Debug)]
pub struct Http {
    base: String,
    trusted: Option<Certificate<'static>>,
    agent: ureq::Agent,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// Its headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

impl Reply {
    /// The first header of a name (in lower case).
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; `null` when it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

/// A streamed answer, read line by line.
pub struct Stream {
    /// Its status.
    pub status: u16,
    /// Its headers, names in lower case.
    pub headers: Vec<(String, String)>,
    started: Instant,
    reader: BufReader<Box<dyn Read + Send + Sync>>,
}

impl Stream {
    /// The next line with the time since the request was sent; `None` at a clean end.
    ///
    /// # Errors
    /// A sentence when the connection broke.
    pub fn next_line(&mut self) -> Result<Option<(Duration, String)>, String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some((self.started.elapsed(), line.trim_end_matches(['\r', '\n']).to_owned()))),
            Err(e) => Err(format!("the stream broke off: {e}")),
        }
    }
}

impl Http {
    /// A client for `http://host:port` that gives up on one request after `limit`.
    #[must_use]
    pub fn new(base: &str, limit: Duration) -> Self {
        Self::with(base, None, limit)
    }

    /// A client for `https://host:port` that trusts the authority of this PEM text.
    ///
    /// # Errors
    /// A sentence when the text is no certificate.
    pub fn trusting(base: &str, authority: &str, limit: Duration) -> Result<Self, String> {
        let certificate = Certificate::from_pem(authority.as_bytes()).map_err(|e| format!("the authority's certificate cannot be read: {e}"))?;
        Ok(Self::with(base, Some(certificate), limit))
    }

    /// The same box with connections of its own and another limit.
    #[must_use]
    pub fn again(&self, limit: Duration) -> Self {
        Self::with(&self.base, self.trusted.clone(), limit)
    }

    fn with(base: &str, trusted: Option<Certificate<'static>>, limit: Duration) -> Self {
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(trusted.iter().cloned().collect())))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(limit))
            .tls_config(tls)
            .proxy(None)
            .build();
        Self { base: base.trim_end_matches('/').to_owned(), trusted, agent: config.into() }
    }

    /// The base address.
    #[must_use]
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// A sentence when no answer came.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Result<Reply, String> {
        let mut answer = self.ask(method, path, headers, body)?;
        let status = answer.status().as_u16();
        let headers = names_and_values(answer.headers());
        let body = answer
            .body_mut()
            .with_config()
            .limit(LONGEST)
            .read_to_vec()
            .map_err(|e| format!("{method} {path}: the answer (status {status}) broke off: {e}"))?;
        Ok(Reply { status, headers, body })
    }

    /// Sends a request and hands its answer over as it comes.
    ///
    /// # Errors
    /// A sentence when no answer came.
    pub fn stream(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Result<Stream, String> {
        let started = Instant::now();
        let answer = self.ask(method, path, headers, body)?;
        let status = answer.status().as_u16();
        let headers = names_and_values(answer.headers());
        let reader: Box<dyn Read + Send + Sync> = Box::new(answer.into_body().into_reader());
        Ok(Stream { status, headers, started, reader: BufReader::with_capacity(1, reader) })
    }

    /// GET without headers.
    ///
    /// # Errors
    /// A sentence when no answer came.
    pub fn get(&self, path: &str) -> Result<Reply, String> {
        self.send("GET", path, &[], None)
    }

    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Result<ureq::http::Response<ureq::Body>, String> {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let malformed = |e: ureq::http::Error| format!("{method} {path}: {e}");
        let answer = match body {
            Some(bytes) => self.agent.run(request.body(bytes.to_vec()).map_err(malformed)?),
            None => self.agent.run(request.body(()).map_err(malformed)?),
        };
        answer.map_err(|e| format!("{method} {path}: no answer from {}: {e}", self.base))
    }
}

fn names_and_values(headers: &ureq::http::HeaderMap) -> Vec<(String, String)> {
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())).collect()
}
