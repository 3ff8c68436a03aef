//! Models that lie in the models folder or on a model disk and are not registered yet: GGUF files, and folders in the form of Hugging Face.
//!
//! In: the folders and the paths already registered. Out: candidates with size and a suggested name. Judged by names and first letters
//! only; registering looks closer. Blocking. Links that lead out of the folders are passed over.

use std::{
    collections::BTreeSet,
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use warden_domain::model::Candidate;

use crate::{
    hf,
    inspect::{looks_like_a_model, size_of},
    name,
    place::Places,
};

const DEEPEST: u8 = 5;
const MOST_ENTRIES: usize = 5000;
const MOST_CANDIDATES: usize = 500;

/// Candidates, ordered by path. `unfinished` are folders of which a download still lacks files.
pub(crate) fn find(places: &Places, registered: &BTreeSet<PathBuf>, unfinished: &BTreeSet<PathBuf>) -> Vec<Candidate> {
    let mut found = Vec::new();
    let mut budget = MOST_ENTRIES;
    let mut take = |path: &Path| {
        let Ok(real) = path.canonicalize() else { return };
        let welcome = found.len() < MOST_CANDIDATES && places.holds(&real) && !registered.contains(&real);
        let welcome = welcome && if real.is_dir() { !unfinished.contains(&real) } else { begins_like_one(&real) };
        if let Some(size) = size_of(&real).filter(|_| welcome) {
            found.push(Candidate { suggested_name: name::suggest(&real), path: real, size });
        }
    };
    for root in places.searched() {
        walk(root, 0, &mut budget, &mut take);
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found.dedup_by(|a, b| a.path == b.path);
    found
}

fn walk(folder: &Path, depth: u8, budget: &mut usize, take: &mut impl FnMut(&Path)) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.filter_map(Result::ok) {
        if *budget == 0 {
            return;
        }
        *budget -= 1;
        let path = entry.path();
        // The entry's own type, so that a link to a folder is not followed and cannot make a circle.
        match entry.file_type() {
            // A folder that lacks parts of its weights is none: it may be half a copy.
            Ok(kind) if kind.is_dir() && hf::is_model_folder(&path) && !holds_a_file(&path) => take(&path),
            Ok(kind) if kind.is_dir() && depth < DEEPEST => walk(&path, depth + 1, budget, take),
            Ok(kind) if !kind.is_dir() && looks_like_a_model(&path) => take(&path),
            _ => {}
        }
    }
}

/// A folder with a GGUF file in it is registered by that file.
fn holds_a_file(folder: &Path) -> bool {
    fs::read_dir(folder).into_iter().flatten().take(MOST_ENTRIES).flatten().any(|entry| looks_like_a_model(&entry.path()))
}

fn begins_like_one(path: &Path) -> bool {
    let mut letters = [0u8; 4];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut letters)).is_ok() && letters == *b"GGUF"
}
