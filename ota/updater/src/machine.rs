//! Which step may follow which. Pure: a record and what happened in, the next record out. The driver writes the record before it takes the
//! step that the record names.

use jiff::Timestamp;
use thiserror::Error;
use warden_update_record::{Attempt, Phase, Reason, Record, Slot};

/// What happened, or is about to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An image was chosen. What waited before it is dropped.
    Chosen(Attempt),
    /// Its bytes are about to be fetched.
    Fetching,
    /// The whole file lies here and is right.
    Checked,
    /// The slot is about to be written.
    Writing {
        /// Which.
        target: Slot,
    },
    /// The write was cut off; the file is still here.
    Interrupted,
    /// The write was not begun, or ended with a refusal; the file is still here.
    NotWritten,
    /// The slot is whole and the next one to start.
    Written {
        /// The present boot.
        boot_id: String,
    },
    /// The machine is about to be restarted into it.
    Restarting {
        /// The present boot.
        boot_id: String,
    },
    /// It was not restarted after all.
    NotRestarted,
    /// The health gate found the slot good.
    FoundGood {
        /// When.
        at: Timestamp,
    },
    /// The old system runs again.
    WentBack {
        /// Why.
        reason: Reason,
        /// When.
        at: Timestamp,
    },
    /// The new system is bad and runs, and there is no other one to go back to: it stays without being confirmed.
    GivenUp,
    /// What was installed is taken back: its slot is not started any more.
    TakenBack,
    /// The attempt is given up: it failed, or somebody cancelled it.
    Dropped,
}

/// A step that may not be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an update that is {} cannot become {to}", .from.name())]
pub struct Misstep {
    /// Where it stands.
    pub from: Phase,
    /// What was asked for.
    pub to: &'static str,
}

/// The next record.
///
/// # Errors
/// [`Misstep`]: this does not follow; nothing may be done.
pub fn next(record: &Record, event: Event) -> Result<Record, Misstep> {
    let from = record.phase();
    let wrong = |to| Err(Misstep { from, to });
    match event {
        Event::Chosen(attempt) => match record {
            // The slot at work goes first at the next start, or is about to: the record must not forget it.
            Record::Installing { .. } | Record::Staged { .. } | Record::Trial { .. } => wrong("another one"),
            _ => Ok(Record::Available { attempt }),
        },
        Event::Fetching => match record {
            Record::Available { attempt } | Record::Downloading { attempt } => Ok(Record::Downloading { attempt: attempt.clone() }),
            _ => wrong("fetched"),
        },
        Event::Checked => match record {
            Record::Available { attempt } | Record::Downloading { attempt } | Record::Verified { attempt } => {
                Ok(Record::Verified { attempt: attempt.clone() })
            }
            _ => wrong("checked"),
        },
        Event::Writing { target } => match record {
            Record::Verified { attempt } => Ok(Record::Installing { attempt: attempt.clone(), target_slot: target }),
            _ => wrong("installed"),
        },
        Event::Interrupted => match record {
            Record::Installing { attempt, .. } => {
                let attempt = Attempt { interruptions: attempt.interruptions.saturating_add(1), ..attempt.clone() };
                Ok(Record::Verified { attempt })
            }
            _ => wrong("interrupted"),
        },
        Event::NotWritten => match record {
            Record::Installing { attempt, .. } => Ok(Record::Verified { attempt: attempt.clone() }),
            _ => wrong("not written"),
        },
        Event::Written { boot_id } => match record {
            Record::Installing { attempt, target_slot } => {
                Ok(Record::Staged { attempt: attempt.clone(), target_slot: *target_slot, staged_boot_id: boot_id })
            }
            _ => wrong("staged"),
        },
        Event::Restarting { boot_id } => match record {
            Record::Staged { attempt, target_slot, staged_boot_id } => Ok(Record::Trial {
                attempt: attempt.clone(),
                target_slot: *target_slot,
                staged_boot_id: staged_boot_id.clone(),
                asked_boot_id: boot_id,
            }),
            _ => wrong("tried"),
        },
        Event::NotRestarted => match record {
            Record::Trial { attempt, target_slot, staged_boot_id, .. } => {
                Ok(Record::Staged { attempt: attempt.clone(), target_slot: *target_slot, staged_boot_id: staged_boot_id.clone() })
            }
            _ => wrong("staged"),
        },
        Event::FoundGood { at } => match record {
            Record::Trial { attempt, target_slot, .. } => Ok(Record::Confirmed { attempt: attempt.clone(), target_slot: *target_slot, at }),
            _ => wrong("confirmed"),
        },
        Event::WentBack { reason, at } => match record {
            Record::Trial { attempt, target_slot, .. } => Ok(Record::RolledBack { attempt: attempt.clone(), target_slot: *target_slot, reason, at }),
            _ => wrong("gone back from"),
        },
        Event::GivenUp => match record {
            Record::Trial { .. } => Ok(Record::Idle),
            _ => wrong("given up"),
        },
        Event::TakenBack => match record {
            Record::Staged { .. } => Ok(Record::Idle),
            _ => wrong("taken back"),
        },
        Event::Dropped => match record {
            Record::Installing { .. } | Record::Staged { .. } | Record::Trial { .. } => wrong("dropped"),
            _ => Ok(Record::Idle),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::attempt;

    fn walk(events: &[Event]) -> Result<Record, Misstep> {
        events.iter().cloned().try_fold(Record::Idle, |record, event| next(&record, event))
    }

    fn boot(id: &str) -> String {
        id.to_owned()
    }

    #[test]
    fn an_update_goes_from_chosen_to_confirmed_in_seven_steps() {
        let way = [
            Event::Chosen(attempt()),
            Event::Fetching,
            Event::Checked,
            Event::Writing { target: Slot::B },
            Event::Written { boot_id: boot("one") },
            Event::Restarting { boot_id: boot("one") },
            Event::FoundGood { at: Timestamp::UNIX_EPOCH },
        ];
        let phases: Vec<_> = (1..=way.len()).map(|n| walk(&way[..n]).unwrap().phase().name()).collect();
        assert_eq!(phases, ["available", "downloading", "verified", "installing", "staged", "trial", "confirmed"]);
    }

    #[test]
    fn a_slot_is_never_written_from_bytes_that_were_not_checked() {
        let early = [vec![], vec![Event::Chosen(attempt())], vec![Event::Chosen(attempt()), Event::Fetching]];
        for mut way in early {
            way.push(Event::Writing { target: Slot::B });
            assert_eq!(walk(&way).unwrap_err().to, "installed");
        }
    }

    #[test]
    fn a_running_trial_is_neither_replaced_nor_dropped() {
        let way = [
            Event::Chosen(attempt()),
            Event::Checked,
            Event::Writing { target: Slot::B },
            Event::Written { boot_id: boot("one") },
            Event::Restarting { boot_id: boot("one") },
        ];
        let trial = walk(&way).unwrap();
        assert!(next(&trial, Event::Chosen(attempt())).is_err());
        assert!(next(&trial, Event::Dropped).is_err());
        assert_eq!(next(&trial, Event::NotRestarted).unwrap().phase(), Phase::Staged);
    }

    #[test]
    fn a_slot_that_is_written_or_goes_first_is_not_forgotten() {
        let mut way = vec![Event::Chosen(attempt()), Event::Checked, Event::Writing { target: Slot::B }];
        for _ in 0..2 {
            let record = walk(&way).unwrap();
            assert!(next(&record, Event::Chosen(attempt())).is_err() && next(&record, Event::Dropped).is_err(), "{record:?}");
            way.push(Event::Written { boot_id: boot("one") });
        }
    }

    #[test]
    fn a_write_that_was_not_begun_is_not_counted() {
        let record = walk(&[Event::Chosen(attempt()), Event::Checked, Event::Writing { target: Slot::B }, Event::NotWritten]).unwrap();
        assert_eq!(record, Record::Verified { attempt: attempt() });
    }

    #[test]
    fn a_write_that_was_cut_off_is_counted() {
        let written = walk(&[Event::Chosen(attempt()), Event::Checked, Event::Writing { target: Slot::B }, Event::Interrupted]).unwrap();
        assert_eq!((written.phase(), written.attempt().unwrap().interruptions), (Phase::Verified, 1));
    }

    fn any_event() -> impl Strategy<Value = Event> {
        prop_oneof![
            Just(Event::Chosen(attempt())),
            Just(Event::Fetching),
            Just(Event::Checked),
            Just(Event::Writing { target: Slot::B }),
            Just(Event::Interrupted),
            Just(Event::NotWritten),
            Just(Event::Written { boot_id: boot("one") }),
            Just(Event::Restarting { boot_id: boot("one") }),
            Just(Event::NotRestarted),
            Just(Event::FoundGood { at: Timestamp::UNIX_EPOCH }),
            Just(Event::WentBack { reason: Reason { code: "x".into(), sentence: "X.".into() }, at: Timestamp::UNIX_EPOCH }),
            Just(Event::GivenUp),
            Just(Event::TakenBack),
            Just(Event::Dropped),
        ]
    }

    proptest! {
        #[test]
        fn whatever_happens_confirmed_comes_only_after_a_trial(events in proptest::collection::vec(any_event(), 0..40)) {
            let mut record = Record::Idle;
            for event in events {
                let taken_back = event == Event::TakenBack;
                let Ok(after) = next(&record, event) else { continue };
                if after.phase() == Phase::Confirmed { prop_assert_eq!(record.phase(), Phase::Trial); }
                if after.phase() == Phase::Trial { prop_assert_eq!(record.phase(), Phase::Staged); }
                if record.phase() == Phase::Staged && !taken_back { prop_assert_eq!(after.phase(), Phase::Trial, "a staged slot was forgotten"); }
                if after.phase() == Phase::Installing { prop_assert_eq!(record.phase(), Phase::Verified); }
                record = after;
            }
        }
    }
}
