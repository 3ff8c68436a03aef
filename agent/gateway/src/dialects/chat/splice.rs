//! Edits of a chat request and of a chat answer as bytes: a few members are replaced, added or taken out, every other byte stays.
//!
//! One pass finds the places, one copy makes the new body. Pure.

use std::borrow::Cow;

use bytes::Bytes;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;
use warden_domain::{Problem, units::Tokens};

use crate::{
    dialects::{json, numbers, unreadable},
    scan::{self, Name},
};

/// What is to be changed in a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Edits<'a> {
    /// The name the engine knows the model by, when it is not the one the client said.
    pub model: Option<&'a str>,
    /// The context window, when known: a limit that it cannot hold is taken out.
    pub window: Option<Tokens>,
}

/// The members of a request or an answer that may be changed.
#[derive(Default)]
struct Members<'a> {
    model: Option<&'a RawValue>,
    limits: [Option<&'a RawValue>; 2],
}

/// The request with its edits; the same bytes when there is nothing to do.
///
/// # Errors
/// `BadRequest` when it is no JSON object.
pub fn request(body: Bytes, edits: &Edits<'_>) -> Result<Bytes, Problem> {
    let changes = {
        let members = members(&body).map_err(|cause| unreadable(&cause.to_string(), "OpenAI's API"))?;
        let mut changes: Vec<(usize, usize, Cow<'_, [u8]>)> = Vec::new();
        if let (Some(name), Some(value)) = (edits.model, members.model) {
            let (at, until) = scan::span(&body, value);
            changes.push((at, until, Cow::Owned(quoted(name))));
        }
        for limit in members.limits.into_iter().flatten() {
            // null is the same as absent to every engine, so commas need no care.
            if serde_json::from_str::<u64>(limit.get()).is_ok_and(|asked| !numbers::fits(asked, edits.window, body.len())) {
                let (at, until) = scan::span(&body, limit);
                changes.push((at, until, Cow::Borrowed(b"null")));
            }
        }
        changes.sort_unstable_by_key(|(at, ..)| *at);
        changes.into_iter().map(|(at, until, text)| (at, until, text.into_owned())).collect::<Vec<_>>()
    };
    Ok(if changes.is_empty() { body } else { Bytes::from(spliced(&body, &changes)) })
}

/// An answer, or the data of one event of a stream, under the name the client asked for; the same bytes when it holds no name.
#[must_use]
pub fn answered_as<'a>(answer: &'a [u8], model: &str) -> Cow<'a, [u8]> {
    match members(answer).ok().and_then(|m| m.model) {
        Some(value) if value.get().starts_with('"') => {
            let (at, until) = scan::span(answer, value);
            Cow::Owned(spliced(answer, &[(at, until, quoted(model))]))
        }
        _ => Cow::Borrowed(answer),
    }
}

pub(super) fn quoted(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 2);
    json::string(&mut out, text);
    out
}

pub(super) fn spliced(body: &[u8], changes: &[(usize, usize, Vec<u8>)]) -> Vec<u8> {
    let more: usize = changes.iter().map(|(.., text)| text.len()).sum();
    let mut out = Vec::with_capacity(body.len() + more);
    let mut from = 0;
    for (at, until, text) in changes {
        out.extend_from_slice(&body[from..*at]);
        out.extend_from_slice(text);
        from = *until;
    }
    out.extend_from_slice(&body[from..]);
    out
}

fn members(body: &[u8]) -> Result<Members<'_>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let members = (&mut reader).deserialize_map(Top)?;
    reader.end().map(|()| members)
}

struct Top;

impl<'de> Visitor<'de> for Top {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut members = Members::default();
        while let Some(Name(name)) = map.next_key()? {
            let value: &'de RawValue = map.next_value()?;
            let slot = match &*name {
                "model" => {
                    members.model = Some(value);
                    continue;
                }
                "max_tokens" => &mut members.limits[0],
                "max_completion_tokens" => &mut members.limits[1],
                _ => continue,
            };
            if slot.replace(value).is_some() {
                return Err(A::Error::custom(format_args!("'{name}' is there twice")));
            }
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(body: &'static str, edits: &Edits<'_>) -> Bytes {
        request(Bytes::from_static(body.as_bytes()), edits).unwrap()
    }

    #[test]
    fn an_alias_becomes_the_engines_name_and_nothing_else_changes() {
        let edits = Edits { model: Some("ti\"ny"), window: None };
        assert_eq!(
            edited(r#"{ "messages":[{"model":"x"}], "model" : "alias","max_tokens":128000 }"#, &edits),
            r#"{ "messages":[{"model":"x"}], "model" : "ti\"ny","max_tokens":128000 }"#
        );
        assert_eq!(edited(r#"{"model":"a"}"#, &Edits::default()), r#"{"model":"a"}"#);
    }

    #[test]
    fn limits_beyond_the_window_are_taken_out() {
        let edits = Edits { model: Some("b"), window: Some(Tokens(8192)) };
        assert_eq!(
            edited(r#"{"max_completion_tokens":128000,"model":"a","max_tokens":100}"#, &edits),
            r#"{"max_completion_tokens":null,"model":"b","max_tokens":100}"#
        );
        assert_eq!(
            edited(r#"{"model":"b","max_tokens":-1}"#, &Edits { model: None, ..edits }),
            r#"{"model":"b","max_tokens":-1}"#,
            "the engine says what is wrong"
        );
    }

    #[test]
    fn an_answer_carries_the_name_that_was_asked_for() {
        let chunk = br#"{"id":"x","choices":[{"delta":{"content":"\"model\":\"y\""}}],"model":"tiny"}"#;
        assert_eq!(answered_as(chunk, "claude").as_ref(), br#"{"id":"x","choices":[{"delta":{"content":"\"model\":\"y\""}}],"model":"claude"}"#);
        assert_eq!(answered_as(b"[DONE]", "claude").as_ref(), b"[DONE]");
    }
}
