//! Data across the two system slots: a database that a trial changed never costs the box its data or its way back.
//!
//! Before a restart into a trial the running agent makes a copy of its database named after its slot ([`prepare_trial`]). A system on
//! trial runs only the migrations that the release before it can read; the rest waits for [`crate::Store::finish_migrations`] once it is
//! confirmed. After a fall-back the old slot opens its copy; the newer file stays beside it and [`changed_since`] says what only it holds.
//!
//! In: the state folder, which slot runs, whether it is on trial or came back. Out: an [`Opening`]: how to open the database, or why no
//! database may be opened. [`look`] reads, [`open_plan`] decides without I/O, [`apply`] does one durable step after the other; a power
//! cut between any two of them is answered by looking and planning again.

mod difference;
mod disk;
mod plan;

use std::path::PathBuf;

use jiff::Timestamp;

pub use difference::{Change, ChangeKind, Differences, Kind, changed_since};
pub use disk::{apply, look, open, prepare_trial};
pub use plan::open_plan;

use crate::StoreError;

/// How this start relates to an update. Read from the update record, the kernel command line and the boot id by whoever owns those.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Situation {
    /// No trial: the confirmed system of every day.
    Usual,
    /// This system is on trial.
    OnTrial {
        /// The slot whose system asked for the trial.
        previous_slot: String,
    },
    /// The trial failed and this is the slot from before it. Stays so until the record says that the fall-back was dealt with.
    RolledBack {
        /// Identity of the update; names the kept file, so that a second start with the same fall-back changes nothing.
        transaction: String,
    },
}

/// What is known before the database is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFacts {
    /// The running slot, such as `a`.
    pub running_slot: String,
    /// How this start relates to an update.
    pub situation: Situation,
}

/// A database file as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// There is no such file (or an empty one, which holds nothing).
    Missing,
    /// A database with this schema.
    Schema {
        /// Newest migration that was run on it.
        version: i64,
        /// Oldest program, by its newest known schema, that reads it right.
        readable_from: i64,
        /// Newest schema known to the program that made it a copy; 0 when it is no copy.
        made_by: i64,
    },
    /// A file that is no usable database.
    Damaged,
}

/// What lies in the state folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// `config.db`, the database of every day.
    pub live: Found,
    /// The running slot's own copy.
    pub own_copy: Found,
    /// The copy of the slot that asked for the trial; as `own_copy` where there is no trial.
    pub previous_copy: Found,
    /// Whether the newer file that this start would keep lies there already.
    pub kept: bool,
    /// Whether a copy or kept file of any name lies there: the box was set up before.
    pub traces: bool,
}

/// One durable step; each may be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Moves the write-ahead log of the live database to its kept name. First, because the log alone is nothing.
    KeepLog,
    /// Moves the live database to its kept name.
    KeepLive,
    /// Puts a copy of the running slot's copy in the place of the live database.
    Restore,
}

/// Migrations that may be run when the database is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// All.
    All,
    /// In their order, until one comes that a program which knows this schema could not read.
    ReadableBy(i64),
}

/// What is to be told about an opening that was not the usual one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The running slot's copy was opened; the newer file is kept.
    CopyOpened,
    /// The trial failed but there is no usable copy; the database of the trial is readable and was opened as it is.
    CopyMissing,
}

/// Why no database may be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// The database was written by a later version and this slot's copy is missing.
    NewerWithoutCopy {
        /// Schema of the database.
        found: i64,
        /// Newest schema known here.
        known: i64,
    },
    /// The box was set up, but its database is gone and this slot has no usable copy.
    Gone,
    /// The trial left a damaged database and this slot has no usable copy.
    Damaged,
}

/// What to do before the database is opened, and how to open it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Open it after these steps.
    Open {
        /// In their order.
        steps: Vec<Step>,
        /// Migrations that may be run.
        limit: Limit,
        /// What is to be told.
        note: Option<Note>,
    },
    /// Open nothing, least of all an empty database with a setup wizard.
    Stuck(Stuck),
}

/// How to open the database, after the plan was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// For [`crate::Store::open_limited`].
    pub limit: Limit,
    /// What is to be told.
    pub note: Option<Note>,
    /// The newer file that was kept beside the copy, for [`changed_since`].
    pub kept: Option<PathBuf>,
}

/// A copy that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyInfo {
    /// Where it lies.
    pub path: PathBuf,
    /// When it was made.
    pub made_at: Timestamp,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its schema.
    pub schema: i64,
}

impl Stuck {
    /// As the error a start ends with; its text names the file and the way out.
    #[must_use]
    pub fn into_error(self, state_dir: &std::path::Path) -> StoreError {
        StoreError::Stuck { folder: state_dir.to_owned(), cause: self }
    }
}

impl std::fmt::Display for Stuck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NewerWithoutCopy { found, known } => {
                write!(
                    f,
                    "the database was written by a later version (schema {found}; this version knows {known}) and this system's own copy of it is missing"
                )
            }
            Self::Gone => f.write_str("this appliance was set up before, but its database is gone and this system's own copy of it is missing"),
            Self::Damaged => f.write_str("the update that failed left a damaged database, and this system's own copy of it is missing"),
        }
    }
}
