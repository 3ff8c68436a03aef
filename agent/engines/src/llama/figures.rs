//! What llama.cpp's server says of itself: its properties and its page of figures.

use serde_json::Value;
use warden_domain::{
    engine::{Answering, Capacity, ReplicaSample},
    units::Tokens,
};

use crate::metrics::count;

/// From `/props`.
pub(crate) fn answering(properties: Option<&str>) -> Answering {
    let said: Option<Value> = properties.and_then(|text| serde_json::from_str(text).ok());
    let number = |pointer: &str| said.as_ref().and_then(|said| said.pointer(pointer)).and_then(Value::as_u64).filter(|number| *number > 0);
    Answering {
        context: number("/default_generation_settings/n_ctx").map(Tokens),
        capacity: number("/total_slots").and_then(|slots| u16::try_from(slots).ok()).map_or(Capacity::Unknown, Capacity::Slots),
        images: said.as_ref().and_then(|said| said.pointer("/modalities/vision")).and_then(Value::as_bool),
    }
}

/// From `/metrics`. How full its token memory is, it does not tell.
pub(crate) fn sample(page: &str) -> ReplicaSample {
    let cached = count(page, "llamacpp:prompt_tokens_cached_total");
    // The other counter leaves out what came from the cache.
    let computed = count(page, "llamacpp:prompt_tokens_total");
    ReplicaSample {
        running: count(page, "llamacpp:requests_processing"),
        waiting: count(page, "llamacpp:requests_deferred"),
        kv_used_ratio: None,
        prompt_total: computed.zip(cached).map(|(computed, cached)| Tokens(computed.saturating_add(cached))),
        cached_total: cached.map(Tokens),
        generated_total: count(page, "llamacpp:tokens_predicted_total").map(Tokens),
        preemptions_total: None,
        // The tokens of an answer are counted only when it is complete; this one moves with every step.
        steps_total: count(page, "llamacpp:n_decode_total"),
    }
}

/// From `/tokenize`.
pub(crate) fn tokens(answer: &str) -> Option<Tokens> {
    let said: Value = serde_json::from_str(answer).ok()?;
    u64::try_from(said.get("tokens")?.as_array()?.len()).ok().map(Tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_page_becomes_figures() {
        let busy = sample(include_str!("../../../../tests/fixtures/engine-metrics/llama.cpp-busy.txt"));
        assert_eq!(
            busy,
            ReplicaSample {
                running: Some(4),
                waiting: Some(2),
                kv_used_ratio: None,
                prompt_total: Some(Tokens(424)),
                cached_total: Some(Tokens(189)),
                generated_total: Some(Tokens(545)),
                preemptions_total: None,
                steps_total: Some(562),
            }
        );
        let after = sample(include_str!("../../../../tests/fixtures/engine-metrics/llama.cpp-after.txt"));
        assert_eq!((after.running, after.waiting), (Some(0), Some(0)));
        assert_eq!(after.steps_total, Some(743));
        assert!(after.generated_total.map(|t| t.0) > busy.generated_total.map(|t| t.0));
        assert_eq!(sample("llamacpp:prompt_tokens_total 5\n").prompt_total, None, "without the cached ones the sum is not known");
    }

    #[test]
    fn properties_tell_window_and_slots_or_nothing() {
        let said = answering(Some(r#"{"default_generation_settings":{"n_ctx":2048},"total_slots":4,"modalities":{"vision":false,"audio":false}}"#));
        assert_eq!(said, Answering { context: Some(Tokens(2048)), capacity: Capacity::Slots(4), images: Some(false) });
        assert_eq!(answering(Some(r#"{"modalities":{"vision":true}}"#)).images, Some(true));
        for nothing in [None, Some(""), Some("[]"), Some(r#"{"total_slots":0,"default_generation_settings":{"n_ctx":"2048"}}"#)] {
            assert_eq!(answering(nothing), Answering::default(), "{nothing:?}");
        }
        assert_eq!(tokens(r#"{"tokens":[1,2,3]}"#), Some(Tokens(3)));
        assert_eq!(tokens(r#"{"error":1}"#), None);
    }
}
