//! `timestamp.json`: small, signed often by an online key. Says which release is the current one, byte for byte.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::envelope::Envelope;
use crate::refusal::{Document, Refusal};

/// The most bytes of a timestamp file.
pub const TIMESTAMP_MAX: usize = 16 * 1024;

/// Which release file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// Its version.
    pub version: u64,
    /// SHA-256 of the whole file.
    pub sha256: Digest,
    /// Its length in bytes.
    pub bytes: u64,
}

/// The content of a timestamp file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimestampDoc {
    /// Always `timestamp`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Format of the metadata.
    pub spec: u64,
    /// Grows with each one.
    pub version: u64,
    /// The product.
    pub compatible: String,
    /// The channel.
    pub channel: String,
    /// When it was made.
    pub issued: Timestamp,
    /// Until when the channel counts as fresh.
    pub expires: Timestamp,
    /// The current release.
    pub release: Pin,
}

impl TimestampDoc {
    /// Reads a timestamp file without believing it.
    ///
    /// # Errors
    /// It cannot be read, or contradicts itself.
    pub fn read(bytes: &[u8]) -> Result<(Self, Envelope), Refusal> {
        let envelope = Envelope::read(Document::Timestamp, bytes, TIMESTAMP_MAX)?;
        let doc: Self = envelope.content()?;
        if doc.version == 0 || doc.issued >= doc.expires {
            let detail = "its version is 0, or it expires before it was issued".to_owned();
            return Err(Refusal::Contradiction { document: Document::Timestamp, detail });
        }
        Ok((doc, envelope))
    }
}
