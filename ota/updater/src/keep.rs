//! What the updater remembers across restarts and slots besides the record: what it trusts, what failed here, what was decided, what happened,
//! which release it last believed. Each is a small file in the same folder, written whole, synced and renamed.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use warden_domain::update::{HistoryLine, UpdateFault, UpdateSettings};
use warden_trust::{Digest, Quarantine, Release, Trusted};
use warden_update_record::{Before, Document, FileError, Record};

/// Lines of history that are kept.
const KEPT: usize = 50;

/// The release that was believed last, with what came of the last look.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Channel {
    /// When the channel was last asked.
    pub(crate) asked_at: Option<Timestamp>,
    /// Why that did not work.
    #[serde(default)]
    pub(crate) fault: Option<UpdateFault>,
    /// Until when what its server last said counts as fresh; nobody has to be there to tell that it ended.
    #[serde(default)]
    pub(crate) fresh_until: Option<Timestamp>,
    /// The release last believed, from any way.
    #[serde(default)]
    pub(crate) release: Option<Release>,
    /// Digest of its file.
    #[serde(default)]
    pub(crate) digest: Option<Digest>,
    /// True when it came from the channel's server.
    #[serde(default)]
    pub(crate) from_server: bool,
}

/// What happened, the newest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct History {
    pub(crate) lines: Vec<HistoryLine>,
}

/// Why the attempt does not go on, and when its transfer broke off.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Trouble {
    pub(crate) fault: Option<UpdateFault>,
    /// True when it goes on by itself.
    #[serde(default)]
    pub(crate) passes: bool,
}

macro_rules! document {
    ($type:ty, $file:literal) => {
        impl Kept for $type {
            const FILE: &'static str = $file;
        }
    };
}

/// A document of this room alone.
pub(crate) trait Kept: Serialize + DeserializeOwned {
    const FILE: &'static str;
}

/// Room for a release with the part checksums of a terabyte, written with its indentation.
const MAX: u64 = 64 << 20;

document!(Trusted, "trusted.json");
document!(Quarantine, "failed.json");
document!(UpdateSettings, "settings.json");
document!(Channel, "channel.json");
document!(History, "history.json");
document!(Trouble, "trouble.json");

#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Wrapped<T>(T);

impl<T: Kept> Document for Wrapped<T> {
    const FILE: &'static str = T::FILE;
    const MAX: u64 = MAX;
}

/// The folder. Blocking; calls take milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Keep {
    folder: PathBuf,
}

impl Keep {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    pub(crate) fn read<T: Kept>(&self) -> Result<Option<T>, FileError> {
        Ok(warden_update_record::read::<Wrapped<T>>(&self.folder)?.map(|wrapped| wrapped.0))
    }

    pub(crate) fn write<T: Kept + Clone>(&self, document: &T) -> Result<(), FileError> {
        warden_update_record::write(&self.folder, &Wrapped(document.clone()))
    }

    /// Gives a damaged document another name, where it is no longer read; false when that does not work.
    pub(crate) fn put_aside<T: Kept>(&self) -> bool {
        let aside = self.folder.join(format!("{}.damaged", T::FILE));
        std::fs::rename(self.folder.join(T::FILE), aside).is_ok()
    }

    pub(crate) fn record(&self) -> Result<Option<Record>, FileError> {
        warden_update_record::read(&self.folder)
    }

    pub(crate) fn write_record(&self, record: &Record) -> Result<(), FileError> {
        warden_update_record::write(&self.folder, record)
    }

    pub(crate) fn write_before(&self, before: &Before) -> Result<(), FileError> {
        warden_update_record::write(&self.folder, before)
    }
}

impl History {
    /// With one more line.
    pub(crate) fn with(mut self, line: HistoryLine) -> Self {
        self.lines.insert(0, line);
        self.lines.truncate(KEPT);
        self
    }
}
