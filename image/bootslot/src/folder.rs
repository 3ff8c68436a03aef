//! The entries folder on the EFI system partition. Lists what is there, applies one decided write, clears leftovers of a cut. A new
//! file is on the medium before an old one goes, and files of other owners are never touched.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::choice::{self, Write};
use crate::entry::{self, Entry};

/// The entries folder cannot be read or changed.
#[derive(Debug, Error)]
#[error("boot entries in {path}: {verb}: {source}; check that the EFI system partition is mounted there and writable")]
pub struct FolderError {
    /// The folder.
    path: PathBuf,
    /// What was tried.
    verb: &'static str,
    /// What the system said.
    source: io::Error,
}

/// The entries of one EFI system partition.
#[derive(Debug)]
pub struct Entries {
    folder: PathBuf,
}

impl Entries {
    /// The entries of the partition mounted at `esp`.
    #[must_use]
    pub fn on(esp: &Path) -> Self {
        Self { folder: esp.join("loader/entries") }
    }

    /// All slot entries, twins included.
    ///
    /// # Errors
    /// When the folder or one of its entry files cannot be read.
    pub fn list(&self) -> Result<Vec<Entry>, FolderError> {
        let failed = |source| self.failed("read", source);
        let mut found = Vec::new();
        for item in fs::read_dir(&self.folder).map_err(failed)? {
            let file = item.map_err(failed)?.file_name().to_string_lossy().into_owned();
            if let Some((slot, tries)) = entry::parse_name(&file) {
                let bytes = fs::read(self.folder.join(&file)).map_err(failed)?;
                let generation = entry::parse_generation(&String::from_utf8_lossy(&bytes));
                found.push(Entry { slot, tries, generation, file });
            }
        }
        found.sort_by(|one, two| one.file.cmp(&two.file));
        Ok(found)
    }

    /// Writes the entry, then removes the slot's other files.
    ///
    /// # Errors
    /// When the folder cannot be changed. The old entry is gone only if the new one is on the medium.
    pub fn apply(&self, write: Write) -> Result<(), FolderError> {
        let name = entry::name(write.slot, write.tries);
        let text = entry::render(write.slot, write.generation);
        warden_durable::write(&self.folder.join(&name), text.as_bytes()).map_err(|source| self.failed("write", source))?;
        let old = self.list()?.into_iter().filter(|entry| entry.slot == write.slot && entry.file != name);
        self.remove(old.map(|entry| entry.file).collect())
    }

    /// Removes the losing twins a cut has left behind, and unfinished files of ours.
    ///
    /// # Errors
    /// When the folder cannot be changed.
    pub fn tidy(&self) -> Result<(), FolderError> {
        let found = self.list()?;
        let mut gone: Vec<String> = choice::twins(&found).into_iter().map(|entry| entry.file.clone()).collect();
        for item in fs::read_dir(&self.folder).map_err(|source| self.failed("read", source))?.flatten() {
            let file = item.file_name().to_string_lossy().into_owned();
            let ours = file.strip_prefix('.').and_then(|rest| rest.strip_suffix(".new")).is_some_and(|name| entry::parse_name(name).is_some());
            if ours {
                gone.push(file);
            }
        }
        self.remove(gone)
    }

    fn remove(&self, files: Vec<String>) -> Result<(), FolderError> {
        if files.is_empty() {
            return Ok(());
        }
        for file in files {
            fs::remove_file(self.folder.join(file)).map_err(|source| self.failed("remove an old entry", source))?;
        }
        warden_durable::sync_folder(&self.folder).map_err(|source| self.failed("sync", source))
    }

    fn failed(&self, verb: &'static str, source: io::Error) -> FolderError {
        FolderError { path: self.folder.clone(), verb, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Slot;

    fn esp(files: &[(&str, &str)]) -> (tempfile::TempDir, Entries) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("loader/entries")).unwrap();
        for (file, text) in files {
            fs::write(folder.path().join("loader/entries").join(file), text).unwrap();
        }
        let entries = Entries::on(folder.path());
        (folder, entries)
    }

    fn names(entries: &Entries) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(&entries.folder).unwrap().map(|item| item.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn an_update_touches_only_its_own_slot() {
        let (_esp, entries) = esp(&[("a.conf", "version 000004\n"), ("b+0-3.conf", "version 000003\n"), ("other.conf", "")]);
        entries.apply(choice::set_primary(&entries.list().unwrap(), Slot::B)).unwrap();
        assert_eq!(names(&entries), ["a.conf", "b+3.conf", "other.conf"]);
        assert_eq!(choice::primary(&entries.list().unwrap()), Some(Slot::B));
    }

    #[test]
    fn leftovers_of_a_cut_are_cleared_and_the_judgement_stays() {
        let (_esp, entries) =
            esp(&[("a.conf", "version 000001\n"), ("b.conf", "version 000002\n"), ("b+0.conf", "version 000002\n"), (".b+3.conf.new", "ti")]);
        entries.tidy().unwrap();
        assert_eq!(names(&entries), ["a.conf", "b+0.conf"]);
    }

    #[test]
    fn an_unmounted_partition_is_told_with_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let error = Entries::on(folder.path()).list().unwrap_err();
        assert!(error.to_string().contains("EFI system partition is mounted"));
    }
}
