//! Why a build stopped. Each message names the cause and the subject, and where there is one, the way out.

use std::path::PathBuf;

/// A failed step.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("{what} ({}): {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("cannot start {tool}: {source}; {way_out}")]
    Start { tool: String, source: std::io::Error, way_out: &'static str },
    #[error("{tool} failed ({status}); its last words:\n{said}")]
    Tool { tool: String, status: String, said: String },
    #[error("{subject}: {cause}; {way_out}")]
    Refused { subject: String, cause: String, way_out: String },
    #[error(transparent)]
    Run(#[from] warden_vm::VmError),
}

impl Fault {
    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Fault::Io { what, path, source }
    }

    pub(crate) fn refused(subject: impl Into<String>, cause: impl Into<String>, way_out: impl Into<String>) -> Self {
        Fault::Refused { subject: subject.into(), cause: cause.into(), way_out: way_out.into() }
    }
}

pub(crate) type Done<T = ()> = Result<T, Fault>;
