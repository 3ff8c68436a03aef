//! `config.json` of a repository: the keys older scripts read, and the value for the fit. Pure.

use serde_json::{Map, Value};
use warden_domain::hub::RepoConfig;

/// The keys that are handed on.
const KEYS: &[&str] = &[
    "architectures",
    "model_type",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
    "torch_dtype",
    "dtype",
    "quantization_config",
    "head_dim",
    "sliding_window",
    "layer_types",
];

/// Whether a key is handed on.
pub(crate) fn is_shown(key: &str) -> bool {
    KEYS.contains(&key)
}

/// The chosen keys.
pub(crate) fn chosen(config: &Value) -> RepoConfig {
    let Some(config) = config.as_object() else { return RepoConfig::default() };
    let kept: Map<String, Value> = KEYS.iter().filter_map(|key| Some(((*key).to_owned(), config.get(*key)?.clone()))).collect();
    RepoConfig { json: Some(Value::Object(kept).to_string()) }
}

/// The number format of safetensors weights: how they were quantised, or the type of their values.
pub(crate) fn format(config: &Value) -> Option<String> {
    let quantised = config["quantization_config"]["quant_method"].as_str();
    let found = quantised.or_else(|| config["dtype"].as_str()).or_else(|| config["torch_dtype"].as_str())?;
    let plain = found.len() <= 40 && found.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    plain.then(|| found.to_owned())
}
