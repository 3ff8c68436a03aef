//! Copying a model's files so that what lies there afterwards is what was read, whole and on the disk.
//!
//! Files of a source in, files in a folder for models out, or nothing. Each is written under a hidden name, synced, read back and compared
//! by SHA-256; only when all parts are right do they get their names. Blocking.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use sha2::{Digest, Sha256};
use warden_domain::{Problem, ProblemKind};

use crate::inspect::open_plain;

const PIECE: usize = 1 << 20;
/// A checksum file holds one line.
const LONGEST_CHECKSUM: u64 = 4096;
/// Unfinished copies end so; they begin with a dot, so that nobody takes them for models.
const UNFINISHED: &str = ".importing";

/// What the copier tells and asks while it works.
pub(crate) trait Watcher {
    /// So many bytes were copied, or read back, since the last call. `Err` ends the work.
    fn moved(&mut self, bytes: u64) -> Result<(), Problem>;
}

/// A copy that has not got its name yet; it goes when dropped.
#[derive(Debug)]
pub(crate) struct Copied {
    hidden: PathBuf,
    name: PathBuf,
    /// SHA-256 of what was read, in hex.
    pub(crate) sha256: String,
    named: bool,
}

impl Drop for Copied {
    fn drop(&mut self) {
        if !self.named {
            let _gone_already = fs::remove_file(&self.hidden);
        }
    }
}

/// Takes away what a copy that was cut off left behind.
pub(crate) fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with('.') && name.ends_with(UNFINISHED) {
            let _gone_already = fs::remove_file(entry.path());
        }
    }
}

/// The SHA-256 in a file beside a model (`model.gguf.sha256`), when there is one.
///
/// # Errors
/// `BadModelFile` when there is one that holds none.
pub(crate) fn promised(from: &Path) -> Result<Option<String>, Problem> {
    let mut beside = from.as_os_str().to_owned();
    beside.push(".sha256");
    let beside = PathBuf::from(beside);
    if !beside.is_file() {
        return Ok(None);
    }
    let mut text = String::new();
    let read = File::open(&beside).and_then(|file| file.take(LONGEST_CHECKSUM).read_to_string(&mut text));
    let word = text.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
    let fine = read.is_ok() && word.len() == 64 && word.bytes().all(|b| b.is_ascii_hexdigit());
    if fine {
        return Ok(Some(word));
    }
    Err(Problem::new(ProblemKind::BadModelFile, format!("{} holds no SHA-256.", beside.display()))
        .hint("It must begin with 64 hexadecimal digits. Make it anew, or remove it to import without it."))
}

/// Copies one file under a hidden name beside `to` and compares it with what a checksum file promised.
///
/// # Errors
/// `Conflict` when `to` exists, `DiskFull`, `BadModelFile` when the checksum differs, what the watcher says.
pub(crate) fn copy(from: &Path, to: &Path, promised: Option<&str>, watcher: &mut dyn Watcher) -> Result<Copied, Problem> {
    let (Some(folder), Some(name)) = (to.parent(), to.file_name()) else { return Err(Problem::internal("A copy needs a folder and a name.")) };
    if to.symlink_metadata().is_ok() {
        return Err(exists(to));
    }
    let hidden = folder.join(format!(".{}{UNFINISHED}", name.to_string_lossy()));
    let _left_by_another_run = fs::remove_file(&hidden);
    let mut source = open_plain(from)?;
    let said = |cause: std::io::Error| Problem::from_io(&format!("copying to {}", to.display()), &cause);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o640).open(&hidden).map_err(said)?;
    let mut copied = Copied { hidden, name: to.to_owned(), sha256: String::new(), named: false };
    let mut hash = Sha256::new();
    let mut piece = vec![0u8; PIECE];
    loop {
        let length = source.read(&mut piece).map_err(|cause| unreadable(from, &cause))?;
        if length == 0 {
            break;
        }
        let part = piece.get(..length).unwrap_or_default();
        hash.update(part);
        file.write_all(part).map_err(said)?;
        watcher.moved(length as u64)?;
    }
    file.sync_all().map_err(said)?;
    copied.sha256 = hex::encode(hash.finalize());
    match promised {
        Some(promised) if promised != copied.sha256 => Err(Problem::new(
            ProblemKind::BadModelFile,
            format!(
                "{} has another SHA-256 than the file beside it promises: it is damaged, or the promise belongs to another file.",
                from.display()
            ),
        )
        .hint("Copy the model onto the stick again.")),
        _ => Ok(copied),
    }
}

impl Copied {
    /// Reads the copy back from the disk and compares.
    ///
    /// # Errors
    /// `BadModelFile` when the disk does not hold what was written.
    pub(crate) fn compare(&self, watcher: &mut dyn Watcher) -> Result<(), Problem> {
        let said = |cause: std::io::Error| Problem::from_io(&format!("reading back {}", self.name.display()), &cause);
        let mut file = File::open(&self.hidden).map_err(said)?;
        // Out of memory with it, so that the disk itself is asked.
        let _only_advice = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        let mut hash = Sha256::new();
        let mut piece = vec![0u8; PIECE];
        loop {
            let length = file.read(&mut piece).map_err(said)?;
            if length == 0 {
                break;
            }
            hash.update(piece.get(..length).unwrap_or_default());
            watcher.moved(length as u64)?;
        }
        if hex::encode(hash.finalize()) == self.sha256 {
            return Ok(());
        }
        Err(Problem::new(ProblemKind::BadModelFile, format!("What was written to {} is not what was read from the source.", self.name.display()))
            .hint("The disk or the memory of this machine may be failing. Try another disk."))
    }

    /// Gives the copy its name. An existing file of that name is never replaced.
    ///
    /// # Errors
    /// `Conflict` when the name was taken meanwhile, `DiskFull`.
    pub(crate) fn name(mut self) -> Result<PathBuf, Problem> {
        let said = |cause: std::io::Error| Problem::from_io(&format!("naming {}", self.name.display()), &cause);
        // A hard link fails when the name is taken, where a rename would replace.
        match fs::hard_link(&self.hidden, &self.name) {
            Ok(()) => {
                let _the_second_name = fs::remove_file(&self.hidden);
            }
            Err(cause) if cause.kind() == std::io::ErrorKind::AlreadyExists => return Err(exists(&self.name)),
            Err(_) => fs::rename(&self.hidden, &self.name).map_err(said)?,
        }
        self.named = true;
        let folder = self.name.parent().unwrap_or(Path::new("/"));
        warden_durable::sync_folder(folder).map_err(said)?;
        Ok(self.name.clone())
    }
}

fn exists(to: &Path) -> Problem {
    Problem::new(ProblemKind::Conflict, format!("{} exists already.", to.display()))
        .hint("It may be the same model: register it, or remove it first.")
}

fn unreadable(from: &Path, cause: &std::io::Error) -> Problem {
    Problem::new(ProblemKind::BadModelFile, format!("{} cannot be read: {cause}.", from.display()))
        .hint("The stick may have been pulled out, or is failing. Plug it in again and try once more.")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counts(u64, Option<u64>);
    impl Watcher for Counts {
        fn moved(&mut self, bytes: u64) -> Result<(), Problem> {
            self.0 += bytes;
            match self.1 {
                Some(limit) if self.0 >= limit => Err(Problem::new(ProblemKind::Conflict, "cancelled")),
                _ => Ok(()),
            }
        }
    }

    fn source(dir: &Path) -> PathBuf {
        let from = dir.join("a.gguf");
        fs::write(&from, vec![7u8; 3 * PIECE + 5]).unwrap();
        from
    }

    #[test]
    fn a_copy_has_its_name_only_when_it_is_whole_and_compared() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (source(dir.path()), dir.path().join("b.gguf"));
        let mut counts = Counts(0, None);
        let copied = copy(&from, &to, None, &mut counts).unwrap();
        assert!(!to.exists());
        copied.compare(&mut counts).unwrap();
        assert_eq!(copied.name().unwrap(), to);
        assert_eq!(fs::read(&from).unwrap(), fs::read(&to).unwrap());
        assert_eq!(counts.0, 2 * (3 * PIECE as u64 + 5));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_cancelled_copy_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (source(dir.path()), dir.path().join("b.gguf"));
        assert!(copy(&from, &to, None, &mut Counts(0, Some(2 * PIECE as u64))).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_copy_that_the_disk_spoiled_is_found_out() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (source(dir.path()), dir.path().join("b.gguf"));
        let copied = copy(&from, &to, None, &mut Counts(0, None)).unwrap();
        let mut bytes = fs::read(&copied.hidden).unwrap();
        bytes[100] ^= 1;
        fs::write(&copied.hidden, bytes).unwrap();
        assert_eq!(copied.compare(&mut Counts(0, None)).unwrap_err().kind, ProblemKind::BadModelFile);
    }

    #[test]
    fn a_promised_checksum_must_hold_and_a_strange_one_is_not_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (source(dir.path()), dir.path().join("b.gguf"));
        assert_eq!(promised(&from).unwrap(), None);
        fs::write(dir.path().join("a.gguf.sha256"), format!("{}  a.gguf\n", "0".repeat(64))).unwrap();
        let wrong = promised(&from).unwrap();
        assert_eq!(copy(&from, &to, wrong.as_deref(), &mut Counts(0, None)).unwrap_err().kind, ProblemKind::BadModelFile);
        assert!(!to.exists());
        fs::write(dir.path().join("a.gguf.sha256"), "hello").unwrap();
        assert!(promised(&from).is_err());
    }

    #[test]
    fn a_file_that_is_there_is_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (source(dir.path()), dir.path().join("b.gguf"));
        let copied = copy(&from, &to, None, &mut Counts(0, None)).unwrap();
        fs::write(&to, "mine").unwrap();
        assert_eq!(copied.name().unwrap_err().kind, ProblemKind::Conflict);
        assert_eq!(copy(&from, &to, None, &mut Counts(0, None)).unwrap_err().kind, ProblemKind::Conflict);
        assert_eq!(fs::read_to_string(&to).unwrap(), "mine");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_a_cut_left_behind_is_swept_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        for name in [".x.gguf.importing", "x.gguf", ".hidden", "y.importing"] {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        sweep(dir.path());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    }
}
