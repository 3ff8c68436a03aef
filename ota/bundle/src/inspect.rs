//! What a bundle says about itself, for people and for the page before an install. Nothing of it is believed; whether it may be used is told by
//! [`crate::open`] only.

use std::io::Read;
use std::path::Path;

use warden_trust::{Digest, Document, Envelope, KeyId, Metadata, Release, Root, TimestampDoc};

use crate::fault::BundleError;
use crate::folder::FolderSource;
use crate::reader::Source;
use crate::tape::TapeSource;

/// Whose signatures a file carries, unchecked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signers {
    /// Which file.
    pub document: Document,
    /// The key ids.
    pub key_ids: Vec<KeyId>,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Contents {
    /// The root files in order.
    pub roots: Vec<Root>,
    /// The timestamp.
    pub timestamp: TimestampDoc,
    /// The release.
    pub release: Release,
    /// Signers of the newest root, the timestamp and the release.
    pub signers: Vec<Signers>,
    /// The targets that are there, with their sizes in bytes; the release may list more.
    pub targets: Vec<(Digest, u64)>,
    /// Bytes read.
    pub bytes: u64,
}

/// Reads a bundle from its first to its last byte.
///
/// # Errors
/// It is no bundle, or damaged in its form. Signatures and checksums are not looked at.
pub fn inspect(stream: impl Read) -> Result<Contents, BundleError> {
    look(TapeSource::new(stream))
}

/// Reads a folder of the same layout; the content of targets is not read.
///
/// # Errors
/// As [`inspect`].
pub fn inspect_folder(path: &Path) -> Result<Contents, BundleError> {
    look(FolderSource::new(path)?)
}

fn look(mut source: impl Source) -> Result<Contents, BundleError> {
    let Metadata { roots, timestamp, release } = source.metadata()?;
    let mut signers = Vec::new();
    let mut note =
        |document, envelope: Envelope| signers.push(Signers { document, key_ids: envelope.signatures().iter().map(|s| s.key_id).collect() });
    let mut chain = Vec::new();
    for (at, bytes) in roots.iter().enumerate() {
        let (root, envelope) = Root::read(bytes)?;
        chain.push(root);
        if at + 1 == roots.len() {
            note(Document::Root, envelope);
        }
    }
    let (timestamp, envelope) = TimestampDoc::read(&timestamp)?;
    note(Document::Timestamp, envelope);
    let (release, envelope) = Release::read(&release)?;
    note(Document::Release, envelope);
    let mut targets = Vec::new();
    while let Some(target) = source.next_target(&release)? {
        targets.push(target);
    }
    Ok(Contents { roots: chain, timestamp, release, signers, targets, bytes: source.progress() })
}
