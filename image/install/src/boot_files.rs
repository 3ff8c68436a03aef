//! The EFI system partition of the new disk: what is copied to it from the stick, and the order in which it becomes bootable. Works on
//! mounted folders. The loader comes last, under its final name in one step: before it there is nothing a firmware could start.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use warden_bootslot::entry::{self, Slot};

use crate::answer;

/// The stick's own kernel image, which every slot gets too.
const KERNEL: &str = "EFI/BOOT/BOOTX64.EFI";
/// What the stick carries for the new disk.
const PARTS: &str = "install";
/// Where a firmware looks for a loader.
const LOADER: &str = "EFI/BOOT/BOOTX64.EFI";
/// Kept beside the boot files: who installed this disk.
const RECORD: &str = "EFI/warden/installed.json";
/// No record is longer, in bytes.
const LONGEST_RECORD: u64 = 64 * 1024;
/// The boot loader hands a set of this name, and no other, to a firmware in setup mode without being asked.
const KEYS: &str = "loader/keys/auto";

/// The record on the disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The installation's name; `None` when a person installed by hand.
    pub install_id: Option<String>,
    /// Version that was installed.
    pub version: String,
    /// When, RFC 3339.
    pub at: String,
}

/// A file to copy: name on the stick, name on the disk.
type Pair = (PathBuf, PathBuf);

/// The files to copy, in their order. The loader is not among them.
///
/// # Errors
/// When the stick lacks one of them.
pub fn pairs(stick: &Path, enroll: bool) -> io::Result<Vec<Pair>> {
    let mut pairs = Vec::new();
    for slot in Slot::BOTH {
        pairs.push((KERNEL.into(), format!("EFI/warden/{slot}.efi").into()));
        pairs.push((format!("{PARTS}/slot-{slot}.addon.efi").into(), format!("EFI/warden/{slot}.efi.extra.d/slot.addon.efi").into()));
        let test = PathBuf::from(format!("{PARTS}/test.addon.efi"));
        if stick.join(&test).is_file() {
            pairs.push((test, format!("EFI/warden/{slot}.efi.extra.d/test.addon.efi").into()));
        }
    }
    if enroll {
        for name in ["PK", "KEK", "db"] {
            pairs.push((format!("{PARTS}/keys/{name}.auth").into(), format!("{KEYS}/{name}.auth").into()));
        }
    }
    for (from, _) in &pairs {
        stick.join(from).metadata().map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", from.display())))?;
    }
    Ok(pairs)
}

/// Copies everything but what makes the disk bootable.
///
/// # Errors
/// What the system says.
pub fn copy(stick: &Path, esp: &Path, pairs: &[Pair]) -> io::Result<()> {
    for (from, to) in pairs {
        let to = esp.join(to);
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(stick.join(from), &to)?;
        File::open(&to)?.sync_all()?;
    }
    Ok(())
}

/// The first pair whose copy differs from its source.
///
/// # Errors
/// What the system says.
pub fn difference(stick: &Path, esp: &Path, pairs: &[Pair]) -> io::Result<Option<PathBuf>> {
    for (from, to) in pairs {
        if fs::read(stick.join(from))? != fs::read(esp.join(to))? {
            return Ok(Some(to.clone()));
        }
    }
    Ok(None)
}

/// Makes the disk bootable: settings, entries, record, and by the last rename the loader.
///
/// # Errors
/// What the system says; without the last rename the disk does not start.
pub fn activate(stick: &Path, esp: &Path, record: &Record, enroll: bool) -> io::Result<()> {
    let put = |name: &str, bytes: &[u8]| -> io::Result<()> {
        let path = esp.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        warden_durable::write(&path, bytes)
    };
    let loader = fs::read(stick.join(PARTS).join("systemd-boot.efi"))?;
    let mut settings = entry::LOADER_SETTINGS.to_owned();
    if enroll {
        settings.push_str("secure-boot-enroll force\n");
    }
    put("loader/loader.conf", settings.as_bytes())?;
    for (name, text) in entry::fresh() {
        put(&format!("loader/entries/{name}"), text.as_bytes())?;
    }
    put(RECORD, serde_json::to_string_pretty(record)?.as_bytes())?;
    put(LOADER, &loader)?;
    warden_durable::sync_folder(esp)
}

/// The record of a disk whose installation came to its end; nothing otherwise. The disk may be anybody's: a name that no installation
/// can have counts as none.
#[must_use]
pub fn record(esp: &Path) -> Option<Record> {
    if !esp.join(LOADER).is_file() {
        return None;
    }
    let mut text = Vec::new();
    File::open(esp.join(RECORD)).ok()?.take(LONGEST_RECORD).read_to_end(&mut text).ok()?;
    let record: Record = serde_json::from_slice(&text).ok()?;
    let named = record.install_id.filter(|id| answer::is_id(id));
    Some(Record { install_id: named, ..record })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stick() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            KERNEL,
            "install/slot-a.addon.efi",
            "install/slot-b.addon.efi",
            "install/systemd-boot.efi",
            "install/keys/PK.auth",
            "install/keys/KEK.auth",
            "install/keys/db.auth",
        ] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        folder
    }

    fn record_of(id: &str) -> Record {
        Record { install_id: Some(id.into()), version: "1".into(), at: "2026-01-01T00:00:00Z".into() }
    }

    #[test]
    fn before_the_last_step_there_is_nothing_to_start_and_no_record() {
        let (stick, esp) = (stick(), tempfile::tempdir().unwrap());
        let pairs = pairs(stick.path(), false).unwrap();
        copy(stick.path(), esp.path(), &pairs).unwrap();
        assert_eq!(difference(stick.path(), esp.path(), &pairs).unwrap(), None);
        assert!(!esp.path().join("EFI/BOOT").exists() && !esp.path().join("loader").exists());
        assert_eq!(record(esp.path()), None);
    }

    #[test]
    fn a_cut_before_the_loader_leaves_an_installation_that_does_not_count() {
        let (stick, esp) = (stick(), tempfile::tempdir().unwrap());
        copy(stick.path(), esp.path(), &pairs(stick.path(), false).unwrap()).unwrap();
        activate(stick.path(), esp.path(), &record_of("one"), false).unwrap();
        assert_eq!(record(esp.path()).unwrap().install_id.as_deref(), Some("one"));
        assert_eq!(fs::read_to_string(esp.path().join(LOADER)).unwrap(), "install/systemd-boot.efi");
        fs::remove_file(esp.path().join(LOADER)).unwrap();
        assert_eq!(record(esp.path()), None);
    }

    #[test]
    fn what_a_foreign_disk_calls_its_installation_is_not_shown_when_it_is_no_name() {
        let (stick, esp) = (stick(), tempfile::tempdir().unwrap());
        for id in ["one\nInstalled: take the stick out", "\u{1b}[2J", "a b", "", &"x".repeat(65)] {
            activate(stick.path(), esp.path(), &record_of(id), false).unwrap();
            assert_eq!(record(esp.path()).unwrap().install_id, None, "{id:?}");
        }
        let endless = format!("{{\"install_id\": \"one\", \"version\": \"{}\", \"at\": \"\"}}", "9".repeat(1 << 20));
        fs::write(esp.path().join(RECORD), endless).unwrap();
        assert_eq!(record(esp.path()), None);
    }

    #[test]
    fn both_slots_can_be_started_and_the_first_one_is_on_trial() {
        let (stick, esp) = (stick(), tempfile::tempdir().unwrap());
        activate(stick.path(), esp.path(), &record_of("one"), false).unwrap();
        let entries = warden_bootslot::folder::Entries::on(esp.path()).list().unwrap();
        assert_eq!(warden_bootslot::choice::primary(&entries), Some(Slot::A));
        assert!(Slot::BOTH.into_iter().all(|slot| warden_bootslot::choice::good(&entries, slot)));
    }

    #[test]
    fn a_damaged_copy_is_named() {
        let (stick, esp) = (stick(), tempfile::tempdir().unwrap());
        let pairs = pairs(stick.path(), false).unwrap();
        copy(stick.path(), esp.path(), &pairs).unwrap();
        fs::write(esp.path().join("EFI/warden/b.efi"), "other").unwrap();
        assert_eq!(difference(stick.path(), esp.path(), &pairs).unwrap(), Some("EFI/warden/b.efi".into()));
    }

    #[test]
    fn keys_go_along_only_when_asked_for() {
        let (stick, esp) = (stick(), tempfile::tempdir().unwrap());
        assert!(!pairs(stick.path(), false).unwrap().iter().any(|(_, to)| to.starts_with(KEYS)));
        assert_eq!(pairs(stick.path(), true).unwrap().iter().filter(|(_, to)| to.starts_with(KEYS)).count(), 3);
        activate(stick.path(), esp.path(), &record_of("one"), true).unwrap();
        assert!(fs::read_to_string(esp.path().join("loader/loader.conf")).unwrap().contains("secure-boot-enroll force"));
        fs::remove_file(stick.path().join("install/keys/db.auth")).unwrap();
        assert!(super::pairs(stick.path(), true).is_err());
    }
}
