//! What the files of a repository are, by name, and what of them can be fetched as one model. Pure.

use std::collections::BTreeMap;

use warden_domain::{
    engine::EngineKind,
    hub::{Choice, FileKind, HubFile},
    units::Bytes,
};

use super::tree::Entry;
use crate::split::part_of;

/// How names of vocabularies and chat templates begin.
const TOKENIZER: &[&str] =
    &["tokenizer", "vocab", "merges", "special_tokens_map", "added_tokens", "chat_template", "tekken", "spiece", "sentencepiece"];
/// How such names end: text and tables that no program runs. Whatever ends otherwise is not fetched, whatever its name begins with.
const HARMLESS: &[&str] = &[".json", ".txt", ".model", ".model.v1", ".model.v2", ".model.v3", ".model.v7", ".jinja", ".tiktoken"];
/// Pickles: reading one runs what is in it.
const PICKLES: &[&str] = &[".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".dill", ".npy", ".npz", ".mar", ".nemo"];
/// Programs, libraries and archives of them.
const CODE: &[&str] = &[
    ".py",
    ".pyc",
    ".pyo",
    ".pyd",
    ".pyx",
    ".pyi",
    ".ipynb",
    ".so",
    ".dylib",
    ".dll",
    ".exe",
    ".sh",
    ".bash",
    ".js",
    ".mjs",
    ".jar",
    ".class",
    ".wasm",
    ".ps1",
    ".bat",
    ".cmd",
    ".pl",
    ".rb",
    ".lua",
    ".c",
    ".cc",
    ".cpp",
    ".cu",
    ".cuh",
    ".h",
    ".hpp",
    ".rs",
    ".go",
    ".ptx",
    ".cubin",
    ".whl",
    ".egg",
    ".o",
    ".a",
    ".ko",
    ".deb",
    ".rpm",
    ".appimage",
    ".llamafile",
];

/// All files with their kinds.
pub(crate) fn files(entries: Vec<Entry>) -> Vec<HubFile> {
    let has_index = entries.iter().any(|entry| entry.path == "model.safetensors.index.json");
    let has_usual = entries.iter().any(|entry| entry.path.starts_with("model") && entry.path.ends_with(".safetensors"));
    let file = |entry: Entry| {
        let kind = kind(&entry.path, has_index, has_usual);
        HubFile { path: entry.path, size: Bytes(entry.size), kind, promise: entry.promise }
    };
    entries.into_iter().map(file).collect()
}

fn kind(path: &str, has_index: bool, has_usual: bool) -> FileKind {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    if name.ends_with(".gguf") {
        return if is_projector(&name) {
            FileKind::Mmproj
        } else if name.contains("lora") || name.contains("adapter") {
            FileKind::Adapter
        } else {
            FileKind::Gguf
        };
    }
    if name.ends_with(".safetensors") {
        let sharded = is_shard(&name);
        return if name.starts_with("adapter") {
            FileKind::Adapter
        } else if path.contains('/') || (name.starts_with("consolidated") && has_usual) || (has_index && !sharded) {
            FileKind::Duplicate
        } else if sharded {
            FileKind::SafetensorsSharded
        } else {
            FileKind::SafetensorsSingle
        };
    }
    let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
    if ends(PICKLES) {
        return FileKind::PytorchBin;
    }
    // A library may have its version behind its ending.
    if ends(CODE) || name.contains(".so.") {
        return FileKind::Code;
    }
    if (TOKENIZER.iter().any(|begin| name.starts_with(begin)) && ends(HARMLESS)) || name.ends_with(".tiktoken") {
        return FileKind::Tokenizer;
    }
    if name.ends_with("config.json") || name.ends_with(".index.json") {
        return FileKind::Config;
    }
    FileKind::Other
}

/// Whether a file is the image part of a model for llama.cpp, by its name.
pub(crate) fn is_projector(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    name.ends_with(".gguf") && name.contains("mmproj")
}

/// The image part that goes with a model: one beside it, as an engine is given no other. Of several the one with 16-bit floats, which every
/// processor and card computes with, then the smallest.
fn projector<'a>(files: &'a [HubFile], model: &str) -> Option<&'a HubFile> {
    let folder = |path: &str| path.rsplit_once('/').map(|(folder, _)| folder.to_owned());
    let near = |file: &&HubFile| file.kind == FileKind::Mmproj && folder(&file.path) == folder(model);
    // One that is split is nothing that the engine takes.
    let whole = |file: &&HubFile| part_of(file.path.rsplit('/').next().unwrap_or_default()).is_none();
    let rank = |file: &&HubFile| (quantisation(&file.path).as_deref() != Some("F16"), file.size, file.path.clone());
    files.iter().filter(near).filter(whole).min_by_key(rank)
}

/// `…-00001-of-00003.safetensors`.
fn is_shard(name: &str) -> bool {
    name.strip_suffix(".safetensors").is_some_and(|stem| part_of(&format!("{stem}.gguf")).is_some())
}

/// What can be fetched and run, the smallest first.
pub(crate) fn choices(files: &[HubFile]) -> Vec<Choice> {
    let mut found = gguf(files);
    found.sort_by(|a, b| a.size.cmp(&b.size).then_with(|| a.filename.cmp(&b.filename)));
    found.extend(safetensors(files));
    found
}

/// One choice per GGUF file, or per set of parts.
fn gguf(files: &[HubFile]) -> Vec<Choice> {
    let mut sets: BTreeMap<(String, u32), Vec<&HubFile>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.kind == FileKind::Gguf) {
        let (folder, name) = file.path.rsplit_once('/').map_or(("", file.path.as_str()), |(folder, name)| (folder, name));
        let key = part_of(name).map_or_else(|| (file.path.clone(), 0), |part| (format!("{folder}/{}", part.stem), part.count));
        sets.entry(key).or_default().push(file);
    }
    sets.into_iter()
        .filter_map(|((_, count), mut parts)| {
            parts.sort_by(|a, b| a.path.cmp(&b.path));
            let first = parts.first()?;
            let missing = (count as usize).saturating_sub(parts.len());
            let weights: Bytes = parts.iter().map(|part| part.size).sum();
            let projector = projector(files, &first.path);
            Some(Choice {
                filename: first.path.clone(),
                quantisation: quantisation(&first.path),
                engine: EngineKind::LlamaCpp,
                weights,
                size: weights + projector.map_or(Bytes(0), |file| file.size),
                incomplete: (missing > 0).then(|| format!("{missing} of its {count} parts are not in the repository.")),
                files: parts.into_iter().chain(projector).cloned().collect(),
            })
        })
        .collect()
}

/// All safetensors files that an engine loads, with what lies beside them.
fn safetensors(files: &[HubFile]) -> Option<Choice> {
    let is_weight = |file: &&HubFile| matches!(file.kind, FileKind::SafetensorsSingle | FileKind::SafetensorsSharded);
    let weights: Vec<&HubFile> = files.iter().filter(is_weight).collect();
    let first = weights.first()?;
    let beside = files.iter().filter(|file| matches!(file.kind, FileKind::Config | FileKind::Tokenizer) && !file.path.contains('/'));
    let total = weights.iter().filter_map(|file| part_of(&file.path.replace(".safetensors", ".gguf"))).map(|part| part.count as usize).max();
    let missing = total.unwrap_or(0).saturating_sub(weights.len());
    let weight_bytes: Bytes = weights.iter().map(|file| file.size).sum();
    let all: Vec<HubFile> = weights.iter().copied().chain(beside).cloned().collect();
    let has_config = all.iter().any(|file| file.path == "config.json");
    let incomplete = if missing > 0 {
        Some(format!("{missing} parts are not in the repository."))
    } else {
        (!has_config).then(|| "There is no config.json beside it.".to_owned())
    };
    Some(Choice {
        filename: first.path.clone(),
        quantisation: None,
        engine: EngineKind::Vllm,
        weights: weight_bytes,
        size: all.iter().map(|file| file.size).sum(),
        files: all,
        incomplete,
    })
}

/// The number format in a file's name: `Q4_K_M`, `IQ3_XXS`, `BF16`…
pub(crate) fn quantisation(path: &str) -> Option<String> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = part_of(name).map_or_else(|| name.strip_suffix(".gguf").unwrap_or(name).to_owned(), |part| part.stem);
    let tokens: Vec<String> = stem.split(['-', '.', ' ']).map(str::to_ascii_uppercase).collect();
    tokens.into_iter().rev().find(|token| is_format(token))
}

fn is_format(token: &str) -> bool {
    let rest = token.strip_prefix('I').unwrap_or(token);
    let quantised = |rest: &str| {
        let mut bytes = rest.bytes();
        bytes.next() == Some(b'Q')
            && bytes.next().is_some_and(|b| b.is_ascii_digit())
            && bytes.all(|b| matches!(b, b'_' | b'0'..=b'9' | b'K' | b'M' | b'S' | b'L' | b'X' | b'N'))
    };
    quantised(rest) || matches!(token, "BF16" | "F16" | "F32" | "FP16" | "MXFP4" | "NVFP4" | "TQ1_0" | "TQ2_0")
}

/// `general.file_type` of a header, as llama.cpp numbers it.
pub(crate) fn file_type(number: u64) -> Option<&'static str> {
    const NAMES: &[(u64, &str)] = &[
        (0, "F32"),
        (1, "F16"),
        (2, "Q4_0"),
        (3, "Q4_1"),
        (7, "Q8_0"),
        (8, "Q5_0"),
        (9, "Q5_1"),
        (10, "Q2_K"),
        (11, "Q3_K_S"),
        (12, "Q3_K_M"),
        (13, "Q3_K_L"),
        (14, "Q4_K_S"),
        (15, "Q4_K_M"),
        (16, "Q5_K_S"),
        (17, "Q5_K_M"),
        (18, "Q6_K"),
        (19, "IQ2_XXS"),
        (20, "IQ2_XS"),
        (21, "Q2_K_S"),
        (22, "IQ3_XS"),
        (23, "IQ3_XXS"),
        (24, "IQ1_S"),
        (25, "IQ4_NL"),
        (26, "IQ3_S"),
        (27, "IQ3_M"),
        (28, "IQ2_S"),
        (29, "IQ2_M"),
        (30, "IQ4_XS"),
        (31, "IQ1_M"),
        (32, "BF16"),
    ];
    NAMES.iter().find(|(n, _)| *n == number).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use warden_domain::hub::Promise;

    use super::*;

    fn of(list: &[(&str, u64)]) -> Vec<HubFile> {
        let entry = |(path, size): &(&str, u64)| Entry { path: (*path).to_owned(), size: *size, promise: Promise::GitBlob(String::new()) };
        files(list.iter().map(entry).collect())
    }

    #[test]
    fn parts_are_one_choice_and_a_missing_one_is_told() {
        let found = choices(&of(&[
            ("big/m-Q8_0-00002-of-00002.gguf", 30),
            ("big/m-Q8_0-00001-of-00002.gguf", 40),
            ("m-Q4_K_M.gguf", 20),
            ("x-00001-of-00003.gguf", 5),
            ("mmproj-m-f16.gguf", 3),
            ("m-lora-f16.gguf", 3),
        ]));
        let seen: Vec<_> = found.iter().map(|c| (c.filename.as_str(), c.size.0, c.quantisation.as_deref(), c.incomplete.is_some())).collect();
        assert_eq!(
            seen,
            [
                ("x-00001-of-00003.gguf", 8, None, true),
                ("m-Q4_K_M.gguf", 23, Some("Q4_K_M"), false),
                ("big/m-Q8_0-00001-of-00002.gguf", 70, Some("Q8_0"), false)
            ]
        );
        assert_eq!(found[1].weights, Bytes(20), "the image part is no weight of the model");
    }

    #[test]
    fn the_same_weights_in_another_form_are_not_counted_twice() {
        let found = choices(&of(&[
            ("model-00001-of-00002.safetensors", 50),
            ("model-00002-of-00002.safetensors", 40),
            ("model.safetensors.index.json", 1),
            ("consolidated.safetensors", 90),
            ("original/model.safetensors", 90),
            ("pytorch_model.bin", 90),
            ("config.json", 1),
            ("tokenizer.json", 2),
            ("README.md", 1),
        ]));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].weights.0, found[0].size.0, found[0].engine), (90, 94, EngineKind::Vllm));
        assert_eq!(found[0].incomplete, None);
    }

    #[test]
    fn formats_are_read_off_the_names_people_give() {
        for (name, format) in [
            ("SmolLM2-135M-Instruct.Q4_1.gguf", Some("Q4_1")),
            ("Qwen2.5-0.5B-Instruct-IQ3_XXS.gguf", Some("IQ3_XXS")),
            ("model-bf16.gguf", Some("BF16")),
            ("UD-Q4_K_XL/m-UD-Q4_K_XL-00001-of-00003.gguf", Some("Q4_K_XL")),
            ("Qwen3-8B.gguf", None),
        ] {
            assert_eq!(quantisation(name).as_deref(), format, "{name}");
        }
    }

    #[test]
    fn kinds_have_the_names_older_scripts_know() {
        let kinds: Vec<_> = of(&[("model.safetensors", 1), ("generation_config.json", 1), ("vocab.json", 1), ("a.pth", 1), ("LICENSE", 1)])
            .iter()
            .map(|file| file.kind.as_str())
            .collect();
        assert_eq!(kinds, ["safetensors_single", "config", "tokenizer", "pytorch_bin", "other"]);
    }

    #[test]
    fn an_image_part_comes_with_the_models_it_belongs_to() {
        let of_model = |list: &[(&str, u64)], model: &str| {
            let found = choices(&of(list));
            let choice = found.iter().find(|choice| choice.filename == model).unwrap();
            assert_eq!(choice.files.first().unwrap().path, model, "weights first");
            choice.projector().map(|file| file.path.clone())
        };
        let two = [("m-Q4_0.gguf", 9), ("mmproj-BF16.gguf", 4), ("mmproj-F16.gguf", 5), ("mmproj-F32.gguf", 8)];
        assert_eq!(of_model(&two, "m-Q4_0.gguf").as_deref(), Some("mmproj-F16.gguf"));
        let folders = [("a/m-Q4_0.gguf", 9), ("a/mmproj-m-q8_0.gguf", 4), ("b/n-Q4_0.gguf", 9), ("c/mmproj-o-f16.gguf", 3), ("MMPROJ-f16.GGUF", 7)];
        assert_eq!(of_model(&folders, "a/m-Q4_0.gguf").as_deref(), Some("a/mmproj-m-q8_0.gguf"), "the one beside it");
        assert_eq!(of_model(&folders, "b/n-Q4_0.gguf"), None, "never that of another folder");
        assert_eq!(of_model(&[("m-Q4_0.gguf", 9), ("x/mmproj-f16.gguf", 1)], "m-Q4_0.gguf"), None, "never that of another folder");
    }

    #[test]
    fn nothing_that_would_run_is_fetched_with_a_model() {
        let mut list = vec![
            ("model.safetensors", 50),
            ("config.json", 1),
            ("generation_config.json", 1),
            ("tokenizer.json", 1),
            ("tokenizer.model", 1),
            ("tokenizer.model.v3", 1),
            ("tekken.json", 1),
            ("vocab.txt", 1),
            ("merges.txt", 1),
            ("chat_template.jinja", 1),
            ("qwen.tiktoken", 1),
        ];
        let fetched = list.len();
        let hostile = [
            "tokenizer.py",
            "tokenization_x.py",
            "tokenizer_config.json.py",
            "tokenizer.so",
            "tokenizer.so.1",
            "tokenizer.bin",
            "tokenizer.pkl",
            "vocab.pickle",
            "vocab.pt",
            "merges.txt.sh",
            "chat_template.js",
            "tokenizer",
            "tokenizer.unheard-of",
            "added_tokens.PY",
            "special_tokens_map.exe",
            "modeling_x.py",
            "config.json.so",
        ];
        list.extend(hostile.map(|name| (name, 1)));
        let files = of(&list);
        let found = choices(&files);
        let paths: Vec<&str> = found[0].files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths.len(), fetched, "{paths:?}");
        assert!(hostile.iter().all(|name| !paths.contains(name)), "{paths:?}");
        let code = files.iter().filter(|file| matches!(file.kind, FileKind::Code | FileKind::PytorchBin)).count();
        assert_eq!(code, hostile.len() - 2, "all but the two of no known ending are told as such");
    }
}
