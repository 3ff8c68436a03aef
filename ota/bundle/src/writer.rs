//! Writes a bundle: the same metadata and targets give the same bytes, whatever the day, the user or the machine.

use std::io::{Read, Write};

use warden_trust::{Digest, Entry, Metadata, PartCheck, Release, Root};

use crate::fault::BundleError;
use crate::header::{self, BLOCK};
use crate::member::Member;

/// Writes a bundle with the named targets in the given order; `open` gives the content of each. Returns the bytes written.
///
/// # Errors
/// The metadata cannot be read or its root chain has a gap, a target is not listed or named twice, its content is not the listed one, or the
/// system cannot read or write. What was written until then is no bundle.
pub fn write(
    out: &mut dyn Write,
    metadata: &Metadata,
    targets: &[Digest],
    open: &mut dyn FnMut(&Entry) -> std::io::Result<Box<dyn Read>>,
) -> Result<u64, BundleError> {
    let mut tape = Tape { out, written: 0 };
    for (at, bytes) in metadata.roots.iter().enumerate() {
        let version = Root::read(bytes)?.0.version;
        let member = Member::Root(version);
        if version != at as u64 + 1 {
            return Err(BundleError::Misplaced { name: member.to_string() });
        }
        tape.member(&member, bytes)?;
    }
    tape.member(&Member::Timestamp, &metadata.timestamp)?;
    let release = Release::read(&metadata.release)?.0;
    tape.member(&Member::Release(release.version), &metadata.release)?;
    for (at, digest) in targets.iter().enumerate() {
        let member = Member::Target(*digest);
        let entry = release.entry(digest).ok_or_else(|| BundleError::NotListed { digest: digest.to_string() })?;
        if targets.iter().take(at).any(|earlier| earlier == digest) {
            return Err(BundleError::Misplaced { name: member.to_string() });
        }
        let mut content = open(entry).map_err(BundleError::io(format!("{} cannot be opened", entry.subject())))?;
        tape.put(&header::header(&member, entry.bytes))?;
        let mut check = PartCheck::new(entry);
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let got = content.read(&mut buffer).map_err(BundleError::io(format!("{} cannot be read", entry.subject())))?;
            let bytes = buffer.get(..got).unwrap_or_default();
            if bytes.is_empty() {
                break;
            }
            check.feed(bytes)?;
            tape.put(bytes)?;
        }
        check.finish()?;
        tape.fill_up(entry.bytes)?;
    }
    tape.put(&[0; 2 * BLOCK])?;
    tape.out.flush().map_err(BundleError::io("the bundle cannot be written"))?;
    Ok(tape.written)
}

struct Tape<'a> {
    out: &'a mut dyn Write,
    written: u64,
}

impl Tape<'_> {
    fn member(&mut self, member: &Member, content: &[u8]) -> Result<(), BundleError> {
        self.put(&header::header(member, content.len() as u64))?;
        self.put(content)?;
        self.fill_up(content.len() as u64)
    }

    fn fill_up(&mut self, bytes: u64) -> Result<(), BundleError> {
        let gap = usize::try_from(header::gap(bytes)).unwrap_or(0);
        self.put([0; BLOCK].get(..gap).unwrap_or_default())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), BundleError> {
        self.written += bytes.len() as u64;
        self.out.write_all(bytes).map_err(BundleError::io("the bundle cannot be written"))
    }
}
