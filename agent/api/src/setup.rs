//! First-run setup: the claim that makes the administrator. Closed for ever once one exists.

use axum::{
    Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use warden_access::http::{ProblemResponse, Visitor, session_cookie};
use warden_domain::{Secret, access::NewSession};

use crate::{ApiParts, body::JsonBody, openapi::ErrorBody};

/// State of setup.
#[derive(Debug, Serialize, ToSchema)]
pub struct SetupAnswer {
    /// `claim` or `done`.
    step: String,
    /// True once an administrator exists.
    done: bool,
}

/// Body of a claim.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The code on the box's local screen, with or without its dash.
    #[schema(value_type = String, example = "ABCD-EFGH")]
    claim_code: Secret<String>,
    /// Name of the first administrator.
    username: String,
    /// Its password, 12 characters or more.
    #[schema(value_type = String, format = Password)]
    password: Secret<String>,
}

/// A session that was just made. The cookie comes beside it.
#[derive(Debug, Serialize, ToSchema)]
pub struct SessionAnswer {
    /// Name of the account.
    username: String,
    /// Its role.
    role: &'static str,
    /// Send this in `X-CSRF-Token` with every call that changes something.
    csrf: String,
}

/// The answer to a sign-in: cookie and proof.
pub fn signed_in(status: StatusCode, session: &NewSession, secure: bool) -> Response {
    let body = SessionAnswer {
        username: session.principal.username.clone(),
        role: session.principal.role.as_str(),
        csrf: session.principal.csrf.expose().clone(),
    };
    (
        status,
        [(header::SET_COOKIE, session_cookie(session, secure)), (header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"))],
        Json(body),
    )
        .into_response()
}

/// How far setup is.
#[utoipa::path(get, path = "/api/setup/state", tag = "setup", responses((status = 200, body = SetupAnswer)))]
pub async fn state(State(parts): State<ApiParts>) -> Result<Json<SetupAnswer>, ProblemResponse> {
    let state = parts.accounts.setup_state().await?;
    Ok(Json(SetupAnswer { step: state.step, done: state.done }))
}

/// Makes the first administrator and signs it in.
#[utoipa::path(post, path = "/api/setup/claim", tag = "setup", request_body = Claim, responses(
    (status = 201, description = "Claimed; the session cookie is set", body = SessionAnswer),
    (status = 400, description = "`bad_request`: not JSON", body = ErrorBody),
    (status = 403, description = "`forbidden`: wrong claim code", body = ErrorBody),
    (status = 409, description = "`conflict`: claimed already", body = ErrorBody),
    (status = 422, description = "`invalid_value`: name or password not allowed, or a field missing", body = ErrorBody),
    (status = 429, description = "`too_many_requests`", body = ErrorBody)))]
pub async fn claim(State(parts): State<ApiParts>, visitor: Visitor, JsonBody(claim): JsonBody<Claim>) -> Result<Response, ProblemResponse> {
    let session = parts.accounts.claim(visitor.client, claim.claim_code.expose(), &claim.username, &claim.password).await?;
    Ok(signed_in(StatusCode::CREATED, &session, visitor.secure))
}
