//! Writing a secret file so that a power cut leaves the old content or the new one, never a part: a new file beside it, its bytes on
//! the medium, the name switched, the folder on the medium. Only the owner may read it, from the first byte on.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// Puts `bytes` in place of `path`, mode 0600.
///
/// # Errors
/// What the system says; the old content is then still there.
pub(crate) fn write_secret(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a path with a folder is needed"))?;
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a path with a name is needed"))?;
    let fresh = folder.join(format!(".{}.new", name.to_string_lossy()));
    // A leftover of a power cut may have other permissions: never write into it.
    match fs::remove_file(&fresh) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&fresh, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_is_readable_by_its_owner_only_and_no_leftover_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(folder.path().join(".key.new"), "left by a power cut").unwrap();
        write_secret(&path, b"one").unwrap();
        write_secret(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
