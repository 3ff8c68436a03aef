//! What an engine says when it refuses or fails, as a `Problem` that every dialect can tell.
//!
//! Engines are told apart by their words, because they share one shape: `{"error": {"message", "type", "code"}}`, or the same object
//! bare. A prompt that is too long is recognised from each, with the numbers, because clients act on it.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use warden_domain::{Problem, ProblemKind};

/// Longest message of an engine that is passed on.
const LONGEST: usize = 2000;

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct Fields<'a> {
    #[serde(borrow, default)]
    message: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    code: Option<&'a RawValue>,
    #[serde(default)]
    n_prompt_tokens: Option<u64>,
    #[serde(default)]
    n_ctx: Option<u64>,
}

/// The problem behind an answer with an error status.
#[must_use]
pub fn problem(status: u16, body: &[u8]) -> Problem {
    let Some(fields) = read(body) else { return of_status(status, None) };
    too_long(&fields).unwrap_or_else(|| of_status(status, fields.message.as_deref()))
}

/// The problem behind an error inside a stream.
pub(crate) fn in_stream(data: &[u8]) -> Problem {
    told(data).unwrap_or_else(|| of_status(500, None))
}

/// The same, if these are the words of an error at all.
pub(super) fn told(data: &[u8]) -> Option<Problem> {
    let fields = read(data)?;
    fields.message.as_ref()?;
    let status = fields.code.and_then(|code| serde_json::from_str(code.get()).ok()).filter(|code| (400..600).contains(code)).unwrap_or(500);
    Some(too_long(&fields).unwrap_or_else(|| of_status(status, fields.message.as_deref())))
}

/// A prompt that does not fit, in the words that clients know.
#[must_use]
pub fn prompt_too_long(tokens: Option<u64>, window: Option<u64>) -> Problem {
    let message = match (tokens, window) {
        (Some(tokens), Some(window)) => format!("prompt is too long: {tokens} tokens > {window} maximum"),
        (None, Some(window)) => format!("prompt is too long: more than {window} tokens > {window} maximum"),
        (_, None) => "prompt is too long for the context window of this model".to_owned(),
    };
    Problem::new(ProblemKind::ContextExceeded, message)
}

fn read(body: &[u8]) -> Option<Fields<'_>> {
    let envelope: Envelope<'_> = serde_json::from_slice(body).ok()?;
    match envelope.error {
        Some(error) => serde_json::from_str(error.get())
            .or_else(|_| serde_json::from_str(error.get()).map(|message| Fields { message: Some(message), ..Fields::default() }))
            .ok(),
        None => serde_json::from_slice(body).ok(),
    }
}

fn too_long(fields: &Fields<'_>) -> Option<Problem> {
    let message = fields.message.as_deref().unwrap_or_default();
    if fields.kind.as_deref() == Some("exceed_context_size_error") {
        let tokens = fields.n_prompt_tokens.or_else(|| number_behind(message, "request ("));
        return Some(in_its_words(prompt_too_long(tokens, fields.n_ctx.or_else(|| number_behind(message, "context size ("))), message));
    }
    let window = number_behind(message, "maximum context length is ").or_else(|| number_behind(message, "maximum model length of "))?;
    let tokens = ["at least ", "you requested ", "prompt contains ", "(including "].iter().find_map(|words| number_behind(message, words));
    Some(in_its_words(prompt_too_long(tokens.or_else(|| number_behind(message, "has ")), Some(window)), message))
}

/// The engine's own words behind ours: clients of chat look for one or the other.
fn in_its_words(problem: Problem, message: &str) -> Problem {
    let words: String = message.chars().take(LONGEST).collect();
    if words.trim().is_empty() { problem } else { problem.hint(format!("({words})")) }
}

/// The number right behind some words.
fn number_behind(text: &str, words: &str) -> Option<u64> {
    let rest = &text[text.find(words)? + words.len()..];
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

fn of_status(status: u16, message: Option<&str>) -> Problem {
    let kind = match status {
        401 | 403 => ProblemKind::Upstream,
        404 => ProblemKind::ModelNotFound,
        413 => ProblemKind::TooLarge,
        422 => ProblemKind::Invalid,
        429 | 503 => ProblemKind::Overloaded,
        400..500 => ProblemKind::BadRequest,
        504 => ProblemKind::UpstreamTimeout,
        _ => ProblemKind::Upstream,
    };
    let message = message.map(|m| m.chars().take(LONGEST).collect::<String>()).filter(|m| !m.trim().is_empty());
    let problem = Problem::new(kind, message.unwrap_or_else(|| format!("The engine answered with an error ({status}) and no words.")));
    if kind == ProblemKind::Overloaded { problem.retry_after(std::time::Duration::from_secs(2)) } else { problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_that_is_too_long_is_told_with_its_numbers_whatever_the_engine() {
        let llama = br#"{"error":{"code":400,"message":"request (3024 tokens) exceeds the available context size (2048 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":3024,"n_ctx":2048}}"#;
        let vllm = br#"{"error":{"message":"This model's maximum context length is 1024 tokens. However, your prompt contains at least 1025 input tokens, so it is too long.","type":"BadRequestError","param":"input_tokens","code":400}}"#;
        for (body, words) in
            [(&llama[..], "prompt is too long: 3024 tokens > 2048 maximum"), (&vllm[..], "prompt is too long: 1025 tokens > 1024 maximum")]
        {
            let problem = problem(400, body);
            assert_eq!((problem.kind, problem.message.as_str()), (ProblemKind::ContextExceeded, words));
            assert_eq!(in_stream(body), problem);
        }
    }

    #[test]
    fn an_engines_own_words_are_kept_and_a_silent_one_gets_some() {
        let said = problem(400, br#"{"error":{"message":"tool_choice is wrong","type":"Bad Request","code":400}}"#);
        assert_eq!((said.kind, said.message.as_str()), (ProblemKind::BadRequest, "tool_choice is wrong"));
        assert_eq!(problem(500, b"<html>").kind, ProblemKind::Upstream);
        assert_eq!(problem(503, br#"{"object":"error","message":"busy"}"#).kind, ProblemKind::Overloaded);
        assert_eq!(problem(500, br#"{"error":"boom"}"#).message, "boom");
        assert!(told(br#"{"id":"x"}"#).is_none());
    }
}
