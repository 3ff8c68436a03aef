//! A `Problem` as an answer, in the dialect of the path.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use warden_domain::{Problem, ProblemKind, ids::RequestId};

use crate::dialects::{Dialect, errors};

/// The answer to a request that failed before anything was sent.
pub(crate) fn answer(dialect: Dialect, problem: &Problem, request: &RequestId) -> Response {
    let mut response = Response::new(Body::from(errors::body(dialect, problem, request.as_str())));
    *response.status_mut() = StatusCode::from_u16(errors::status(dialect, problem.kind)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_refusal_for_want_of_room_says_when_to_come_again() {
        let problem = Problem::new(ProblemKind::Overloaded, "Full.").retry_after(Duration::from_millis(1200));
        for (dialect, status) in [(Dialect::Chat, 503), (Dialect::Responses, 503), (Dialect::Messages, 529)] {
            let response = answer(dialect, &problem, &RequestId::random());
            assert_eq!((response.status().as_u16(), response.headers()[header::RETRY_AFTER].to_str().unwrap()), (status, "2"));
        }
    }
}
