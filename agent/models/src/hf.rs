//! Looking at a model folder in the form of Hugging Face: `config.json` beside weights in safetensors files.
//!
//! In: a real path of a folder inside an allowed folder. Out: the facts of the model, or a sentence that names the folder and what is wrong
//! with it; `None` for a folder that is none of this form. Weights are judged by their headers and their size only. Blocking; callers
//! run it off the async workers. Never opens anything but plain files, and never holds more of one in memory than a few of its values.

use std::{
    collections::BTreeSet,
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use serde_json::Value;
use warden_domain::{
    Problem, ProblemKind,
    model::ModelFacts,
    share::Heads,
    units::{Bytes, Tokens},
};

use crate::{fit, inspect::open_plain, json, safetensors, split::part_of};

/// Largest description that is read.
const LARGEST_CONFIG: u64 = 4 * 1024 * 1024;
/// Files of a folder that are looked at.
const FILES_LOOKED_AT: usize = 2000;

/// A model of this form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HfModel {
    /// What is kept of it.
    pub facts: ModelFacts,
    /// Its heads, as they are shared out among cards; `None` where its description does not say.
    pub heads: Option<Heads>,
}

/// Whether a folder looks like one of this form, with all parts that the names of its weights speak of.
#[must_use]
pub fn is_model_folder(folder: &Path) -> bool {
    let weights = weights_in(folder);
    let parts = weights.iter().filter_map(|file| part_of(&format!("{}.gguf", file.file_stem()?.to_str()?)));
    let named: BTreeSet<(String, u32)> = parts.map(|part| (part.stem, part.count)).collect();
    let wanted: usize = named.iter().map(|(_, count)| *count as usize).sum();
    folder.join("config.json").is_file() && !weights.is_empty() && weights.len() >= wanted
}

/// Looks at a folder; `None` when it is none of this form.
///
/// # Errors
/// `BadModelFile` when its description cannot be understood, or a file of weights is cut or missing.
pub fn inspect(folder: &Path) -> Result<Option<HfModel>, Problem> {
    if !folder.join("config.json").exists() {
        return Ok(None);
    }
    let weights = weights_in(folder);
    if weights.is_empty() {
        return Ok(None);
    }
    let config = config_of(&folder.join("config.json"))?;
    all_parts_are_there(folder)?;
    let mut size = Bytes(0);
    for file in &weights {
        size = size + whole(file)?;
    }
    let heads = heads(&config);
    let facts = ModelFacts {
        size,
        architecture: config.pointer("/architectures/0").or_else(|| config.get("model_type")).and_then(Value::as_str).map(short),
        title: folder.file_name().map(|name| short(&name.to_string_lossy())),
        trained_context: trained_context(&config),
        has_chat_template: chat_template(folder),
    };
    Ok(Some(HfModel { facts, heads }))
}

/// The keys of a description that are read.
pub(crate) fn is_wanted(key: &str) -> bool {
    ["model_type", "text_config", "llm_config", "language_config"].contains(&key) || fit::config_keys().any(|known| known == key)
}

/// The heads that a description tells. Those of keys and values count for architectures that are known to share them out.
pub(crate) fn heads(config: &Value) -> Option<Heads> {
    let number = |key: &str| text_part(config).get(key).and_then(Value::as_u64).filter(|number| *number > 0);
    let all = number("num_attention_heads")?;
    let known = config.pointer("/architectures/0").and_then(Value::as_str).is_some_and(fit::knows_class);
    Some(Heads { all, kv: known.then(|| number("num_key_value_heads").unwrap_or(all)) })
}

/// The context that a model was trained for, as its description says.
pub(crate) fn trained_context(config: &Value) -> Option<Tokens> {
    let number = |part: &Value| part.get("max_position_embeddings").and_then(Value::as_u64);
    number(text_part(config)).or_else(|| number(config)).filter(|number| *number > 0).map(Tokens)
}

/// Size of a folder's weights by its directory entries alone; `None` when it holds none.
#[must_use]
pub fn size_of(folder: &Path) -> Option<Bytes> {
    let weights = weights_in(folder);
    if weights.is_empty() {
        return None;
    }
    weights.iter().map(|file| fs::metadata(file).ok().map(|about| Bytes(about.len()))).sum()
}

/// Models that see keep what concerns text in a part of its own.
fn text_part(config: &Value) -> &Value {
    ["text_config", "llm_config", "language_config"].iter().find_map(|name| config.get(name)).filter(|part| part.is_object()).unwrap_or(config)
}

/// The weights that the engine reads: without the second copy that some folders hold.
fn weights_in(folder: &Path) -> Vec<PathBuf> {
    let listing = fs::read_dir(folder).into_iter().flatten().take(FILES_LOOKED_AT).filter_map(Result::ok);
    let mut files: Vec<PathBuf> = listing
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.ends_with(".safetensors") && !name.starts_with('.') && !name.starts_with("consolidated")
        })
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
}

/// Every file that the index of the weights names lies beside it.
fn all_parts_are_there(folder: &Path) -> Result<(), Problem> {
    let path = folder.join("model.safetensors.index.json");
    if !path.exists() {
        return Ok(());
    }
    let names = safetensors::files_of_index(open_plain(&path)?.take(safetensors::LONGEST_INDEX)).map_err(|_| not_understood(&path))?;
    for name in names {
        if name.contains('/') || !folder.join(&name).is_file() {
            return Err(bad(folder, &format!("is not whole: {} is not in it", short(&name))).hint("Copy all files of the model into the folder."));
        }
    }
    Ok(())
}

/// The size of a weights file whose header fits it and whose last weight lies inside it.
fn whole(path: &Path) -> Result<Bytes, Problem> {
    let mut file = open_plain(path)?;
    let size = file.metadata().map_err(|cause| unreadable(path, &cause))?.len();
    let cut = || bad(path, "is cut or damaged").hint("Copy the file again and compare its size with the original.");
    let mut length = [0u8; 8];
    file.read_exact(&mut length).map_err(|_| cut())?;
    let length = u64::from_le_bytes(length);
    let begin = length.checked_add(8).filter(|begin| *begin <= size).ok_or_else(cut)?;
    if length > safetensors::LONGEST_HEADER {
        return Err(bad(path, &format!("has a header of {}, longer than any real one", Bytes(length))).hint("Fetch the model from another source."));
    }
    let end = safetensors::end_of_weights(file.take(length)).map_err(|_| cut())?;
    if end.checked_add(begin).is_none_or(|end| end > size) {
        return Err(cut());
    }
    Ok(Bytes(size))
}

/// Whether it comes with a chat template; `None` when its tokeniser's description cannot be read.
fn chat_template(folder: &Path) -> Option<bool> {
    if ["chat_template.jinja", "chat_template.json"].iter().any(|name| folder.join(name).is_file()) {
        return Some(true);
    }
    let file = open_plain(&folder.join("tokenizer_config.json")).ok()?;
    json::has(file.take(LARGEST_CONFIG), "chat_template").ok()
}

fn config_of(path: &Path) -> Result<Value, Problem> {
    json::kept_of(open_plain(path)?.take(LARGEST_CONFIG), &is_wanted).map_err(|_| not_understood(path))
}

fn not_understood(path: &Path) -> Problem {
    bad(path, "is not understood").hint("Copy the model's folder again.")
}

fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(100).collect()
}

fn unreadable(path: &Path, cause: &std::io::Error) -> Problem {
    bad(path, &format!("cannot be read ({cause})")).hint("Check that the file is there and that the agent's user may read it.")
}

fn bad(path: &Path, what: &str) -> Problem {
    Problem::new(ProblemKind::BadModelFile, format!("{} {what}.", path.display())).param("path")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A weights file with one weight of so many bytes.
    fn weights(bytes: usize) -> Vec<u8> {
        let header = format!(r#"{{"__metadata__":{{"format":"pt"}},"w":{{"dtype":"U8","shape":[{bytes}],"data_offsets":[0,{bytes}]}}}}"#);
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.extend(vec![7; bytes]);
        file
    }

    fn folder(config: &str, files: &[(&str, Vec<u8>)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("config.json"), config).unwrap();
        for (name, bytes) in files {
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        dir
    }

    const CONFIG: &str = r#"{"architectures":["LlamaForCausalLM"],"model_type":"llama","max_position_embeddings":4096}"#;

    #[test]
    fn a_whole_folder_tells_its_facts() {
        let tokenizer = br#"{"chat_template":"{{ messages }}"}"#.to_vec();
        let dir =
            folder(CONFIG, &[("model.safetensors", weights(10)), ("consolidated.safetensors", weights(99)), ("tokenizer_config.json", tokenizer)]);
        assert!(is_model_folder(dir.path()));
        let facts = inspect(dir.path()).unwrap().unwrap().facts;
        assert_eq!(facts.size, Bytes(weights(10).len() as u64));
        assert_eq!(facts.architecture.as_deref(), Some("LlamaForCausalLM"));
        assert_eq!((facts.trained_context, facts.has_chat_template), (Some(Tokens(4096)), Some(true)));
    }

    #[test]
    fn what_a_model_that_sees_says_of_text_counts() {
        let config = r#"{"architectures":["SeesForConditionalGeneration"],"text_config":{"max_position_embeddings":8192}}"#;
        let dir = folder(config, &[("model-00001-of-00002.safetensors", weights(1)), ("model-00002-of-00002.safetensors", weights(2))]);
        let facts = inspect(dir.path()).unwrap().unwrap().facts;
        assert_eq!((facts.trained_context, facts.has_chat_template), (Some(Tokens(8192)), None));
        assert_eq!(facts.size.0, (weights(1).len() + weights(2).len()) as u64);
    }

    #[test]
    fn heads_are_told_as_far_as_they_are_shared_out() {
        let heads_of = |config: &str| {
            let dir = folder(config, &[("model.safetensors", weights(1))]);
            inspect(dir.path()).unwrap().unwrap().heads
        };
        let known = r#"{"architectures":["LlamaForCausalLM"],"num_attention_heads":32,"num_key_value_heads":8}"#;
        assert_eq!(heads_of(known), Some(Heads { all: 32, kv: Some(8) }));
        let strange = r#"{"architectures":["SeesForConditionalGeneration"],"text_config":{"num_attention_heads":40,"num_key_value_heads":8}}"#;
        assert_eq!(heads_of(strange), Some(Heads { all: 40, kv: None }));
        assert_eq!(heads_of(CONFIG), None);
    }

    #[test]
    fn headers_that_would_take_much_memory_are_refused_or_passed_over() {
        let with_header = |header: &str| {
            let mut file = (header.len() as u64).to_le_bytes().to_vec();
            file.extend(header.as_bytes());
            file.extend([7; 10]);
            file
        };
        let deep = format!(
            r#"{{"__metadata__":{}1{},"w":{{"data_offsets":[0,10],"shape":[{}1]}}}}"#,
            "[".repeat(9999),
            "]".repeat(9999),
            "1,".repeat(99_999)
        );
        let dir = folder(CONFIG, &[("model.safetensors", with_header(&deep))]);
        assert!(inspect(dir.path()).unwrap().is_some(), "what nobody needs is passed over");
        let names: Vec<String> = (0..400_001).map(|n| format!(r#""{n}":{{"data_offsets":[0,1]}}"#)).collect();
        let dir = folder(CONFIG, &[("model.safetensors", with_header(&format!("{{{}}}", names.join(","))))]);
        assert_eq!(inspect(dir.path()).unwrap_err().kind, ProblemKind::BadModelFile);
        let dir = folder(CONFIG, &[]);
        let file = fs::File::create(dir.path().join("model.safetensors")).unwrap();
        std::io::Write::write_all(&mut &file, &(64u64 << 20).to_le_bytes()).unwrap();
        file.set_len(65 << 20).unwrap();
        assert!(inspect(dir.path()).unwrap_err().message.contains("header of 64.0 MiB"));
    }

    #[test]
    fn a_folder_whose_parts_are_not_all_there_does_not_look_like_a_model() {
        let one = ("model-00001-of-00002.safetensors", weights(1));
        assert!(!is_model_folder(folder(CONFIG, std::slice::from_ref(&one)).path()));
        assert!(is_model_folder(folder(CONFIG, &[one, ("model-00002-of-00002.safetensors", weights(1))]).path()));
    }

    #[test]
    fn a_folder_of_another_form_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(inspect(dir.path()).unwrap(), None);
        fs::write(dir.path().join("config.json"), CONFIG).unwrap();
        assert_eq!(inspect(dir.path()).unwrap(), None);
        assert!(!is_model_folder(dir.path()));
    }

    #[test]
    fn a_folder_that_is_not_whole_is_told_with_the_file() {
        let mut cut = weights(10);
        cut.pop();
        let index = br#"{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}"#.to_vec();
        let huge = [u64::MAX.to_le_bytes().to_vec(), vec![0; 20]].concat();
        let one = "model-00001-of-00002.safetensors";
        for (files, word) in [
            (vec![("model.safetensors", cut)], "cut"),
            (vec![("model.safetensors", b"short".to_vec())], "cut"),
            (vec![("model.safetensors", huge)], "cut"),
            (vec![(one, weights(1)), ("model.safetensors.index.json", index)], "model-00002-of-00002"),
        ] {
            let dir = folder(CONFIG, &files);
            let problem = inspect(dir.path()).unwrap_err();
            assert!(problem.kind == ProblemKind::BadModelFile && problem.message.contains(word), "{problem:?}");
        }
        let dir = folder("[]", &[("model.safetensors", weights(1))]);
        assert!(inspect(dir.path()).unwrap_err().message.contains("config.json"));
    }
}
