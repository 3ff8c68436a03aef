//! Which attempt a verdict is about, and whether there is a deadline, from the files an agent left behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use warden_health::came::came;
use warden_update_record::{Before, Record, Slot, write};

const ATTEMPT: &str = r#"{
    "transaction": "t-1",
    "entry": {"name": "lm-warden", "version": "1.1.0", "sha256": "00", "bytes": 5},
    "running": {"slot": "a", "version": "1.0.0"},
    "origin": "channel", "asked": "person", "began_at": "2026-01-01T00:00:00Z"
}"#;

fn record(phase: &str, more: &str) -> Record {
    serde_json::from_str(&format!(r#"{{"phase": "{phase}", "attempt": {ATTEMPT}, "target_slot": "b"{more}}}"#)).unwrap()
}

fn before(transaction: &str) -> Before {
    let text = format!(
        r#"{{"transaction": "{transaction}", "slot": "a", "version": "1.0.0", "target_slot": "b", "target_version": "1.1.0", "console_port": 443}}"#
    );
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_staged_slot_that_starts_by_a_plug_or_a_panic_has_a_deadline_and_a_verdict_with_a_name() {
    let folder = tempfile::tempdir().unwrap();
    for record in [record("staged", r#", "staged_boot_id": "one""#), record("installing", "")] {
        write(folder.path(), &record).unwrap();
        let found = came(folder.path(), Slot::B, "two");
        assert_eq!((found.transaction, found.update), (Some("t-1".into()), true), "{record:?}");
        assert!(!came(folder.path(), Slot::A, "two").update, "{record:?}");
    }
}

#[test]
fn a_trial_without_its_state_before_still_has_its_verdict_named() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &record("trial", r#", "staged_boot_id": "one", "asked_boot_id": "one""#)).unwrap();
    let found = came(folder.path(), Slot::B, "two");
    assert_eq!((found.transaction, found.before, found.update), (Some("t-1".into()), None, true));
    write(folder.path(), &before("another")).unwrap();
    let found = came(folder.path(), Slot::B, "two");
    assert_eq!((found.transaction, found.before), (Some("t-1".into()), None));
    write(folder.path(), &before("t-1")).unwrap();
    assert!(came(folder.path(), Slot::B, "two").before.is_some());
}

#[test]
fn a_slot_that_no_update_led_to_has_no_deadline_and_a_record_that_cannot_be_read_has_one() {
    let folder = tempfile::tempdir().unwrap();
    assert!(!came(folder.path(), Slot::B, "two").update);
    assert!(came(&folder.path().join("missing"), Slot::B, "two").update);
    std::fs::write(folder.path().join("record.json"), "{ torn").unwrap();
    assert!(came(folder.path(), Slot::B, "two").update);
}
