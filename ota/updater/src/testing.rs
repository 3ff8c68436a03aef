//! Values for the tests of this crate.

use jiff::Timestamp;
use warden_update_record::{Asked, Attempt, EntryRef, Origin, Running, Slot, TransactionId};

pub(crate) fn attempt() -> Attempt {
    Attempt {
        transaction: TransactionId::from("11111111-2222-4333-8444-555555555555"),
        entry: EntryRef { name: "lm-warden".into(), version: "1.4.0".into(), sha256: "0".repeat(64), bytes: 5 },
        running: Running { slot: Some(Slot::A), version: "1.3.0".into() },
        origin: Origin::Channel,
        asked: Asked::Person,
        began_at: Timestamp::UNIX_EPOCH,
        interruptions: 0,
    }
}
