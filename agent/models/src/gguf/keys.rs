//! The keys of a header, from its first bytes alone: what memory a model needs can be told long before the whole file is here.
//!
//! In: the beginning of a file and how long the whole file is. Out: the numbers, short texts and lists that a verdict is made from, and how
//! far the header was seen. Everything else is passed over without being kept, so a header costs little whatever it holds. A beginning that
//! ends inside the header is no fault: what was read of it counts, and `Reach` says that there is more.

use std::collections::BTreeMap;

use super::{
    Fault,
    header::{KEY_CAP, data_start, read_begin, read_tensor_table},
    source::Source,
    value::{Value, Want, read_value},
};
use crate::fit::is_of_the_shape;

/// Keys of one file that are kept. A real one has about thirty of those that count.
const KEYS_KEPT: usize = 128;
/// Lists of numbers of one file that are kept, each with at most a number per layer.
const LISTS_KEPT: usize = 16;
/// Longest name of a key that is kept.
const NAME_KEPT: usize = 256;
/// Layers whose bytes are added up.
const LAYERS_KEPT: usize = 4096;
/// Formats that are listed because nobody here knows them.
const FORMATS_KEPT: usize = 16;

/// How much of the header was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// The bytes ended before the vocabulary began: keys of the model may be missing.
    #[default]
    Part,
    /// The bytes ended inside the vocabulary or behind it. Every known writer puts the keys of the model before it.
    Vocabulary,
    /// All of it, with the table of tensors.
    Whole,
}

/// What the table of tensors adds up to, in bytes. Formats that are not known count as nothing and are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TensorSums {
    /// All tensors.
    pub all: u64,
    /// The table of token embeddings.
    pub embedding: u64,
    /// The output matrix, where there is one of its own.
    pub output: Option<u64>,
    /// The largest layer.
    pub largest_layer: u64,
    /// What llama.cpp copies into another order on processors of this kind.
    pub repacked: u64,
    /// Numbers of formats that nobody here knows.
    pub unknown_formats: Vec<u32>,
    /// Where the data begins, from the start of the file.
    pub data_start: u64,
}

/// The keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    numbers: BTreeMap<String, u64>,
    texts: BTreeMap<String, String>,
    lists: BTreeMap<String, Vec<u64>>,
    counts: BTreeMap<String, u64>,
    /// How far the header was seen.
    pub reach: Reach,
    /// What the tensors add up to; only with `Reach::Whole`.
    pub tensors: Option<TensorSums>,
}

impl Keys {
    /// A whole number.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<u64> {
        self.numbers.get(key).copied()
    }

    /// A short text.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.texts.get(key).map(String::as_str)
    }

    /// A short list of whole numbers.
    #[must_use]
    pub fn list(&self, key: &str) -> Option<&[u64]> {
        self.lists.get(key).map(Vec::as_slice)
    }

    /// How long a list is.
    #[must_use]
    pub fn count(&self, key: &str) -> Option<u64> {
        self.counts.get(key).copied()
    }

    /// Names of all keys seen, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let all = self.numbers.keys().chain(self.texts.keys()).chain(self.counts.keys());
        all.map(String::as_str)
    }

    fn keep(&mut self, key: String, value: Value) -> Result<(), Fault> {
        if self.numbers.len() + self.texts.len() + self.counts.len() >= KEYS_KEPT || self.lists.len() >= LISTS_KEPT {
            return Err(Fault::Damaged("it says more of its shape than any real one"));
        }
        match value {
            Value::Number(number) => {
                self.numbers.insert(key, number);
            }
            Value::Text(text) => {
                self.texts.insert(key, text);
            }
            Value::List(list) => {
                self.counts.insert(key.clone(), list.count);
                self.lists.extend(list.numbers.map(|numbers| (key, numbers)));
            }
            // That it is there may be what counts.
            Value::LongText | Value::Other => {
                self.counts.insert(key, 1);
            }
        }
        Ok(())
    }
}

/// What is wanted of a key.
fn want(key: &str) -> Want {
    match key {
        "general.architecture" | "general.type" | "general.alignment" | "general.file_type" | "split.count" => Want::Plain,
        _ if key.len() <= NAME_KEPT && is_of_the_shape(key) => Want::List,
        _ => Want::Nothing,
    }
}

/// Reads the keys from the first bytes of a file that is `size` bytes long.
///
/// # Errors
/// A `Fault` when the bytes are no header of a usable file, or end although the file does too.
pub fn read_keys(begin: &[u8], size: u64) -> Result<Keys, Fault> {
    let mut keys = Keys::default();
    match walk(begin, size, &mut keys) {
        Ok(()) => keys.reach = Reach::Whole,
        Err(Fault::CutInHeader { .. }) if (begin.len() as u64) < size => {}
        Err(fault) => return Err(fault),
    }
    Ok(keys)
}

fn walk(begin: &[u8], size: u64, keys: &mut Keys) -> Result<(), Fault> {
    let mut source = Source::new(begin, size);
    let (tensors, count) = read_begin(&mut source)?;
    for _ in 0..count {
        let key = String::from_utf8_lossy(&source.text(KEY_CAP, "a key in it is too long")?).into_owned();
        if key.starts_with("tokenizer.") && keys.reach == Reach::Part {
            keys.reach = Reach::Vocabulary;
        }
        if key == "tokenizer.ggml.tokens" {
            // Its length stands before its texts, which take most of a header.
            keys.counts.extend(source.peek_list_count().map(|count| (key.clone(), count)));
        }
        let want = want(&key);
        let value = read_value(&mut source, want)?;
        if want != Want::Nothing {
            keys.keep(key, value)?;
        }
    }
    let alignment = keys.number("general.alignment").unwrap_or(32);
    let mut sums = TensorSums::default();
    let mut layers: BTreeMap<u32, u64> = BTreeMap::new();
    let needs = read_tensor_table(&mut source, tensors, |tensor| {
        let name = String::from_utf8_lossy(&tensor.name).into_owned();
        let Some(bytes) = tensor.bytes else {
            if sums.unknown_formats.len() < FORMATS_KEPT && !sums.unknown_formats.contains(&tensor.format) {
                sums.unknown_formats.push(tensor.format);
            }
            return;
        };
        sums.all = sums.all.saturating_add(bytes);
        match name.as_str() {
            "token_embd.weight" => sums.embedding = bytes,
            "output.weight" => sums.output = Some(bytes),
            _ => {}
        }
        if let Some(layer) = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()).and_then(|n| n.parse().ok()) {
            let room = layers.len() < LAYERS_KEPT;
            if room || layers.contains_key(&layer) {
                let sum = layers.entry(layer).or_default();
                *sum = sum.saturating_add(bytes);
            }
        }
        if name != "token_embd.weight" && is_repacked(tensor.format, &tensor.shape) {
            sums.repacked = sums.repacked.saturating_add(bytes);
        }
    })?;
    sums.unknown_formats.sort_unstable();
    sums.largest_layer = layers.into_values().max().unwrap_or(0);
    sums.data_start = data_start(source.position(), alignment)?;
    if tensors > 0 && sums.data_start.saturating_add(needs) > size && keys.number("split.count").unwrap_or(1) <= 1 {
        return Err(Fault::CutInData { holds: size, needs: sums.data_start.saturating_add(needs) });
    }
    keys.tensors = Some(sums);
    Ok(())
}

/// Q4_0, Q4_K, Q2_K and IQ4_NL matrices with a height of a multiple of 8 are put into another order on x86 processors with AVX2 (Q2_K:
/// AVX-512): the engine holds that copy besides the mapped file.
fn is_repacked(format: u32, shape: &[u64]) -> bool {
    matches!(format, 2 | 10 | 12 | 20) && matches!(shape, [_, height] | [_, height, _] if height.is_multiple_of(8))
}

#[cfg(test)]
mod tests {
    use warden_fixtures::{
        TinyModel,
        gguf::{Gguf, Value as Wanted},
    };

    use super::*;

    #[test]
    fn the_first_bytes_of_a_file_tell_its_shape_before_the_rest_is_here() {
        let bytes = TinyModel::default().bytes();
        let keys = read_keys(&bytes[..1200], bytes.len() as u64).unwrap();
        assert_eq!(keys.reach, Reach::Vocabulary);
        assert_eq!(keys.number("llama.block_count"), Some(2));
        assert!(keys.count("tokenizer.ggml.tokens").is_some_and(|count| count > 100));
        assert_eq!(keys.tensors, None);
        let early = read_keys(&bytes[..200], bytes.len() as u64).unwrap();
        assert_eq!(early.reach, Reach::Part);
    }

    #[test]
    fn the_whole_header_tells_the_bytes_of_the_tensors() {
        let model = TinyModel::default();
        let bytes = model.bytes();
        let sums = read_keys(&bytes, bytes.len() as u64).unwrap().tensors.unwrap();
        assert_eq!(sums.data_start, model.header_len() as u64);
        assert_eq!(sums.all, (bytes.len() - model.header_len()) as u64);
        assert!(sums.output.is_some() && sums.embedding > 0 && sums.largest_layer > 0 && sums.unknown_formats.is_empty());
    }

    #[test]
    fn lists_per_layer_are_kept() {
        let mut file = Gguf::default();
        file.key("x.attention.head_count_kv", Wanted::I32s(vec![2, 0, 2]));
        let bytes = file.bytes().0;
        let keys = read_keys(&bytes, bytes.len() as u64).unwrap();
        assert_eq!(keys.list("x.attention.head_count_kv"), Some(&[2, 0, 2][..]));
    }

    #[test]
    fn what_no_verdict_is_made_from_is_not_kept() {
        let mut file = Gguf::default();
        file.key("general.architecture", Wanted::Text("llama".to_owned()));
        file.key("llama.block_count", Wanted::U32(2));
        for number in 0..20_000 {
            file.key(&format!("junk.list{number}"), Wanted::I32s(vec![7; 100]));
        }
        file.key("junk.text", Wanted::Text("x".repeat(100_000)));
        file.key("llama.context_length", Wanted::U32(512));
        let bytes = file.bytes().0;
        let keys = read_keys(&bytes, bytes.len() as u64).unwrap();
        assert_eq!(keys.names().collect::<Vec<_>>(), ["llama.block_count", "llama.context_length", "general.architecture"]);
        assert_eq!((keys.number("llama.context_length"), keys.lists.len()), (Some(512), 0));
    }

    #[test]
    fn a_header_that_floods_the_keys_that_count_is_refused() {
        let mut file = Gguf::default();
        for number in 0..1000 {
            file.key(&format!("arch{number}.block_count"), Wanted::U32(number));
        }
        let bytes = file.bytes().0;
        assert!(matches!(read_keys(&bytes, bytes.len() as u64), Err(Fault::Damaged(_))));
        let mut file = Gguf::default();
        for number in 0..100 {
            file.key(&format!("arch{number}.attention.head_count"), Wanted::I32s(vec![1; 4096]));
        }
        let bytes = file.bytes().0;
        assert!(matches!(read_keys(&bytes, bytes.len() as u64), Err(Fault::Damaged(_))));
    }

    #[test]
    fn a_cut_file_is_not_taken_for_a_beginning() {
        let bytes = TinyModel::default().bytes();
        assert!(matches!(read_keys(&bytes[..5000], 5000), Err(Fault::CutInHeader { .. })));
        assert_eq!(read_keys(b"hello, this is text", 1000), Err(Fault::NotGguf));
    }
}
