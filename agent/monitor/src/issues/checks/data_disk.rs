//! Room on the disk with the models, and whether it takes writes.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use warden_domain::{
    issue::{Check, Finding, IssueCode, Looked, Said},
    units::Bytes,
};

use super::off_thread;
use crate::facts::disk::{self, Room};

const GIB: u64 = 1 << 30;
const HINT_ROOM: &str = "Remove models that are not needed, or move them to another disk.";

/// How much room counts as little. A tenth of a small disk, or what a large one can lose before a model download fails.
const fn little(total: Bytes) -> u64 {
    let tenth = total.0 / 10;
    if tenth < 50 * GIB { tenth } else { 50 * GIB }
}

/// How much room counts as none.
const fn none(total: Bytes) -> u64 {
    let fiftieth = total.0 / 50;
    if fiftieth < GIB { fiftieth } else { GIB }
}

/// What is wrong with the disk. `was_low`: little room was found last time; the bar is then a quarter higher, so that a disk at the
/// edge does not come and go.
fn decide(room: Room, was_low: bool) -> Vec<Finding> {
    let finding = |code, said, hint: &str| vec![Finding { code, subject: "data".into(), said, hint: hint.into(), fix: None }];
    if room.is_image {
        return finding(
            IssueCode::DataDiskMissing,
            Said::DataDiskMissing {},
            "Restart the appliance. If it stays so, check that the disk is connected.",
        );
    }
    if room.read_only {
        return finding(
            IssueCode::DataDiskReadOnly,
            Said::DataDiskReadOnly {},
            "Restart the appliance, so that the file system is checked. If it comes back, replace the disk.",
        );
    }
    if room.total.0 == 0 {
        return Vec::new();
    }
    let bar = if was_low { little(room.total) + little(room.total) / 4 } else { little(room.total) };
    if room.free.0 < none(room.total) {
        finding(IssueCode::DataDiskFull, Said::DataDiskFull { free: room.free, total: room.total }, HINT_ROOM)
    } else if room.free.0 < bar {
        finding(IssueCode::DataDiskNearlyFull, Said::DataDiskNearlyFull { free: room.free, total: room.total }, HINT_ROOM)
    } else {
        Vec::new()
    }
}

/// Looks at the data folder's file system.
pub(super) struct DataDisk {
    folder: PathBuf,
    was_low: AtomicBool,
}

impl DataDisk {
    pub(super) const fn new(folder: PathBuf) -> Self {
        Self { folder, was_low: AtomicBool::new(false) }
    }
}

#[async_trait]
impl Check for DataDisk {
    fn codes(&self) -> &'static [IssueCode] {
        &[IssueCode::DataDiskFull, IssueCode::DataDiskNearlyFull, IssueCode::DataDiskReadOnly, IssueCode::DataDiskMissing]
    }

    async fn look(&self) -> Looked {
        let folder = self.folder.clone();
        match off_thread("The disk with the models", move || disk::room(&folder)).await {
            Ok(room) => {
                let found = decide(room, self.was_low.load(Ordering::Relaxed));
                let low = found.iter().any(|f| matches!(f.code, IssueCode::DataDiskFull | IssueCode::DataDiskNearlyFull));
                self.was_low.store(low, Ordering::Relaxed);
                Looked::Seen(found)
            }
            Err(because) => Looked::NotChecked(because),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(total: u64, free: u64) -> Room {
        Room { total: Bytes(total), free: Bytes(free), read_only: false, is_image: false }
    }

    fn code(room: Room, was_low: bool) -> Option<IssueCode> {
        decide(room, was_low).first().map(|f| f.code)
    }

    #[test]
    fn a_small_disk_is_judged_by_share_and_a_large_one_by_what_is_left() {
        assert_eq!(code(room(64 << 20, 20 << 20), false), None);
        assert_eq!(code(room(64 << 20, 6 << 20), false), Some(IssueCode::DataDiskNearlyFull));
        assert_eq!(code(room(64 << 20, 1 << 20), false), Some(IssueCode::DataDiskFull));
        assert_eq!(code(room(8000 * GIB, 60 * GIB), false), None);
        assert_eq!(code(room(8000 * GIB, 40 * GIB), false), Some(IssueCode::DataDiskNearlyFull));
        assert_eq!(code(room(8000 * GIB, GIB / 2), false), Some(IssueCode::DataDiskFull));
    }

    #[test]
    fn a_disk_at_the_edge_does_not_come_and_go() {
        let edge = room(100 * GIB, 11 * GIB);
        assert_eq!(code(edge, false), None);
        assert_eq!(code(edge, true), Some(IssueCode::DataDiskNearlyFull));
        assert_eq!(code(room(100 * GIB, 13 * GIB), true), None);
    }

    #[test]
    fn a_disk_that_takes_no_writes_is_told_as_that_and_not_as_full() {
        assert_eq!(code(Room { read_only: true, ..room(10 * GIB, 0) }, false), Some(IssueCode::DataDiskReadOnly));
        assert_eq!(code(Room { read_only: true, is_image: true, ..room(10 * GIB, 0) }, false), Some(IssueCode::DataDiskMissing));
    }

    #[test]
    fn a_file_system_that_tells_no_size_is_not_called_full() {
        assert_eq!(code(room(0, 0), false), None);
    }
}
