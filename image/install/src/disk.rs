//! A disk as the installer sees it, and how it is told to a person. Pure values.

use serde::Serialize;
use warden_domain::units::Bytes;

/// A disk of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Kernel name, for example `nvme0n1`.
    pub name: String,
    /// Model as the disk tells it; empty when it tells none.
    pub model: String,
    /// Size.
    pub size: Bytes,
    /// Serial number, when it tells one.
    pub serial: Option<String>,
    /// World Wide Name, when it tells one.
    pub wwn: Option<String>,
    /// The disk or its switch forbids writing.
    pub read_only: bool,
    /// Who uses it right now: a mount, an array, an encrypted volume.
    pub in_use: Option<String>,
    /// This system was started from it.
    pub own_stick: bool,
    /// What is on it.
    pub holds: Holds,
}

/// What is on a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Its beginning is blank.
    Nothing,
    /// Something that is no partition table.
    Data,
    /// Partitions, by label; without a label by kernel name.
    Partitions(Vec<String>),
    /// LM Warden.
    Warden {
        /// The id of that installation; `None` when it cannot be read or the installation never came to its end.
        install_id: Option<String>,
    },
}

/// A disk in the result file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiskReport {
    /// Model.
    pub model: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Serial number.
    pub serial: Option<String>,
    /// World Wide Name.
    pub wwn: Option<String>,
}

impl Disk {
    /// The disk in one line: model, size, serial, WWN, content.
    #[must_use]
    pub fn line(&self) -> String {
        let model = if self.model.is_empty() { "unnamed disk" } else { &self.model };
        let serial = self.serial.as_deref().map_or_else(|| "no serial".to_owned(), |serial| format!("serial {serial}"));
        let wwn = self.wwn.as_deref().map_or_else(String::new, |wwn| format!("  wwn {wwn}"));
        let mut line = format!("{model}  {}  {serial}{wwn}  ({})  {}", self.size, self.name, self.holds.words());
        if self.read_only {
            line.push_str("  [read-only]");
        }
        if let Some(user) = &self.in_use {
            line.push_str(&format!("  [in use: {user}]"));
        }
        line
    }

    /// How messages call it.
    #[must_use]
    pub fn called(&self) -> String {
        match &self.serial {
            Some(serial) => format!("the disk with serial {serial}"),
            None => format!("the disk {}", self.name),
        }
    }

    /// What a person types to confirm that it may be erased: the last four characters of the serial number, or a word without one.
    #[must_use]
    pub fn proof(&self) -> String {
        let letters: Vec<char> = self.serial.as_deref().unwrap_or_default().chars().collect();
        if letters.is_empty() { "ERASE".to_owned() } else { letters[letters.len().saturating_sub(4)..].iter().collect() }
    }

    /// For the result file.
    #[must_use]
    pub fn report(&self) -> DiskReport {
        DiskReport { model: self.model.clone(), size_bytes: self.size.0, serial: self.serial.clone(), wwn: self.wwn.clone() }
    }
}

impl Holds {
    /// What is on the disk, in words.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Nothing => "empty".to_owned(),
            Self::Data => "data without partitions".to_owned(),
            Self::Partitions(labels) => format!("{} partition(s): {}", labels.len(), labels.join(", ")),
            Self::Warden { install_id: Some(id) } => format!("LM Warden, installation {id}"),
            Self::Warden { install_id: None } => "LM Warden".to_owned(),
        }
    }
}

/// A size as people read it and as it can be checked.
#[must_use]
pub fn exact(size: Bytes) -> String {
    format!("{size} ({} bytes)", size.0)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn disk(name: &str, serial: &str) -> Disk {
        Disk {
            name: name.to_owned(),
            model: "Example 2000".to_owned(),
            size: Bytes(64 << 30),
            serial: (!serial.is_empty()).then(|| serial.to_owned()),
            wwn: None,
            read_only: false,
            in_use: None,
            own_stick: false,
            holds: Holds::Nothing,
        }
    }

    #[test]
    fn a_person_sees_all_that_tells_two_disks_apart() {
        let line = disk("sdb", "S3Z9NX0M").line();
        for word in ["Example 2000", "64.0 GiB", "S3Z9NX0M", "sdb", "empty"] {
            assert!(line.contains(word), "{word} is not in {line}");
        }
    }

    #[test]
    fn erasing_is_confirmed_by_something_that_is_only_on_that_disk() {
        assert_eq!(disk("sdb", "S3Z9NX0M").proof(), "NX0M");
        assert_eq!(disk("sdb", "7").proof(), "7");
        assert_eq!(disk("sdb", "").proof(), "ERASE");
    }
}
