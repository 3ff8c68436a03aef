//! Files that appear whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use warden_durable::Coming;

use crate::fault::{Done, Fault};

/// Reads a file that must not be larger than `limit` bytes.
pub(crate) fn read(path: &Path, limit: usize) -> Done<Vec<u8>> {
    let cannot = || Fault::io(format!("{} cannot be read", path.display()));
    let mut content = Vec::new();
    File::open(path).map_err(cannot())?.take(limit as u64 + 1).read_to_end(&mut content).map_err(cannot())?;
    if content.len() > limit {
        return Fault::said(format!("{} has more than {limit} bytes; it is not the file that is meant.", path.display()));
    }
    Ok(content)
}

/// Makes a new file; one that is there is left alone and is an error.
pub(crate) fn create_new(path: &Path, content: &[u8], mode: u32) -> Done<()> {
    let made = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let mut file = made.map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => {
            Fault::Said(format!("{} is there already and is not overwritten. Choose another folder, or move it away yourself.", path.display()))
        }
        _ => Fault::io(format!("{} cannot be made", path.display()))(e),
    })?;
    file.write_all(content).and_then(|()| file.sync_all()).map_err(Fault::io(format!("{} cannot be written", path.display())))
}

/// Puts a file in place of another by renaming, so that a reader sees the old or the new one.
pub(crate) fn replace(path: &Path, fill: impl FnOnce(&mut File) -> Done<()>) -> Done<()> {
    let mut coming = Coming::new(path).map_err(Fault::io(format!("{} cannot be made", path.display())))?;
    fill(coming.file())?;
    coming.place().map_err(Fault::io(format!("{} cannot be put in place", path.display())))
}

/// As [`replace`], with the content at hand. The same content is not written again.
pub(crate) fn replace_with(path: &Path, content: &[u8]) -> Done<()> {
    if fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    replace(path, |file| file.write_all(content).map_err(Fault::io(format!("{} cannot be written", path.display()))))
}

/// Makes a folder and those above it.
pub(crate) fn folder(path: &Path) -> Done<()> {
    fs::create_dir_all(path).map_err(Fault::io(format!("the folder {} cannot be made", path.display())))
}
