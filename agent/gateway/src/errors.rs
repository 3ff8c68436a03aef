//! A `Problem` in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`, as an answer or as an event inside a stream.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use bytes::Bytes;
use serde::Serialize;
use warden_domain::{Problem, ProblemKind};

#[derive(Serialize)]
struct Envelope<'a> {
    error: Fields<'a>,
}

#[derive(Serialize)]
struct Fields<'a> {
    message: &'a str,
    r#type: &'static str,
    param: Option<&'a str>,
    code: &'static str,
}

/// The answer to a request that failed before anything was sent.
pub(crate) fn answer(problem: &Problem) -> Response {
    let mut response = Response::new(Body::from(json(problem)));
    *response.status_mut() = StatusCode::from_u16(problem.kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if problem.kind == ProblemKind::Unauthorized {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(after) = problem.retry_after {
        let seconds = u64::try_from(after.as_millis().div_ceil(1000)).unwrap_or(u64::MAX).max(1);
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// The event that tells a client inside a stream that its answer will not be complete.
pub(crate) fn event(problem: &Problem) -> Bytes {
    Bytes::from(format!("data: {}\n\n", json(problem)))
}

fn json(problem: &Problem) -> String {
    let message = problem.full_text();
    let fields = Fields { message: &message, r#type: kind_of(problem.kind), param: problem.param.as_deref(), code: code_of(problem.kind) };
    // Plain strings always serialise; the fallback is a shape clients still understand.
    serde_json::to_string(&Envelope { error: fields })
        .unwrap_or_else(|_| r#"{"error":{"message":"internal fault","type":"server_error","param":null,"code":"internal"}}"#.to_owned())
}

const fn kind_of(kind: ProblemKind) -> &'static str {
    match kind.status() {
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        status if status < 500 => "invalid_request_error",
        _ => "server_error",
    }
}

const fn code_of(kind: ProblemKind) -> &'static str {
    match kind {
        ProblemKind::Unauthorized => "invalid_api_key",
        other => other.code(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_sdk_finds_message_type_param_and_code_where_it_looks() {
        let problem = Problem::new(ProblemKind::ModelNotFound, "The model \"x\" is not loaded.").hint("Load it.").param("model");
        let value: serde_json::Value = serde_json::from_str(&json(&problem)).unwrap();
        assert_eq!(
            value,
            serde_json::json!({"error": {"message": "The model \"x\" is not loaded. Load it.", "type": "invalid_request_error", "param": "model", "code": "model_not_found"}})
        );
    }

    #[test]
    fn a_refusal_for_want_of_room_says_when_to_come_again() {
        let response = answer(&Problem::new(ProblemKind::Overloaded, "Full.").retry_after(Duration::from_millis(1200)));
        assert_eq!((response.status().as_u16(), response.headers()[header::RETRY_AFTER].to_str().unwrap()), (503, "2"));
    }

    #[test]
    fn an_event_is_one_line_of_data_whatever_the_message_holds() {
        let text = event(&Problem::internal("a\nb"));
        assert!(text.ends_with(b"\n\n") && text.iter().filter(|b| **b == b'\n').count() == 2);
    }
}
