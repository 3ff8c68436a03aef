//! Why a command stopped. Nothing that was published before it is changed.

use std::io;

use thiserror::Error;
use warden_bundle::BundleError;
use warden_trust::Refusal;

/// A reason, as one or two sentences: cause, subject, way out.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The system could not read or write.
    #[error("{doing}: {source}.")]
    Io {
        /// What was being done.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
    /// A rule that a box checks would be broken.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// The bundle or channel folder is not sound.
    #[error("{0}")]
    Bundle(#[from] BundleError),
    /// Anything this tool itself does not do.
    #[error("{0}")]
    Said(String),
}

impl Fault {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    pub(crate) fn said<T>(text: impl Into<String>) -> Result<T, Self> {
        Err(Self::Said(text.into()))
    }
}

/// What a step of a command gives.
pub(crate) type Done<T> = Result<T, Fault>;
