//! Sessions: sign in, sign out, who am I, and the proof that changing calls carry.

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use warden_access::http::{ProblemResponse, SignedIn, Visitor, expired_cookie, presented_cookie};
use warden_domain::Secret;

use crate::{
    ApiParts,
    body::JsonBody,
    openapi::ErrorBody,
    setup::{SessionAnswer, signed_in},
};

/// Body of a sign-in.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// Account name.
    username: String,
    /// Password.
    #[schema(value_type = String, format = Password)]
    password: Secret<String>,
}

/// Who is signed in.
#[derive(Debug, Serialize, ToSchema)]
pub struct WhoAnswer {
    /// Account id.
    id: String,
    /// Account name.
    username: String,
    /// Its role.
    role: &'static str,
}

/// The proof of this session.
#[derive(Debug, Serialize, ToSchema)]
pub struct CsrfAnswer {
    /// Send this in `X-CSRF-Token`.
    csrf: String,
}

/// Signs in.
#[utoipa::path(post, path = "/api/auth/login", tag = "session", request_body = Login, responses(
    (status = 200, description = "Signed in; the session cookie is set", body = SessionAnswer),
    (status = 401, description = "`unauthorized`: name or password wrong", body = ErrorBody),
    (status = 429, description = "`too_many_requests`", body = ErrorBody)))]
pub async fn login(State(parts): State<ApiParts>, visitor: Visitor, JsonBody(login): JsonBody<Login>) -> Result<Response, ProblemResponse> {
    let session = parts.accounts.login(visitor.client, &login.username, &login.password).await?;
    Ok(signed_in(StatusCode::OK, &session, visitor.secure))
}

/// Ends the session.
#[utoipa::path(post, path = "/api/auth/logout", tag = "session", responses((status = 204, description = "Signed out; the cookie is removed")))]
pub async fn logout(State(parts): State<ApiParts>, visitor: Visitor, headers: HeaderMap) -> Result<Response, ProblemResponse> {
    if let Some(cookie) = presented_cookie(&headers) {
        parts.accounts.logout(cookie).await?;
    }
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, expired_cookie(visitor.secure))]).into_response())
}

/// Who is signed in.
#[utoipa::path(get, path = "/api/auth/session", tag = "session", responses((status = 200, body = WhoAnswer), (status = 401, description = "`unauthorized`", body = ErrorBody)))]
pub async fn who(SignedIn(principal): SignedIn) -> Json<WhoAnswer> {
    Json(WhoAnswer { id: principal.account.to_string(), username: principal.username, role: principal.role.as_str() })
}

/// The proof of this session, for scripts that kept only the cookie.
#[utoipa::path(get, path = "/api/csrf", tag = "session", responses((status = 200, body = CsrfAnswer), (status = 401, description = "`unauthorized`", body = ErrorBody)))]
pub async fn csrf(SignedIn(principal): SignedIn) -> Response {
    ([(header::CACHE_CONTROL, "no-store")], Json(CsrfAnswer { csrf: principal.csrf.expose().clone() })).into_response()
}
