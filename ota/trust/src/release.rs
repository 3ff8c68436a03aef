//! `release.json`: what boxes of one channel should run, target by target, and what they must never run again.

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::envelope::Envelope;
use crate::key::KeyId;
use crate::refusal::{Document, Refusal};
use crate::version::Version;

/// The most bytes of a release file: enough for part checksums of a terabyte.
pub const RELEASE_MAX: usize = 8 * 1024 * 1024;
/// The smallest part of a target in bytes.
pub const MIN_PART: u64 = 64 * 1024;
/// The biggest part of a target in bytes.
pub const MAX_PART: u64 = 256 * 1024 * 1024;
const TEXT_MAX: usize = 16 * 1024;

/// What a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An image of the system, as a RAUC bundle.
    Os,
    /// An engine pack.
    Engine,
    /// A model.
    Model,
    /// A GPU driver.
    Driver,
}

impl Kind {
    /// Its name in files and commands.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Os => "os",
            Self::Engine => "engine",
            Self::Model => "model",
            Self::Driver => "driver",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a box must have before a target makes sense on it. Absent means no demand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requires {
    /// Lowest GPU driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<Version>,
    /// Lowest agent, which is the OS version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Version>,
    /// Lowest OS version from which an OS can be installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_from: Option<Version>,
}

/// From `at` on, `percent` of all boxes may take the target by themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wave {
    /// When it begins.
    pub at: Timestamp,
    /// Share of boxes reached by then, all earlier waves included.
    pub percent: u32,
}

/// One target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Its name: `lm-warden`, `llama.cpp`, `qwen3-8b-q4`.
    pub name: String,
    /// Its version; numbers with dots for an OS and a driver, free text else.
    pub version: String,
    /// SHA-256 of the whole file.
    pub sha256: Digest,
    /// Length in bytes.
    pub bytes: u64,
    /// Length of each part but the last, in bytes.
    pub part_bytes: u64,
    /// SHA-256 of each part.
    pub parts: Vec<Digest>,
    /// Demands.
    #[serde(default)]
    pub requires: Requires,
    /// An OS: the data format it writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_schema: Option<u32>,
    /// An OS: the digest of the manifest inside the RAUC bundle, handed to RAUC as a second lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_hash: Option<Digest>,
    /// Staged rollout; empty means everybody at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waves: Vec<Wave>,
    /// What changed, as plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// Under which licence; models must say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
    /// Where it comes from; models must say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl Entry {
    /// How a sentence calls it: `os lm-warden 1.4.0`.
    #[must_use]
    pub fn subject(&self) -> String {
        format!("{} {} {}", self.kind, self.name, self.version)
    }

    /// Its version as a number, where it must be one.
    #[must_use]
    pub fn number(&self) -> Option<Version> {
        matches!(self.kind, Kind::Os | Kind::Driver).then(|| self.version.parse().ok()).flatten()
    }

    /// Where part `part` begins and ends in the file, in bytes.
    #[must_use]
    pub fn part_range(&self, part: u64) -> std::ops::Range<u64> {
        let start = part.saturating_mul(self.part_bytes).min(self.bytes);
        start..start.saturating_add(self.part_bytes).min(self.bytes)
    }

    fn check(&self) -> Result<(), String> {
        let subject = self.subject();
        if !is_name(&self.name) {
            return Err(format!("{:?} is no name of a target: small letters, digits, dot, dash and underscore, at most 64", self.name));
        }
        if self.version.is_empty() || self.version.len() > 64 || !self.version.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(format!("{} {} has a version that is empty, too long or not plain text", self.kind, self.name));
        }
        if matches!(self.kind, Kind::Os | Kind::Driver) && self.number().is_none() {
            return Err(format!("{subject} needs a version of numbers with dots"));
        }
        if self.kind == Kind::Os && self.data_schema.is_none() {
            return Err(format!("{subject} does not say its data_schema"));
        }
        if self.kind == Kind::Model && (self.licence.is_none() || self.source.is_none()) {
            return Err(format!("{subject} does not say its licence and source"));
        }
        if !(MIN_PART..=MAX_PART).contains(&self.part_bytes) || self.bytes == 0 {
            return Err(format!("{subject} is empty, or its parts are not between 64 KiB and 256 MiB"));
        }
        if self.bytes.div_ceil(self.part_bytes) != self.parts.len() as u64 {
            return Err(format!("{subject} lists {} parts, which do not make up its {} bytes", self.parts.len(), self.bytes));
        }
        if self.parts.len() == 1 && self.parts.first() != Some(&self.sha256) {
            return Err(format!("{subject} has one part with another checksum than the whole"));
        }
        let texts = [&self.notes, &self.licence, &self.source];
        if texts.into_iter().flatten().any(|t| t.len() > TEXT_MAX) {
            return Err(format!("{subject} has a text of more than 16 KiB"));
        }
        let steps = self.waves.iter().zip(self.waves.iter().skip(1));
        if self.waves.iter().any(|w| w.percent > 100) || steps.into_iter().any(|(a, b)| b.at < a.at || b.percent < a.percent) {
            return Err(format!("the waves of {subject} go backwards or beyond 100 percent"));
        }
        Ok(())
    }
}

/// What must never be used again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    /// Targets.
    #[serde(default)]
    pub digests: BTreeSet<Digest>,
    /// Release and timestamp keys. Root keys are withdrawn by a new root only.
    #[serde(default)]
    pub key_ids: BTreeSet<KeyId>,
}

/// The content of a release file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// Always `release`.
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
    /// Until when it may be used.
    pub expires: Timestamp,
    /// The oldest OS that boxes may still run; it never goes down on a box.
    pub floor: Version,
    /// What must never be used again.
    pub revoked: Revoked,
    /// The targets.
    pub entries: Vec<Entry>,
}

impl Release {
    /// Reads a release file without believing it.
    ///
    /// # Errors
    /// It cannot be read, or contradicts itself.
    pub fn read(bytes: &[u8]) -> Result<(Self, Envelope), Refusal> {
        let envelope = Envelope::read(Document::Release, bytes, RELEASE_MAX)?;
        let release: Self = envelope.content()?;
        release.check().map_err(|detail| Refusal::Contradiction { document: Document::Release, detail })?;
        Ok((release, envelope))
    }

    /// A target by its digest.
    #[must_use]
    pub fn entry(&self, digest: &Digest) -> Option<&Entry> {
        self.entries.iter().find(|e| e.sha256 == *digest)
    }

    /// What can be wrong with a release in itself; `Ok` when nothing is.
    ///
    /// # Errors
    /// One sentence without a full stop.
    pub fn check(&self) -> Result<(), String> {
        if self.version == 0 {
            return Err("its version is 0, and versions begin at 1".to_owned());
        }
        if self.issued >= self.expires {
            return Err("it expires before it was issued".to_owned());
        }
        if !is_name(&self.channel) {
            return Err(format!("{:?} is no name of a channel", self.channel));
        }
        let (mut digests, mut names) = (BTreeSet::new(), BTreeSet::new());
        for entry in &self.entries {
            entry.check()?;
            if !digests.insert(entry.sha256) || !names.insert((entry.kind, entry.name.as_str(), entry.version.as_str())) {
                return Err(format!("{} is listed twice", entry.subject()));
            }
        }
        Ok(())
    }
}

/// Names that are safe as parts of a path, a URL and a sentence.
fn is_name(text: &str) -> bool {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.len() <= 64 && text.bytes().next().is_some_and(letter) && text.bytes().all(|b| letter(b) || matches!(b, b'.' | b'-' | b'_'))
}
