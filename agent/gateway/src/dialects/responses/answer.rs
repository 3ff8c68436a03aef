//! The response object: the body of a whole answer, and what many events of a stream carry.
//!
//! Tools and instructions are not told back: they are the bulk of a request, and would be held and sent again for every stream.

use warden_domain::{Problem, ProblemKind};

use super::{
    items::{self, Kind, ToldCall},
    plan::Plan,
};
use crate::dialects::{
    chat::{
        answer::{Answer, Finish},
        usage::Counts,
    },
    errors,
    json::{self, Object},
};

/// How a response stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Status<'s> {
    InProgress,
    Ended(&'s Finish),
    Failed(&'s Problem),
}

/// A whole answer.
pub(super) fn whole(answer: &Answer, plan: &Plan) -> Vec<u8> {
    let mut output: Vec<Vec<u8>> = Vec::new();
    for (kind, text) in [(Kind::Thinking, &answer.thinking), (Kind::Text, &answer.text)] {
        if !text.is_empty() && (kind == Kind::Text || plan.thinking) {
            output.push(items::said(kind, &kind.id(plan, output.len()), Some(text), plan));
        }
    }
    for call in &answer.calls {
        output.push(ToldCall::new(call, plan, output.len()).item(false));
    }
    json::document(|o| response(o, plan, Status::Ended(&answer.finish), &output, &answer.counts))
}

/// The response object.
pub(super) fn response(o: &mut Object<'_>, plan: &Plan, status: Status<'_>, output: &[Vec<u8>], counts: &Counts) {
    o.string("id", &format!("resp_{}", plan.seed()));
    o.string("object", "response");
    o.number("created_at", plan.created);
    let (word, reason) = match status {
        Status::InProgress => ("in_progress", None),
        Status::Failed(_) => ("failed", None),
        Status::Ended(Finish::Length) => ("incomplete", Some("max_output_tokens")),
        Status::Ended(Finish::Filtered) => ("incomplete", Some("content_filter")),
        Status::Ended(_) => ("completed", None),
    };
    o.string("status", word);
    o.flag("background", false);
    match status {
        Status::Failed(problem) => o.object("error", |o| {
            o.string("code", code(problem.kind));
            o.string("message", &problem.full_text());
        }),
        _ => o.null("error"),
    }
    match reason {
        Some(reason) => o.object("incomplete_details", |o| o.string("reason", reason)),
        None => o.null("incomplete_details"),
    }
    o.string("model", &plan.model);
    o.list("output", |list| output.iter().for_each(|item| list.json(item)));
    for (name, otherwise) in SETTINGS {
        let told = plan.echoes.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
        o.json(name, told.unwrap_or(otherwise).as_bytes());
    }
    match status {
        Status::InProgress => o.null("usage"),
        _ => usage(o, counts),
    }
}

/// Settings, and what stands there when the client said nothing.
const SETTINGS: [(&str, &str); 14] = [
    ("instructions", "null"),
    ("tools", "[]"),
    ("tool_choice", "\"auto\""),
    ("parallel_tool_calls", "true"),
    ("max_output_tokens", "null"),
    ("temperature", "null"),
    ("top_p", "null"),
    ("reasoning", r#"{"effort":null,"summary":null}"#),
    ("text", r#"{"format":{"type":"text"}}"#),
    ("metadata", "{}"),
    ("previous_response_id", "null"),
    ("store", "false"),
    ("truncation", "\"disabled\""),
    ("user", "null"),
];

/// True counts, or null when the engine gave none: clients act on them.
fn usage(o: &mut Object<'_>, counts: &Counts) {
    let (Some(prompt), Some(completion)) = (counts.prompt, counts.completion) else { return o.null("usage") };
    o.object("usage", |o| {
        o.number("input_tokens", prompt);
        o.object("input_tokens_details", |o| o.number("cached_tokens", counts.cached.unwrap_or(0).min(prompt)));
        o.number("output_tokens", completion);
        o.object("output_tokens_details", |o| o.number("reasoning_tokens", counts.reasoning.unwrap_or(0)));
        o.number("total_tokens", prompt.saturating_add(completion));
    });
}

/// Codes that clients of this API act on.
fn code(kind: ProblemKind) -> &'static str {
    match kind {
        ProblemKind::ContextExceeded => errors::openai_code(kind),
        ProblemKind::Overloaded | ProblemKind::ShuttingDown => "server_is_overloaded",
        ProblemKind::TooManyRequests => "rate_limit_exceeded",
        ProblemKind::BadRequest | ProblemKind::Invalid => "invalid_prompt",
        _ => "server_error",
    }
}
