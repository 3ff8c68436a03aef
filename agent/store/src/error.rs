//! What can go wrong with the store, and how it reads to a caller.
//!
//! A full disk is told apart from every other fault, because its way out is the owner's. A closure inside a transaction may refuse
//! with a `Problem` of its own (name taken, setup closed): the transaction is rolled back and the problem comes out unchanged.

use std::path::{Path, PathBuf};

use rusqlite::{ErrorCode, ffi};
use warden_domain::{Problem, ProblemKind};

use crate::slots::Stuck;

/// A fault of the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The disk has no room left; the transaction was rolled back.
    #[error("the disk is full, nothing was changed")]
    DiskFull,
    /// The database was written by a newer version that this one cannot read.
    #[error("{path} was written by a newer version (schema {found}, readable from schema {readable_from}; this version knows {known})", path = path.display())]
    Newer {
        /// The database file.
        path: PathBuf,
        /// Schema version found.
        found: i64,
        /// Oldest schema version that may read it.
        readable_from: i64,
        /// Newest schema version known here.
        known: i64,
    },
    /// The file is there but is not a usable database.
    #[error("{path} is damaged or not a database", path = path.display())]
    Damaged {
        /// The database file.
        path: PathBuf,
    },
    /// No database may be opened: which one would be right is not there.
    #[error("{folder}: {cause}", folder = folder.display())]
    Stuck {
        /// The state folder.
        folder: PathBuf,
        /// Why not.
        cause: Stuck,
    },
    /// The folder or file could not be opened.
    #[error("{path}: {cause}", path = path.display())]
    Open {
        /// What was to be opened.
        path: PathBuf,
        /// Why not.
        cause: std::io::Error,
    },
    /// The store was closed; the agent is stopping.
    #[error("the store is closed because the agent is stopping")]
    Closed,
    /// The closure given to the store panicked; its transaction was rolled back.
    #[error("an operation on the store broke off")]
    Broke,
    /// The closure refused for a reason of its own.
    #[error("{0}")]
    Refused(Problem),
    /// Any other answer of SQLite.
    #[error("database: {0}")]
    Sqlite(rusqlite::Error),
}

impl StoreError {
    /// A fault of the file system; a full disk keeps its own name.
    pub(crate) fn from_file(path: &Path, cause: std::io::Error) -> Self {
        match cause.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Self::DiskFull,
            _ => Self::Open { path: path.to_owned(), cause },
        }
    }

    /// True when a row clashed with a UNIQUE or PRIMARY KEY rule: the name is taken.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        matches!(self, Self::Sqlite(rusqlite::Error::SqliteFailure(e, _))
            if e.extended_code == ffi::SQLITE_CONSTRAINT_UNIQUE || e.extended_code == ffi::SQLITE_CONSTRAINT_PRIMARYKEY)
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match &error {
            // SHMSIZE: the index of the write-ahead log could not grow, which is a full disk as well.
            rusqlite::Error::SqliteFailure(e, _) if e.code == ErrorCode::DiskFull || e.extended_code == ffi::SQLITE_IOERR_SHMSIZE => Self::DiskFull,
            _ => Self::Sqlite(error),
        }
    }
}

impl From<Problem> for StoreError {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Refused(problem) => problem,
            StoreError::DiskFull => Self::new(ProblemKind::DiskFull, "The disk is full, nothing was changed.")
                .hint("Free some space (remove models that are not needed) and try again."),
            StoreError::Closed => Self::new(ProblemKind::ShuttingDown, "The agent is stopping and takes no more changes.")
                .retry_after(std::time::Duration::from_secs(5)),
            StoreError::Newer { .. } => {
                Self::internal(format!("{error}.")).hint("Install the newer version again, or start with an empty state folder.")
            }
            StoreError::Damaged { .. } => Self::internal(format!("{error}.")).hint("Restore it from a backup, or move it away to start afresh."),
            StoreError::Stuck { ref cause, .. } => Self::internal(format!("{error}.")).hint(match cause {
                Stuck::NewerWithoutCopy { .. } => "Start the other system slot or install the later version again. Nothing was changed.",
                Stuck::Gone | Stuck::Damaged => {
                    "Start the other system slot, or reset the appliance at its screen to set it up anew. Nothing was changed."
                }
            }),
            StoreError::Open { ref path, ref cause } => Self::from_io(&path.display().to_string(), cause),
            StoreError::Broke | StoreError::Sqlite(_) => {
                // The detail goes to the log: it may name columns and files, which are no business of a caller.
                tracing::error!(error = %error, "the store failed");
                Self::internal("The appliance could not read or write its own database.").hint("Try again; if it stays so, the log says why.")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_inside_a_transaction_reaches_the_caller_unchanged() {
        let problem = Problem::new(ProblemKind::Conflict, "The name is taken.").param("name");
        assert_eq!(Problem::from(StoreError::from(problem.clone())), problem);
    }

    #[test]
    fn a_full_disk_tells_the_owner_what_to_do() {
        let full = rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_FULL), None);
        let problem = Problem::from(StoreError::from(full));
        assert_eq!(problem.kind, ProblemKind::DiskFull);
        assert!(problem.hint.is_some());
    }
}
