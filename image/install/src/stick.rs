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
    /// The partition with engine packs.
    pub packs: Option<String>,
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
    /// The engine packs that are installed with it.
    #[serde(default)]
    pub packs: Vec<Pack>,
}

/// An engine pack on the stick.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pack {
    /// Its engine, for example `llama.cpp`.
    pub engine: String,
    /// The engine's version.
    pub version: String,
    /// Its files: the signed image and its description.
    pub files: Vec<PackFile>,
}

/// One file of a pack, in the root of the stick's partition of packs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackFile {
    /// Its name.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its SHA-256 in lower-case hex.
    pub sha256: String,
}

impl PackFile {
    /// A name that leads nowhere else, and a hash.
    fn is_sound(&self) -> bool {
        let letters = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        let name = (1..=128).contains(&self.name.len()) && !self.name.starts_with('.') && self.name.bytes().all(letters);
        name && self.sha256.len() == 64 && self.sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    }
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
        Ok(Self { disk: need("disk")?, esp: need("esp")?, root: need("root")?, files: of("files"), packs: of("packs") })
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
        if let Some(file) = manifest.files().find(|file| !file.is_sound()) {
            return Err(said(format!("the engine pack file {:?} has no usable name or hash", file.name)));
        }
        Ok(manifest)
    }

    /// All files of all packs.
    pub fn files(&self) -> impl Iterator<Item = &PackFile> {
        self.packs.iter().flat_map(|pack| &pack.files)
    }

    /// What they are long together.
    #[must_use]
    pub fn carried(&self) -> Bytes {
        Bytes(self.files().map(|file| file.bytes).fold(0, u64::saturating_add))
    }

    /// The engines, as people call them.
    #[must_use]
    pub fn engines(&self) -> Vec<String> {
        self.packs.iter().map(|pack| format!("{} {}", pack.engine, pack.version)).collect()
    }

    /// What the screen says of the engines before anything begins.
    #[must_use]
    pub fn sentence(&self) -> String {
        if self.packs.is_empty() {
            return "This stick carries NO ENGINE PACK: the box will start, but it cannot run a model. To have one, make the stick with an engine \
                    (make stick) and start from that."
                .to_owned();
        }
        format!("It brings the engine {} ({}).", self.engines().join(", "), self.carried())
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
        assert_eq!(Stick::parse("disk=a\nesp=b\nroot=c\npacks=d\n").unwrap().packs.as_deref(), Some("d"));
    }

    fn manifest(name: &str) -> Manifest {
        let file = PackFile { name: name.into(), bytes: 7 << 20, sha256: "a".repeat(64) };
        let pack = Pack { engine: "llama.cpp".into(), version: "b1".into(), files: vec![file] };
        Manifest { version: "1".into(), root_bytes: 1, root_sha256: "b".repeat(64), packs: vec![pack] }
    }

    fn reread(manifest: &serde_json::Value) -> Result<Manifest, StickError> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("install")).unwrap();
        std::fs::write(folder.path().join(MANIFEST), manifest.to_string()).unwrap();
        Manifest::read(folder.path())
    }

    #[test]
    fn a_stick_without_an_engine_says_so_before_it_begins() {
        let mut none = serde_json::json!(manifest("x.raw"));
        none.as_object_mut().unwrap().remove("packs");
        let none = reread(&none).unwrap();
        assert!(none.sentence().contains("NO ENGINE PACK") && none.sentence().contains("make stick"));
        assert_eq!(none.carried(), Bytes(0));
        let one = reread(&serde_json::json!(manifest("x.raw"))).unwrap();
        assert!(one.sentence().contains("llama.cpp b1") && one.sentence().contains("7.0 MiB"), "{}", one.sentence());
    }

    #[test]
    fn a_pack_file_never_leads_out_of_its_folder() {
        for name in ["../x", "/x", "", ".x", "a/b", "a b"] {
            assert!(reread(&serde_json::json!(manifest(name))).is_err(), "{name:?}");
        }
        let mut short = manifest("x.raw");
        short.packs[0].files[0].sha256.pop();
        assert!(reread(&serde_json::json!(short)).is_err());
    }
}
