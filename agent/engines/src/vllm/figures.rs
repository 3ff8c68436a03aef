//! What vLLM says of itself: its models and its page of figures. One server may stand before several engines; their figures add up.

use serde_json::Value;
use warden_domain::{
    engine::{Answering, Capacity, ReplicaSample},
    units::Tokens,
};

use crate::metrics::{Sample, count, mean, samples};

/// From `/v1/models` and `/metrics`.
pub(crate) fn answering(models: Option<&str>, page: Option<&str>) -> Answering {
    let said: Option<Value> = models.and_then(|text| serde_json::from_str(text).ok());
    let window = said.as_ref().and_then(|said| said.pointer("/data/0/max_model_len")).and_then(Value::as_u64).filter(|window| *window > 0);
    Answering {
        context: window.map(Tokens),
        capacity: page.and_then(token_memory).map_or(Capacity::Unknown, |tokens| Capacity::Tokens { tokens, slots: None }),
    }
}

/// Tokens that all engines together can hold.
fn token_memory(page: &str) -> Option<Tokens> {
    let each = samples(page).filter(|sample| sample.name == "vllm:cache_config_info").map(|sample| tokens_of(&sample));
    let sum = each.reduce(|a, b| a.zip(b).map(|(a, b)| a.saturating_add(b)))??;
    (sum > 0).then_some(Tokens(sum))
}

fn tokens_of(cache: &Sample<'_>) -> Option<u64> {
    let number = |label: &str| cache.label(label)?.parse::<u64>().ok();
    number("kv_cache_size_tokens").or_else(|| number("num_gpu_blocks")?.checked_mul(number("block_size")?))
}

/// From `/metrics`.
pub(crate) fn sample(page: &str) -> ReplicaSample {
    ReplicaSample {
        running: count(page, "vllm:num_requests_running"),
        waiting: count(page, "vllm:num_requests_waiting"),
        kv_used_ratio: mean(page, "vllm:kv_cache_usage_perc").filter(|ratio| (0.0..=1.0).contains(ratio)),
        // This one includes what came from the cache.
        prompt_total: count(page, "vllm:prompt_tokens_total").map(Tokens),
        cached_total: count(page, "vllm:prompt_tokens_cached_total").map(Tokens),
        generated_total: count(page, "vllm:generation_tokens_total").map(Tokens),
        preemptions_total: count(page, "vllm:num_preemptions_total"),
        // Its token counters move with every step.
        steps_total: None,
    }
}

/// From `/tokenize`.
pub(crate) fn tokens(answer: &str) -> Option<Tokens> {
    let said: Value = serde_json::from_str(answer).ok()?;
    said.get("count")?.as_u64().map(Tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = include_str!("../../../../tests/fixtures/engine-metrics/vllm.txt");
    const TWO: &str = include_str!("../../../../tests/fixtures/engine-metrics/vllm-two-engines-busy.txt");

    #[test]
    fn the_recorded_page_becomes_figures() {
        assert_eq!(
            sample(ONE),
            ReplicaSample {
                running: Some(0),
                waiting: Some(0),
                kv_used_ratio: Some(0.0),
                prompt_total: Some(Tokens(656)),
                cached_total: Some(Tokens(128)),
                generated_total: Some(Tokens(37)),
                preemptions_total: Some(0),
                steps_total: None,
            }
        );
        assert_eq!(sample(""), ReplicaSample::default());
    }

    #[test]
    fn two_engines_behind_one_server_add_up() {
        let both = sample(TWO);
        assert_eq!((both.running, both.waiting, both.generated_total), (Some(6), Some(0), Some(Tokens(56))));
        assert!(both.kv_used_ratio.is_some_and(|ratio| ratio > 0.00018 && ratio < 0.00019));
        assert_eq!(answering(None, Some(TWO)).capacity, Capacity::Tokens { tokens: Tokens(2 * 2_097_152), slots: None });
    }

    #[test]
    fn capacity_and_window_are_told_or_unknown() {
        let models = r#"{"object":"list","data":[{"id":"tiny","max_model_len":1024}]}"#;
        assert_eq!(
            answering(Some(models), Some(ONE)),
            Answering { context: Some(Tokens(1024)), capacity: Capacity::Tokens { tokens: Tokens(2_097_152), slots: None } }
        );
        let blocks = r#"vllm:cache_config_info{block_size="16",num_gpu_blocks="100",kv_cache_size_tokens="None"} 1.0"#;
        assert_eq!(answering(None, Some(blocks)).capacity, Capacity::Tokens { tokens: Tokens(1600), slots: None });
        let unknown = r#"vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1.0"#;
        assert_eq!(answering(Some("{}"), Some(unknown)), Answering::default());
        assert_eq!(tokens(r#"{"count":5,"max_model_len":1024,"tokens":[1]}"#), Some(Tokens(5)));
        assert_eq!(tokens(r#"{"detail":"Not Found"}"#), None);
    }
}
