//! Why a bundle was not read or written.

use std::io;

use thiserror::Error;
use warden_domain::units::Bytes;
use warden_trust::Refusal;

/// What went wrong. Each text names cause, subject and way out.
#[allow(missing_docs, reason = "the fields are the blanks of the sentence above them")]
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The metadata or a target's bytes broke a rule of trust.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The system could not read or write.
    #[error("{doing}: {source}. Check the medium and its free room, then try again.")]
    Io { doing: String, source: io::Error },
    /// It does not begin as a bundle does.
    #[error("this is no update bundle: it begins with {found:?} instead of metadata/root.1.json. Choose a file that ends in .wob.")]
    NotABundle { found: String },
    /// A link, device, folder or archive extension.
    #[error(
        "the bundle holds {what} under the name {name:?}, and only plain files belong into one. It was not made by the release tool; do not use it."
    )]
    NotAFile { name: String, what: &'static str },
    /// A name outside the layout.
    #[error("the bundle holds {name:?}, a name that does not belong into one. It was not made by the release tool; do not use it.")]
    BadName { name: String },
    /// A header that the writer would not write.
    #[error("the header of {name:?} is not as the release tool writes it. The bundle was changed or damaged: get a new copy.")]
    OddHeader { name: String },
    /// A member twice, or in the wrong place.
    #[error("{name:?} stands in the wrong place, or twice. The bundle was changed or damaged: get a new copy.")]
    Misplaced { name: String },
    /// Metadata beyond its limit.
    #[error("{name:?} has {} where at most {} are allowed. The bundle is damaged or hostile: get a new copy.", Bytes(*.bytes), Bytes(*.limit))]
    TooLarge { name: String, bytes: u64, limit: u64 },
    /// A target of another length than the release says.
    #[error("{name:?} has {} where the release lists {}. The bundle is damaged: get a new copy.", Bytes(*.found), Bytes(*.listed))]
    WrongSize { name: String, found: u64, listed: u64 },
    /// It ended too early.
    #[error("the bundle ends in the middle of {place}. Continue the upload, or copy the file again.")]
    Cut { place: String },
    /// It does not end where it should.
    #[error("the bundle goes on after its end, or its gaps are not empty. It was changed or damaged: get a new copy.")]
    AfterTheEnd,
    /// The folder misses a file.
    #[error("{name} is missing. Copy the whole folder, or use the .wob file.")]
    Missing { name: String },
    /// The writer was asked for a target that the release does not list.
    #[error("{digest} is not a target of this release. Choose from what `inspect` lists.")]
    NotListed { digest: String },
}

impl BundleError {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    /// A stable name for programs and translations.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Io { .. } => "bundle_io",
            Self::NotABundle { .. } => "not_a_bundle",
            Self::NotAFile { .. } => "bundle_not_a_file",
            Self::BadName { .. } => "bundle_bad_name",
            Self::OddHeader { .. } => "bundle_odd_header",
            Self::Misplaced { .. } => "bundle_misplaced",
            Self::TooLarge { .. } => "bundle_too_large",
            Self::WrongSize { .. } => "bundle_wrong_size",
            Self::Cut { .. } => "bundle_cut",
            Self::AfterTheEnd => "bundle_after_the_end",
            Self::Missing { .. } => "bundle_missing",
            Self::NotListed { .. } => "not_listed",
        }
    }
}
