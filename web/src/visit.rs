//! Who looks at a page: the session behind the request, or the way to the door.

use axum::{
    extract::{FromRequestParts, OptionalFromRequestParts},
    http::{HeaderMap, HeaderValue, StatusCode, request::Parts},
    response::{IntoResponse, Response},
};
use warden_access::http::Visitor;
use warden_domain::access::{Principal, Role};

pub(crate) use crate::look::Look;
use crate::{Web, refusal::refuse, respond};

impl<S: Send + Sync> FromRequestParts<S> for Look {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self::of(&parts.headers))
    }
}

/// A signed-in person on a page. Without a session the answer is the way to the login page, or to setup while it is open.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    pub(crate) principal: Principal,
    pub(crate) look: Look,
    pub(crate) path: String,
    /// Scheme and host the browser used, for examples: `http://box:8080`.
    pub(crate) origin: String,
}

impl Guest {
    pub(crate) fn may_change(&self) -> bool {
        self.principal.role != Role::Viewer
    }

    pub(crate) fn is_admin(&self) -> bool {
        self.principal.role == Role::Admin
    }
}

impl FromRequestParts<Web> for Guest {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, web: &Web) -> Result<Self, Response> {
        let look = Look::of(&parts.headers);
        let visitor = <Visitor as FromRequestParts<Web>>::from_request_parts(parts, web).await.ok();
        let secure = visitor.as_ref().is_some_and(|v| v.secure);
        if let Some(principal) = visitor.and_then(|v| v.principal) {
            let path = parts.uri.path().to_owned();
            return Ok(Self { principal, look, path, origin: origin(&parts.headers, secure) });
        }
        let door = match web.accounts.setup_state().await {
            Ok(setup) if setup.done => match respond::own_path(parts.uri.path()) {
                "/ui/" => "/ui/login".to_owned(),
                path if parts.uri.path().starts_with("/ui/live/") => {
                    tracing::debug!(path, "a live line without a session");
                    "/ui/login".to_owned()
                }
                path => format!("/ui/login?next={path}"),
            },
            Ok(_) => "/ui/setup".to_owned(),
            Err(problem) => return Err(refuse(web, look, &parts.headers, &problem)),
        };
        if respond::is_htmx(&parts.headers) {
            // 401, so that a live line stops; HX-Redirect, so that a page goes to the door.
            let target = HeaderValue::from_str(&door).unwrap_or(HeaderValue::from_static("/ui/login"));
            return Err((StatusCode::UNAUTHORIZED, [("hx-redirect", target)]).into_response());
        }
        Err(respond::see_other(&door))
    }
}

impl OptionalFromRequestParts<Web> for Guest {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, web: &Web) -> Result<Option<Self>, Self::Rejection> {
        Ok(<Self as FromRequestParts<Web>>::from_request_parts(parts, web).await.ok())
    }
}

fn origin(headers: &HeaderMap, secure: bool) -> String {
    let host = headers.get("host").and_then(|v| v.to_str().ok()).unwrap_or("localhost");
    let scheme = if secure { "https" } else { "http" };
    format!("{scheme}://{host}")
}
