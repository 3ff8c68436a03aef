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
    /// The slot on trial runs.
    OnTrial,
    /// A trial was asked for, and another slot runs: the box went back.
    WentBack,
}

/// Which one it is. A running slot that nobody knows counts as not the one on trial.
#[must_use]
pub fn standing(record: &Record, running: Option<Slot>, boot_id: &str) -> Standing {
    let Record::Trial { target_slot, asked_boot_id, .. } = record else { return Standing::Settled };
    if running == Some(*target_slot) {
        Standing::OnTrial
    } else if asked_boot_id == boot_id {
        Standing::Asked
    } else {
        Standing::WentBack
    }
}
