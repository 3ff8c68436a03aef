//! The engine's log file. From here on standard output and standard error of this process, and so of the engine, are a fresh
//! `engine.log` in the replica's folder. Leftovers of the launch before are removed by name and made anew, so that whatever was planted
//! there (a link, a pipe) is never opened. The journal stays reachable for one sentence.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::OnceLock;

use nix::unistd::{dup, dup2_stderr, dup2_stdout};

static JOURNAL: OnceLock<File> = OnceLock::new();

/// Makes `engine.log` in `folder` and points standard output and error at it; removes a stale `engine.sock`.
///
/// # Errors
/// A sentence with the file's path when a leftover cannot be removed or the log cannot be made.
pub fn take_over(folder: &Path) -> Result<(), std::io::Error> {
    let log = fresh_log(folder)?;
    let journal = dup(std::io::stderr()).map_err(std::io::Error::from)?;
    let _ = JOURNAL.set(File::from(journal));
    dup2_stdout(&log).map_err(std::io::Error::from)?;
    dup2_stderr(&log).map_err(std::io::Error::from)
}

/// Writes one sentence to what was standard error before the log was taken over; nothing when it was not.
pub fn tell_journal(sentence: &str) {
    if let Some(mut journal) = JOURNAL.get() {
        let _ = writeln!(journal, "{sentence}");
    }
}

fn fresh_log(folder: &Path) -> Result<File, std::io::Error> {
    for name in ["engine.sock", "engine.log"] {
        match std::fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(told(folder, name, "remove the old", error)),
            _ => {}
        }
    }
    let path = folder.join("engine.log");
    let opened = OpenOptions::new().append(true).create_new(true).mode(0o660).open(path);
    opened.map_err(|error| told(folder, "engine.log", "make", error))
}

fn told(folder: &Path, name: &str, verb: &str, error: std::io::Error) -> std::io::Error {
    let path = folder.join(name);
    let sentence = format!("launch: cannot {verb} {}: {error}; the helper makes the replica's folder when a pack is activated", path.display());
    std::io::Error::new(error.kind(), sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_place_of_the_log_is_not_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let precious = folder.path().join("precious");
        std::fs::write(&precious, b"keep").unwrap();
        std::os::unix::fs::symlink(&precious, folder.path().join("engine.log")).unwrap();
        fresh_log(folder.path()).unwrap().write_all(b"line\n").unwrap();
        assert_eq!(std::fs::read(&precious).unwrap(), b"keep");
        assert_eq!(std::fs::read(folder.path().join("engine.log")).unwrap(), b"line\n");
    }

    #[test]
    fn a_stale_socket_does_not_keep_the_engine_from_listening() {
        let folder = tempfile::tempdir().unwrap();
        drop(std::os::unix::net::UnixListener::bind(folder.path().join("engine.sock")).unwrap());
        fresh_log(folder.path()).unwrap();
        assert!(!folder.path().join("engine.sock").exists());
    }

    #[test]
    fn a_missing_folder_is_told_with_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let error = fresh_log(&folder.path().join("none")).unwrap_err();
        assert!(error.to_string().contains("none/engine.log"));
    }
}
