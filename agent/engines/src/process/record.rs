//! What is written down about a launch, so that an agent that starts later finds it again.
//!
//! One JSON file per replica in the runtime folder, replaced as a whole and flushed to disk.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use warden_domain::{
    engine::EngineKind,
    ids::{GenerationId, ReplicaId},
};

use super::identity::Identity;

const FORMAT: u32 = 1;
const LARGEST: u64 = 64 * 1024;
const ENDING: &str = "launch.json";

/// A launch as written down. Without a process it is an intention: the agent ended between writing it and starting the engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    format: u32,
    pub(super) replica: ReplicaId,
    pub(super) generation: GenerationId,
    #[serde(default = "first_engine")]
    pub(super) engine: EngineKind,
    pub(super) socket: PathBuf,
    pub(super) process: Option<Identity>,
}

impl Record {
    pub(super) const fn new(replica: ReplicaId, generation: GenerationId, engine: EngineKind, socket: PathBuf) -> Self {
        Self { format: FORMAT, replica, generation, engine, socket, process: None }
    }
}

/// The engine of records that were written before there was a second one.
const fn first_engine() -> EngineKind {
    EngineKind::LlamaCpp
}

pub(super) fn path_of(folder: &Path, replica: &ReplicaId) -> PathBuf {
    folder.join(format!("{replica}.{ENDING}"))
}

/// Writes the record; on an error the old one is still there.
pub(super) fn write(folder: &Path, record: &Record) -> io::Result<()> {
    let text = serde_json::to_vec(record).map_err(io::Error::other)?;
    warden_durable::write_with_mode(&path_of(folder, &record.replica), &text, 0o600)
}

/// The record of a replica; `None` when there is none or it cannot be understood.
pub(super) fn read(folder: &Path, replica: &ReplicaId) -> Option<Record> {
    read_file(&path_of(folder, replica)).filter(|record| record.replica == *replica)
}

/// All records that can be understood.
pub(super) fn all(folder: &Path) -> io::Result<Vec<Record>> {
    let mut records = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.file_name().and_then(|n| n.to_str()).is_some_and(|name| name.ends_with(ENDING)) {
            records.extend(read_file(&path));
        }
    }
    Ok(records)
}

pub(super) fn remove(folder: &Path, replica: &ReplicaId) {
    let _ = fs::remove_file(path_of(folder, replica));
}

fn read_file(path: &Path) -> Option<Record> {
    let about = fs::symlink_metadata(path).ok()?;
    if !about.is_file() || about.len() > LARGEST {
        return None;
    }
    let record: Record = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    (record.format == FORMAT).then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_and_rubbish_beside_it_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let replica = ReplicaId::new("tiny-0").unwrap();
        let record = Record::new(replica.clone(), GenerationId::random(), EngineKind::Vllm, "/x/tiny-0.sock".into());
        write(dir.path(), &record).unwrap();
        fs::write(dir.path().join("half.launch.json"), b"{").unwrap();
        fs::create_dir(dir.path().join("dir.launch.json")).unwrap();
        assert_eq!(all(dir.path()).unwrap(), std::slice::from_ref(&record));
        assert_eq!(read(dir.path(), &replica), Some(record));
        remove(dir.path(), &replica);
        assert_eq!(read(dir.path(), &replica), None);
    }
}
