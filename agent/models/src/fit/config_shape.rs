//! The shape of a model from `config.json`, for the architectures on a list. The same rule as for GGUF: what is not known is named.

use serde_json::Value;

use super::{
    amount::Amount,
    shape::{LARGEST_FIGURE, LayerShape, Missing, Shape, absurd},
};

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

/// Most layers any model has.
const LAYERS_CAP: u64 = 4096;

/// Every figure that is read.
const FIGURES: &[&str] = &[
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "intermediate_size",
    "moe_intermediate_size",
    "num_experts_per_tok",
    "max_position_embeddings",
];

/// Every key of `config.json` that the shape is made from.
pub(crate) fn keys() -> impl Iterator<Item = &'static str> {
    ["architectures", "sliding_window", "use_sliding_window", "layer_types"].into_iter().chain(FIGURES.iter().copied()).chain(FOREIGN.iter().copied())
}

/// Whether this class of models is on the list.
pub(crate) fn knows_class(class: &str) -> bool {
    KNOWN.contains(&class)
}

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
    // What is larger than anything real is as good as not said, wherever it stands.
    for key in FIGURES {
        if let Some(number) = config[*key].as_u64().filter(|number| *number > LARGEST_FIGURE) {
            missing.push(absurd(key, number));
        }
    }
    let mut need = |key: &str| {
        let number = config[key].as_u64().filter(|number| *number > 0);
        if number.is_none() {
            missing.push(key.to_owned());
        }
        number.unwrap_or(0)
    };
    let layers = need("num_hidden_layers");
    let hidden = need("hidden_size");
    let heads = need("num_attention_heads");
    let vocabulary = need("vocab_size");
    let dense = need("intermediate_size");
    if layers > LAYERS_CAP {
        missing.push(absurd("num_hidden_layers", layers));
    }
    if !missing.is_empty() {
        missing.dedup();
        return Err(missing);
    }
    let Some(head) = config["head_dim"].as_u64().filter(|n| *n > 0).or_else(|| hidden.checked_div(heads)) else {
        return Err(vec!["head_dim".to_owned()]);
    };
    let kv_heads = config["num_key_value_heads"].as_u64().filter(|n| *n > 0).unwrap_or(heads);
    let experts = match (config["moe_intermediate_size"].as_u64(), config["num_experts_per_tok"].as_u64()) {
        (Some(each), Some(used)) => (Amount::from(each) * used).known("moe_intermediate_size")?,
        _ => 0,
    };
    let layer = LayerShape { kv_heads, key: head, value: head, windowed: false };
    Ok(Shape {
        architecture: class.to_owned(),
        heads,
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

    #[test]
    fn figures_larger_than_any_real_one_are_unknown_and_named() {
        for key in FIGURES {
            let mut config = qwen();
            config["moe_intermediate_size"] = json!(8);
            config["num_experts_per_tok"] = json!(2);
            config[*key] = json!(u64::MAX);
            let missing = shape_of_config(&config).unwrap_err();
            assert!(missing.iter().any(|name| name.starts_with(&format!("{key} = "))), "{key}: {missing:?}");
        }
        let mut many = qwen();
        many["num_hidden_layers"] = json!(5000);
        assert_eq!(shape_of_config(&many).unwrap_err(), ["num_hidden_layers = 5000"], "not cut off without a word");
    }

    #[test]
    fn heads_are_kept_for_whoever_shares_them_out() {
        let shape = shape_of_config(&qwen()).unwrap();
        assert_eq!(shape.shared_heads(), warden_domain::share::Heads { all: 16, kv: Some(8) });
    }

    #[test]
    fn every_key_that_is_looked_at_is_on_the_list_of_keys() {
        let text = include_str!("config_shape.rs").split("#[cfg(test)]").next().unwrap();
        for after in text.split("config[\"").skip(1).chain(text.split("need(\"").skip(1)) {
            let key = after.split('"').next().unwrap();
            assert!(keys().any(|known| known == key), "{key}");
        }
    }
}
