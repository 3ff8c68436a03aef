//! Opens the launch spec without being led elsewhere: no link is followed, no pipe is waited for, nothing but a plain file is read,
//! and never more than the cap. Folder and replica go in, bytes come out.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;

use crate::spec::{MAX_BYTES, Refusal};

/// Reads `<folder>/<replica>.json`.
///
/// # Errors
/// A link or special file, a file over the cap, or one that cannot be read.
pub fn read(folder: &Path, replica: &str) -> Result<Vec<u8>, Refusal> {
    let path = folder.join(format!("{replica}.json"));
    let shown = path.display().to_string();
    let unreadable = |error: std::io::Error| Refusal::Unreadable { path: shown.clone(), reason: error.to_string() };
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = match OpenOptions::new().read(true).custom_flags(flags.bits()).open(&path) {
        Ok(file) => file,
        Err(error) if error.raw_os_error() == Some(Errno::ELOOP as i32) => return Err(Refusal::NotPlain(shown)),
        Err(error) => return Err(unreadable(error)),
    };
    let meta = file.metadata().map_err(unreadable)?;
    if !meta.is_file() {
        return Err(Refusal::NotPlain(shown));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES { Err(Refusal::TooLarge) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;

    #[test]
    fn a_plain_spec_is_read() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.json"), b"{}").unwrap();
        assert_eq!(read(folder.path(), "a").unwrap(), b"{}");
    }

    #[test]
    fn a_planted_link_reveals_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), b"secret").unwrap();
        std::os::unix::fs::symlink(folder.path().join("secret"), folder.path().join("a.json")).unwrap();
        assert!(matches!(read(folder.path(), "a"), Err(Refusal::NotPlain(_))));
    }

    #[test]
    fn a_pipe_or_folder_does_not_hang_the_start() {
        let folder = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&folder.path().join("a.json"), Mode::S_IRWXU).unwrap();
        std::fs::create_dir(folder.path().join("b.json")).unwrap();
        assert!(matches!(read(folder.path(), "a"), Err(Refusal::NotPlain(_))));
        assert!(matches!(read(folder.path(), "b"), Err(Refusal::NotPlain(_))));
    }

    #[test]
    fn a_huge_spec_does_not_fill_memory() {
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(folder.path().join("a.json")).unwrap();
        file.set_len(1 << 40).unwrap();
        assert_eq!(read(folder.path(), "a"), Err(Refusal::TooLarge));
    }

    #[test]
    fn a_missing_spec_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path(), "a").unwrap_err().to_string().contains("load the model again"));
    }
}
