//! Where an update stands. The agent writes it before it takes the step that it names.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::file::Document;
use warden_bootslot::entry::Slot;

/// A random name of one attempt; RAUC keeps it with the slot it wrote. A UUID of version 4 in its usual form.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TransactionId(String);

impl TransactionId {
    /// A new one.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut raw = [0_u8; 16];
        getrandom::fill(&mut raw)?;
        raw[6] = (raw[6] & 0x0f) | 0x40;
        raw[8] = (raw[8] & 0x3f) | 0x80;
        let hex = hex::encode(raw);
        let part = |range: std::ops::Range<usize>| hex.get(range).unwrap_or_default().to_owned();
        Ok(Self([part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)].join("-")))
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for TransactionId {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The system image of an attempt, as the signed release lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryRef {
    /// `lm-warden`.
    pub name: String,
    /// `1.4.0`.
    pub version: String,
    /// SHA-256 of the file, 64 lower-case hex digits.
    pub sha256: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// What ran when an attempt began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// The slot; `None` where the system was not started from one.
    pub slot: Option<Slot>,
    /// The version.
    pub version: String,
}

/// Which way the image comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// From the channel's server.
    Channel,
    /// From a bundle file that was uploaded.
    Upload,
    /// From a stick.
    Stick,
}

/// Who began the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// Nobody: the schedule.
    Automatic,
    /// A person.
    Person,
}

/// One attempt to bring an image onto the box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its name.
    pub transaction: TransactionId,
    /// The image.
    pub entry: EntryRef,
    /// What ran when it began.
    pub running: Running,
    /// Which way the image comes.
    pub origin: Origin,
    /// Who began it.
    pub asked: Asked,
    /// When it began.
    pub began_at: Timestamp,
    /// How often the write of the slot was cut off and begun again.
    #[serde(default)]
    pub interruptions: u32,
}

/// Why an attempt ended in the old system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// A stable name: a check of the health gate, or `boot_count`, `unknown`.
    pub code: String,
    /// One sentence with a full stop.
    pub sentence: String,
}

/// Where the update stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum Record {
    /// Nothing is under way.
    #[default]
    Idle,
    /// An image was chosen; nothing of it was fetched.
    Available {
        /// Which.
        attempt: Attempt,
    },
    /// The image is being fetched.
    Downloading {
        /// Which.
        attempt: Attempt,
    },
    /// The whole image lies here and was checked.
    Verified {
        /// Which.
        attempt: Attempt,
    },
    /// The image is being written to a slot.
    Installing {
        /// Which.
        attempt: Attempt,
        /// Where to.
        target_slot: Slot,
    },
    /// The slot was written whole and is the next one to start.
    Staged {
        /// Which.
        attempt: Attempt,
        /// Where.
        target_slot: Slot,
        /// The boot during which it was written.
        staged_boot_id: String,
    },
    /// A restart into the slot was asked for, or it runs by now; see [`crate::standing`].
    Trial {
        /// Which.
        attempt: Attempt,
        /// Where.
        target_slot: Slot,
        /// The boot during which it was written.
        staged_boot_id: String,
        /// The boot that asked for the restart.
        asked_boot_id: String,
    },
    /// The slot runs and was found good.
    Confirmed {
        /// Which.
        attempt: Attempt,
        /// Where.
        target_slot: Slot,
        /// When that was found.
        at: Timestamp,
    },
    /// The old system runs again.
    RolledBack {
        /// Which.
        attempt: Attempt,
        /// Where it had been tried.
        target_slot: Slot,
        /// Why.
        reason: Reason,
        /// When that was found.
        at: Timestamp,
    },
}

impl Document for Record {
    const FILE: &'static str = "record.json";
}

/// The names of the phases alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the variants of Record tell what they mean")]
pub enum Phase {
    Idle,
    Available,
    Downloading,
    Verified,
    Installing,
    Staged,
    Trial,
    Confirmed,
    RolledBack,
}

impl Phase {
    /// As in the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Available => "available",
            Self::Downloading => "downloading",
            Self::Verified => "verified",
            Self::Installing => "installing",
            Self::Staged => "staged",
            Self::Trial => "trial",
            Self::Confirmed => "confirmed",
            Self::RolledBack => "rolled_back",
        }
    }
}

impl Record {
    /// Its phase.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        match self {
            Self::Idle => Phase::Idle,
            Self::Available { .. } => Phase::Available,
            Self::Downloading { .. } => Phase::Downloading,
            Self::Verified { .. } => Phase::Verified,
            Self::Installing { .. } => Phase::Installing,
            Self::Staged { .. } => Phase::Staged,
            Self::Trial { .. } => Phase::Trial,
            Self::Confirmed { .. } => Phase::Confirmed,
            Self::RolledBack { .. } => Phase::RolledBack,
        }
    }

    /// The attempt it tells of; none when idle.
    #[must_use]
    pub const fn attempt(&self) -> Option<&Attempt> {
        match self {
            Self::Idle => None,
            Self::Available { attempt }
            | Self::Downloading { attempt }
            | Self::Verified { attempt }
            | Self::Installing { attempt, .. }
            | Self::Staged { attempt, .. }
            | Self::Trial { attempt, .. }
            | Self::Confirmed { attempt, .. }
            | Self::RolledBack { attempt, .. } => Some(attempt),
        }
    }

    /// The slot it tells of, from the install on.
    #[must_use]
    pub const fn target_slot(&self) -> Option<Slot> {
        match self {
            Self::Idle | Self::Available { .. } | Self::Downloading { .. } | Self::Verified { .. } => None,
            Self::Installing { target_slot, .. }
            | Self::Staged { target_slot, .. }
            | Self::Trial { target_slot, .. }
            | Self::Confirmed { target_slot, .. }
            | Self::RolledBack { target_slot, .. } => Some(*target_slot),
        }
    }
}
