//! Opens a bundle: metadata first, judged by the rules of trust; then its targets one by one.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::Path;

use warden_trust::{Accepted, Clock, Digest, Identity, Metadata, PartCheck, Refusal, Release, Trusted, Way};

use crate::fault::BundleError;
use crate::folder::FolderSource;
use crate::member::Member;
use crate::tape::TapeSource;

/// Where a bundle comes from: a stream, or a folder.
pub trait Source {
    /// Reads all metadata; called once, first.
    ///
    /// # Errors
    /// It is missing, too large, or in the wrong place.
    fn metadata(&mut self) -> Result<Metadata, BundleError>;

    /// Goes to the next target and gives its digest and size; `None` at the end.
    ///
    /// # Errors
    /// Something else stands there, or it cannot be read.
    fn next_target(&mut self, release: &Release) -> Result<Option<(Digest, u64)>, BundleError>;

    /// Reads bytes of the present target; 0 at its end.
    ///
    /// # Errors
    /// It is cut, or cannot be read.
    fn read(&mut self, slot: &mut [u8]) -> Result<usize, BundleError>;

    /// Bytes read so far.
    fn progress(&self) -> u64;
}

/// A bundle whose metadata was accepted.
pub struct Opened<S> {
    source: S,
    accepted: Accepted,
    met: BTreeSet<Digest>,
    present: Option<Digest>,
}

/// Opens a bundle that comes as a stream: an upload, or a file on a stick.
///
/// # Errors
/// It is no bundle, is damaged, or its metadata broke a rule. Nothing was written.
pub fn open<R: Read>(stream: R, trusted: &Trusted, identity: &Identity, clock: &Clock) -> Result<Opened<TapeSource<R>>, BundleError> {
    Opened::begin(TapeSource::new(stream), trusted, identity, clock)
}

/// Opens a folder of the same layout.
///
/// # Errors
/// As [`open`].
pub fn open_folder(path: &Path, trusted: &Trusted, identity: &Identity, clock: &Clock) -> Result<Opened<FolderSource>, BundleError> {
    Opened::begin(FolderSource::new(path)?, trusted, identity, clock)
}

impl<S: Source> Opened<S> {
    fn begin(mut source: S, trusted: &Trusted, identity: &Identity, clock: &Clock) -> Result<Self, BundleError> {
        let metadata = source.metadata()?;
        let accepted = trusted.accept(&metadata, Way::Offline, identity, clock)?;
        Ok(Self { source, accepted, met: BTreeSet::new(), present: None })
    }

    /// What the metadata says, and the trusted state to store before anything is installed.
    pub const fn accepted(&self) -> &Accepted {
        &self.accepted
    }

    /// Bytes read so far; for progress.
    pub fn progress(&self) -> u64 {
        self.source.progress()
    }

    /// Goes to the next target. One that was not copied is still read and checked on the way. `None` means that the bundle ended as it should.
    ///
    /// # Errors
    /// A target that the release does not list, one with another size, one twice, anything that is no target, a damaged or cut archive.
    pub fn next_target(&mut self) -> Result<Option<Digest>, BundleError> {
        if self.present.is_some() {
            self.copy_to(&mut std::io::sink())?;
        }
        let Some((digest, found)) = self.source.next_target(&self.accepted.release)? else { return Ok(None) };
        let name = Member::Target(digest).to_string();
        let release = &self.accepted.release;
        let entry = release.entry(&digest).ok_or(Refusal::NotListed { digest, release: release.version })?;
        if found != entry.bytes {
            return Err(BundleError::WrongSize { name, found, listed: entry.bytes });
        }
        if !self.met.insert(digest) {
            return Err(BundleError::Misplaced { name });
        }
        self.present = Some(digest);
        Ok(Some(digest))
    }

    /// Copies the present target. What was written may be used only after `Ok`; after an error it must be thrown away.
    ///
    /// # Errors
    /// A part or the whole does not match, it is cut, or the copy cannot be written.
    pub fn copy_to(&mut self, out: &mut dyn Write) -> Result<(), BundleError> {
        let Some(entry) = self.present.take().and_then(|digest| self.accepted.release.entry(&digest)) else { return Ok(()) };
        let mut check = PartCheck::new(entry);
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let got = self.source.read(&mut buffer)?;
            let bytes = buffer.get(..got).unwrap_or_default();
            if bytes.is_empty() {
                return Ok(check.finish()?);
            }
            check.feed(bytes)?;
            out.write_all(bytes).map_err(BundleError::io(format!("{} cannot be written", entry.subject())))?;
        }
    }
}
