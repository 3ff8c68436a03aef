//! The write order that survives a power cut at any point: a new file beside the old one, its bytes on the medium, the name switched, the
//! folder on the medium. A reader sees the old content or the new one, never a part.
//!
//! In: a path and bytes ([`write`], [`write_with_mode`]), or a stream of them ([`Coming`], [`place`]). The new file lies beside the old one as
//! `.NAME.new`; what a cut or an error leaves of it is cleared, and never written into: somebody else may hold it open. One path has one
//! writer at a time. Only the standard library, so that the initrd and other static programs can use it.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// What a file that is no secret may be: the process's umask takes its part away.
const ORDINARY: u32 = 0o666;

/// Puts `bytes` in place of `path`, with the permissions the process's umask leaves.
///
/// # Errors
/// What the system says about the folder, the new file or the rename; the old content is then still there.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_with_mode(path, bytes, ORDINARY)
}

/// Puts `bytes` in place of `path`. Their file has `mode` (less the umask) from before its first byte; `0o600` is for secrets.
///
/// # Errors
/// As [`write`].
pub fn write_with_mode(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut coming = Coming::with_mode(path, mode)?;
    coming.file().write_all(bytes)?;
    coming.place()
}

/// Puts `bytes` in place of `path`, readable by every program of the box whatever this process's umask is. Never for secrets.
///
/// # Errors
/// As [`write`].
pub fn write_for_all(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut coming = Coming::new(path)?;
    coming.file().write_all(bytes)?;
    coming.file().set_permissions(fs::Permissions::from_mode(0o644))?;
    coming.place()
}

/// Removes what a cut left of a writing of `path`, so that its room is free before the next one.
///
/// # Errors
/// `path` has no name, or what the system says.
pub fn clear(path: &Path) -> io::Result<()> {
    match fs::remove_file(beside(path)?) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(cause),
        _ => Ok(()),
    }
}

/// Gives a written file its name, replacing what had it: the file's bytes on the medium, the name switched, the folder on the medium. For
/// content that comes slowly and keeps its unfinished file over a cut; `unfinished` stays where it is on an error before the switch.
///
/// # Errors
/// What the system says.
pub fn place(file: &File, unfinished: &Path, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    fs::rename(unfinished, path)?;
    // On FAT, where boot entries lie, the new name says "empty file" until the file itself is written once more: length and place of its
    // content lie beside the name there. A cut before that would leave a name without content.
    file.sync_all()?;
    sync_folder(folder_of(path))
}

/// Puts a folder's names on the medium.
///
/// # Errors
/// What the system says about opening or syncing it.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// A file on its way to its name. Dropped before [`Coming::place`], it is gone and the old content stays.
#[derive(Debug)]
pub struct Coming {
    file: File,
    beside: PathBuf,
    path: PathBuf,
}

impl Coming {
    /// Makes the new file beside `path`, with the permissions the process's umask leaves.
    ///
    /// # Errors
    /// `path` has no name, or what the system says.
    pub fn new(path: &Path) -> io::Result<Self> {
        Self::with_mode(path, ORDINARY)
    }

    /// As [`Coming::new`], with `mode` (less the umask).
    ///
    /// # Errors
    /// As [`Coming::new`].
    pub fn with_mode(path: &Path, mode: u32) -> io::Result<Self> {
        clear(path)?;
        let beside = beside(path)?;
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        Ok(Self { file, beside, path: path.to_owned() })
    }

    /// Where the content is written to.
    pub const fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// What the system says; before the switch of the name the old content is still there.
    pub fn place(self) -> io::Result<()> {
        place(&self.file, &self.beside, &self.path)
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        // Once placed, nothing has that name any more.
        let _nothing_more_can_be_done = fs::remove_file(&self.beside);
    }
}

fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a path with a name is needed"))?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(".new");
    Ok(path.with_file_name(hidden))
}

/// The folder a path names its file in; for a bare name that is the current one.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests;
