//! What led to the slot that runs: the update record and the running slot in; which attempt is on trial and what to compare with out.

use std::path::Path;

use warden_update_record::{Before, FileError, Record, Slot, Standing, TransactionId, standing};

/// What led to this slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Came {
    /// The attempt on trial, by the record alone: the verdict must name it also where nothing is known of the box before.
    pub transaction: Option<TransactionId>,
    /// How the box was before, if that is known.
    pub before: Option<Before>,
    /// Whether an update did, or whether that cannot be told. Otherwise the slot was installed, or somebody went back to it: the other one
    /// is no better, so that nothing is won by giving this one up at a deadline. It is judged good when it is, and its starts are counted.
    pub update: bool,
}

/// Reads it from the agent's folder.
#[must_use]
pub fn came(folder: &Path, slot: Slot, boot_id: &str) -> Came {
    let untold = |update| Came { transaction: None, before: None, update };
    let record = match warden_update_record::read::<Record>(folder) {
        Ok(Some(record)) => record,
        // No record at all is a box that was never updated, provided that its place is there.
        Ok(None) => return untold(!folder.is_dir()),
        Err(cause) => {
            tracing::error!("{cause}");
            return untold(true);
        }
    };
    if standing(&record, Some(slot), boot_id) != Standing::OnTrial {
        return untold(false);
    }
    let transaction = record.attempt().map(|attempt| attempt.transaction.clone());
    let before: Option<Before> = warden_update_record::read(folder).unwrap_or_else(|cause| told(&cause));
    let before = before.filter(|before| transaction.as_ref() == Some(&before.transaction));
    Came { transaction, before, update: true }
}

fn told<T>(cause: &FileError) -> Option<T> {
    tracing::error!("{cause}");
    None
}
