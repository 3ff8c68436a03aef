//! The password reset that an admin reset at the local screen opens.

use axum::{Json, extract::State, http::StatusCode, response::Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use warden_access::http::{ProblemResponse, Visitor};
use warden_domain::Secret;

use crate::{
    ApiParts,
    body::JsonBody,
    openapi::ErrorBody,
    setup::{SessionAnswer, signed_in},
};

/// Whether a password reset is open.
#[derive(Debug, Serialize, ToSchema)]
pub struct ResetState {
    /// True after an admin reset at the machine's screen, until its code was used.
    open: bool,
}

/// Body of a password reset.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResetBody {
    /// The code on the machine's screen, with or without its dash.
    #[schema(value_type = String, example = "ABCD-EFGH")]
    reset_code: Secret<String>,
    /// Name of an admin that exists.
    username: String,
    /// Its new password, 12 characters or more.
    #[schema(value_type = String, format = Password)]
    password: Secret<String>,
}

/// Whether a password reset is open.
#[utoipa::path(get, path = "/api/auth/reset", tag = "session", responses((status = 200, body = ResetState)))]
pub async fn state(State(parts): State<ApiParts>) -> Json<ResetState> {
    Json(ResetState { open: parts.recovery.reset_code().await.is_some() })
}

/// Sets the password of an admin with the code on the machine's screen and signs it in. Makes no account.
#[utoipa::path(post, path = "/api/auth/reset", tag = "session", request_body = ResetBody, responses(
    (status = 200, description = "Set; the session cookie is set", body = SessionAnswer),
    (status = 403, description = "`forbidden`: wrong code", body = ErrorBody),
    (status = 404, description = "`not_found`: no admin of this name", body = ErrorBody),
    (status = 409, description = "`conflict`: no reset is open", body = ErrorBody),
    (status = 422, description = "`invalid_value`: password not allowed, or a field missing", body = ErrorBody),
    (status = 429, description = "`too_many_requests`", body = ErrorBody)))]
pub async fn reset(State(parts): State<ApiParts>, visitor: Visitor, JsonBody(body): JsonBody<ResetBody>) -> Result<Response, ProblemResponse> {
    let session = parts.recovery.reset_password(visitor.client, body.reset_code.expose(), &body.username, &body.password).await?;
    Ok(signed_in(StatusCode::OK, &session, visitor.secure))
}
