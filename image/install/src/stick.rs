//! The stick this installer was started from: the initrd's word about it, and what it carries. Text comes in, values go out.

use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use warden_domain::units::Bytes;

/// Where the initrd leaves its word.
pub const TOLD: &str = "/run/warden-boot/stick";
/// What the stick carries, described, on its EFI system partition.
pub const MANIFEST: &str = "install/manifest.json";

/// The stick as the initrd found it; kernel names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stick {
    /// The disk.
    pub disk: String,
    /// Its EFI system partition.
    pub esp: String,
    /// The system it was started from, and installs.
    pub root: String,
    /// The partition for the answer file and the result.
    pub files: Option<String>,
}

/// What the stick carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version that is installed.
    pub version: String,
    /// Length of the system image in bytes.
    pub root_bytes: u64,
    /// Its SHA-256 in lower-case hex.
    pub root_sha256: String,
}

/// The stick cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum StickError {
    /// No word of the initrd.
    #[error("this system was not started from an installer stick ({0}); start the machine from the stick")]
    NotOne(String),
    /// Its description does not hold together.
    #[error("the stick's {MANIFEST} cannot be used: {0}; make the stick again")]
    Manifest(String),
}

impl Stick {
    /// Reads the initrd's word.
    ///
    /// # Errors
    /// When it lacks a partition that every stick has.
    pub fn parse(text: &str) -> Result<Self, StickError> {
        let of = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).map(str::to_owned);
        let need = |key: &str| of(key).filter(|name| !name.is_empty()).ok_or_else(|| StickError::NotOne(format!("no {key} was named")));
        Ok(Self { disk: need("disk")?, esp: need("esp")?, root: need("root")?, files: of("files") })
    }
}

impl Manifest {
    /// Reads the description.
    ///
    /// # Errors
    /// When it does not hold together.
    pub fn read(esp: &Path) -> Result<Self, StickError> {
        let said = |error: String| StickError::Manifest(error);
        let bytes = std::fs::read(esp.join(MANIFEST)).map_err(|e| said(e.to_string()))?;
        let manifest: Self = serde_json::from_slice(&bytes).map_err(|e| said(e.to_string()))?;
        if manifest.root_bytes == 0 || manifest.root_sha256.len() != 64 {
            return Err(said("length or hash of the system image is missing".to_owned()));
        }
        Ok(manifest)
    }

    /// Length of the system image.
    #[must_use]
    pub fn root(&self) -> Bytes {
        Bytes(self.root_bytes)
    }
}

/// The first bytes of a file that somebody put on the stick; not more, however long it is.
///
/// # Errors
/// What the system says.
pub fn read_at_most(path: &Path, most: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(most as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_gigabytes_on_the_stick_does_not_fill_the_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answer.toml");
        std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read_at_most(&path, crate::answer::MOST + 1).unwrap().len(), crate::answer::MOST + 1);
        assert!(read_at_most(folder.path(), 10).is_err(), "a folder of that name is no file");
    }

    #[test]
    fn the_stick_is_known_by_the_initrd_s_word_alone() {
        let stick = Stick::parse("disk=sdb\nesp=sdb2\nroot=sdb3\nfiles=sdb1\n").unwrap();
        assert_eq!((stick.disk.as_str(), stick.root.as_str(), stick.files.as_deref()), ("sdb", "sdb3", Some("sdb1")));
        assert!(Stick::parse("").is_err() && Stick::parse("disk=\nesp=x\nroot=y\n").is_err());
        assert_eq!(Stick::parse("disk=a\nesp=b\nroot=c\n").unwrap().files, None);
    }
}
