//! The gate as attackers on the network and pages of other sites meet it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode, header},
    response::Response,
    routing::{any, get},
};
use tower::ServiceExt;
use warden_access::{
    Access,
    http::{HostRules, OverTls, SignedIn, Visitor, expired_cookie, protect, session_cookie},
};
use warden_domain::{
    Secret,
    access::{Accounts, ClientAddr, NewSession},
    change::Changes,
};
use warden_store::Store;

struct Box_ {
    router: Router,
    session: NewSession,
    _dir: tempfile::TempDir,
}

async fn claimed_box() -> Box_ {
    let dir = tempfile::tempdir().unwrap();
    let access = Access::open(Store::open(dir.path()).unwrap(), Changes::new()).await.unwrap();
    let code = access.claim_code().await.unwrap().unwrap();
    let client = ClientAddr([127, 0, 0, 1].into());
    let session = access.claim(client, code.expose(), "ada", &Secret::new("a long enough password".to_owned())).await.unwrap();
    let router = Router::new()
        .route("/api/me", any(|SignedIn(p): SignedIn| async move { p.username }))
        .route("/api/auth/login", any(|| async { "in" }))
        .route("/ui/host", get(|headers: axum::http::HeaderMap| async move { headers["host"].to_str().unwrap().to_owned() }))
        .route("/ui/open", get(|v: Visitor| async move { format!("{} {}", v.client.0, v.secure) }));
    let hosts =
        HostRules { own_names: Arc::new(|name| name.eq_ignore_ascii_case("box.local")), any_loopback: true, own_addresses: Arc::new(|_| false) };
    Box_ { router: protect(router, access, hosts), session, _dir: dir }
}

impl Box_ {
    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Response {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(n, _)| *n == "host") {
            request = request.header(header::HOST, "box.local:8080");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    fn cookie(&self) -> String {
        let set = session_cookie(&self.session, false);
        set.to_str().unwrap().split(';').next().unwrap().to_owned()
    }
}

async fn text(response: Response) -> String {
    String::from_utf8(axum::body::to_bytes(response.into_body(), 100_000).await.unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn nobody_reaches_a_handler_that_needs_an_account_without_one() {
    let b = claimed_box().await;
    let refused = b.ask("GET", "/api/me", &[]).await;
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    let body = text(refused).await;
    assert!(body.starts_with(r#"{"detail":{"error_code":"unauthorized""#), "{body}");
    assert_eq!(b.ask("GET", "/api/me", &[("cookie", "warden_session=forged")]).await.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(text(b.ask("GET", "/api/me", &[("cookie", &b.cookie())]).await).await, "ada");
}

#[tokio::test]
async fn a_rebound_dns_name_gets_nothing_even_with_a_session() {
    let b = claimed_box().await;
    let refused = b.ask("GET", "/api/me", &[("host", "evil.example"), ("cookie", &b.cookie())]).await;
    assert_eq!(refused.status(), StatusCode::MISDIRECTED_REQUEST);
    assert!(text(refused).await.contains("host_not_allowed"));
    let page = b.ask("GET", "/ui/open", &[("host", "evil.example")]).await;
    assert!(text(page).await.contains("does not answer to the name \"evil.example\""));
}

#[tokio::test]
async fn a_page_of_another_site_cannot_act_with_the_admins_session() {
    let b = claimed_box().await;
    let (cookie, proof) = (b.cookie(), b.session.principal.csrf.expose().clone());
    let good: &[(&str, &str)] = &[("cookie", &cookie), ("x-csrf-token", &proof)];
    assert_eq!(b.ask("POST", "/api/me", good).await.status(), StatusCode::OK);
    assert_eq!(b.ask("POST", "/api/me", &[good, &[("origin", "http://box.local:8080")]].concat()).await.status(), StatusCode::OK);
    for bad in [("sec-fetch-site", "cross-site"), ("origin", "http://evil.example"), ("origin", "null")] {
        assert_eq!(b.ask("POST", "/api/me", &[good, &[bad]].concat()).await.status(), StatusCode::FORBIDDEN, "{bad:?}");
    }
    for proof in [None, Some("wrong")] {
        let mut headers = vec![("cookie", cookie.as_str())];
        headers.extend(proof.map(|p| ("x-csrf-token", p)));
        let refused = b.ask("DELETE", "/api/me", &headers).await;
        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
        assert!(text(refused).await.contains("\"csrf\""));
    }
}

#[tokio::test]
async fn signing_in_again_works_with_an_old_session_in_the_browser() {
    let b = claimed_box().await;
    assert_eq!(b.ask("POST", "/api/auth/login", &[("cookie", &b.cookie())]).await.status(), StatusCode::OK);
    assert_eq!(b.ask("POST", "/api/auth/login", &[("sec-fetch-site", "cross-site")]).await.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn two_host_headers_or_none_are_refused() {
    let b = claimed_box().await;
    assert_eq!(b.ask("GET", "/ui/open", &[("host", "box.local"), ("host", "evil.example")]).await.status(), StatusCode::BAD_REQUEST);
    let bare = b.router.clone().oneshot(Request::builder().uri("/ui/open").body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(bare.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_forged_host_header_beside_the_address_of_http2_reaches_no_handler() {
    let b = claimed_box().await;
    let request = |uri: &str| Request::builder().uri(uri).header(header::HOST, "evil.example").body(Body::empty()).unwrap();
    let ours = b.router.clone().oneshot(request("https://box.local/ui/host")).await.unwrap();
    assert_eq!(text(ours).await, "box.local");
    let theirs = b.router.clone().oneshot(request("https://evil.example/ui/host")).await.unwrap();
    assert_eq!(theirs.status(), StatusCode::MISDIRECTED_REQUEST);
}

#[tokio::test]
async fn handlers_know_the_peer_and_whether_cookies_must_be_secure() {
    let b = claimed_box().await;
    let mut request =
        Request::builder().uri("/ui/open").header(header::HOST, "localhost").header("x-forwarded-for", "1.2.3.4").body(Body::empty()).unwrap();
    request.extensions_mut().insert(OverTls);
    request.extensions_mut().insert(axum::extract::ConnectInfo("[::ffff:10.0.0.9]:5".parse::<std::net::SocketAddr>().unwrap()));
    assert_eq!(text(b.router.clone().oneshot(request).await.unwrap()).await, "10.0.0.9 true");
    assert_eq!(text(b.ask("GET", "/ui/open", &[]).await).await, "127.0.0.1 false");
    assert!(expired_cookie(true).to_str().unwrap().ends_with("Secure"));
}
