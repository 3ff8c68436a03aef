//! The write order that survives a power cut at any point: a new file beside the old one, its bytes on the medium, the name switched,
//! the folder on the medium. A reader sees the old content or the new one, never a part.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Puts `bytes` in place of `path`.
///
/// # Errors
/// What the system says about the folder, the new file or the rename; the old content is then still there.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(path, bytes, None)
}

/// The same, with the permissions the file is to have whatever the umask of this process is.
///
/// # Errors
/// As [`write`].
pub fn write_with_mode(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    put(path, bytes, Some(mode))
}

fn put(path: &Path, bytes: &[u8], mode: Option<u32>) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a path with a folder is needed"))?;
    let fresh = fresh_name(path)?;
    let mut file = File::create(&fresh)?;
    if let Some(mode) = mode {
        file.set_permissions(fs::Permissions::from_mode(mode))?;
    }
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&fresh, path)?;
    sync_folder(folder)
}

/// Where the new content of `path` lies until it is whole; after a cut, what is left of it.
///
/// # Errors
/// The path has no name.
pub fn fresh_name(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a path with a name is needed"))?;
    Ok(path.with_file_name(format!(".{}.new", name.to_string_lossy())))
}

/// Puts a folder's names on the medium.
///
/// # Errors
/// What the system says about opening or syncing it.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_new_content_takes_the_place_and_nothing_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("count");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
