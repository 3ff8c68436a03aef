//! The folders of the process runner: sockets, records, logs, and the rules that a Unix socket puts on paths.

use std::{
    fs,
    io::ErrorKind,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, FileTypeExt, PermissionsExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use warden_domain::{Problem, ProblemKind, ids::ReplicaId};

use super::record::{self, Record};
use crate::log;

/// Longest path the kernel takes for a Unix socket, in bytes.
const LONGEST_SOCKET_PATH: usize = 107;
/// Length of a socket's name when the replica's own would be too long: 16 letters and `.sock`.
const SHORT_NAME: usize = 21;

pub(super) struct Place {
    pub(super) runtime_dir: PathBuf,
    log_dir: PathBuf,
}

impl Place {
    /// Makes the folders and checks that sockets can lie in them.
    pub(super) fn prepare(runtime_dir: PathBuf, log_dir: PathBuf) -> Result<Self, Problem> {
        let bytes = runtime_dir.as_os_str().as_bytes();
        if !runtime_dir.is_absolute() || bytes.len() + 1 + SHORT_NAME > LONGEST_SOCKET_PATH || bytes.contains(&b',') || runtime_dir.to_str().is_none()
        {
            return Err(Problem::new(ProblemKind::Invalid, format!("{} cannot hold the sockets of engines.", runtime_dir.display()))
                .hint(format!("Use an absolute path of at most {} bytes without a comma.", LONGEST_SOCKET_PATH - 1 - SHORT_NAME)));
        }
        for folder in [&runtime_dir, &log_dir] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|cause| said(folder, &cause))?;
        }
        // Whoever can reach a socket can use the model without a key.
        fs::set_permissions(&runtime_dir, fs::Permissions::from_mode(0o700)).map_err(|cause| said(&runtime_dir, &cause))?;
        Ok(Self { runtime_dir, log_dir })
    }

    pub(super) fn socket(&self, replica: &ReplicaId) -> PathBuf {
        let plain = self.runtime_dir.join(format!("{replica}.sock"));
        if plain.as_os_str().len() <= LONGEST_SOCKET_PATH {
            return plain;
        }
        let digest = hex::encode(Sha256::digest(replica.as_str().as_bytes()));
        self.runtime_dir.join(format!("{}.sock", &digest[..16]))
    }

    pub(super) fn log(&self, replica: &ReplicaId) -> PathBuf {
        self.log_dir.join(format!("{replica}.log"))
    }

    /// The log of the last run is kept beside the new one, so that a cause is only looked for in the lines of its own run.
    pub(super) fn rotate_log(&self, replica: &ReplicaId) -> Result<(), Problem> {
        let path = self.log(replica);
        match fs::rename(&path, path.with_extension("log.old")) {
            Err(cause) if cause.kind() != ErrorKind::NotFound => Err(said(&path, &cause)),
            _ => Ok(()),
        }
    }

    pub(super) fn write_record(&self, record: &Record) -> Result<(), Problem> {
        record::write(&self.runtime_dir, record).map_err(|cause| said(&self.runtime_dir, &cause))
    }

    /// Removes a socket that nobody listens on any more. What is no dead socket is somebody else's and is left alone.
    pub(super) fn free_socket(&self, replica: &ReplicaId) -> Result<(), Problem> {
        let path = self.socket(replica);
        let taken = |what: &str| {
            Problem::new(ProblemKind::Conflict, format!("{} is needed for the engine's socket and is taken by {what}.", path.display()))
                .hint("Remove it, then load the model again.")
        };
        match fs::symlink_metadata(&path) {
            Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(()),
            Err(cause) => Err(said(&path, &cause)),
            Ok(about) if !about.file_type().is_socket() => Err(taken("a file that is no socket")),
            Ok(_) if UnixStream::connect(&path).is_ok() => Err(taken("a program that is not ours and listens there")),
            Ok(_) => fs::remove_file(&path).map_err(|cause| said(&path, &cause)),
        }
    }

    pub(super) fn bound_logs(&self) {
        let Ok(entries) = fs::read_dir(&self.log_dir) else { return };
        for path in entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "log")) {
            if let Err(cause) = log::bound(&path) {
                tracing::warn!(path = %path.display(), %cause, "a log that grew too large could not be cut");
            }
        }
    }
}

fn said(path: &Path, cause: &std::io::Error) -> Problem {
    let problem = Problem::from_io(&path.display().to_string(), cause);
    match problem.hint {
        Some(_) => problem,
        None => problem.hint("Check that the folder is there and that the agent's user may write in it."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_replica_name_still_gets_a_socket_the_kernel_takes() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("x".repeat(40));
        let place = Place::prepare(deep, dir.path().join("logs")).unwrap();
        for name in ["a".to_owned(), "b".repeat(64)] {
            let socket = place.socket(&ReplicaId::new(name).unwrap());
            assert!(socket.as_os_str().len() <= LONGEST_SOCKET_PATH);
            assert!(socket.to_str().unwrap().ends_with(".sock"));
        }
    }

    #[test]
    fn a_folder_that_cannot_hold_sockets_is_refused_with_a_rule() {
        let dir = tempfile::tempdir().unwrap();
        for bad in [PathBuf::from("relative"), dir.path().join("x".repeat(100)), dir.path().join("a,b")] {
            let problem = Place::prepare(bad, dir.path().join("logs")).err().unwrap();
            assert!(problem.kind == ProblemKind::Invalid && problem.hint.is_some());
        }
    }
}
