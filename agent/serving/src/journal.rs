//! With which settings each launch was started: one small file per launch, on the medium before its engine is started.
//!
//! In: an attempt and its settings. Out: what was written, for the agent that starts next and finds engines running. A launch without a
//! record was started by an earlier version. Blocking.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use warden_domain::{
    ids::{GenerationId, ModelId, ReplicaId},
    model::ModelConfig,
};

const FORMAT: u32 = 1;
/// Most bytes of one record; the longest settings come to a third of it.
const LARGEST: u64 = 256 * 1024;
/// Most records that are read; there is one per replica, and a few that a kill left.
const MOST: usize = 4096;
const ENDING: &str = ".launch.json";

/// One launch as it was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Started {
    format: u32,
    pub(crate) generation: GenerationId,
    pub(crate) replica: ReplicaId,
    pub(crate) model: ModelId,
    /// Number of the replica, from 0.
    pub(crate) seat: u16,
    pub(crate) config: ModelConfig,
    /// It answered at some time, so that its silence is no load that takes long.
    #[serde(default)]
    pub(crate) answered: bool,
}

impl Started {
    pub(crate) const fn new(generation: GenerationId, replica: ReplicaId, model: ModelId, seat: u16, config: ModelConfig) -> Self {
        Self { format: FORMAT, generation, replica, model, seat, config, answered: false }
    }
}

/// Writes a record.
///
/// # Errors
/// What the system says; nothing is to be started then.
pub(crate) fn write(folder: &Path, started: &Started) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let text = serde_json::to_vec(started).map_err(io::Error::other)?;
    warden_durable::write_with_mode(&folder.join(format!("{}{ENDING}", started.generation)), &text, 0o600)
}

/// All records by their attempt. What cannot be read is passed over: its engine is then taken for what the model was loaded with.
pub(crate) fn read(folder: &Path) -> BTreeMap<GenerationId, Started> {
    files(folder).into_iter().filter_map(|path| read_file(&path)).map(|started| (started.generation.clone(), started)).collect()
}

/// Removes what a kill left of records that were being written. Only while nothing is being started.
pub(crate) fn clear_unfinished(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).take(MOST) {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with('.') && name.ends_with(".new")) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Removes the records of all attempts that are not to be kept.
pub(crate) fn keep(folder: &Path, kept: impl Fn(&Started) -> bool) {
    for path in files(folder) {
        if !read_file(&path).is_some_and(|started| kept(&started)) {
            let _ = fs::remove_file(path);
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).take(MOST);
    entries.map(|entry| entry.path()).filter(|path| path.to_str().is_some_and(|name| name.ends_with(ENDING))).collect()
}

fn read_file(path: &Path) -> Option<Started> {
    let about = fs::symlink_metadata(path).ok()?;
    if !about.is_file() || about.len() > LARGEST {
        return None;
    }
    let started: Started = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    (started.format == FORMAT).then_some(started)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::with;

    fn started(generation: &str, seat: u16) -> Started {
        let model = with(2, &["a", "b"]);
        let replica = ReplicaId::new(format!("tiny-{seat}")).unwrap();
        Started::new(GenerationId::from_stored(generation), replica, model.id, seat, model.config)
    }

    #[test]
    fn two_launches_of_one_replica_are_told_apart_and_what_is_broken_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("launches");
        assert!(read(&folder).is_empty());
        for generation in ["gen_1", "gen_2"] {
            write(&folder, &started(generation, 0)).unwrap();
        }
        fs::write(folder.join(format!("half{ENDING}")), b"{").unwrap();
        fs::write(folder.join(format!(".gen_3{ENDING}.new")), b"{").unwrap();
        clear_unfinished(&folder);
        let found = read(&folder);
        assert_eq!(found.keys().map(GenerationId::as_str).collect::<Vec<_>>(), ["gen_1", "gen_2"]);
        assert_eq!(found[&GenerationId::from_stored("gen_2")], started("gen_2", 0));
        keep(&folder, |started| started.generation.as_str() == "gen_2");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn a_disk_that_takes_nothing_is_an_error_before_anything_starts() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("launches"), b"").unwrap();
        assert!(write(&dir.path().join("launches"), &started("gen_1", 0)).is_err());
    }
}
