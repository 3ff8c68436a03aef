//! The shape of a model from the keys of its GGUF header, for the architectures on a list.
//!
//! The list holds plain attention only: each layer keeps keys and values of every token, or of a window. Latent attention, states of
//! recurrent layers, shared and chunked caches are not on it, and a key that speaks of one makes the shape unknown.

use super::{
    amount::Amount,
    shape::{LARGEST_FIGURE, LayerShape, Missing, Shape, absurd},
};
use crate::gguf::{Keys, Reach};

/// What llama.cpp does with `attention.sliding_window` in this architecture.
#[derive(Clone, Copy)]
enum Window {
    /// It does not read it.
    Unread,
    /// All but each n-th layer keep a window, unless the header has a pattern of its own.
    AllButEach(u64),
}

use Window::{AllButEach, Unread};

/// Architectures whose memory is known, as llama.cpp of the engine pack (b11434) loads them.
const KNOWN: &[(&str, Window)] = &[
    ("llama", Unread),
    ("qwen2", Unread),
    ("qwen2moe", Unread),
    ("qwen3", Unread),
    ("qwen3moe", Unread),
    ("gemma", Unread),
    ("gemma2", AllButEach(2)),
    ("gemma3", AllButEach(6)),
    ("cohere2", AllButEach(4)),
    ("command-r", Unread),
    ("gpt-oss", AllButEach(2)),
    ("granite", Unread),
    ("granitemoe", Unread),
    ("internlm2", Unread),
    ("olmo", Unread),
    ("olmo2", AllButEach(4)),
    ("olmoe", Unread),
    ("phi2", Unread),
    ("phi3", Unread),
    ("smollm3", Unread),
    ("stablelm", Unread),
    ("starcoder2", Unread),
];

/// Gemma 2 has this window when its header does not say.
const GEMMA2_WINDOW: u64 = 4096;

/// Keys behind the architecture's name that speak of a memory this list does not hold.
const FOREIGN: &[&str] = &[
    "attention.kv_lora_rank",
    "attention.q_lora_rank",
    "attention.key_length_mla",
    "attention.value_length_mla",
    "attention.shared_kv_layers",
    "attention.chunk_size",
    "attention.indexer.",
    "full_attention_interval",
    "nextn_predict_layers",
    "ssm.",
    "wkv.",
    "token_shift_count",
    "shortconv.",
];

/// Keys behind the architecture's name that the shape is made from.
const OWN: &[&str] = &[
    "block_count",
    "context_length",
    "embedding_length",
    "vocab_size",
    "feed_forward_length",
    "expert_used_count",
    "expert_feed_forward_length",
    "expert_shared_feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.key_length_swa",
    "attention.value_length_swa",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
];

/// Whether a key is one that the shape is made from, or one that makes it unknown. Nothing else of a header has to be kept.
pub(crate) fn is_of_the_shape(key: &str) -> bool {
    let Some((_, rest)) = key.split_once('.') else { return false };
    OWN.contains(&rest) || FOREIGN.iter().any(|foreign| rest.starts_with(foreign))
}

/// Most layers any model has.
const LAYERS_CAP: u64 = 4096;

/// The shape, or the names of what is not known.
///
/// # Errors
/// The names of the missing fields, or `general.architecture = …` for an architecture that is not on the list.
pub fn shape_of_gguf(keys: &Keys) -> Result<Shape, Missing> {
    let Some(architecture) = keys.text("general.architecture") else { return Err(vec!["general.architecture".to_owned()]) };
    let Some(&(_, window_rule)) = KNOWN.iter().find(|(name, _)| *name == architecture) else {
        return Err(vec![format!("general.architecture = {}", shown(architecture))]);
    };
    let own = format!("{architecture}.");
    let foreign = |name: &&str| name.strip_prefix(&own).is_some_and(|rest| FOREIGN.iter().any(|key| rest.starts_with(key)));
    let found: Missing = keys.names().filter(foreign).filter(|name| keys.number(name) != Some(0)).map(shown).collect();
    if !found.is_empty() {
        return Err(found);
    }
    // What is larger than anything real is as good as not said, wherever it stands.
    let beyond = |name: &str| {
        let list = keys.list(name).unwrap_or_default();
        keys.number(name).into_iter().chain(list.iter().copied()).find(|number| *number > LARGEST_FIGURE).map(|number| absurd(&shown(name), number))
    };
    let absurd: Missing = keys.names().filter(|name| name.starts_with(&own)).filter_map(beyond).collect();
    if !absurd.is_empty() {
        return Err(absurd);
    }
    let reader = Reader { keys, architecture, missing: Vec::new() };
    reader.shape(window_rule)
}

fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}

struct Reader<'a> {
    keys: &'a Keys,
    architecture: &'a str,
    missing: Missing,
}

impl Reader<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.keys.number(&self.name(key)).filter(|number| *number > 0)
    }

    fn need(&mut self, key: &str) -> u64 {
        let found = self.number(key);
        if found.is_none() {
            self.missing.push(self.name(key));
        }
        found.unwrap_or(0)
    }

    /// A number for all layers, or a list with one for each.
    fn per_layer(&self, key: &str, layers: u64) -> Option<Vec<u64>> {
        let name = self.name(key);
        if let Some(number) = self.keys.number(&name) {
            return Some(vec![number; usize::try_from(layers).ok()?]);
        }
        let list = self.keys.list(&name)?;
        (list.len() as u64 >= layers).then(|| list.iter().take(usize::try_from(layers).unwrap_or(0)).copied().collect())
    }

    fn shape(mut self, rule: Window) -> Result<Shape, Missing> {
        let layers = self.need("block_count");
        if layers > LAYERS_CAP {
            self.missing.push(absurd(&self.name("block_count"), layers));
            return Err(self.missing);
        }
        let embedding = self.need("embedding_length");
        let Some(heads) = self.per_layer("attention.head_count", layers) else {
            self.missing.push(self.name("attention.head_count"));
            return Err(self.missing);
        };
        let kv_name = self.name("attention.head_count_kv");
        let kv_heads = match self.per_layer("attention.head_count_kv", layers) {
            Some(list) => list,
            None if self.keys.count(&kv_name).is_none() => heads.clone(),
            None => {
                self.missing.push(kv_name);
                return Err(self.missing);
            }
        };
        let most_heads = heads.iter().copied().max().unwrap_or(0);
        let usual = embedding.checked_div(most_heads);
        let feed_forward = self.feed_forward(layers)?;
        let vocabulary = self.number("vocab_size").or_else(|| self.keys.count("tokenizer.ggml.tokens")).filter(|n| *n > 0);
        if vocabulary.is_none() {
            self.missing.push("tokenizer.ggml.tokens".to_owned());
        }
        let (Some(key), Some(value)) = (self.number("attention.key_length").or(usual), self.number("attention.value_length").or(usual)) else {
            self.missing.push(self.name("attention.key_length"));
            return Err(self.missing);
        };
        if self.keys.reach == Reach::Part {
            // A key that changes everything may still come.
            self.missing.push("the rest of the header".to_owned());
        }
        let (window, windowed) = self.windows(rule, layers);
        if !self.missing.is_empty() {
            return Err(self.missing);
        }
        let key_swa = self.number("attention.key_length_swa").unwrap_or(key);
        let value_swa = self.number("attention.value_length_swa").unwrap_or(value);
        let layer = |(kv_heads, windowed): (u64, bool)| {
            let (key, value) = if windowed { (key_swa, value_swa) } else { (key, value) };
            LayerShape { kv_heads, key, value, windowed }
        };
        Ok(Shape {
            architecture: self.architecture.to_owned(),
            heads: most_heads,
            layers: kv_heads.into_iter().zip(windowed).map(layer).collect(),
            window,
            embedding,
            feed_forward,
            vocabulary: vocabulary.unwrap_or(0),
            trained_context: self.number("context_length"),
        })
    }

    /// Of a mixture of experts: of all experts that one token goes through.
    fn feed_forward(&mut self, layers: u64) -> Result<u64, Missing> {
        let dense = self.per_layer("feed_forward_length", layers).and_then(|list| list.into_iter().max()).unwrap_or(0);
        let mut widest = dense;
        if let Some(used) = self.number("expert_used_count") {
            let each = self.per_layer("expert_feed_forward_length", layers).and_then(|list| list.into_iter().max()).unwrap_or(dense);
            let experts = Amount::from(each) * used + self.number("expert_shared_feed_forward_length").unwrap_or(0);
            widest = widest.max(experts.known(&self.name("expert_used_count"))?);
        }
        if widest == 0 {
            self.missing.push(self.name("feed_forward_length"));
        }
        Ok(widest)
    }

    /// How far windowed layers look back, and which layers those are.
    fn windows(&mut self, rule: Window, layers: u64) -> (Option<u64>, Vec<bool>) {
        let none = vec![false; usize::try_from(layers).unwrap_or(0)];
        let AllButEach(usual) = rule else { return (None, none) };
        let window = self.number("attention.sliding_window").or_else(|| (self.architecture == "gemma2").then_some(GEMMA2_WINDOW));
        let Some(window) = window else {
            if matches!(self.architecture, "cohere2" | "gpt-oss") {
                self.missing.push(self.name("attention.sliding_window"));
            }
            return (None, none);
        };
        let name = self.name("attention.sliding_window_pattern");
        if let Some(list) = self.keys.list(&name) {
            let list: Vec<bool> = list.iter().take(none.len()).map(|flag| *flag != 0).collect();
            if list.len() == none.len() {
                return (Some(window), list);
            }
            self.missing.push(name);
            return (None, none);
        }
        let each = self.keys.number(&name).unwrap_or(usual);
        let windowed = (0..layers).map(|layer| each == 0 || layer % each < each - 1).collect();
        (Some(window), windowed)
    }
}

#[cfg(test)]
mod tests {
    use warden_fixtures::gguf::{Gguf, Value};

    use super::*;
    use crate::gguf::read_keys;

    fn keys(list: &[(&str, u32)], architecture: &str, more: &[(&str, Value)]) -> Keys {
        let mut file = Gguf::default();
        file.key("general.architecture", Value::Text(architecture.to_owned()));
        for (name, number) in list {
            file.key(&format!("{architecture}.{name}"), Value::U32(*number));
        }
        for (name, value) in more {
            file.key(&format!("{architecture}.{name}"), value.clone());
        }
        file.key("tokenizer.ggml.tokens", Value::Texts(vec!["a".to_owned(); 100]));
        let bytes = file.bytes().0;
        read_keys(&bytes, bytes.len() as u64).unwrap()
    }

    const PLAIN: &[(&str, u32)] = &[
        ("block_count", 4),
        ("embedding_length", 64),
        ("attention.head_count", 8),
        ("attention.head_count_kv", 2),
        ("feed_forward_length", 256),
        ("context_length", 2048),
    ];

    #[test]
    fn grouped_heads_keep_fewer_keys_than_there_are_heads() {
        let shape = shape_of_gguf(&keys(PLAIN, "llama", &[])).unwrap();
        assert_eq!(shape.layers, vec![LayerShape { kv_heads: 2, key: 8, value: 8, windowed: false }; 4]);
        let all_heads: Vec<_> = PLAIN.iter().copied().filter(|(name, _)| !name.ends_with("_kv")).collect();
        assert_eq!(shape_of_gguf(&keys(&all_heads, "llama", &[])).unwrap().layers[0].kv_heads, 8);
    }

    #[test]
    fn heads_per_layer_are_counted_layer_by_layer() {
        let plain: Vec<_> = PLAIN.iter().copied().filter(|(name, _)| !name.ends_with("_kv")).collect();
        let list = Value::I32s(vec![1, 2, 0, 4]);
        let shape = shape_of_gguf(&keys(&plain, "llama", &[("attention.head_count_kv", list)])).unwrap();
        assert_eq!(shape.layers.iter().map(|layer| layer.kv_heads).collect::<Vec<_>>(), [1, 2, 0, 4]);
        let short = Value::I32s(vec![1, 2]);
        assert_eq!(shape_of_gguf(&keys(&plain, "llama", &[("attention.head_count_kv", short)])).unwrap_err(), ["llama.attention.head_count_kv"]);
    }

    #[test]
    fn windows_follow_the_engines_pattern_or_the_files_own() {
        let window = [("attention.sliding_window", Value::U32(512))];
        let shape = shape_of_gguf(&keys(PLAIN, "gemma2", &window)).unwrap();
        assert_eq!(shape.layers.iter().map(|layer| layer.windowed).collect::<Vec<_>>(), [true, false, true, false]);
        assert!(shape_of_gguf(&keys(PLAIN, "llama", &window)).unwrap().layers.iter().all(|layer| !layer.windowed));
        assert_eq!(shape_of_gguf(&keys(PLAIN, "gpt-oss", &[])).unwrap_err(), ["gpt-oss.attention.sliding_window"]);
    }

    #[test]
    fn what_is_not_on_the_list_is_unknown_and_named() {
        assert_eq!(shape_of_gguf(&keys(PLAIN, "mamba", &[])).unwrap_err(), ["general.architecture = mamba"]);
        let latent = [("attention.kv_lora_rank", Value::U32(512))];
        assert_eq!(shape_of_gguf(&keys(PLAIN, "llama", &latent)).unwrap_err(), ["llama.attention.kv_lora_rank"]);
        let hybrid = [("ssm.state_size", Value::U32(128)), ("full_attention_interval", Value::U32(4))];
        assert_eq!(shape_of_gguf(&keys(PLAIN, "qwen3", &hybrid)).unwrap_err().len(), 2);
        let without: Vec<_> = PLAIN.iter().copied().filter(|(name, _)| *name != "embedding_length" && *name != "feed_forward_length").collect();
        let missing = shape_of_gguf(&keys(&without, "llama", &[])).unwrap_err();
        assert!(missing.contains(&"llama.embedding_length".to_owned()) && missing.contains(&"llama.feed_forward_length".to_owned()), "{missing:?}");
    }

    #[test]
    fn figures_larger_than_any_real_one_are_unknown_and_named() {
        for (name, _) in PLAIN {
            let others: Vec<_> = PLAIN.iter().copied().filter(|(other, _)| other != name).collect();
            let missing = shape_of_gguf(&keys(&others, "llama", &[(name, Value::U64(u64::MAX))])).unwrap_err();
            assert_eq!(missing, [format!("llama.{name} = {}", u64::MAX)]);
        }
        let others: Vec<_> = PLAIN.iter().copied().filter(|(name, _)| *name != "block_count").collect();
        let many = shape_of_gguf(&keys(&others, "llama", &[("block_count", Value::U32(5000))])).unwrap_err();
        assert_eq!(many, ["llama.block_count = 5000"], "not cut off without a word");
    }

    #[test]
    fn every_key_that_is_looked_at_is_kept_of_a_header() {
        let text = include_str!("gguf_shape.rs").split("#[cfg(test)]").next().unwrap();
        let asked = ["self.number(\"", "self.need(\"", "self.per_layer(\"", "self.name(\""];
        for after in asked.iter().flat_map(|call| text.split(call).skip(1)) {
            let key = after.split('"').next().unwrap();
            assert!(is_of_the_shape(&format!("x.{key}")), "{key}");
        }
        assert!(is_of_the_shape("x.ssm.state_size") && !is_of_the_shape("general.block") && !is_of_the_shape("x.rope.freq_base"));
    }
}
