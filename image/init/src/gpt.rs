//! The unique ids of a disk's partitions, read from its GUID partition table. The kernel of this image does not tell them by itself.
//! Bytes go in (header sector, table), ids by partition number come out; a table that does not hold together gives nothing.

/// Where the table of a disk is, as its header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// First block of the table.
    pub first_block: u64,
    /// Bytes of the table.
    pub bytes: usize,
    entry_bytes: usize,
}

/// Reads a header sector; nothing unless it is one.
#[must_use]
pub fn header(sector: &[u8]) -> Option<Header> {
    if sector.get(..8)? != b"EFI PART" {
        return None;
    }
    let first_block = u64::from_le_bytes(sector.get(72..80)?.try_into().ok()?);
    let count = u32::from_le_bytes(sector.get(80..84)?.try_into().ok()?) as usize;
    let entry_bytes = u32::from_le_bytes(sector.get(84..88)?.try_into().ok()?) as usize;
    // The standard has 128 entries of 128 bytes; anything far from it is not read.
    let sound = (1..=1024).contains(&count) && (128..=4096).contains(&entry_bytes);
    sound.then_some(Header { first_block, bytes: count * entry_bytes, entry_bytes })
}

/// The unique ids in a table, as (partition number from 1, id in the usual lower-case text).
#[must_use]
pub fn partition_ids(header: Header, table: &[u8]) -> Vec<(u32, String)> {
    let mut ids = Vec::new();
    for (number, entry) in (1u32..).zip(table.chunks_exact(header.entry_bytes)) {
        let used = entry[..16].iter().any(|byte| *byte != 0);
        if used {
            ids.push((number, text(&entry[16..32])));
        }
    }
    ids
}

/// The first three groups are stored with their low byte first.
fn text(id: &[u8]) -> String {
    const ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let mut out = String::with_capacity(36);
    for (place, from) in ORDER.into_iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        out.push_str(&format!("{:02x}", id[from]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sector(entries: u32, size: u32) -> Vec<u8> {
        let mut sector = vec![0; 512];
        sector[..8].copy_from_slice(b"EFI PART");
        sector[72..80].copy_from_slice(&2u64.to_le_bytes());
        sector[80..84].copy_from_slice(&entries.to_le_bytes());
        sector[84..88].copy_from_slice(&size.to_le_bytes());
        sector
    }

    #[test]
    fn the_ids_of_used_partitions_are_found_under_their_numbers() {
        let header = header(&sector(128, 128)).unwrap();
        assert_eq!((header.first_block, header.bytes), (2, 16384));
        let mut table = vec![0; 16384];
        table[128] = 1;
        let id: Vec<u8> = (0..16).collect();
        table[144..160].copy_from_slice(&id);
        assert_eq!(partition_ids(header, &table), [(2, "03020100-0504-0706-0809-0a0b0c0d0e0f".to_owned())]);
    }

    #[test]
    fn a_damaged_header_is_not_followed() {
        assert_eq!(header(&[0; 512]), None);
        assert_eq!(header(b"EFI PART"), None);
        assert_eq!(header(&sector(u32::MAX, 128)), None);
        assert_eq!(header(&sector(128, 16)), None);
    }
}
