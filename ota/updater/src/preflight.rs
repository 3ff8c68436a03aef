//! What must hold before bytes are fetched, a slot is written or the machine restarts. Pure: facts in, the first thing that stands in the
//! way out, as a sentence with the way out of it.

use warden_domain::{Problem, ProblemKind, units::Bytes};
use warden_trust::Entry;

/// Kept free on the data partition besides what is fetched.
pub const MARGIN: u64 = 256 << 20;

/// What is known before a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Free on the disk the file goes to, in bytes.
    pub free: u64,
    /// How much of the file is there already, in bytes.
    pub there: u64,
}

/// Whether there is room for a file.
///
/// # Errors
/// `DiskFull` with figures.
pub fn room(entry: &Entry, room: Room) -> Result<(), Problem> {
    let missing = entry.bytes.saturating_sub(room.there);
    if room.free >= missing.saturating_add(MARGIN) {
        return Ok(());
    }
    Err(Problem::new(
        ProblemKind::DiskFull,
        format!(
            "{} still needs {}, and the data disk has {} free; {} are kept free. Nothing was fetched.",
            entry.subject(),
            Bytes(missing),
            Bytes(room.free),
            Bytes(MARGIN)
        ),
    )
    .hint("Remove models that are not needed, then try again."))
}

/// Whether the machine may be restarted: work that would be left half done is named.
///
/// # Errors
/// `Conflict` with the work.
pub fn restart(running: &[String]) -> Result<(), Problem> {
    match running.first() {
        None => Ok(()),
        Some(kind) => Err(Problem::new(ProblemKind::Conflict, format!("Work is going on that a restart would break off: {kind}."))
            .hint("Wait until it is through, or cancel it, then restart.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warden_trust::{Digest, Kind, Requires};

    fn entry(bytes: u64) -> Entry {
        Entry {
            kind: Kind::Os,
            name: "lm-warden".into(),
            version: "1.4.0".into(),
            sha256: Digest::of(b""),
            bytes,
            part_bytes: 1 << 20,
            parts: Vec::new(),
            requires: Requires::default(),
            data_schema: Some(1),
            manifest_hash: None,
            waves: Vec::new(),
            notes: None,
            licence: None,
            source: None,
        }
    }

    #[test]
    fn what_is_there_already_needs_no_room_again() {
        let full = Room { free: MARGIN + 10, there: 0 };
        assert!(room(&entry(10), full).is_ok());
        let problem = room(&entry(11), full).unwrap_err();
        assert_eq!(problem.kind, ProblemKind::DiskFull);
        assert!(problem.message.contains("os lm-warden 1.4.0 still needs 11 B"), "{problem}");
        assert!(room(&entry(11), Room { there: 1, ..full }).is_ok());
    }

    #[test]
    fn a_restart_waits_for_a_disk_that_is_being_made() {
        assert!(restart(&[]).is_ok());
        assert!(restart(&["adopt-disk".into()]).unwrap_err().message.contains("adopt-disk"));
    }
}
