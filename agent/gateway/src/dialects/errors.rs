//! A `Problem` in the shape of each dialect: as the body of an answer, and as the event that ends a stream.

use warden_domain::{Problem, ProblemKind};

use super::{Dialect, json};

/// The status a problem is answered with. Where one dialect says 503 for want of room, the other has a number of its own.
#[must_use]
pub const fn status(dialect: Dialect, kind: ProblemKind) -> u16 {
    match (dialect, kind) {
        (Dialect::Messages, ProblemKind::Overloaded | ProblemKind::ShuttingDown) => 529,
        (_, ProblemKind::Invalid) => 400,
        (_, kind) => kind.status(),
    }
}

/// The body of an answer that tells of a problem. `request` is the id of the request.
#[must_use]
pub fn body(dialect: Dialect, problem: &Problem, request: &str) -> Vec<u8> {
    match dialect {
        Dialect::Chat | Dialect::Responses => openai(problem),
        Dialect::Messages => anthropic(problem, request),
    }
}

/// OpenAI's shape.
pub(super) fn openai(problem: &Problem) -> Vec<u8> {
    json::document(|o| {
        o.object("error", |o| {
            o.string("message", &problem.full_text());
            o.string("type", openai_type(problem.kind));
            o.string_or_null("param", problem.param.as_deref());
            o.string("code", openai_code(problem.kind));
        });
    })
}

/// Anthropic's shape, of answers and of events.
pub(super) fn anthropic(problem: &Problem, request: &str) -> Vec<u8> {
    json::document(|o| {
        o.string("type", "error");
        o.object("error", |o| {
            o.string("type", anthropic_type(problem.kind));
            o.string("message", &anthropic_text(problem));
        });
        o.string("request_id", request);
    })
}

/// The event with which a chat stream ends badly. Nothing follows it.
#[must_use]
pub fn chat_event(problem: &Problem) -> Vec<u8> {
    [b"data: ".as_slice(), &openai(problem), b"\n\n"].concat()
}

/// A client reads the numbers of a prompt that is too long, so nothing is added to that sentence.
fn anthropic_text(problem: &Problem) -> String {
    match (problem.kind, &problem.param) {
        (ProblemKind::ContextExceeded, _) => problem.message.clone(),
        (_, None) => problem.full_text(),
        (_, Some(param)) if problem.message.contains(param.as_str()) => problem.full_text(),
        (_, Some(param)) => format!("{param}: {}", problem.full_text()),
    }
}

const fn openai_type(kind: ProblemKind) -> &'static str {
    match kind.status() {
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        status if status < 500 => "invalid_request_error",
        _ => "server_error",
    }
}

/// The code in OpenAI's shape.
pub(super) const fn openai_code(kind: ProblemKind) -> &'static str {
    match kind {
        ProblemKind::Unauthorized => "invalid_api_key",
        other => other.code(),
    }
}

const fn anthropic_type(kind: ProblemKind) -> &'static str {
    match status(Dialect::Messages, kind) {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        504 => "timeout_error",
        status if status < 500 => "invalid_request_error",
        _ => "api_error",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shape(dialect: Dialect, problem: &Problem) -> Value {
        serde_json::from_slice(&body(dialect, problem, "req_1")).unwrap()
    }

    #[test]
    fn each_dialect_finds_a_problem_where_it_looks() {
        let problem = Problem::new(ProblemKind::ModelNotFound, "There is no model \"x\".").hint("Load it.").param("model");
        let openai = json!({"error": {"message": "There is no model \"x\". Load it.", "type": "invalid_request_error", "param": "model", "code": "model_not_found"}});
        assert_eq!(shape(Dialect::Chat, &problem), openai);
        assert_eq!(shape(Dialect::Responses, &problem), openai);
        let anthropic =
            json!({"type": "error", "error": {"type": "not_found_error", "message": "There is no model \"x\". Load it."}, "request_id": "req_1"});
        assert_eq!(shape(Dialect::Messages, &problem), anthropic);
    }

    #[test]
    fn statuses_and_types_belong_together() {
        for (kind, status_there, kind_there) in [
            (ProblemKind::BadRequest, 400, "invalid_request_error"),
            (ProblemKind::Invalid, 400, "invalid_request_error"),
            (ProblemKind::Unauthorized, 401, "authentication_error"),
            (ProblemKind::Forbidden, 403, "permission_error"),
            (ProblemKind::TooLarge, 413, "request_too_large"),
            (ProblemKind::TooManyRequests, 429, "rate_limit_error"),
            (ProblemKind::Overloaded, 529, "overloaded_error"),
            (ProblemKind::Upstream, 502, "api_error"),
        ] {
            assert_eq!(status(Dialect::Messages, kind), status_there);
            assert_eq!(shape(Dialect::Messages, &Problem::new(kind, "x"))["error"]["type"], kind_there);
        }
        assert_eq!(status(Dialect::Responses, ProblemKind::Overloaded), 503);
    }

    #[test]
    fn an_event_is_one_line_whatever_the_message_holds() {
        let event = chat_event(&Problem::internal("a\nb"));
        assert!(event.ends_with(b"\n\n") && event.iter().filter(|b| **b == b'\n').count() == 2);
    }
}
