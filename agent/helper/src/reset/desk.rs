//! The folder `/state/reset`: the waiting record, the list of consumed ones, the epoch. Owned by root, readable by all (nothing in it is
//! a secret: a record can only be used by who can write it). Every change is on the medium before it counts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::journal::Journal;
use super::record::{self, Here, Record};
use super::scope::{Asker, Scope};
use crate::verb::Refusal;

/// Name of the waiting record.
pub const REQUEST: &str = "request";
/// Name of the list.
pub const JOURNAL: &str = "consumed";
/// Name of the epoch's file.
pub const EPOCH: &str = "epoch";

/// Where the facts and files are.
#[derive(Debug, Clone)]
pub struct Desk {
    /// The state partition.
    pub state: PathBuf,
    /// The file in which the board says what it is.
    pub product: PathBuf,
}

impl Desk {
    /// The places of the appliance.
    #[must_use]
    pub fn appliance() -> Self {
        Self { state: "/state".into(), product: "/sys/class/dmi/id/product_uuid".into() }
    }

    /// The folder itself.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.state.join("reset")
    }

    /// What this machine is.
    ///
    /// # Errors
    /// When the state partition cannot be asked.
    pub fn here(&self) -> io::Result<Here> {
        let text = |path: &Path| fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let state = nix::sys::statvfs::statvfs(&self.state)?.filesystem_id();
        Ok(Here { machine_id: text(&self.state.join("machine-id")), product: text(&self.product), state })
    }

    /// The waiting record's text. A record that cannot be read as text is told as an empty one, which no record is.
    ///
    /// # Errors
    /// What the system says, other than that there is none.
    pub fn request(&self) -> io::Result<Option<String>> {
        Ok(self.bytes(REQUEST)?.map(|bytes| String::from_utf8(bytes).unwrap_or_default()))
    }

    /// The list: an empty one when there is none yet, nothing when it is there and cannot be understood.
    ///
    /// # Errors
    /// What the system says, other than that there is none.
    pub fn journal(&self) -> io::Result<Option<Journal>> {
        Ok(match self.bytes(JOURNAL)? {
            None => Some(Journal::default()),
            Some(bytes) => String::from_utf8(bytes).ok().and_then(|text| Journal::parse(&text)),
        })
    }

    /// The epoch, when a start has begun one.
    ///
    /// # Errors
    /// What the system says, other than that there is none.
    pub fn epoch(&self) -> io::Result<Option<String>> {
        Ok(self.bytes(EPOCH)?.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()).filter(|text| !text.is_empty()))
    }

    /// Puts one of the files in place, durably.
    ///
    /// # Errors
    /// What the system says; the old content is then still there.
    pub fn put(&self, name: &str, text: &str) -> io::Result<()> {
        warden_durable::write(&self.folder().join(name), text.as_bytes())
    }

    /// Takes one of the files away, durably. Taking none is fine.
    ///
    /// # Errors
    /// What the system says.
    pub fn take(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.folder().join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(()) => warden_durable::sync_folder(&self.folder()),
        }
    }

    /// Writes a wish down for the next start.
    ///
    /// # Errors
    /// `NoResets` when this start did not begin an epoch, `Io` when the folder cannot be written.
    pub fn ask(&self, scope: Scope, asker: Asker, random: [u8; 16]) -> Result<Record, Refusal> {
        let epoch = self.epoch().map_err(|error| failed("read", EPOCH, &error))?.ok_or(Refusal::NoResets)?;
        let here = self.here().map_err(|error| failed("look at", "the state partition", &error))?;
        let record = Record::new(record::id(random), scope, asker, &here, &epoch);
        self.put(REQUEST, &record.render()).map_err(|error| failed("write", REQUEST, &error))?;
        Ok(record)
    }

    /// Notes that the agent did its part of an admin reset.
    ///
    /// # Errors
    /// When the list cannot be read or written.
    pub fn confirm(&self, id: &str) -> Result<(), Refusal> {
        let journal = self.journal().map_err(|error| failed("read", JOURNAL, &error))?;
        let Some(journal) = journal else { return Ok(()) };
        let next = journal.applied(id);
        if next == journal {
            return Ok(());
        }
        self.put(JOURNAL, &next.render()).map_err(|error| failed("write", JOURNAL, &error))
    }

    fn bytes(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.folder().join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    }
}

fn failed(verb: &str, what: &str, error: &io::Error) -> Refusal {
    Refusal::Io(format!("cannot {verb} {what} of the resets: {error}; check the state partition"))
}
