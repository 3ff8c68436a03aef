//! Moving trees of files about: copy, write, remove, hash. Ownership and modes are kept by `cp`, which knows holes and reflinks.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::fault::{Done, Fault};
use crate::tool::run;

/// Makes a folder and its parents.
pub(crate) fn make_dir(path: &Path) -> Done {
    std::fs::create_dir_all(path).map_err(Fault::io("cannot make the folder", path))
}

/// Removes a file or a whole tree; one that is not there is fine.
pub(crate) fn remove(path: &Path) -> Done {
    let result = match path.symlink_metadata() {
        Err(_) => return Ok(()),
        Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
    };
    result.map_err(Fault::io("cannot remove", path))
}

/// A new, empty folder in the place of whatever was there.
pub(crate) fn fresh_dir(path: &Path) -> Done {
    remove(path)?;
    make_dir(path)
}

/// Writes a file with mode 0644, making its folder.
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Done {
    if let Some(parent) = path.parent() {
        make_dir(parent)?;
    }
    std::fs::write(path, bytes).map_err(Fault::io("cannot write", path))?;
    mode(path, 0o644)
}

/// Sets the permission bits.
pub(crate) fn mode(path: &Path, bits: u32) -> Done {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(bits)).map_err(Fault::io("cannot set the mode of", path))
}

/// Sets owner and group, not following a link.
pub(crate) fn own(path: &Path, uid: u32, gid: u32) -> Done {
    std::os::unix::fs::lchown(path, Some(uid), Some(gid)).map_err(Fault::io("cannot set the owner of", path))
}

/// Reads a text file.
pub(crate) fn read(path: &Path) -> Done<String> {
    std::fs::read_to_string(path).map_err(Fault::io("cannot read", path))
}

/// Copies one file and sets its mode.
pub(crate) fn copy(from: &Path, to: &Path, bits: u32) -> Done {
    if let Some(parent) = to.parent() {
        make_dir(parent)?;
    }
    std::fs::copy(from, to).map_err(Fault::io("cannot copy", from))?;
    mode(to, bits)
}

/// Gives a file a second name on the same file system, in the place of whatever was there.
pub(crate) fn link(from: &Path, to: &Path) -> Done {
    remove(to)?;
    std::fs::hard_link(from, to).map_err(Fault::io("cannot link", to))
}

/// Copies the content of one folder into another, all attributes kept.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> Done {
    make_dir(to)?;
    run("cp", Command::new("cp").args(["-a", "--reflink=auto", "--sparse=auto"]).arg(from.join(".")).arg(to)).map(drop)
}

/// Everything below `dir`, folders before their content, in a stable order; links are not followed.
pub(crate) fn walk(dir: &Path) -> Done<Vec<PathBuf>> {
    let mut all = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(folder) = open.pop() {
        let entries = std::fs::read_dir(&folder).map_err(Fault::io("cannot list", &folder))?;
        for entry in entries {
            let entry = entry.map_err(Fault::io("cannot list", &folder))?;
            let path = entry.path();
            if entry.file_type().map_err(Fault::io("cannot look at", &path))?.is_dir() {
                open.push(path.clone());
            }
            all.push(path);
        }
    }
    all.sort();
    Ok(all)
}

/// The SHA-256 of a file, in lower-case hex.
pub(crate) fn sha256(path: &Path) -> Done<String> {
    let mut file = File::open(path).map_err(Fault::io("cannot read", path))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0u8; 1 << 20];
    loop {
        let count = file.read(&mut buffer).map_err(Fault::io("cannot read", path))?;
        if count == 0 {
            return Ok(hex::encode(hash.finalize()));
        }
        hash.update(&buffer[..count]);
    }
}

/// The SHA-256 of a few words, shortened: a name for a cache entry.
pub(crate) fn key<S: AsRef<str>>(words: impl IntoIterator<Item = S>) -> String {
    let mut hash = Sha256::new();
    for word in words {
        hash.update(word.as_ref().as_bytes());
        hash.update([0]);
    }
    hex::encode(hash.finalize())[..16].to_owned()
}

/// Length of a file in bytes.
pub(crate) fn length(path: &Path) -> Done<u64> {
    Ok(path.metadata().map_err(Fault::io("cannot look at", path))?.len())
}
