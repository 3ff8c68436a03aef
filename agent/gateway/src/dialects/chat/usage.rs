//! Token counts of a chat answer. A count that is missing or makes no sense is unknown, never 0.

use serde::Deserialize;
use serde_json::value::RawValue;

/// No request has more tokens than this; a larger count is a fault of the engine.
const BELIEVABLE: u64 = 1 << 36;

/// What an answer used, as far as the engine said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Prompt tokens, cached ones included.
    pub prompt: Option<u64>,
    /// Of these, those from the engine's cache.
    pub cached: Option<u64>,
    /// Tokens of the answer, thinking included.
    pub completion: Option<u64>,
    /// Of these, those of the thinking.
    pub reasoning: Option<u64>,
}

#[derive(Deserialize)]
struct Usage<'a> {
    #[serde(borrow, default)]
    prompt_tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    completion_tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    prompt_tokens_details: Option<Details<'a>>,
    #[serde(borrow, default)]
    completion_tokens_details: Option<Details<'a>>,
}

#[derive(Deserialize)]
struct Details<'a> {
    #[serde(borrow, default)]
    cached_tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reasoning_tokens: Option<&'a RawValue>,
}

/// How far one engine is with a prompt.
#[derive(Deserialize)]
struct Progress<'a> {
    #[serde(borrow, default)]
    total: Option<&'a RawValue>,
    #[serde(borrow, default)]
    cache: Option<&'a RawValue>,
}

impl Counts {
    /// Reads a `usage` value and keeps what was known of what it does not say.
    pub(in crate::dialects) fn update(&mut self, usage: &RawValue) {
        let Ok(usage) = serde_json::from_str::<Usage<'_>>(usage.get()) else { return };
        let keep = |known: &mut Option<u64>, value: Option<&RawValue>| *known = count(value).or(*known);
        keep(&mut self.prompt, usage.prompt_tokens);
        keep(&mut self.completion, usage.completion_tokens);
        keep(&mut self.cached, usage.prompt_tokens_details.and_then(|d| d.cached_tokens));
        keep(&mut self.reasoning, usage.completion_tokens_details.and_then(|d| d.reasoning_tokens));
    }

    /// Reads how long a prompt is while it is being worked through.
    pub(in crate::dialects) fn progress(&mut self, progress: &RawValue) {
        let Ok(progress) = serde_json::from_str::<Progress<'_>>(progress.get()) else { return };
        self.prompt = count(progress.total).or(self.prompt);
        self.cached = count(progress.cache).or(self.cached);
    }

    /// Prompt tokens that were not in the cache, and those that were; never more cached than there are.
    pub(in crate::dialects) fn split_prompt(&self) -> Option<(u64, u64)> {
        let prompt = self.prompt?;
        let cached = self.cached.unwrap_or(0).min(prompt);
        Some((prompt - cached, cached))
    }
}

fn count(value: Option<&RawValue>) -> Option<u64> {
    serde_json::from_str(value?.get()).ok().filter(|n| *n <= BELIEVABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Counts {
        let mut counts = Counts::default();
        counts.update(&RawValue::from_string(text.to_owned()).unwrap());
        counts
    }

    #[test]
    fn a_count_that_makes_no_sense_is_unknown_and_not_zero() {
        let odd = r#"{"prompt_tokens":-1,"completion_tokens":1.5,"prompt_tokens_details":{"cached_tokens":99999999999999999},"completion_tokens_details":null}"#;
        assert_eq!(read(odd), Counts::default());
        assert_eq!(read("null"), Counts::default());
        let c = read(
            r#"{"prompt_tokens":29,"completion_tokens":0,"prompt_tokens_details":{"cached_tokens":40},"completion_tokens_details":{"reasoning_tokens":2}}"#,
        );
        assert_eq!((c.prompt, c.completion, c.reasoning), (Some(29), Some(0), Some(2)));
        assert_eq!(c.split_prompt(), Some((0, 29)), "no more is cached than there is");
    }
}
