//! A file on its way to its name: written hidden, hashed while it is written, named only when its checksum is the promised one. Blocking.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use sha1::Sha1;
use sha2::{Digest, Sha256};
use warden_domain::{Problem, ProblemKind, hub::Promise};

const PIECE: usize = 1 << 20;

#[derive(Clone)]
enum Hash {
    Sha256(Sha256),
    GitBlob(Sha1),
}

impl Hash {
    fn of(promise: &Promise, size: u64) -> Self {
        match promise {
            Promise::Sha256(_) => Self::Sha256(Sha256::new()),
            Promise::GitBlob(_) => {
                let mut hash = Sha1::new();
                hash.update(format!("blob {size}\0").as_bytes());
                Self::GitBlob(hash)
            }
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hash) => hash.update(bytes),
            Self::GitBlob(hash) => hash.update(bytes),
        }
    }

    fn hex(&self) -> String {
        match self {
            Self::Sha256(hash) => hex::encode(hash.clone().finalize()),
            Self::GitBlob(hash) => hex::encode(hash.clone().finalize()),
        }
    }
}

fn promised(promise: &Promise) -> &str {
    match promise {
        Promise::Sha256(hex) | Promise::GitBlob(hex) => hex,
    }
}

/// What is known of it from an earlier run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Before {
    /// So many bytes were on the disk.
    pub(crate) safe: u64,
    /// Their checksum.
    pub(crate) prefix: String,
}

/// The file.
pub(crate) struct Part {
    hidden: PathBuf,
    name: PathBuf,
    size: u64,
    promise: Promise,
    file: File,
    hash: Hash,
    at: u64,
}

/// Why a file did not get its name.
#[derive(Debug)]
pub(crate) enum NotNamed {
    /// Its checksum is another one; it was put aside.
    OtherContent(Problem),
    /// The disk, or its name is taken.
    Disk(Problem),
}

/// Where a file lies until it is whole.
pub(crate) fn hidden(name: &Path) -> PathBuf {
    beside(name, "part")
}

/// Where a file lies that was not what was promised.
pub(crate) fn aside(name: &Path) -> PathBuf {
    beside(name, "damaged")
}

fn beside(name: &Path, end: &str) -> PathBuf {
    let file = name.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    name.with_file_name(format!(".{file}.{end}"))
}

impl Part {
    /// Opens the hidden file and believes of it what an earlier run had put on the disk, if it is still so.
    pub(crate) fn open(name: &Path, size: u64, promise: &Promise, before: &Before) -> Result<Self, Problem> {
        let said = |cause: io::Error| Problem::from_io(&format!("writing {}", name.display()), &cause);
        fs::create_dir_all(name.parent().unwrap_or(Path::new("/"))).map_err(said)?;
        let hidden = hidden(name);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o640).open(&hidden).map_err(said)?;
        let mut part = Self { hidden, name: name.to_owned(), size, promise: promise.clone(), file, hash: Hash::of(promise, size), at: 0 };
        let believed = before.safe.min(size);
        if believed > 0 && part.read_again(believed).map_err(said)? && part.hash.hex() == before.prefix {
            part.at = believed;
        } else {
            part.hash = Hash::of(promise, size);
        }
        part.cut(part.at).map_err(said)?;
        Ok(part)
    }

    fn read_again(&mut self, length: u64) -> io::Result<bool> {
        if self.file.metadata()?.len() < length {
            return Ok(false);
        }
        self.file.seek(SeekFrom::Start(0))?;
        let mut rest = (&self.file).take(length);
        let mut piece = vec![0u8; PIECE];
        let mut read = 0;
        loop {
            let got = rest.read(&mut piece)?;
            if got == 0 {
                return Ok(read == length);
            }
            read += got as u64;
            self.hash.update(piece.get(..got).unwrap_or_default());
        }
    }

    fn cut(&mut self, at: u64) -> io::Result<()> {
        self.file.set_len(at)?;
        self.file.seek(SeekFrom::Start(at)).map(drop)
    }

    /// Bytes that are here.
    pub(crate) const fn at(&self) -> u64 {
        self.at
    }

    /// Begins anew.
    pub(crate) fn restart(&mut self) -> Result<(), Problem> {
        self.at = 0;
        self.hash = Hash::of(&self.promise, self.size);
        self.cut(0).map_err(|cause| Problem::from_io(&format!("writing {}", self.name.display()), &cause))
    }

    /// Takes the next bytes. More than the file may have is refused.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        if self.at.saturating_add(bytes.len() as u64) > self.size {
            return Err(changed(&self.name, "more bytes come than it has"));
        }
        self.file.write_all(bytes).map_err(|cause| {
            // What was written of this piece is not hashed; the next run begins where the hash is.
            let _best_effort = self.file.set_len(self.at);
            Problem::from_io(&format!("writing {}", self.name.display()), &cause)
        })?;
        self.hash.update(bytes);
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Puts what is here onto the disk, and says how much that is and what its checksum is.
    pub(crate) fn sync(&self) -> Result<(u64, String), Problem> {
        self.file.sync_data().map_err(|cause| Problem::from_io(&format!("writing {}", self.name.display()), &cause))?;
        Ok((self.at, self.hash.hex()))
    }

    /// Gives it its name when it is what was promised, else puts it aside. An existing file is never replaced.
    pub(crate) fn finish(self) -> Result<(), NotNamed> {
        let said = |cause: io::Error| NotNamed::Disk(Problem::from_io(&format!("naming {}", self.name.display()), &cause));
        if self.at != self.size || self.hash.hex() != promised(&self.promise) {
            let aside = aside(&self.name);
            let put = fs::rename(&self.hidden, &aside);
            let where_to = if put.is_ok() { format!(" It was put aside as {}.", aside.display()) } else { String::new() };
            let problem = Problem::new(
                ProblemKind::BadModelFile,
                format!("{} came with another checksum than the hub promises, so it is not used.{where_to}", self.name.display()),
            )
            .hint("Begin it again: a line that damages data does so rarely twice. If it stays so, use another mirror, or look at this machine's memory and disk.");
            return Err(NotNamed::OtherContent(problem));
        }
        self.file.sync_all().map_err(said)?;
        match fs::hard_link(&self.hidden, &self.name) {
            Ok(()) => {
                let _the_second_name = fs::remove_file(&self.hidden);
            }
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => return Err(NotNamed::Disk(exists(&self.name))),
            Err(_) => fs::rename(&self.hidden, &self.name).map_err(said)?,
        }
        warden_durable::sync_folder(self.name.parent().unwrap_or(Path::new("/"))).map_err(said)
    }
}

/// Whether a file that has the name already is the promised one.
pub(crate) fn is_already(name: &Path, size: u64, promise: &Promise) -> Result<bool, Problem> {
    let said = |cause: io::Error| Problem::from_io(&format!("reading {}", name.display()), &cause);
    let mut file = match File::open(name) {
        Ok(file) => file,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(cause) => return Err(said(cause)),
    };
    if file.metadata().map_err(said)?.len() != size {
        return Err(exists(name));
    }
    let mut hash = Hash::of(promise, size);
    let mut piece = vec![0u8; PIECE];
    loop {
        let got = file.read(&mut piece).map_err(said)?;
        if got == 0 {
            break;
        }
        hash.update(piece.get(..got).unwrap_or_default());
    }
    if hash.hex() == promised(promise) { Ok(true) } else { Err(exists(name)) }
}

/// The file at the hub is not the one that was looked at.
pub(crate) fn changed(name: &Path, how: &str) -> Problem {
    let file = name.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    Problem::new(ProblemKind::Upstream, format!("{file} is not the file any more that the hub promised: {how}."))
        .hint("Look at the repository again and begin a new download; if a mirror is in between, it may hold another version.")
}

fn exists(name: &Path) -> Problem {
    Problem::new(ProblemKind::Conflict, format!("{} is there already with another content.", name.display()))
        .hint("Remove that file, or the model that it belongs to, first.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sha(bytes: &[u8]) -> Promise {
        Promise::Sha256(hex::encode(Sha256::digest(bytes)))
    }

    #[test]
    fn a_file_has_its_name_only_when_its_checksum_is_right() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("sub/a.gguf");
        let mut part = Part::open(&name, 6, &sha(b"abcdef"), &Before::default()).unwrap();
        part.take(b"abc").unwrap();
        part.take(b"dex").unwrap();
        assert!(matches!(part.finish(), Err(NotNamed::OtherContent(problem)) if problem.kind == ProblemKind::BadModelFile));
        assert!(!name.exists() && aside(&name).exists() && !hidden(&name).exists());
        let mut part = Part::open(&name, 6, &sha(b"abcdef"), &Before::default()).unwrap();
        part.take(b"abcdef").unwrap();
        part.finish().unwrap();
        assert_eq!(fs::read(&name).unwrap(), b"abcdef");
        assert!(is_already(&name, 6, &sha(b"abcdef")).unwrap());
        assert!(is_already(&name, 6, &sha(b"abcdeg")).is_err());
    }

    #[test]
    fn small_files_are_checked_as_git_does() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("config.json");
        // `printf 'hello\n' | git hash-object --stdin`
        let promise = Promise::GitBlob("ce013625030ba8dba906f756967f9e9ca394464a".to_owned());
        let mut part = Part::open(&name, 6, &promise, &Before::default()).unwrap();
        part.take(b"hello\n").unwrap();
        part.finish().unwrap();
    }

    #[test]
    fn only_bytes_that_were_on_the_disk_and_still_are_count_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("a.gguf");
        let promise = sha(b"abcdef");
        let mut part = Part::open(&name, 6, &promise, &Before::default()).unwrap();
        part.take(b"abcd").unwrap();
        let (safe, prefix) = part.sync().unwrap();
        part.take(b"e").unwrap();
        drop(part);
        let before = Before { safe, prefix };
        let part = Part::open(&name, 6, &promise, &before).unwrap();
        assert_eq!(part.at(), 4);
        drop(part);
        // A disk that lied about its writes.
        fs::write(hidden(&name), b"abXd").unwrap();
        assert_eq!(Part::open(&name, 6, &promise, &before).unwrap().at(), 0);
        fs::remove_file(hidden(&name)).unwrap();
        assert_eq!(Part::open(&name, 6, &promise, &before).unwrap().at(), 0);
    }

    #[test]
    fn more_bytes_than_promised_are_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut part = Part::open(&dir.path().join("a"), 3, &sha(b"abc"), &Before::default()).unwrap();
        assert!(part.take(b"abcd").unwrap_err().message.contains("more bytes"));
        assert_eq!(part.at(), 0);
    }
}
