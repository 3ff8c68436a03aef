//! Just enough of a GUID partition table to find where the first partition starts. Bytes in, offset out.

/// How many bytes of a disk [`first_partition`] needs.
pub(crate) const HEAD: usize = 1024 + 128;
const SECTOR: u64 = 512;

/// The byte offset of the first partition, if there is a table with one.
pub(crate) fn first_partition(head: &[u8]) -> Option<u64> {
    if head.get(512..520)? != b"EFI PART" {
        return None;
    }
    let number = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
    let table = usize::try_from(number(512 + 72)? * SECTOR).ok()?;
    let start = number(table + 32)?;
    (start > 0).then_some(start * SECTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_partition_is_found_and_a_disk_without_table_is_not_guessed_at() {
        let mut head = vec![0u8; HEAD];
        assert_eq!(first_partition(&head), None);
        head[512..520].copy_from_slice(b"EFI PART");
        head[584..592].copy_from_slice(&2u64.to_le_bytes());
        head[1056..1064].copy_from_slice(&2048u64.to_le_bytes());
        assert_eq!(first_partition(&head), Some(1 << 20));
    }
}
