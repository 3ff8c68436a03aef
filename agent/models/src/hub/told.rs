//! What is kept of a repository's files once they were read: the few figures that verdicts and pages are made from, and no trees. Pure.

use serde_json::Value;
use warden_domain::{hub::RepoConfig, units::Tokens};

use super::config;
use crate::{
    fit::{Missing, Shape, shape_of_config, shape_of_gguf},
    gguf::{Keys, Reach, TensorSums},
    hf, json,
};

/// What the header of a GGUF file says.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) shape: Result<Shape, Missing>,
    pub(crate) architecture: Option<String>,
    /// `general.type`: `model`, `adapter`, `mmproj`…
    pub(crate) kind: Option<String>,
    /// `general.file_type`, which tells the number format.
    pub(crate) file_type: Option<u64>,
    pub(crate) trained: Option<Tokens>,
    pub(crate) tensors: Option<TensorSums>,
    pub(crate) reach: Reach,
}

impl Header {
    pub(crate) fn of(keys: &Keys) -> Self {
        let architecture = keys.text("general.architecture").map(str::to_owned);
        Self {
            shape: shape_of_gguf(keys),
            kind: keys.text("general.type").map(str::to_owned),
            file_type: keys.number("general.file_type"),
            trained: architecture.as_ref().and_then(|architecture| keys.number(&format!("{architecture}.context_length"))).map(Tokens),
            tensors: keys.tensors.clone(),
            reach: keys.reach,
            architecture,
        }
    }
}

/// What `config.json` says.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) shape: Result<Shape, Missing>,
    pub(crate) trained: Option<Tokens>,
    /// The number format of the weights.
    pub(crate) format: Option<String>,
    /// The keys that older scripts read.
    pub(crate) shown: RepoConfig,
}

impl Config {
    /// `None` when it is not understood.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        let config: Value = json::kept(text, &|key| hf::is_wanted(key) || config::is_shown(key)).ok()?;
        Some(Self {
            shape: shape_of_config(&config),
            trained: hf::trained_context(&config),
            format: config::format(&config),
            shown: config::chosen(&config),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_comes_to_its_shape_and_a_few_keys_and_the_rest_is_gone() {
        let junk = "[".repeat(5000) + &"]".repeat(5000);
        let text = format!(
            r#"{{"architectures":["LlamaForCausalLM"],"num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"vocab_size":100,
            "intermediate_size":128,"max_position_embeddings":512,"torch_dtype":"bfloat16","junk":{junk},
            "quantization_config":{{"quant_method":"awq","bits":4,"ignore":["a","b"]}}}}"#
        );
        let config = Config::read(text.as_bytes()).unwrap();
        assert_eq!(config.shape.unwrap().heads, 4);
        assert_eq!((config.trained, config.format.as_deref()), (Some(Tokens(512)), Some("awq")));
        let shown: Value = serde_json::from_str(&config.shown.json.unwrap()).unwrap();
        assert_eq!(shown["quantization_config"], serde_json::json!({"quant_method": "awq", "bits": 4}));
        assert!(shown["junk"].is_null() && shown["vocab_size"].is_null());
        assert!(Config::read(b"[1]").is_none());
    }
}
