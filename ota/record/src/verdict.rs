//! What was found about a slot: by the health gate that looked, or by the initrd that ran out of tries.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::file::Document;
use crate::record::{Reason, TransactionId};
use warden_bootslot::entry::Slot;

/// The gate's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The slot stays.
    Good,
    /// The box goes back.
    Bad,
}

/// How one check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckOutcome {
    /// As it should be.
    Passed,
    /// Not as it should be.
    Failed,
    /// There was nothing to compare with.
    NotApplicable,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// A stable name.
    pub code: String,
    /// How it ended.
    pub outcome: CheckOutcome,
    /// What was seen, as one sentence with a full stop.
    pub sentence: String,
}

/// What the health gate found, written before it marks the slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Of the attempt; `None` when the slot was not on trial by an update.
    #[serde(default)]
    pub transaction: Option<TransactionId>,
    /// The boot it looked at.
    pub boot_id: String,
    /// The slot it looked at.
    pub slot: Slot,
    /// The version in it.
    pub version: String,
    /// When.
    pub at: Timestamp,
    /// Its word.
    pub outcome: Outcome,
    /// Why it is bad.
    #[serde(default)]
    pub reason: Option<Reason>,
    /// Everything that was looked at.
    #[serde(default)]
    pub checks: Vec<Check>,
}

impl Document for Verdict {
    const FILE: &'static str = "verdict.json";
}

/// The initrd gave up a slot that never became good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fallback {
    /// The slot that was given up.
    pub from_slot: Slot,
    /// Why, in a word or a sentence.
    pub reason: String,
    /// The boot that fell back.
    pub at_boot: String,
}

impl Document for Fallback {
    const FILE: &'static str = "fallback.json";
}
