//! The data partition of a new disk: its folders, who owns what on it, and the engine packs that the stick brings. The image builder asks
//! here for owners and modes too, so that a disk that is built and one that is installed are alike.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use sha2::{Digest, Sha256};
use warden_domain::units::Bytes;

use crate::stick::PackFile;
use crate::write::{self, Region};

/// The folders that every data partition begins with.
pub const FOLDERS: [&str; 3] = ["models", PACKS, "warden"];
/// The folder of engine packs.
pub const PACKS: &str = "packs";

/// Owner and modes of what lies below a folder of the data partition.
#[derive(Debug, PartialEq, Eq)]
pub struct Rights {
    /// Name of the owner.
    pub user: &'static str,
    /// Name of the group.
    pub group: &'static str,
    /// Mode of folders.
    pub folder: u32,
    /// Mode of files.
    pub file: u32,
}

/// The rights of a path, relative to the partition's root.
#[must_use]
pub fn rights(name: &Path) -> Rights {
    match name.iter().next().and_then(|first| first.to_str()) {
        Some("models") => Rights { user: "warden", group: "warden-models", folder: 0o2750, file: 0o640 },
        Some(PACKS) => Rights { user: "warden", group: "warden", folder: 0o755, file: 0o644 },
        Some("warden") => Rights { user: "warden", group: "warden", folder: 0o750, file: 0o640 },
        _ => Rights { user: "root", group: "root", folder: 0o755, file: 0o644 },
    }
}

/// The system's tables of accounts, as texts.
#[derive(Clone, Debug)]
pub struct Accounts {
    /// `/etc/passwd`.
    pub passwd: String,
    /// `/etc/group`.
    pub group: String,
}

impl Accounts {
    /// The numbers of an owner and a group; nothing when one of them is missing.
    #[must_use]
    pub fn numbers(&self, rights: &Rights) -> Option<(u32, u32)> {
        Some((number(&self.passwd, rights.user)?, number(&self.group, rights.group)?))
    }
}

/// The third field of an account's or group's line.
fn number(table: &str, name: &str) -> Option<u32> {
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

/// Why a data partition is not filled.
#[derive(Debug)]
pub enum Fault {
    /// The system on the stick lacks an account.
    Account(&'static str),
    /// A file on the stick is missing, has another length, or does not match its hash.
    Stick(String),
    /// The new disk.
    Disk(io::Error),
}

/// What is wrong with the packs on the stick, seen without reading them whole.
#[must_use]
pub fn lacking<'a>(source: &Path, files: impl Iterator<Item = &'a PackFile>) -> Option<String> {
    files.into_iter().find_map(|file| match source.join(&file.name).metadata() {
        Ok(meta) if meta.is_file() && meta.len() == file.bytes => None,
        Ok(meta) => Some(format!("its engine pack file {} has {} bytes instead of {}", file.name, meta.len(), file.bytes)),
        Err(error) => Some(format!("its engine pack file {} cannot be read: {error}", file.name)),
    })
}

/// Makes the folders of the data partition mounted at `to` and copies the packs' files from `source` into theirs. `progress` gets the bytes
/// done over all files.
///
/// # Errors
/// [`Fault`]; what was copied until then stays.
pub fn fill<'a>(
    to: &Path,
    source: &Path,
    files: impl Iterator<Item = &'a PackFile>,
    accounts: &Accounts,
    mut progress: impl FnMut(Bytes),
) -> Result<(), Fault> {
    for name in FOLDERS {
        let folder = to.join(name);
        fs::create_dir_all(&folder).map_err(Fault::Disk)?;
        own(&folder, Path::new(name), accounts)?;
    }
    let mut before = 0;
    for file in files {
        let (from, name) = (source.join(&file.name), Path::new(PACKS).join(&file.name));
        let path = to.join(&name);
        File::create(&path).map_err(Fault::Disk)?;
        let mut hash = Sha256::new();
        let told = |done: Bytes| progress(Bytes(before + done.0));
        let copied = write::copy(&from, &Region::device(&path), Bytes(file.bytes), |part| hash.update(part), told);
        copied.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Fault::Stick(format!("its engine pack file {} ends early", file.name)),
            _ => Fault::Disk(error),
        })?;
        if hex::encode(hash.finalize()) != file.sha256 {
            return Err(Fault::Stick(format!("its engine pack file {} does not match its hash", file.name)));
        }
        own(&path, &name, accounts)?;
        before += file.bytes;
    }
    warden_durable::sync_folder(&to.join(PACKS)).and_then(|()| warden_durable::sync_folder(to)).map_err(Fault::Disk)
}

/// The first file whose copy on the data partition mounted at `on` differs from what the stick promised, read from the medium.
///
/// # Errors
/// What the system says.
pub fn difference<'a>(on: &Path, files: impl Iterator<Item = &'a PackFile>, mut progress: impl FnMut(Bytes)) -> io::Result<Option<String>> {
    let mut before = 0;
    for file in files {
        let path = on.join(PACKS).join(&file.name);
        let same =
            path.metadata()?.len() == file.bytes && write::hash(&path, Bytes(file.bytes), |done| progress(Bytes(before + done.0)))? == file.sha256;
        if !same {
            return Ok(Some(file.name.clone()));
        }
        before += file.bytes;
    }
    Ok(None)
}

fn own(path: &Path, name: &Path, accounts: &Accounts) -> Result<(), Fault> {
    let rights = rights(name);
    let (user, group) = accounts.numbers(&rights).ok_or(Fault::Account(rights.group))?;
    let mode = if path.is_dir() { rights.folder } else { rights.file };
    // The owner first: a change of owner takes special bits away.
    chown(path, Some(user), Some(group)).and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode))).map_err(Fault::Disk)?;
    File::open(path).and_then(|file| file.sync_all()).map_err(Fault::Disk)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn me() -> Accounts {
        let meta = tempfile::tempdir().unwrap().path().metadata().unwrap();
        let (user, group) = (meta.uid(), meta.gid());
        Accounts { passwd: format!("warden:x:{user}:{group}\n"), group: format!("warden:x:{group}:\nwarden-models:x:{group}:\n") }
    }

    fn pack(folder: &Path, name: &str, bytes: &[u8]) -> PackFile {
        fs::write(folder.join(name), bytes).unwrap();
        PackFile { name: name.into(), bytes: bytes.len() as u64, sha256: hex::encode(Sha256::digest(bytes)) }
    }

    #[test]
    fn an_engine_can_read_a_model_and_others_cannot() {
        assert_eq!(rights(Path::new("models/a/x.gguf")).file, 0o640);
        assert_eq!(rights(Path::new("models")).group, "warden-models");
    }

    #[test]
    fn accounts_are_found_by_whole_name() {
        assert_eq!(number("warden-console:x:701:701\nwarden:x:700:700\n", "warden"), Some(700));
    }

    #[test]
    fn the_packs_of_the_stick_come_to_the_disk_and_the_folders_are_as_the_system_makes_them() {
        let (stick, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let files = [pack(stick.path(), "a.raw", &vec![7; (4 << 20) + 5]), pack(stick.path(), "a.json", b"{}")];
        assert_eq!(lacking(stick.path(), files.iter()), None);
        let mut told = Vec::new();
        fill(disk.path(), stick.path(), files.iter(), &me(), |done| told.push(done)).unwrap();
        assert_eq!(told.last(), Some(&Bytes((4 << 20) + 7)));
        assert!(told.is_sorted());
        assert_eq!(disk.path().join("models").metadata().unwrap().mode() & 0o7777, 0o2750);
        assert_eq!(disk.path().join("packs/a.raw").metadata().unwrap().mode() & 0o7777, 0o644);
        assert_eq!(difference(disk.path(), files.iter(), |_| ()).unwrap(), None);
    }

    #[test]
    fn a_damaged_pack_is_found_on_the_stick_and_on_the_disk() {
        let (stick, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let files = [pack(stick.path(), "a.raw", b"engine")];
        fill(disk.path(), stick.path(), files.iter(), &me(), |_| ()).unwrap();
        fs::write(disk.path().join("packs/a.raw"), b"ENGINE").unwrap();
        assert_eq!(difference(disk.path(), files.iter(), |_| ()).unwrap().as_deref(), Some("a.raw"));
        fs::write(stick.path().join("a.raw"), b"enginE").unwrap();
        let damaged = fill(disk.path(), stick.path(), files.iter(), &me(), |_| ());
        assert!(matches!(damaged, Err(Fault::Stick(said)) if said.contains("a.raw")));
        fs::write(stick.path().join("a.raw"), b"eng").unwrap();
        assert!(lacking(stick.path(), files.iter()).unwrap().contains("3 bytes instead of 6"));
        fs::remove_file(stick.path().join("a.raw")).unwrap();
        assert!(lacking(stick.path(), files.iter()).is_some());
    }

    #[test]
    fn without_a_pack_the_folders_are_made_all_the_same() {
        let disk = tempfile::tempdir().unwrap();
        fill(disk.path(), disk.path(), [].iter(), &me(), |_| ()).unwrap();
        assert!(FOLDERS.iter().all(|name| disk.path().join(name).is_dir()));
        let nobody = Accounts { passwd: String::new(), group: String::new() };
        assert!(matches!(fill(disk.path(), disk.path(), [].iter(), &nobody, |_| ()), Err(Fault::Account(_))));
    }
}
