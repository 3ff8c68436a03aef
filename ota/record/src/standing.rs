//! How the present boot relates to the record.

use crate::record::Record;
use warden_bootslot::entry::Slot;

/// The four ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No trial is asked for: a settled system.
    Settled,
    /// A trial was asked for, and this is still the boot that asked.
    Asked,
    /// The slot on trial runs, whoever restarted the machine into it.
    OnTrial,
    /// The slot was to be tried, and another one runs: the box went back.
    WentBack,
}

/// Which one it is. A running slot that nobody knows counts as not the one on trial.
///
/// A staged slot is on trial as soon as it runs: a person at the machine, a plug or a panic restarts without asking the agent, and the record
/// still says what it said before. So is one whose install was never noted as done; only a slot that was written whole goes first.
#[must_use]
pub fn standing(record: &Record, running: Option<Slot>, boot_id: &str) -> Standing {
    let (target, before) = match record {
        Record::Trial { target_slot, asked_boot_id, .. } if running != Some(*target_slot) && asked_boot_id == boot_id => return Standing::Asked,
        Record::Trial { target_slot, .. } => (*target_slot, false),
        Record::Staged { target_slot, staged_boot_id, .. } => (*target_slot, staged_boot_id == boot_id),
        // Where another slot runs, only RAUC can tell how far the install came.
        Record::Installing { target_slot, .. } => (*target_slot, running != Some(*target_slot)),
        _ => return Standing::Settled,
    };
    match (before, running == Some(target)) {
        (true, _) => Standing::Settled,
        (false, true) => Standing::OnTrial,
        (false, false) => Standing::WentBack,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Asked, Attempt, EntryRef, Origin, Running, TransactionId};

    fn attempt() -> Attempt {
        Attempt {
            transaction: TransactionId::from("t-1"),
            entry: EntryRef { name: "lm-warden".into(), version: "1.4.0".into(), sha256: "0".repeat(64), bytes: 5 },
            running: Running { slot: Some(Slot::A), version: "1.3.0".into() },
            origin: Origin::Channel,
            asked: Asked::Person,
            began_at: jiff::Timestamp::UNIX_EPOCH,
            interruptions: 0,
        }
    }

    #[test]
    fn a_slot_that_somebody_else_restarted_into_is_on_trial() {
        let staged = Record::Staged { attempt: attempt(), target_slot: Slot::B, staged_boot_id: "one".into() };
        assert_eq!(standing(&staged, Some(Slot::A), "one"), Standing::Settled);
        assert_eq!(standing(&staged, Some(Slot::B), "two"), Standing::OnTrial);
        assert_eq!(standing(&staged, Some(Slot::A), "two"), Standing::WentBack);
        let installing = Record::Installing { attempt: attempt(), target_slot: Slot::B };
        assert_eq!(standing(&installing, Some(Slot::B), "two"), Standing::OnTrial);
        assert_eq!(standing(&installing, Some(Slot::A), "two"), Standing::Settled);
        assert_eq!(standing(&installing, None, "two"), Standing::Settled);
    }

    #[test]
    fn a_trial_that_was_asked_for_is_told_from_one_that_runs_and_one_that_failed() {
        let trial = Record::Trial { attempt: attempt(), target_slot: Slot::B, staged_boot_id: "one".into(), asked_boot_id: "two".into() };
        assert_eq!(standing(&trial, Some(Slot::A), "two"), Standing::Asked);
        assert_eq!(standing(&trial, Some(Slot::B), "three"), Standing::OnTrial);
        assert_eq!(standing(&trial, Some(Slot::A), "three"), Standing::WentBack);
        assert_eq!(standing(&trial, None, "three"), Standing::WentBack);
        assert_eq!(standing(&Record::Idle, Some(Slot::B), "three"), Standing::Settled);
    }
}
