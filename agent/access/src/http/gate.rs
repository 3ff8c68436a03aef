//! The gate itself: Host, Origin, session, CSRF proof, in this order, before any handler.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use axum::{
    Router,
    extract::{ConnectInfo, Request, State},
    http::{StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use warden_domain::access::{Accounts, ClientAddr};

use super::{
    ProblemResponse,
    answer::control_plane,
    cookie,
    hosts::HostRules,
    origin,
    visitor::{LocalAddress, OverTls, Visitor},
};

/// Calls that prove themselves by what is in their body (a password, a code, a one-time token): an old session in the browser must not
/// stand in their way.
const WITHOUT_PROOF: [&str; 5] = ["/api/auth/login", "/api/auth/reset", "/api/setup/claim", "/api/network/confirm", "/ui/network/confirm"];

struct Gate {
    accounts: Arc<dyn Accounts>,
    hosts: HostRules,
}

/// Puts the gate in front of every path of a router. Inside it, `Visitor` and `SignedIn` can be extracted.
pub fn protect(router: Router, accounts: Arc<dyn Accounts>, hosts: HostRules) -> Router {
    router.layer(middleware::from_fn_with_state(Arc::new(Gate { accounts, hosts }), pass))
}

async fn pass(State(gate): State<Arc<Gate>>, mut request: Request, next: Next) -> Response {
    let Some(host) = host_of(&request) else {
        return refuse(&request, StatusCode::BAD_REQUEST, "bad_request", "The request names no host.", "Send a Host header.");
    };
    if !gate.hosts.allow(&host) {
        let message = format!("This box does not answer to the name {:?}.", shortened(&host));
        return refuse(
            &request,
            StatusCode::MISDIRECTED_REQUEST,
            "host_not_allowed",
            &message,
            "Use its IP address, or add the name to the allowed names in its settings.",
        );
    }
    let changes = !origin::is_safe(request.method());
    let secure = request.extensions().get::<OverTls>().is_some();
    if changes && !origin::is_ours(request.headers(), &host, secure) {
        return refuse(
            &request,
            StatusCode::FORBIDDEN,
            "cross_site",
            "This call comes from a page of another site and was refused.",
            "Open the console itself and try again there.",
        );
    }
    let principal = match cookie::presented(request.headers()) {
        None => None,
        Some(cookie) => match gate.accounts.session(cookie).await {
            Ok(principal) => principal,
            Err(problem) => return ProblemResponse(problem).into_response(),
        },
    };
    if let Some(principal) = &principal
        && changes
        && !WITHOUT_PROOF.contains(&request.uri().path())
    {
        let proof = request.headers().get("x-csrf-token").and_then(|v| v.to_str().ok()).unwrap_or_default();
        if !principal.csrf.matches(proof) {
            return refuse(
                &request,
                StatusCode::FORBIDDEN,
                "csrf",
                "The call does not carry the proof of this session.",
                "Reload the page, or send the value of GET /api/csrf in X-CSRF-Token.",
            );
        }
    }
    let client = request.extensions().get::<ConnectInfo<SocketAddr>>().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |c| c.0.ip().to_canonical());
    // Over HTTP/2 the host stands in the address, and a header beside it may say something else. Handlers find the one that was checked,
    // where HTTP/1 has it.
    match header::HeaderValue::from_str(&host) {
        Ok(value) => drop(request.headers_mut().insert(header::HOST, value)),
        Err(_) => drop(request.headers_mut().remove(header::HOST)),
    }
    let secure = request.extensions().get::<OverTls>().is_some();
    let local = request.extensions().get::<LocalAddress>().map(|local| local.0.to_canonical());
    request.extensions_mut().insert(Visitor { principal, client: ClientAddr(client), secure, local });
    next.run(request).await
}

/// The host a request is for: HTTP/2 names it in the URI, HTTP/1 in a header. Two Host headers are an attack on somebody, so `None`.
#[must_use]
pub fn host_of(request: &Request) -> Option<String> {
    if let Some(authority) = request.uri().authority() {
        return Some(authority.as_str().to_owned());
    }
    let mut lines = request.headers().get_all(header::HOST).iter();
    let first = lines.next()?.to_str().ok()?;
    lines.next().is_none().then(|| first.to_owned())
}

/// A person who typed a wrong name reads a sentence, a program reads JSON.
fn refuse(request: &Request, status: StatusCode, code: &str, message: &str, hint: &str) -> Response {
    if request.uri().path().starts_with("/api") {
        return control_plane(status, code, message, Some(hint), None);
    }
    (status, [(header::CACHE_CONTROL, "no-store")], format!("{message} {hint}\n")).into_response()
}

fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}
