//! Why this start ends here. Each text names cause and subject; the way out is the restart that follows.

use std::path::PathBuf;

use nix::errno::Errno;
use thiserror::Error;

use crate::{bootdisk, cmdline};

/// The start cannot go on.
#[derive(Debug, Error)]
pub enum Fatal {
    /// The command line is refused.
    #[error("{0}")]
    Cmdline(#[from] cmdline::Refusal),
    /// No boot disk could be told.
    #[error("{0}")]
    Disk(#[from] bootdisk::Unclear),
    /// A file could not be read or made.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A mount or move failed.
    #[error("cannot mount {what} on {on}: {errno}")]
    Mount {
        /// What was to be mounted.
        what: String,
        /// Where.
        on: String,
        /// What the system said.
        errno: Errno,
    },
    /// The verified root could not be opened.
    #[error("the root in {device} does not match its signed hash: {reason}")]
    Verity {
        /// The slot's device.
        device: String,
        /// What the program said.
        reason: String,
    },
    /// The slot in use was given up.
    #[error("slot {0} was started {1} times without proving healthy; the other slot is next")]
    FellBack(warden_bootslot::entry::Slot, u32),
    /// Nothing in the root could be started.
    #[error("cannot start {0}: {1}")]
    Start(&'static str, std::io::Error),
}
