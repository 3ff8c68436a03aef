//! The `usage` object of OpenAI's answers, read leniently: a count that is missing or makes no sense is unknown, never 0.

use serde_json::Value;
use warden_domain::units::Tokens;

use crate::dialects::Counts;

/// No request has more tokens than this; a larger count is a fault of the engine.
const BELIEVABLE: u64 = 1 << 36;

/// Token counts of one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Prompt tokens, cached ones included.
    pub prompt: Option<Tokens>,
    /// Of these, those from cache.
    pub cached: Option<Tokens>,
    /// Tokens of the answer.
    pub completion: Option<Tokens>,
}

impl Usage {
    /// Reads the text of a `usage` value; anything but an object says nothing.
    pub(crate) fn read(text: &[u8]) -> Self {
        let value: Value = serde_json::from_slice(text).unwrap_or_default();
        let count = |v: &Value| v.as_u64().filter(|n| *n <= BELIEVABLE).map(Tokens);
        Self {
            prompt: count(&value["prompt_tokens"]),
            cached: count(&value["prompt_tokens_details"]["cached_tokens"]),
            completion: count(&value["completion_tokens"]),
        }
    }
}

impl From<&Counts> for Usage {
    fn from(counts: &Counts) -> Self {
        Self { prompt: counts.prompt.map(Tokens), cached: counts.cached.map(Tokens), completion: counts.completion.map(Tokens) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_makes_no_sense_is_unknown_and_not_zero() {
        let u = Usage::read(br#"{"prompt_tokens":-1,"completion_tokens":1.5,"prompt_tokens_details":{"cached_tokens":99999999999999999}}"#);
        assert_eq!(u, Usage::default());
        assert_eq!(Usage::read(b"null"), Usage::default());
        assert_eq!(Usage::read(b"[1]"), Usage::default());
        let u = Usage::read(br#"{"prompt_tokens":29,"completion_tokens":0,"prompt_tokens_details":{"cached_tokens":1}}"#);
        assert_eq!((u.prompt, u.cached, u.completion), (Some(Tokens(29)), Some(Tokens(1)), Some(Tokens(0))));
    }
}
