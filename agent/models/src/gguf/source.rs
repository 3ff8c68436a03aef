//! Numbers and texts out of a stream that ends where it says it does, and not later than a cap.

use std::io::{ErrorKind, Read};

use super::Fault;

/// The most bytes a header may have. The largest vocabularies known (256 thousand tokens with merges) stay under 32 MiB.
const HEADER_CAP: u64 = 256 * 1024 * 1024;

/// A stream with its position.
pub(super) struct Source<R> {
    inner: R,
    at: u64,
    size: u64,
}

impl Source<&[u8]> {
    /// How long the list that stands here is, without reading it; `None` when the bytes end before, or no list of texts stands here.
    pub(super) fn peek_list_count(&self) -> Option<u64> {
        let (kind, rest) = self.inner.split_first_chunk::<4>()?;
        let (items, rest) = rest.split_first_chunk::<4>()?;
        let (count, _) = rest.split_first_chunk::<8>()?;
        let count = u64::from_le_bytes(*count);
        (u32::from_le_bytes(*kind) == 9 && u32::from_le_bytes(*items) == 8 && count <= self.size / 8).then_some(count)
    }
}

impl<R: Read> Source<R> {
    pub(super) const fn new(inner: R, size: u64) -> Self {
        Self { inner, at: 0, size }
    }

    pub(super) const fn position(&self) -> u64 {
        self.at
    }

    /// What an honest header can still hold: the rest of the file. A count of items beyond it is a lie or a cut file.
    pub(super) fn check_room(&self, bytes: u64) -> Result<(), Fault> {
        let end = self.at.checked_add(bytes).ok_or(Fault::Damaged("a length in it is absurd"))?;
        if end > HEADER_CAP {
            return Err(Fault::Damaged("it is longer than any real one"));
        }
        if end > self.size {
            return Err(Fault::CutInHeader { holds: self.size });
        }
        Ok(())
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut out = [0; N];
        self.check_room(N as u64)?;
        self.fill(&mut out)?;
        Ok(out)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Fault> {
        self.bytes::<1>().map(|[b]| b)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Fault> {
        self.bytes().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Fault> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// A text of at most `cap` bytes, kept as bytes.
    pub(super) fn text(&mut self, cap: usize, what: &'static str) -> Result<Vec<u8>, Fault> {
        let length = self.u64()?;
        self.check_room(length)?;
        let length = usize::try_from(length).ok().filter(|&n| n <= cap).ok_or(Fault::Damaged(what))?;
        self.exactly(length)
    }

    /// So many bytes. The caller has bounded the number.
    pub(super) fn exactly(&mut self, length: usize) -> Result<Vec<u8>, Fault> {
        let mut out = vec![0; length];
        self.fill(&mut out)?;
        Ok(out)
    }

    /// A text that is passed over.
    pub(super) fn skip_text(&mut self) -> Result<(), Fault> {
        let length = self.u64()?;
        self.skip(length)
    }

    pub(super) fn skip(&mut self, bytes: u64) -> Result<(), Fault> {
        self.check_room(bytes)?;
        let passed = std::io::copy(&mut self.inner.by_ref().take(bytes), &mut std::io::sink()).map_err(|_| Fault::Unreadable)?;
        self.at += passed;
        if passed < bytes { Err(self.cut()) } else { Ok(()) }
    }

    fn fill(&mut self, out: &mut [u8]) -> Result<(), Fault> {
        self.inner.read_exact(out).map_err(|cause| match cause.kind() {
            ErrorKind::UnexpectedEof => self.cut(),
            _ => Fault::Unreadable,
        })?;
        self.at += out.len() as u64;
        Ok(())
    }

    /// The file became shorter while it was read, or was never as long as said.
    const fn cut(&self) -> Fault {
        Fault::CutInHeader { holds: self.size }
    }
}
