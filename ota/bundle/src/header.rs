//! The one header the writer gives a member. A reader rebuilds it from name and size and compares all 512 bytes, so that no field can
//! carry a trick: no link name, no device number, no prefix, no time, no owner, no checksum of another style.

use tar::{EntryType, Header};

use crate::fault::BundleError;
use crate::member::Member;

/// Bytes of a header and of a block.
pub(crate) const BLOCK: usize = 512;

/// The header of a member.
pub(crate) fn header(member: &Member, bytes: u64) -> [u8; BLOCK] {
    let mut header = Header::new_gnu();
    let name = member.to_string();
    for (slot, byte) in header.as_old_mut().name.iter_mut().zip(name.bytes()) {
        *slot = byte;
    }
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(bytes);
    header.set_cksum();
    *header.as_bytes()
}

/// Reads a header that is exactly as [`header`] writes it.
pub(crate) fn read(block: &[u8; BLOCK]) -> Result<(Member, u64), BundleError> {
    let found = Header::from_byte_slice(block);
    let name = String::from_utf8_lossy(&found.path_bytes()).into_owned();
    if let Some(what) = no_file(found.entry_type()) {
        return Err(BundleError::NotAFile { name, what });
    }
    let member = Member::parse(&name).ok_or(BundleError::BadName { name })?;
    let odd = || BundleError::OddHeader { name: member.to_string() };
    let bytes = found.entry_size().map_err(|_| odd())?;
    if header(&member, bytes) == *block { Ok((member, bytes)) } else { Err(odd()) }
}

fn no_file(kind: EntryType) -> Option<&'static str> {
    match kind {
        EntryType::Regular => None,
        EntryType::Symlink => Some("a symbolic link"),
        EntryType::Link => Some("a hard link"),
        EntryType::Char | EntryType::Block => Some("a device"),
        EntryType::Fifo => Some("a pipe"),
        EntryType::Directory => Some("a folder"),
        EntryType::GNUSparse => Some("a sparse file"),
        EntryType::GNULongName | EntryType::GNULongLink | EntryType::XGlobalHeader | EntryType::XHeader => Some("an archive extension"),
        _ => Some("something of an unknown type"),
    }
}

/// Empty bytes after `bytes` up to the next block.
pub(crate) fn gap(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK as u64) - bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use warden_trust::Digest;

    #[test]
    fn sizes_beyond_eight_gigabytes_read_back() {
        let member = Member::Target(Digest::of(b"x"));
        for bytes in [0, 1, 511, 8 << 30, (8 << 30) - 1, 1 << 45] {
            assert_eq!(read(&header(&member, bytes)).unwrap(), (member, bytes));
        }
        assert_eq!((gap(0), gap(1), gap(512), gap(513)), (0, 511, 0, 511));
    }

    #[test]
    fn a_header_with_any_bit_changed_is_refused() {
        let good = header(&Member::Timestamp, 100);
        for at in 0..BLOCK {
            for bit in 0..8 {
                let mut bad = good;
                bad[at] ^= 1 << bit;
                assert!(read(&bad).is_err(), "byte {at} bit {bit}");
            }
        }
    }
}
