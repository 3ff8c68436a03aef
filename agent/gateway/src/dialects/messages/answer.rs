//! A chat answer becomes a Messages answer.

use super::plan::Plan;
use crate::dialects::{
    chat::{
        answer::{Answer, Finish},
        usage::Counts,
    },
    json::{self, Object},
};

/// The mark that makes clients send thinking back. It proves nothing; it only must not be empty.
pub(super) const SIGNATURE: &str = "bG9jYWw=";

/// The body of the answer.
pub(super) fn write(answer: &Answer, plan: &Plan) -> Vec<u8> {
    json::document(|o| {
        head(o, plan);
        o.list("content", |list| {
            if plan.thinking && !answer.thinking.is_empty() {
                list.object(|o| {
                    o.string("type", "thinking");
                    o.string("thinking", &answer.thinking);
                    o.string("signature", SIGNATURE);
                });
            }
            if !answer.text.is_empty() {
                list.object(|o| {
                    o.string("type", "text");
                    o.string("text", &answer.text);
                });
            }
            for call in &answer.calls {
                list.object(|o| {
                    o.string("type", "tool_use");
                    o.string("id", &call.id);
                    o.string("name", &call.name);
                    o.json("input", call.object().as_bytes());
                });
            }
        });
        stop(o, &answer.finish);
        o.object("usage", |o| usage(o, &answer.counts));
    })
}

/// What begins every message.
pub(super) fn head(o: &mut Object<'_>, plan: &Plan) {
    o.string("id", &format!("msg_{}", plan.seed()));
    o.string("type", "message");
    o.string("role", "assistant");
    o.string("model", &plan.model);
}

/// Why it ended.
pub(super) fn stop(o: &mut Object<'_>, finish: &Finish) {
    let (reason, sequence) = match finish {
        Finish::Stop => ("end_turn", None),
        Finish::StopSequence(text) => ("stop_sequence", Some(text.as_str())),
        Finish::Length => ("max_tokens", None),
        Finish::Calls => ("tool_use", None),
        Finish::Filtered => ("refusal", None),
    };
    o.string("stop_reason", reason);
    o.string_or_null("stop_sequence", sequence);
}

/// What it used. This API has no word for a number nobody knows, and clients break without one, so it is 0 here and only here.
pub(super) fn usage(o: &mut Object<'_>, counts: &Counts) {
    let (fresh, cached) = counts.split_prompt().unwrap_or((0, 0));
    o.number("input_tokens", fresh);
    o.number("cache_creation_input_tokens", 0);
    o.number("cache_read_input_tokens", cached);
    o.number("output_tokens", counts.completion.unwrap_or(0));
}
