//! The shape of a model from `config.json`, for the architectures on a list. The same rule as for GGUF: what is not known is named.

use serde_json::Value;

use super::shape::{LayerShape, Missing, Shape};

/// Classes whose every layer keeps keys and values of every token.
const KNOWN: &[&str] = &[
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "MixtralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen2MoeForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "GemmaForCausalLM",
    "GraniteForCausalLM",
    "GraniteMoeForCausalLM",
    "OlmoForCausalLM",
    "Olmo2ForCausalLM",
    "PhiForCausalLM",
    "Phi3ForCausalLM",
    "SmolLM3ForCausalLM",
    "StableLmForCausalLM",
    "Starcoder2ForCausalLM",
];

/// Keys that speak of another kind of memory.
const FOREIGN: &[&str] = &[
    "kv_lora_rank",
    "q_lora_rank",
    "index_head_dim",
    "linear_num_key_heads",
    "linear_attn_config",
    "full_attention_interval",
    "num_kv_shared_layers",
    "attention_chunk_size",
    "mamba_d_state",
    "ssm_state_size",
    "text_config",
    "llm_config",
    "language_config",
    "thinker_config",
];

const LAYERS_CAP: u64 = 4096;

/// The shape, or the names of what is not known.
///
/// # Errors
/// The names of the missing fields, of fields of another kind of memory, or `architectures = …` for a class that is not on the list.
pub fn shape_of_config(config: &Value) -> Result<Shape, Missing> {
    let class = config["architectures"][0].as_str().unwrap_or_default();
    if class.is_empty() {
        return Err(vec!["architectures".to_owned()]);
    }
    if !KNOWN.contains(&class) {
        let shown: String = class.chars().filter(|c| !c.is_control()).take(80).collect();
        return Err(vec![format!("architectures = {shown}")]);
    }
    let mut missing: Missing = FOREIGN.iter().filter(|key| is_set(&config[**key])).map(|key| (*key).to_owned()).collect();
    let windowed = is_set(&config["sliding_window"]) && config["use_sliding_window"] != Value::Bool(false);
    if windowed {
        // Which layers keep a window differs between versions of the engine.
        missing.push("sliding_window".to_owned());
    }
    if let Some(kinds) = config["layer_types"].as_array()
        && kinds.iter().any(|kind| kind != "full_attention")
    {
        missing.push("layer_types".to_owned());
    }
    let mut need = |key: &str| {
        let number = config[key].as_u64().filter(|number| *number > 0);
        if number.is_none() {
            missing.push(key.to_owned());
        }
        number.unwrap_or(0)
    };
    let layers = need("num_hidden_layers").min(LAYERS_CAP);
    let hidden = need("hidden_size");
    let heads = need("num_attention_heads");
    let vocabulary = need("vocab_size");
    let dense = need("intermediate_size");
    if !missing.is_empty() {
        return Err(missing);
    }
    let Some(head) = config["head_dim"].as_u64().filter(|n| *n > 0).or_else(|| hidden.checked_div(heads)) else {
        return Err(vec!["head_dim".to_owned()]);
    };
    let kv_heads = config["num_key_value_heads"].as_u64().filter(|n| *n > 0).unwrap_or(heads);
    let experts = config["moe_intermediate_size"].as_u64().zip(config["num_experts_per_tok"].as_u64()).map_or(0, |(each, used)| each * used);
    let layer = LayerShape { kv_heads, key: head, value: head, windowed: false };
    Ok(Shape {
        architecture: class.to_owned(),
        layers: vec![layer; usize::try_from(layers).unwrap_or(0)],
        window: None,
        embedding: hidden,
        feed_forward: dense.max(experts),
        vocabulary,
        trained_context: config["max_position_embeddings"].as_u64(),
    })
}

fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Number(number) => number.as_u64() != Some(0),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn qwen() -> Value {
        json!({"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 28, "hidden_size": 1024, "num_attention_heads": 16,
            "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936, "intermediate_size": 3072, "max_position_embeddings": 40960,
            "sliding_window": null, "use_sliding_window": false})
    }

    #[test]
    fn a_head_size_that_is_said_counts_and_not_the_quotient() {
        let shape = shape_of_config(&qwen()).unwrap();
        assert_eq!(shape.layers[0], LayerShape { kv_heads: 8, key: 128, value: 128, windowed: false });
        assert_eq!(shape.layers.len(), 28);
    }

    #[test]
    fn latent_hybrid_and_nested_models_are_unknown_and_named() {
        let with = |key: &str, value: Value| {
            let mut config = qwen();
            config[key] = value;
            shape_of_config(&config).unwrap_err()
        };
        assert_eq!(with("kv_lora_rank", json!(512)), ["kv_lora_rank"]);
        assert_eq!(with("full_attention_interval", json!(4)), ["full_attention_interval"]);
        assert_eq!(with("layer_types", json!(["linear_attention"])), ["layer_types"]);
        assert_eq!(with("text_config", json!({})), ["text_config"]);
        assert_eq!(with("architectures", json!(["DeepseekV3ForCausalLM"])), ["architectures = DeepseekV3ForCausalLM"]);
        assert_eq!(with("vocab_size", Value::Null), ["vocab_size"]);
    }
}
