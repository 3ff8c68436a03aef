//! Answers: a rendered page, a fragment, a redirect that htmx also follows, the pages for what does not exist, and the headers that
//! every answer carries.

use askama::Template;
use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{Html, IntoResponse, Response},
};

use crate::{Web, refusal::error_page, visit::Look};

/// Only files of this origin: nothing inline, no frame around us, no form that leaves.
const CSP: &str = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'";

/// A page or fragment with its status. A template that cannot be rendered is a fault of ours and says so plainly.
pub(crate) fn html(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => (status, [(header::CACHE_CONTROL, "no-store")], Html(text)).into_response(),
        Err(cause) => {
            tracing::error!(%cause, "a page could not be rendered");
            (
                StatusCode::INTERNAL_SERVER_ERROR,
                "The page could not be made; this is a fault of the console. Reload it; if it stays, restart the agent.\n",
            )
                .into_response()
        }
    }
}

/// A page with status 200.
pub(crate) fn page(page: &impl Template) -> Response {
    html(StatusCode::OK, page)
}

/// Whether htmx asks, and wants a fragment.
pub(crate) fn is_htmx(headers: &HeaderMap) -> bool {
    headers.contains_key("hx-request")
}

/// Goes on at another page, for a form as well as for htmx.
pub(crate) fn go(headers: &HeaderMap, to: &str) -> Response {
    let Ok(target) = HeaderValue::from_str(to) else { return see_other("/ui/") };
    if is_htmx(headers) { (StatusCode::OK, [(HeaderName::from_static("hx-redirect"), target)]).into_response() } else { see_other(to) }
}

/// 303 to a path of ours.
pub(crate) fn see_other(to: &str) -> Response {
    let target = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static("/ui/"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, target), (header::CACHE_CONTROL, HeaderValue::from_static("no-store"))]).into_response()
}

/// An action is done and the page follows by itself: the dialog closes, the notice of an earlier refusal goes.
pub(crate) fn done() -> Response {
    (StatusCode::NO_CONTENT, [("hx-trigger", "warden:done")]).into_response()
}

/// A path inside the console, or its start: an address from a form must never lead to another site.
pub(crate) fn own_path(path: &str) -> &str {
    let plain = path.starts_with("/ui/")
        && !path.contains("//")
        && !path.contains('\\')
        && !path.contains("..")
        && path.bytes().all(|b| b.is_ascii_graphic());
    if plain { path } else { "/ui/" }
}

/// `/` and `/ui` lead to the start page.
pub(crate) async fn to_start() -> Response {
    see_other("/ui/")
}

/// Any path that is no page.
pub(crate) async fn not_found(State(web): State<Web>, look: Look, request: Request) -> Response {
    let path = request.uri().path();
    let shown: String = path.chars().take(120).collect();
    let t = look.lang.text();
    error_page(&web, look, StatusCode::NOT_FOUND, t.error_not_found, &t.error_not_found_body(shown))
}

/// A page asked with a method it does not have.
pub(crate) async fn wrong_method(State(web): State<Web>, look: Look, request: Request) -> Response {
    let shown: String = request.uri().path().chars().take(120).collect();
    let t = look.lang.text();
    error_page(&web, look, StatusCode::METHOD_NOT_ALLOWED, t.error_method, &t.error_not_found_body(shown))
}

/// Security headers on everything that leaves this router.
pub(crate) async fn with_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", CSP),
        ("x-content-type-options", "nosniff"),
        // Not `no-referrer`: without TLS some browsers then send `Origin: null` with our own forms, which the gate refuses.
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("permissions-policy", "camera=(), microphone=(), geolocation=()"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crafted_link_cannot_send_a_login_to_another_site() {
        for bad in ["https://evil.example", "//evil.example", "/ui//evil.example", "/ui/\\evil", "/ui/../x", "", "/api/x", "/ui/\r\nSet-Cookie: a"] {
            assert_eq!(own_path(bad), "/ui/", "{bad}");
        }
        assert_eq!(own_path("/ui/models/mdl_1"), "/ui/models/mdl_1");
    }
}
