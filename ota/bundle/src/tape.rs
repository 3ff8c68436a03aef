//! A bundle as a stream: blocks in, members out, nothing kept.

use std::io::{self, Read};

use warden_trust::{Digest, Document, Metadata, ROOT_CHAIN_MAX, Release};

use crate::fault::BundleError;
use crate::header::{self, BLOCK};
use crate::member::Member;
use crate::reader::Source;

/// Reads a bundle from any stream.
pub struct TapeSource<R> {
    stream: R,
    at: u64,
    member: String,
    left: u64,
    gap: u64,
}

impl<R: Read> TapeSource<R> {
    /// At the first byte of a bundle.
    pub fn new(stream: R) -> Self {
        Self { stream, at: 0, member: "its first header".to_owned(), left: 0, gap: 0 }
    }

    /// Bytes read from the stream so far; for progress.
    pub const fn at(&self) -> u64 {
        self.at
    }

    /// The next member and its size; `None` at the proper end of the archive, after which the stream must end too.
    pub(crate) fn next_member(&mut self) -> Result<Option<(Member, u64)>, BundleError> {
        self.skip()?;
        let mut block = [0; BLOCK];
        self.fill(&mut block)?;
        if block == [0; BLOCK] {
            self.fill(&mut block)?;
            let mut more = [0; 1];
            if block != [0; BLOCK] || self.pull(&mut more)? != 0 {
                return Err(BundleError::AfterTheEnd);
            }
            return Ok(None);
        }
        let first = self.at == BLOCK as u64;
        let (member, bytes) = header::read(&block).map_err(|fault| match fault {
            BundleError::BadName { name } | BundleError::NotAFile { name, .. } if first => {
                BundleError::NotABundle { found: name.chars().take(40).collect() }
            }
            other => other,
        })?;
        self.member = member.to_string();
        self.left = bytes;
        self.gap = header::gap(bytes);
        Ok(Some((member, bytes)))
    }

    /// Reads what is left of the member without keeping it, and its gap, which must be empty.
    fn skip(&mut self) -> Result<(), BundleError> {
        let mut buffer = vec![0; 64 * 1024];
        while self.left > 0 {
            self.read(&mut buffer)?;
        }
        let gap = usize::try_from(self.gap).unwrap_or(0);
        let mut empty = [0; BLOCK];
        if let Some(slot) = empty.get_mut(..gap) {
            self.fill(slot)?;
        }
        self.gap = 0;
        if empty == [0; BLOCK] { Ok(()) } else { Err(BundleError::AfterTheEnd) }
    }

    fn fill(&mut self, mut slot: &mut [u8]) -> Result<(), BundleError> {
        while !slot.is_empty() {
            let got = self.pull(slot)?;
            if got == 0 {
                return Err(BundleError::Cut { place: self.member.clone() });
            }
            slot = slot.split_at_mut(got).1;
        }
        Ok(())
    }

    fn pull(&mut self, slot: &mut [u8]) -> Result<usize, BundleError> {
        loop {
            match self.stream.read(slot) {
                Ok(got) => {
                    self.at += got as u64;
                    return Ok(got);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(BundleError::io("the bundle cannot be read")(e)),
            }
        }
    }

    fn document(&mut self, member: Member, bytes: u64) -> Result<Vec<u8>, BundleError> {
        let limit = member.document().map_or(0, Document::limit);
        let size = usize::try_from(bytes).ok().filter(|size| *size <= limit);
        let size = size.ok_or_else(|| BundleError::TooLarge { name: member.to_string(), bytes, limit: limit as u64 })?;
        let mut content = vec![0; size];
        self.fill(&mut content)?;
        self.left = 0;
        Ok(content)
    }
}

impl<R: Read> Source for TapeSource<R> {
    fn metadata(&mut self) -> Result<Metadata, BundleError> {
        let mut metadata = Metadata::default();
        let mut last_root = 0;
        loop {
            let Some((member, bytes)) = self.next_member()? else {
                return Err(BundleError::Cut { place: "its metadata".to_owned() });
            };
            let misplaced = || BundleError::Misplaced { name: member.to_string() };
            match member {
                Member::Root(version) if metadata.timestamp.is_empty() && version == last_root + 1 && metadata.roots.len() < ROOT_CHAIN_MAX => {
                    last_root = version;
                    metadata.roots.push(self.document(member, bytes)?);
                }
                Member::Timestamp if last_root > 0 && metadata.timestamp.is_empty() => metadata.timestamp = self.document(member, bytes)?,
                Member::Release(_) if !metadata.timestamp.is_empty() => {
                    metadata.release = self.document(member, bytes)?;
                    let named = Release::read(&metadata.release)?.0.version;
                    return if member == Member::Release(named) { Ok(metadata) } else { Err(misplaced()) };
                }
                _ => return Err(misplaced()),
            }
        }
    }

    fn next_target(&mut self, _: &Release) -> Result<Option<(Digest, u64)>, BundleError> {
        match self.next_member()? {
            None => Ok(None),
            Some((Member::Target(digest), bytes)) => Ok(Some((digest, bytes))),
            Some((member, _)) => Err(BundleError::Misplaced { name: member.to_string() }),
        }
    }

    fn read(&mut self, slot: &mut [u8]) -> Result<usize, BundleError> {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(slot.len());
        let got = match slot.get_mut(..room) {
            Some(slot) if room > 0 => self.pull(slot)?,
            _ => return Ok(0),
        };
        if got == 0 {
            return Err(BundleError::Cut { place: self.member.clone() });
        }
        self.left -= got as u64;
        Ok(got)
    }

    fn progress(&self) -> u64 {
        self.at
    }
}
