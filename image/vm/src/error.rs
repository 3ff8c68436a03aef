//! What can go wrong while a guest or container runs. Each message names the subject and, where there is one, the way out.

use std::path::PathBuf;

/// A failure of the runner or of what runs in it.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// A file or socket of the run could not be used.
    #[error("{what} ({}): {source}", path.display())]
    Io {
        /// What was tried, as a short phrase.
        what: &'static str,
        /// The file, folder or socket.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A program of the host or the builder root could not be started.
    #[error("cannot start {program}: {source}; {way_out}")]
    Start {
        /// The program.
        program: String,
        /// The cause.
        source: std::io::Error,
        /// What to install or build first.
        way_out: &'static str,
    },
    /// A helper program ended with an error.
    #[error("{program} failed: {said}")]
    Failed {
        /// The program.
        program: String,
        /// The end of its output.
        said: String,
    },
    /// The guest or container ended before it was told to.
    #[error("{subject} ended early; the last it said:\n{tail}")]
    Ended {
        /// Which one.
        subject: String,
        /// The end of its log.
        tail: String,
    },
    /// Something awaited did not happen in time.
    #[error("waited {seconds} s for {what} in vain; the last lines:\n{tail}")]
    TimedOut {
        /// What was awaited.
        what: String,
        /// How long, in seconds.
        seconds: u64,
        /// The end of the log.
        tail: String,
    },
    /// The pattern given to a wait is not a regular expression.
    #[error("bad pattern: {0}")]
    Pattern(#[from] regex::Error),
    /// QEMU refused a command or spoke no JSON.
    #[error("QMP {command}: {said}")]
    Qmp {
        /// The command.
        command: String,
        /// QEMU's answer.
        said: String,
    },
    /// A user name that the container's root does not know.
    #[error("no user {user} in {}; is the overlay's sysusers.d applied to this root?", root.display())]
    NoUser {
        /// The name.
        user: String,
        /// The root that was searched.
        root: PathBuf,
    },
}

impl VmError {
    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| VmError::Io { what, path, source }
    }
}
