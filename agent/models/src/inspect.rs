//! Looking at a model on disk: the file itself, all its parts, or the one model of a folder.
//!
//! In: a real path inside an allowed folder. Out: the path to give to an engine and the facts of the model, or a sentence that names
//! the file and what is wrong with it. Blocking; callers run it off the async workers. Never opens anything but plain files.

use std::{
    fs::{self, File, OpenOptions},
    io::BufReader,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use nix::libc::O_NONBLOCK;
use warden_domain::{
    Problem, ProblemKind,
    engine::EngineKind,
    model::{FileLook, ModelFacts},
    share::Heads,
    units::{Bytes, Tokens},
};

use crate::{
    gguf::{Header, read_header},
    hf,
    split::part_of,
};

/// A model found whole.
#[derive(Debug)]
pub(crate) struct Found {
    /// The file to load; the first part of a split model; the folder of a model that is one.
    pub(crate) path: PathBuf,
    /// The engine that reads it.
    pub(crate) engine: EngineKind,
    /// What its header says; the size counts all parts.
    pub(crate) facts: ModelFacts,
    /// Its heads, where the engine has to share them out evenly among cards.
    pub(crate) heads: Option<Heads>,
}

/// Folder listings in sentences stop here.
const NAMES_SHOWN: usize = 8;
/// Files of a folder that are looked at.
const FILES_LOOKED_AT: usize = 2000;

/// Looks at a file or folder.
pub(crate) fn inspect(path: &Path) -> Result<Found, Problem> {
    if !path.is_dir() {
        return inspect_file(path);
    }
    match only_model_in(path) {
        Ok(file) => inspect_file(&file),
        // No GGUF file in it: it may be a model as a whole.
        Err(problem) => match hf::inspect(path)? {
            Some(model) if !holds_gguf(path) => Ok(Found { path: path.to_owned(), engine: EngineKind::Vllm, facts: model.facts, heads: model.heads }),
            _ => Err(problem),
        },
    }
}

fn inspect_file(path: &Path) -> Result<Found, Problem> {
    let parts = parts_of(path)?;
    let mut size = 0u64;
    let mut first = None;
    for (number, part) in parts.iter().enumerate() {
        let (header, length) = header_of(part)?;
        size = size.saturating_add(length);
        if number == 0 {
            refuse_what_cannot_chat(part, &header, parts.len())?;
            first = Some(header);
        }
    }
    let header = first.unwrap_or_default();
    Ok(Found {
        path: parts.into_iter().next().unwrap_or_else(|| path.to_owned()),
        engine: EngineKind::LlamaCpp,
        facts: ModelFacts {
            size: Bytes(size),
            architecture: header.architecture,
            title: header.title,
            trained_context: header.trained_context.map(Tokens),
            has_chat_template: Some(header.has_chat_template),
        },
        heads: None,
    })
}

/// The file itself, or all parts of the set it belongs to. A part that is missing is named.
pub(crate) fn parts_of(path: &Path) -> Result<Vec<PathBuf>, Problem> {
    let Some(part) = path.file_name().and_then(|n| n.to_str()).and_then(part_of) else { return Ok(vec![path.to_owned()]) };
    let folder = path.parent().unwrap_or(Path::new("/"));
    let parts: Vec<PathBuf> = part.all_names().iter().map(|name| folder.join(name)).collect();
    match parts.iter().find(|part| !part.is_file()) {
        None => Ok(parts),
        Some(gone) => Err(bad(path, &format!("is one of {} parts, and {} is not beside it", part.count, name_of(gone)))
            .hint("Copy all parts of the model into the same folder.")),
    }
}

fn header_of(path: &Path) -> Result<(Header, u64), Problem> {
    let file = open_plain(path)?;
    let size = file.metadata().map_err(|cause| unreadable(path, &cause))?.len();
    let header = read_header(BufReader::with_capacity(64 * 1024, file), size).map_err(|fault| {
        bad(path, &format!("cannot be used: {fault}"))
            .hint("Copy the model again and compare its size with the original. Models for llama.cpp are files in the GGUF format.")
    })?;
    Ok((header, size))
}

/// Opens without waiting (a pipe would) and refuses everything that is not a plain file.
pub(crate) fn open_plain(path: &Path) -> Result<File, Problem> {
    let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path).map_err(|cause| unreadable(path, &cause))?;
    match file.metadata() {
        Ok(about) if about.is_file() => Ok(file),
        Ok(_) => Err(bad(path, "is not a plain file").hint("Name a model file in the GGUF format, or a folder with one in it.")),
        Err(cause) => Err(unreadable(path, &cause)),
    }
}

/// What a file is that is no whole model, by its kind and architecture, and what to name instead.
pub(crate) fn no_whole_model(kind: Option<&str>, architecture: Option<&str>) -> Option<(&'static str, &'static str)> {
    match (kind, architecture) {
        (Some("mmproj"), _) | (_, Some("clip")) => {
            Some(("is only the image part (mmproj) of a model", "Name the language model that lies beside it."))
        }
        (Some("adapter"), _) => Some(("is an adapter, not a whole model", "Name the model that the adapter was made for.")),
        _ => None,
    }
}

fn refuse_what_cannot_chat(path: &Path, header: &Header, parts: usize) -> Result<(), Problem> {
    if let Some((what, hint)) = no_whole_model(header.kind.as_deref(), header.architecture.as_deref()) {
        return Err(bad(path, what).hint(hint));
    }
    if header.architecture.is_none() {
        return Err(bad(path, "does not say which architecture it has").hint("Convert the model again with a present version of llama.cpp's tools."));
    }
    if header.tensors == 0 {
        return Err(bad(path, "holds no weights, only a vocabulary").hint("Name the file with the weights."));
    }
    match header.split_count {
        Some(count) if count > 1 && count != parts as u64 => Err(bad(path, &format!("is one of {count} parts, but its name does not say so"))
            .hint("Give the parts their original names, such as model-00001-of-00003.gguf.")),
        _ => Ok(()),
    }
}

/// The one model of a folder, or a sentence that lists what is there.
fn only_model_in(folder: &Path) -> Result<PathBuf, Problem> {
    let mut models: Vec<PathBuf> = fs::read_dir(folder)
        .map_err(|cause| unreadable(folder, &cause))?
        .take(FILES_LOOKED_AT)
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| looks_like_a_model(path) && stays_in(folder, path))
        .collect();
    models.sort();
    match models.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(bad(folder, "holds no model file").hint("Name a folder with one file whose name ends in .gguf, or name the file itself.")),
        many => {
            let names: Vec<String> = many.iter().take(NAMES_SHOWN).map(|path| name_of(path)).collect();
            let more = if many.len() > NAMES_SHOWN { format!(" and {} more", many.len() - NAMES_SHOWN) } else { String::new() };
            Err(bad(folder, &format!("holds {} models: {}{more}", many.len(), names.join(", "))).hint("Name the file you want."))
        }
    }
}

fn holds_gguf(folder: &Path) -> bool {
    fs::read_dir(folder).into_iter().flatten().take(FILES_LOOKED_AT).filter_map(Result::ok).any(|entry| looks_like_a_model(&entry.path()))
}

/// A link that leads out of the folder is not one of its models.
fn stays_in(folder: &Path, path: &Path) -> bool {
    matches!((folder.canonicalize(), path.canonicalize()), (Ok(folder), Ok(path)) if path.starts_with(&folder))
}

/// By its name: a GGUF file that is neither a later part of a set nor the image part of another model.
pub(crate) fn looks_like_a_model(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|n| n.to_str()) else { return false };
    let later_part = part_of(name).is_some_and(|part| part.number > 1);
    name.ends_with(".gguf") && !name.starts_with('.') && !name.contains("mmproj") && !later_part && path.is_file()
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

fn bad(path: &Path, what: &str) -> Problem {
    Problem::new(ProblemKind::BadModelFile, format!("{} {what}.", path.display())).param("path")
}

fn unreadable(path: &Path, cause: &std::io::Error) -> Problem {
    let what = match cause.kind() {
        std::io::ErrorKind::NotFound => "does not exist".to_owned(),
        std::io::ErrorKind::PermissionDenied => "may not be read by the agent".to_owned(),
        _ => format!("cannot be read ({cause})"),
    };
    bad(path, &what).hint("Check that the file is there and that the agent's user may read it.")
}

/// Whether a registered model still lies there with the size it had; by its directory entries alone.
pub(crate) fn file_look(path: &Path, registered: Bytes) -> FileLook {
    if path.is_dir() {
        return match hf::size_of(path) {
            None => FileLook::Missing(format!("{} holds no weights any more.", path.display())),
            Some(now) if now == registered => FileLook::Whole,
            Some(now) => FileLook::Changed { now },
        };
    }
    let parts = match parts_of(path) {
        Ok(parts) => parts,
        Err(problem) => return FileLook::Missing(problem.message),
    };
    let mut now = Bytes(0);
    for part in parts {
        match fs::metadata(&part) {
            Ok(about) if about.is_file() => now = now + Bytes(about.len()),
            Ok(_) => return FileLook::Missing(format!("{} is not a plain file.", part.display())),
            Err(cause) => return FileLook::Missing(unreadable(&part, &cause).message),
        }
    }
    if now == registered { FileLook::Whole } else { FileLook::Changed { now } }
}

/// Size of a model by its directory entries alone, all parts together.
pub(crate) fn size_of(path: &Path) -> Option<Bytes> {
    if path.is_dir() {
        return hf::size_of(path);
    }
    let parts = parts_of(path).ok()?;
    parts.iter().map(|part| fs::metadata(part).ok().map(|about| Bytes(about.len()))).sum()
}
