//! What port 80 answers: the authority's certificate, its fingerprint on a page, and the way to the encrypted port. Nothing else.
//!
//! A request for a name that is not ours is refused, so that nobody can be led astray with our help. Only reading calls are sent on: a
//! call that brought a key or a password has already shown it to everybody on the way, and its sender must learn that.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use warden_access::http::{HostRules, host_of, without_port};
use warden_domain::front::{Certificates, Front};

#[derive(Clone)]
struct Parts {
    front: Arc<dyn Front>,
    hosts: HostRules,
}

/// All of port 80.
pub fn router(front: Arc<dyn Front>, hosts: HostRules) -> Router {
    Router::new()
        .route("/ca.crt", get(pem))
        .route("/ca.der", get(der))
        .route("/fingerprint", get(fingerprint))
        .fallback(elsewhere)
        .layer(axum::middleware::from_fn_with_state(hosts.clone(), only_ours))
        .with_state(Parts { front, hosts })
}

async fn only_ours(State(hosts): State<HostRules>, request: Request, next: axum::middleware::Next) -> Response {
    match host_of(&request) {
        None => say(StatusCode::BAD_REQUEST, "The request names no host. Send a Host header."),
        Some(host) if !hosts.allow(&host) => say(
            StatusCode::MISDIRECTED_REQUEST,
            "This box does not answer to that name. Use its IP address, or add the name to the allowed names in its settings.",
        ),
        Some(_) => next.run(request).await,
    }
}

async fn pem(State(parts): State<Parts>) -> Response {
    certificate(parts.front.state().certificates, |c| c.authority_pem.into(), "lm-warden-ca.crt")
}

async fn der(State(parts): State<Parts>) -> Response {
    certificate(parts.front.state().certificates, |c| c.authority_der.into(), "lm-warden-ca.der")
}

fn certificate(certificates: Option<Certificates>, body: impl FnOnce(Certificates) -> Body, name: &'static str) -> Response {
    let Some(certificates) = certificates else { return say(StatusCode::NOT_FOUND, "This agent has no certificate authority.") };
    let as_file = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")).unwrap_or(HeaderValue::from_static("attachment"));
    let kind = HeaderValue::from_static("application/x-x509-ca-cert");
    let mut response = Response::new(body(certificates));
    response.headers_mut().extend([
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_DISPOSITION, as_file),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ]);
    response
}

async fn fingerprint(State(parts): State<Parts>, headers: HeaderMap) -> Response {
    match parts.front.state().certificates {
        Some(certificates) => warden_web::fingerprint_page(&headers, &certificates),
        None => say(StatusCode::NOT_FOUND, "This agent has no certificate authority."),
    }
}

async fn elsewhere(State(parts): State<Parts>, request: Request) -> Response {
    let Some(target) = host_of(&request).filter(|host| parts.hosts.allow(host)).and_then(|host| target(&host, request.uri())) else {
        return say(StatusCode::BAD_REQUEST, "The address cannot be sent on. Open the console with https:// before its name.");
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return say(
            StatusCode::FORBIDDEN,
            "This port takes no such calls, because everybody on the way can read them. Use https://, and replace a key or password that was in this call.",
        );
    }
    // Not for good: an admin may open an unencrypted port later, and browsers never forget.
    (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, target), (header::CACHE_CONTROL, HeaderValue::from_static("no-store"))]).into_response()
}

/// The same path on the encrypted port of the same host.
fn target(host: &str, uri: &axum::http::Uri) -> Option<HeaderValue> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let path = if path.starts_with('/') { path } else { "/" };
    HeaderValue::from_str(&format!("https://{}{path}", without_port(host)?)).ok()
}

fn say(status: StatusCode, sentence: &str) -> Response {
    (status, [(header::CACHE_CONTROL, "no-store")], format!("{sentence}\n")).into_response()
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use jiff::Timestamp;
    use tower::ServiceExt;
    use warden_domain::{
        Problem,
        front::{FrontConfig, FrontState, PlainPort},
        ids::AccountId,
    };

    use super::*;

    struct Still;

    #[async_trait]
    impl Front for Still {
        fn config(&self) -> FrontConfig {
            FrontConfig::default()
        }

        fn state(&self) -> FrontState {
            let certificates = Certificates {
                authority_pem: "PEM".into(),
                authority_der: b"DER".to_vec(),
                authority_fingerprint: "AA:BB".into(),
                leaf_fingerprint: "CC:DD".into(),
                names: vec!["box.local".into()],
                addresses: vec![],
                issued_at: Timestamp::UNIX_EPOCH,
                valid_until: Timestamp::UNIX_EPOCH,
            };
            FrontState { certificates: Some(certificates), names: vec![], plain: PlainPort::Closed }
        }

        fn is_own_name(&self, name: &str) -> bool {
            name.eq_ignore_ascii_case("box.local")
        }

        async fn configure(&self, _: &AccountId, _: FrontConfig) -> Result<(), Problem> {
            Ok(())
        }
    }

    async fn ask(method: &str, host: Option<&str>, path: &str) -> (StatusCode, Option<String>) {
        let hosts = HostRules { own_names: Arc::new(|name| Still.is_own_name(name)), any_loopback: true, own_addresses: Arc::new(|_| false) };
        let mut request = Request::builder().method(method).uri(path);
        if let Some(host) = host {
            request = request.header("host", host);
        }
        let response = router(Arc::new(Still), hosts).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        (response.status(), response.headers().get("location").map(|l| l.to_str().unwrap().to_owned()))
    }

    #[tokio::test]
    async fn everything_but_certificate_and_fingerprint_is_sent_to_the_encrypted_port_of_the_same_host() {
        let to = |text: &str| (StatusCode::TEMPORARY_REDIRECT, Some(text.to_owned()));
        assert_eq!(ask("GET", Some("box.local"), "/ui/models?x=1").await, to("https://box.local/ui/models?x=1"));
        assert_eq!(ask("GET", Some("BOX.local:80"), "/").await, to("https://BOX.local/"));
        assert_eq!(ask("HEAD", Some("[::1]:8081"), "//evil.example/").await, to("https://[::1]//evil.example/"));
        for path in ["/ca.crt", "/ca.der", "/fingerprint"] {
            assert_eq!(ask("GET", Some("127.0.0.1"), path).await, (StatusCode::OK, None), "{path}");
        }
    }

    #[tokio::test]
    async fn nobody_is_sent_to_a_name_that_is_not_ours() {
        for path in ["/", "/ca.crt", "/fingerprint"] {
            for host in ["evil.example", "box.local.evil.example", "10.0.0.99", "box.local@evil.example", ""] {
                assert_eq!(ask("GET", Some(host), path).await, (StatusCode::MISDIRECTED_REQUEST, None), "{host:?} {path}");
            }
        }
        assert_eq!(ask("GET", Some("box.local"), "http://evil.example/x").await.0, StatusCode::MISDIRECTED_REQUEST);
        assert_eq!(ask("GET", None, "/").await.0, StatusCode::BAD_REQUEST);
    }

    #[tokio::test]
    async fn a_call_that_brought_a_secret_in_the_clear_is_told_so_instead_of_sent_on() {
        for method in ["POST", "PUT", "DELETE"] {
            assert_eq!(ask(method, Some("box.local"), "/v1/chat/completions").await, (StatusCode::FORBIDDEN, None));
        }
    }
}
