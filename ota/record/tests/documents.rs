//! The documents as two releases and three programs meet over them.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up should stop")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use jiff::Timestamp;
use warden_update_record::{
    Asked, Attempt, Before, EntryRef, FileError, Origin, Record, Running, Slot, Standing, TransactionId, Verdict, read, standing, write,
};

fn attempt() -> Attempt {
    Attempt {
        transaction: TransactionId::random().unwrap(),
        entry: EntryRef { name: "lm-warden".into(), version: "1.4.0".into(), sha256: "0".repeat(64), bytes: 5 },
        running: Running { slot: Some(Slot::A), version: "1.3.0".into() },
        origin: Origin::Channel,
        asked: Asked::Person,
        began_at: Timestamp::UNIX_EPOCH,
        interruptions: 0,
    }
}

fn trial() -> Record {
    Record::Trial { attempt: attempt(), target_slot: Slot::B, staged_boot_id: "one".into(), asked_boot_id: "one".into() }
}

#[test]
fn a_record_comes_back_as_it_was_written_and_others_may_read_it() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(read::<Record>(folder.path()).unwrap(), None);
    for record in [Record::Idle, Record::Downloading { attempt: attempt() }, trial()] {
        write(folder.path(), &record).unwrap();
        assert_eq!(read::<Record>(folder.path()).unwrap(), Some(record));
    }
    let mode = fs::metadata(folder.path().join("record.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_later_releases_additions_do_not_stop_an_older_one() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &trial()).unwrap();
    let path = folder.path().join("record.json");
    let text = fs::read_to_string(&path).unwrap().replace("\"phase\"", "\"later\": {\"a\": 1}, \"phase\"");
    fs::write(&path, text).unwrap();
    assert_eq!(read::<Record>(folder.path()).unwrap().unwrap().target_slot(), Some(Slot::B));
    let verdict = r#"{"boot_id": "two", "slot": "b", "version": "1.4.0", "at": "2027-01-01T00:00:00Z", "outcome": "good", "later": 1}"#;
    fs::write(folder.path().join("verdict.json"), verdict).unwrap();
    assert!(read::<Verdict>(folder.path()).unwrap().unwrap().checks.is_empty());
}

#[test]
fn what_is_no_document_is_called_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("before.json");
    for bad in ["", "{", "{}", &" ".repeat(300_000)] {
        fs::write(&path, bad).unwrap();
        assert!(matches!(read::<Before>(folder.path()), Err(FileError::Damaged { .. })), "{bad:.20}");
    }
    fs::remove_file(&path).unwrap();
    symlink("/etc/passwd", &path).unwrap();
    assert!(matches!(read::<Before>(folder.path()), Err(FileError::Io { .. })));
}

#[test]
fn a_boot_stands_to_a_trial_in_one_of_three_ways() {
    assert_eq!(standing(&Record::Idle, Some(Slot::B), "two"), Standing::Settled);
    assert_eq!(standing(&trial(), Some(Slot::A), "one"), Standing::Asked);
    assert_eq!(standing(&trial(), Some(Slot::B), "two"), Standing::OnTrial);
    assert_eq!(standing(&trial(), Some(Slot::A), "two"), Standing::WentBack);
    assert_eq!(standing(&trial(), None, "two"), Standing::WentBack);
}

#[test]
fn every_attempt_has_a_name_of_its_own() {
    let (one, two) = (TransactionId::random().unwrap(), TransactionId::random().unwrap());
    assert_ne!(one, two);
    assert_eq!(one.as_str().len(), 36);
    assert_eq!(one.as_str().chars().nth(14), Some('4'));
}
