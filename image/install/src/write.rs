//! Writing the system into its slots and reading it back. A region is a partition, or a part of a file in tests and when a stick is made.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise};
use sha2::{Digest, Sha256};
use warden_domain::units::Bytes;

/// Copied and compared at once, in bytes; a multiple of [`BLOCK`].
const CHUNK: usize = 4 << 20;
/// What reads past the cache are aligned to.
const BLOCK: usize = 4096;
/// Put on the medium after so many bytes, so that progress means progress.
const SYNC_EVERY: u64 = 32 << 20;

/// A part of a device or file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The device or file.
    pub path: PathBuf,
    /// Where the part begins.
    pub offset: u64,
}

impl Region {
    /// A whole device.
    #[must_use]
    pub fn device(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), offset: 0 }
    }
}

/// Copies `length` bytes of `from` to the region and puts them on the medium; `seen` gets every part as it was read.
///
/// # Errors
/// What the system says; a source that ends early is `UnexpectedEof`.
pub fn copy(from: &Path, to: &Region, length: Bytes, mut seen: impl FnMut(&[u8]), mut progress: impl FnMut(Bytes)) -> io::Result<()> {
    let mut source = File::open(from)?;
    let target = OpenOptions::new().write(true).open(&to.path)?;
    let mut buffer = vec![0; CHUNK];
    let (mut done, mut synced) = (0u64, 0u64);
    while done < length.0 {
        let wanted = usize::try_from(length.0 - done).unwrap_or(CHUNK).min(CHUNK);
        let part = &mut buffer[..wanted];
        source.read_exact(part)?;
        seen(part);
        target.write_all_at(part, to.offset + done)?;
        done += wanted as u64;
        if done - synced >= SYNC_EVERY {
            target.sync_data()?;
            synced = done;
        }
        progress(Bytes(done));
    }
    target.sync_all()
}

/// Reads `length` bytes of each copy back and compares them with the source, all from the medium and not from memory; gives the place
/// in `copies` of the first one that differs.
///
/// # Errors
/// What the system says; a region that ends early is `UnexpectedEof`.
pub fn difference(source: &Path, copies: &[Region], length: Bytes, mut progress: impl FnMut(Bytes)) -> io::Result<Option<usize>> {
    let original = (open_past_cache(source)?, 0);
    let copies = copies.iter().map(|copy| Ok((open_past_cache(&copy.path)?, copy.offset))).collect::<io::Result<Vec<_>>>()?;
    let (mut expected, mut found) = (Aligned::new(), Aligned::new());
    let mut done = 0u64;
    while done < length.0 {
        let wanted = usize::try_from(length.0 - done).unwrap_or(CHUNK).min(CHUNK);
        let wanted = expected.read(&original, done, wanted)?.len();
        for (n, copy) in copies.iter().enumerate() {
            let mut from = 0;
            while from < wanted {
                let part = found.read(copy, done + from as u64, wanted - from)?;
                if expected.bytes()[from..from + part.len()] != *part {
                    return Ok(Some(n));
                }
                from += part.len();
            }
        }
        done += wanted as u64;
        progress(Bytes(done));
    }
    Ok(None)
}

/// The SHA-256 in lower-case hex of the first `length` bytes of a file, read from the medium and not from memory.
///
/// # Errors
/// What the system says; a file that ends early is `UnexpectedEof`.
pub fn hash(path: &Path, length: Bytes, mut progress: impl FnMut(Bytes)) -> io::Result<String> {
    let file = (open_past_cache(path)?, 0);
    let (mut buffer, mut hash, mut done) = (Aligned::new(), Sha256::new(), 0u64);
    while done < length.0 {
        let wanted = usize::try_from(length.0 - done).unwrap_or(CHUNK).min(CHUNK);
        let part = buffer.read(&file, done, wanted)?;
        hash.update(part);
        done += part.len() as u64;
        progress(Bytes(done));
    }
    Ok(hex::encode(hash.finalize()))
}

/// A buffer at a place in memory that reads past the cache ask for.
struct Aligned {
    space: Vec<u8>,
    start: usize,
}

impl Aligned {
    fn new() -> Self {
        let space = vec![0u8; CHUNK + BLOCK];
        let start = space.as_ptr().align_offset(BLOCK).min(BLOCK);
        Self { space, start }
    }

    fn bytes(&self) -> &[u8] {
        &self.space[self.start..]
    }

    /// Reads up to `wanted` bytes at `at`, at least one.
    fn read(&mut self, (file, offset): &(File, u64), at: u64, wanted: usize) -> io::Result<&[u8]> {
        // Whole blocks are asked for; a slot is longer than what lies in it.
        let asked = wanted.next_multiple_of(BLOCK);
        loop {
            match file.read_at(&mut self.space[self.start..self.start + asked], offset + at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                other => return Ok(&self.space[self.start..self.start + other?.min(wanted)]),
            }
        }
    }
}

/// Reads go to the medium itself; where that is not offered, what memory holds of the file is dropped first.
fn open_past_cache(path: &Path) -> io::Result<File> {
    match OpenOptions::new().read(true).custom_flags(OFlag::O_DIRECT.bits()).open(path) {
        Ok(file) => Ok(file),
        Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EINVAL as i32) => {
            let file = File::open(path)?;
            posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
            Ok(file)
        }
        Err(error) => Err(error),
    }
}

/// Opens a disk so that nobody else can use it meanwhile.
///
/// # Errors
/// What the system says; `ResourceBusy` when somebody uses the disk.
pub fn hold(disk: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).custom_flags(OFlag::O_EXCL.bits()).open(disk)
}

/// Overwrites the first and the last MiB of a disk with zeros and puts them on the medium: both copies of its partition table are gone,
/// and with them everything a firmware could start.
///
/// # Errors
/// What the system says.
pub fn clear_ends(disk: &File, size: Bytes) -> io::Result<()> {
    let zeros = vec![0u8; 1 << 20];
    for at in [0, size.0.saturating_sub(zeros.len() as u64)] {
        disk.write_all_at(&zeros, at)?;
    }
    disk.sync_all()
}

/// Whether the first MiB of a disk is blank; nothing when it cannot be read.
#[must_use]
pub fn is_blank(disk: &Path) -> Option<bool> {
    let mut head = Vec::new();
    File::open(disk).ok()?.take(1 << 20).read_to_end(&mut head).ok()?;
    Some(head.iter().all(|byte| *byte == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source of that length and a sparse destination with room for two slots.
    fn bench(length: usize) -> (tempfile::TempDir, PathBuf, PathBuf, Vec<u8>) {
        let folder = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..length).map(|n| u8::try_from(n % 251).unwrap()).collect();
        let source = folder.path().join("root.img");
        std::fs::write(&source, &content).unwrap();
        let disk = folder.path().join("disk");
        File::create(&disk).unwrap().set_len(64 << 20).unwrap();
        (folder, source, disk, content)
    }

    #[test]
    fn both_slots_hold_what_the_stick_holds() {
        let size = (5 << 20) + 4096 + 17;
        let (_folder, source, disk, content) = bench(size);
        let length = Bytes(size as u64);
        let slots = [1 << 20, 32 << 20].map(|offset| Region { path: disk.clone(), offset });
        let (mut told, mut seen) = (Vec::new(), Vec::new());
        copy(&source, &slots[0], length, |part| seen.extend_from_slice(part), |done| told.push(done)).unwrap();
        copy(&source, &slots[1], length, |_| (), |_| ()).unwrap();
        assert_eq!(told.last(), Some(&length));
        assert!(seen == content);
        assert_eq!(difference(&source, &slots, length, |done| told.push(done)).unwrap(), None);
        assert_eq!(told.last(), Some(&length));
    }

    #[test]
    fn one_changed_byte_in_a_slot_is_found() {
        let length = Bytes(5 << 20);
        let (_folder, source, disk, _) = bench(5 << 20);
        let slots = [1 << 20, 32 << 20].map(|offset| Region { path: disk.clone(), offset });
        for slot in &slots {
            copy(&source, slot, length, |_| (), |_| ()).unwrap();
        }
        OpenOptions::new().write(true).open(&disk).unwrap().write_all_at(&[0xff], (32 << 20) + (4 << 20) + 777).unwrap();
        assert_eq!(difference(&source, &slots, length, |_| ()).unwrap(), Some(1));
    }

    #[test]
    fn a_hash_is_that_of_exactly_the_length_asked_for() {
        let (_folder, source, _, content) = bench((5 << 20) + 17);
        for length in [0, 1, 4096, (5 << 20) + 17] {
            assert_eq!(hash(&source, Bytes(length as u64), |_| ()).unwrap(), hex::encode(Sha256::digest(&content[..length])));
        }
        assert_eq!(hash(&source, Bytes(6 << 20), |_| ()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_source_or_slot_that_ends_early_is_an_error_and_not_a_short_copy() {
        let (_folder, source, disk, _) = bench(1 << 20);
        let slot = Region { path: disk, offset: 63 << 20 };
        assert_eq!(copy(&source, &slot, Bytes(2 << 20), |_| (), |_| ()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let beyond = Region { offset: 64 << 20, ..slot };
        assert_eq!(difference(&source, &[beyond], Bytes(1 << 20), |_| ()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn both_copies_of_a_partition_table_go_and_the_middle_stays() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        std::fs::write(&disk, vec![7u8; 4 << 20]).unwrap();
        assert_eq!(is_blank(&disk), Some(false));
        clear_ends(&hold(&disk).unwrap(), Bytes(4 << 20)).unwrap();
        let after = std::fs::read(&disk).unwrap();
        assert!(after[..1 << 20].iter().chain(&after[3 << 20..]).all(|b| *b == 0));
        assert!(after[1 << 20..3 << 20].iter().all(|b| *b == 7));
        assert_eq!(is_blank(&disk), Some(true));
    }
}
