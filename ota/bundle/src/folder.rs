//! The same layout as a folder: a channel on a stick or a disk. Names are opened one by one below the folder, never through a link, and only
//! plain files are read.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use warden_trust::{Digest, Document, Metadata, ROOT_CHAIN_MAX, Release, TimestampDoc};

use crate::fault::BundleError;
use crate::member::{Member, in_order_of_need};
use crate::reader::Source;

/// Reads a bundle from a folder.
pub struct FolderSource {
    path: PathBuf,
    folder: OwnedFd,
    waiting: Option<VecDeque<Digest>>,
    file: Option<File>,
    read: u64,
}

impl FolderSource {
    /// Opens the folder that holds `metadata` and `targets`.
    ///
    /// # Errors
    /// It is missing, or no folder.
    pub fn new(path: &Path) -> Result<Self, BundleError> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let folder = open(path, flags, Mode::empty()).map_err(|e| BundleError::io(format!("{} cannot be opened", path.display()))(e.into()))?;
        Ok(Self { path: path.to_owned(), folder, waiting: None, file: None, read: 0 })
    }

    /// A member's file; `None` when it is not there.
    fn file(&self, member: &Member) -> Result<Option<File>, BundleError> {
        let name = member.to_string();
        let (folder, file) = name.split_once('/').unwrap_or_default();
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let opened =
            openat(&self.folder, folder, flags | OFlag::O_DIRECTORY, Mode::empty()).and_then(|below| openat(&below, file, flags, Mode::empty()));
        let file = match opened {
            Ok(fd) => File::from(fd),
            Err(Errno::ENOENT) => return Ok(None),
            Err(Errno::ELOOP) => return Err(BundleError::NotAFile { name, what: "a symbolic link" }),
            Err(Errno::ENOTDIR) => return Err(BundleError::NotAFile { name, what: "something that is no folder above it" }),
            Err(e) => return Err(BundleError::io(format!("{} cannot be opened", self.path.join(&name).display()))(e.into())),
        };
        let plain = file.metadata().map_err(BundleError::io(format!("{name} cannot be read")))?.is_file();
        if plain { Ok(Some(file)) } else { Err(BundleError::NotAFile { name, what: "no plain file" }) }
    }

    fn document(&mut self, member: Member) -> Result<Option<Vec<u8>>, BundleError> {
        let Some(file) = self.file(&member)? else { return Ok(None) };
        let limit = member.document().map_or(0, Document::limit) as u64;
        let mut content = Vec::new();
        file.take(limit + 1).read_to_end(&mut content).map_err(BundleError::io(format!("{member} cannot be read")))?;
        let bytes = content.len() as u64;
        self.read += bytes;
        if bytes > limit { Err(BundleError::TooLarge { name: member.to_string(), bytes, limit }) } else { Ok(Some(content)) }
    }

    fn needed(&mut self, member: Member) -> Result<Vec<u8>, BundleError> {
        self.document(member)?.ok_or_else(|| BundleError::Missing { name: self.path.join(member.to_string()).display().to_string() })
    }
}

impl Source for FolderSource {
    fn metadata(&mut self) -> Result<Metadata, BundleError> {
        let mut roots = vec![self.needed(Member::Root(1))?];
        while roots.len() <= ROOT_CHAIN_MAX {
            match self.document(Member::Root(roots.len() as u64 + 1))? {
                Some(root) => roots.push(root),
                None => break,
            }
        }
        let timestamp = self.needed(Member::Timestamp)?;
        let current = TimestampDoc::read(&timestamp)?.0.release.version;
        let release = self.needed(Member::Release(current))?;
        Ok(Metadata { roots, timestamp, release })
    }

    fn next_target(&mut self, release: &Release) -> Result<Option<(Digest, u64)>, BundleError> {
        let mut waiting = self.waiting.take().unwrap_or_else(|| in_order_of_need(release).into());
        let mut found = None;
        while found.is_none() {
            let Some(digest) = waiting.pop_front() else { break };
            if let Some(file) = self.file(&Member::Target(digest))? {
                let bytes = file.metadata().map_err(BundleError::io(format!("targets/{digest} cannot be read")))?.len();
                self.file = Some(file);
                found = Some((digest, bytes));
            }
        }
        self.waiting = Some(waiting);
        Ok(found)
    }

    fn read(&mut self, slot: &mut [u8]) -> Result<usize, BundleError> {
        let Some(file) = &mut self.file else { return Ok(0) };
        loop {
            match file.read(slot) {
                Ok(got) => {
                    self.read += got as u64;
                    return Ok(got);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(BundleError::io("a target cannot be read")(e)),
            }
        }
    }

    fn progress(&self) -> u64 {
        self.read
    }
}
