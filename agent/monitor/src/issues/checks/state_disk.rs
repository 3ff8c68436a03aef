//! Room on the partition that holds settings, accounts and usage.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use warden_domain::issue::{Check, Finding, IssueCode, Looked, Said};

use super::off_thread;
use crate::facts::disk::{self, Room};

/// Less than this is little, whatever the size: the database needs room to change anything.
const LEAST: u64 = 48 << 20;

fn decide(room: Room, was_low: bool) -> Vec<Finding> {
    if room.total.0 == 0 || room.is_image {
        return Vec::new();
    }
    let bar = LEAST.min(room.total.0 / 10);
    let bar = if was_low { bar + bar / 4 } else { bar };
    if room.free.0 >= bar && !room.read_only {
        return Vec::new();
    }
    let said = if room.read_only { Said::StateDiskReadOnly {} } else { Said::StateDiskNearlyFull { free: room.free, total: room.total } };
    let hint = "Restart the appliance: logs are cut to their limit at the start. If it stays so, ask for support; do not erase anything there.";
    vec![Finding { code: IssueCode::StateDiskNearlyFull, subject: "state".into(), said, hint: hint.into(), fix: None }]
}

/// Looks at the state folder's file system.
pub(super) struct StateDisk {
    folder: PathBuf,
    was_low: AtomicBool,
}

impl StateDisk {
    pub(super) const fn new(folder: PathBuf) -> Self {
        Self { folder, was_low: AtomicBool::new(false) }
    }
}

#[async_trait]
impl Check for StateDisk {
    fn codes(&self) -> &'static [IssueCode] {
        &[IssueCode::StateDiskNearlyFull]
    }

    async fn look(&self) -> Looked {
        let folder = self.folder.clone();
        match off_thread("The partition with the settings", move || disk::room(&folder)).await {
            Ok(room) => {
                let found = decide(room, self.was_low.load(Ordering::Relaxed));
                self.was_low.store(!found.is_empty(), Ordering::Relaxed);
                Looked::Seen(found)
            }
            Err(because) => Looked::NotChecked(because),
        }
    }
}

#[cfg(test)]
mod tests {
    use warden_domain::units::Bytes;

    use super::*;

    fn wrong(total: u64, free: u64, read_only: bool) -> bool {
        !decide(Room { total: Bytes(total), free: Bytes(free), read_only, is_image: false }, false).is_empty()
    }

    #[test]
    fn the_owner_hears_of_it_while_changes_can_still_be_kept() {
        assert!(!wrong(1 << 30, 100 << 20, false));
        assert!(wrong(1 << 30, 40 << 20, false));
        assert!(wrong(32 << 20, 3 << 20, false));
        assert!(!wrong(32 << 20, 8 << 20, false), "a small one is not always in trouble");
        assert!(wrong(1 << 30, 900 << 20, true));
    }
}
