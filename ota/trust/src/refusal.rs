//! Why something was not believed. One variant per reason; each text names the cause, the subject and the way out, and is fit to be
//! shown as it is. Nothing was changed when one of these comes back.

use std::fmt;

use jiff::Timestamp;
use thiserror::Error;
use warden_domain::units::Bytes;

use crate::digest::Digest;
use crate::key::KeyId;
use crate::root::Role;
use crate::version::Version;
use crate::{RELEASE_MAX, ROOT_MAX, TIMESTAMP_MAX};

/// Which of the three signed files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Document {
    /// Which keys may say what.
    Root,
    /// What boxes of a channel should run.
    Release,
    /// Which release is the current one.
    Timestamp,
}

impl Document {
    /// The value of its `type` member.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Release => "release",
            Self::Timestamp => "timestamp",
        }
    }

    /// The most bytes a file of this kind may have.
    #[must_use]
    pub const fn limit(self) -> usize {
        match self {
            Self::Root => ROOT_MAX,
            Self::Release => RELEASE_MAX,
            Self::Timestamp => TIMESTAMP_MAX,
        }
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.json", self.kind())
    }
}

/// A reason to refuse.
#[allow(missing_docs, reason = "the fields are the blanks of the sentence above them")]
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Bigger than a file of this kind may be.
    #[error("{document} has {} where at most {} are allowed, so it was not read. Fetch the update again; if it stays so, the source is damaged or hostile.", Bytes(*.bytes), Bytes(*.limit))]
    TooLarge { document: Document, bytes: u64, limit: u64 },
    /// No JSON of the expected shape.
    #[error("{document} cannot be read ({detail}). Fetch the update again, or ask for a new copy of the bundle.")]
    Unreadable { document: Document, detail: String },
    /// An object has one member twice.
    #[error("{document} has the member {name} twice, so it could be read in two ways. Do not use this source; get the update from the publisher.")]
    DuplicateMember { document: Document, name: String },
    /// Valid JSON, but not written in the one agreed form.
    #[error(
        "{document} is not in the canonical form that the release tool writes; somebody changed it on the way. Get the update from the publisher again."
    )]
    NotCanonical { document: Document },
    /// One key id signs twice.
    #[error("{document} carries two signatures of key {}, which would count one signer twice. Do not use this source; get the update from the publisher.", short(.key_id))]
    DuplicateSignature { document: Document, key_id: KeyId },
    /// A signed file of another kind was put in this place.
    #[error("a file of type {found:?} stands in the place of {document}. Get the update from the publisher again.")]
    WrongDocument { document: Document, found: String },
    /// A format this version does not speak.
    #[error(
        "{document} is written in format {found}, and this version reads format {} only. Update this box to an older release first, then to this one.",
        crate::SPEC
    )]
    UnknownSpec { document: Document, found: u64 },
    /// The content contradicts itself.
    #[error("{document} contradicts itself: {detail}. Tell the publisher; nothing can be done on this box.")]
    Contradiction { document: Document, detail: String },
    /// A listed key's signature does not match.
    #[error("the signature of key {} on {document} does not match its content; the file was changed after signing. Get the update from the publisher again.", short(.key_id))]
    BadSignature { document: Document, key_id: KeyId },
    /// No signature of a key we trust.
    #[error("{document} is not signed by any {role} key this box trusts. It comes from somebody else: use an update of the publisher of this box.")]
    NotSignedByUs { document: Document, role: Role },
    /// Some signatures, but below the threshold.
    #[error("{document} has {valid} of the {needed} signatures of {role} keys it needs. Ask the publisher to have it signed by the others.")]
    TooFewSignatures { document: Document, role: Role, valid: u32, needed: u32 },
    /// The signer's key was withdrawn.
    #[error("{document} is signed by key {}, which was withdrawn. Take a newer update, signed by a valid key.", short(.key_id))]
    RevokedSigner { document: Document, key_id: KeyId },
    /// The root chain misses a link.
    #[error("the chain of root files goes from version {have} to {found}; version {} is missing. Take a complete copy of the channel or bundle.", .have + 1)]
    RootGap { have: u64, found: u64 },
    /// More root files than anybody needs.
    #[error("there are {count} root files, more than the {limit} a box reads. The source is damaged or hostile: get the update from the publisher.")]
    RootChainTooLong { count: usize, limit: usize },
    /// A root file of a version the box already trusts has other content.
    #[error("root version {version} differs from the one this box trusts. The source is not this box's publisher, or was tampered with.")]
    RootForked { version: u64 },
    /// A production box was offered development keys.
    #[error(
        "the root file belongs to development keys, and this box takes production releases only. Use a production release, or install a development image."
    )]
    DevelopmentRoot,
    /// Made for another product.
    #[error("{document} is for {found:?}, and this box is {expected:?}. Take the update made for this product.")]
    OtherProduct { document: Document, found: String, expected: String },
    /// Made for another channel.
    #[error(
        "{document} is of channel {found:?}, and this box follows {expected:?}. Take an update of that channel, or change the channel in the settings first."
    )]
    OtherChannel { document: Document, found: String, expected: String },
    /// Older than what this box has seen.
    #[error(
        "{document} is version {found}, and this box has already seen {seen}; an older one may bring back mended faults. Take the newest update."
    )]
    OlderThanSeen { document: Document, found: u64, seen: u64 },
    /// Two files claim the same version.
    #[error(
        "{document} claims version {version} with another content than this box has seen under it. Tell the publisher; take a release with a higher version."
    )]
    SameVersionOtherContent { document: Document, version: u64 },
    /// Out of date.
    #[error(
        "{document} was valid until {expires}, and it is {now} by this box's clock. Take a newer update; if the date is wrong, set the clock first."
    )]
    Expired { document: Document, expires: Timestamp, now: Timestamp },
    /// The channel was not refreshed; only automatic updates stop.
    #[error(
        "the channel is stale: its timestamp was valid until {expires}, and it is {now}. Automatic updates wait; check the update server, the network and the clock, or install by hand."
    )]
    Stale { expires: Timestamp, now: Timestamp },
    /// The release is not the one the timestamp pins.
    #[error("release.json is not the one that timestamp.json names ({detail}); parts of two releases were mixed. Fetch the update again.")]
    NotPinned { detail: String },
    /// The target is not part of the release.
    #[error("{digest} is not listed in release {release}. Use only files that belong to this release.")]
    NotListed { digest: Digest, release: u64 },
    /// The publisher withdrew this target.
    #[error("{subject} was withdrawn by its publisher. Take a newer release.")]
    RevokedTarget { subject: String },
    /// Below the lowest OS version that may run.
    #[error("OS {found} is older than {floor}, the oldest that this box may still run. Take OS {floor} or newer.")]
    BelowFloor { found: Version, floor: Version },
    /// Too big a step.
    #[error("{subject} can be installed from OS {needs} on, and this box runs {have}. Install OS {needs} first.")]
    FromTooOld { subject: String, needs: Version, have: Version },
    /// Needs a newer agent.
    #[error("{subject} needs OS {needs} or newer, and this box runs {have}. Update the OS first.")]
    NeedsNewerAgent { subject: String, needs: Version, have: Version },
    /// Needs another GPU driver.
    #[error("{subject} needs GPU driver {needs} or newer, and this box has {}. Update the OS, which carries the driver, first.", .have.as_ref().map_or("none", Version::as_str))]
    NeedsNewerDriver { subject: String, needs: Version, have: Option<Version> },
    /// The data of this box is too new for that OS.
    #[error(
        "{subject} reads data of format {reads}, and this box's data needs format {needs} or newer. Choose a newer OS, or restore a backup made by that one."
    )]
    DataTooNew { subject: String, reads: u32, needs: u32 },
    /// It failed here before.
    #[error(
        "OS {version} was tried on this box and fell back: {reason} It is not tried again by itself. Wait for a newer version, or choose \"try again\"."
    )]
    Quarantined { version: Version, reason: String },
    /// A part of a target is damaged.
    #[error(
        "part {part} of {subject} does not match its checksum. Only this part has to be fetched again; if it fails again, the source is damaged."
    )]
    DamagedPart { subject: String, part: u64 },
    /// All parts match but not the whole.
    #[error("{subject} does not match its checksum. Delete it and fetch it again.")]
    DamagedTarget { subject: String },
    /// The target ended too early.
    #[error("{subject} ends after {} of {}. Continue the transfer, or get a complete copy.", Bytes(*.got), Bytes(*.expected))]
    CutShort { subject: String, got: u64, expected: u64 },
    /// The target does not end where it should.
    #[error("{subject} goes on after its {}; the source sends more than it should. Stop the transfer and get the update from the publisher.", Bytes(*.expected))]
    TooLong { subject: String, expected: u64 },
    /// The source hardly sends.
    #[error("{subject} arrives at under {} in {seconds} s, too slowly to end. It is tried again later; check the network, or use an offline bundle.", Bytes(*.least))]
    TooSlow { subject: String, least: u64, seconds: u64 },
}

impl Refusal {
    /// A stable name for programs and translations.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "metadata_too_large",
            Self::Unreadable { .. } => "metadata_unreadable",
            Self::DuplicateMember { .. } => "metadata_duplicate_member",
            Self::NotCanonical { .. } => "metadata_not_canonical",
            Self::DuplicateSignature { .. } => "duplicate_signature",
            Self::WrongDocument { .. } => "wrong_document",
            Self::UnknownSpec { .. } => "unknown_spec",
            Self::Contradiction { .. } => "metadata_contradiction",
            Self::BadSignature { .. } => "bad_signature",
            Self::NotSignedByUs { .. } => "not_signed_by_us",
            Self::TooFewSignatures { .. } => "too_few_signatures",
            Self::RevokedSigner { .. } => "revoked_signer",
            Self::RootGap { .. } => "root_gap",
            Self::RootChainTooLong { .. } => "root_chain_too_long",
            Self::RootForked { .. } => "root_forked",
            Self::DevelopmentRoot => "development_root",
            Self::OtherProduct { .. } => "other_product",
            Self::OtherChannel { .. } => "other_channel",
            Self::OlderThanSeen { .. } => "older_than_seen",
            Self::SameVersionOtherContent { .. } => "same_version_other_content",
            Self::Expired { .. } => "expired",
            Self::Stale { .. } => "channel_stale",
            Self::NotPinned { .. } => "not_pinned",
            Self::NotListed { .. } => "not_listed",
            Self::RevokedTarget { .. } => "revoked_target",
            Self::BelowFloor { .. } => "below_floor",
            Self::FromTooOld { .. } => "from_too_old",
            Self::NeedsNewerAgent { .. } => "needs_newer_agent",
            Self::NeedsNewerDriver { .. } => "needs_newer_driver",
            Self::DataTooNew { .. } => "data_too_new",
            Self::Quarantined { .. } => "quarantined",
            Self::DamagedPart { .. } => "damaged_part",
            Self::DamagedTarget { .. } => "damaged_target",
            Self::CutShort { .. } => "cut_short",
            Self::TooLong { .. } => "too_long",
            Self::TooSlow { .. } => "too_slow",
        }
    }
}

/// Enough of a key id to recognise it by.
fn short(key_id: &KeyId) -> String {
    key_id.to_string().chars().take(12).collect()
}
