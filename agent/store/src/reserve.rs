//! Room that is kept back for the day the disk is full: without it nobody could sign in to free some.
//!
//! A file of fixed length beside the database, given away at the first write the disk refuses, so that the next one finds room, and made
//! anew once there is plenty.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Name of the file.
const FILE: &str = "reserve";
/// Its length: a few thousand small writes.
const LENGTH: u64 = 4 << 20;
/// It is made only while so many times its length are free.
const PLENTY: u64 = 4;

/// With less than this free it is given away.
const TIGHT: u64 = 1 << 20;

/// The file.
#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
}

impl Reserve {
    pub(crate) fn beside(state_dir: &Path) -> Self {
        Self { path: state_dir.join(FILE) }
    }

    /// Makes the file when it is not there and there is room for it. Blocking; a failure is no reason to stop anything.
    pub(crate) fn keep(&self) {
        let room = self.path.parent().and_then(|folder| nix::sys::statvfs::statvfs(folder).ok());
        let free = room.map_or(0, |room| room.blocks_available().saturating_mul(room.fragment_size()));
        if self.path.exists() || free < LENGTH * PLENTY {
            return;
        }
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path).and_then(|file| {
            let length = i64::try_from(LENGTH).unwrap_or(i64::MAX);
            nix::fcntl::posix_fallocate(&file, 0, length).map_err(std::io::Error::from)?;
            file.sync_all()
        });
        if let Err(error) = made {
            tracing::warn!(%error, "no room can be kept back for a full disk");
            self.give();
        }
    }

    /// Whether so little room is left that the next write may fail: it is given away before that, since a write that failed is lost.
    pub(crate) fn is_needed(&self) -> bool {
        let room = self.path.parent().and_then(|folder| nix::sys::statvfs::statvfs(folder).ok());
        room.is_some_and(|room| room.blocks_available().saturating_mul(room.fragment_size()) < TIGHT)
    }

    /// Gives the room away. True when there was some.
    pub(crate) fn give(&self) -> bool {
        fs::remove_file(&self.path).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn room_is_really_taken_and_given_once() {
        let folder = tempfile::tempdir().unwrap();
        let reserve = Reserve::beside(folder.path());
        reserve.keep();
        reserve.keep();
        assert!(fs::metadata(folder.path().join(FILE)).unwrap().blocks() * 512 >= LENGTH, "a hole keeps nothing back");
        assert!(reserve.give() && !reserve.give());
    }
}
