//! A `Problem` in the shape of the control plane: `{"detail": {"error_code", "message", "hint"?}}`.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use warden_domain::Problem;

/// Answers with a problem in the control plane's shape, with `Retry-After` when the problem says when to try again.
#[derive(Debug)]
pub struct ProblemResponse(pub Problem);

#[derive(Serialize)]
struct Body<'a> {
    detail: Detail<'a>,
}

#[derive(Serialize)]
struct Detail<'a> {
    error_code: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    param: Option<&'a str>,
}

impl From<Problem> for ProblemResponse {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for ProblemResponse {
    fn into_response(self) -> Response {
        let Self(problem) = self;
        let status = StatusCode::from_u16(problem.kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = control_plane(status, problem.kind.code(), &problem.message, problem.hint.as_deref(), problem.param.as_deref());
        if let Some(after) = problem.retry_after {
            let seconds = after.as_millis().div_ceil(1000).max(1);
            if let Ok(value) = HeaderValue::from_str(&seconds.to_string()) {
                response.headers_mut().insert(header::RETRY_AFTER, value);
            }
        }
        response
    }
}

/// A refusal with a status and code of its own.
pub(super) fn control_plane(status: StatusCode, code: &str, message: &str, hint: Option<&str>, param: Option<&str>) -> Response {
    let mut response = (status, Json(Body { detail: Detail { error_code: code, message, hint, param } })).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
