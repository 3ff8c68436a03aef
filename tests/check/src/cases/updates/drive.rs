//! A box's disk as a file of this machine, looked at from outside while the box runs or lies switched off: partitions, what a slot holds,
//! which boot entries there are.
//!
//! In: a raw disk. Out: hashes and names that tell whether something was written; and, for faults, changed bytes. The guest is not asked.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::{Whence, lseek};
use sha2::{Digest, Sha256};
use warden_vm::BuilderRoot;

const SECTOR: u64 = 512;

/// What of a disk a refused update must not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untouched {
    /// SHA-256 of the content of each slot.
    pub slots: BTreeMap<String, String>,
    /// Names and contents of the boot entries.
    pub entries: BTreeMap<String, String>,
    /// SHA-256 of the kernels by file name.
    pub kernels: BTreeMap<String, String>,
}

/// A raw disk with the product's partitions.
#[derive(Clone, Debug)]
pub struct Drive {
    path: PathBuf,
    builder: BuilderRoot,
    parts: BTreeMap<String, (u64, u64)>,
}

impl Drive {
    /// Reads the partition table.
    ///
    /// # Errors
    /// A sentence when there is none.
    pub fn open(path: &Path, builder: &BuilderRoot) -> Result<Self, String> {
        let file = File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let parts = partitions(&file).map_err(|e| format!("the partitions of {}: {e}", path.display()))?;
        if parts.is_empty() {
            return Err(format!("{} has no partition table", path.display()));
        }
        Ok(Self { path: path.to_owned(), builder: builder.clone(), parts })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// First byte and length of a partition, by its label.
    ///
    /// # Errors
    /// A sentence when there is none.
    pub fn part(&self, label: &str) -> Result<(u64, u64), String> {
        self.parts.get(label).copied().ok_or_else(|| format!("{} has no partition {label}: {:?}", self.path.display(), self.parts.keys()))
    }

    /// SHA-256 of what a slot's partition holds; holes of the file count as nothing and are not read.
    ///
    /// # Errors
    /// A sentence when it cannot be read.
    pub fn slot_hash(&self, slot: &str) -> Result<String, String> {
        const BLOCK: u64 = 1 << 16;
        let (first, length) = self.part(&format!("warden-root-{slot}"))?;
        let said = |e: std::io::Error| format!("{}: {e}", self.path.display());
        let file = File::open(&self.path).map_err(said)?;
        let end = first + length;
        let seek = |at: u64, to: Whence| lseek(&file, at.cast_signed(), to).map_or(end, i64::cast_unsigned).min(end);
        let (mut hash, mut buffer, zeros) = (Sha256::new(), vec![0; 1 << 16], vec![0; 1 << 16]);
        let (mut at, mut data_ends) = (first, first);
        while at < end {
            if at >= data_ends {
                at = at.max(first + (seek(at, Whence::SeekData).saturating_sub(first)) / BLOCK * BLOCK);
                data_ends = seek(at, Whence::SeekHole);
                if at >= end {
                    break;
                }
            }
            let part = &mut buffer[..usize::try_from(BLOCK.min(end - at)).unwrap_or(0)];
            file.read_exact_at(part, at).map_err(said)?;
            if *part != zeros[..part.len()] {
                hash.update((at - first).to_le_bytes());
                hash.update(&*part);
            }
            at += BLOCK;
        }
        Ok(hex::encode(hash.finalize()))
    }

    /// The boot entries: name and text of each.
    ///
    /// # Errors
    /// A sentence with the tool's words.
    pub fn entries(&self) -> Result<BTreeMap<String, String>, String> {
        let listed = self.mtools("mdir", &["-b", "::loader/entries"])?;
        let names = listed.lines().filter_map(|line| line.trim().rsplit('/').next()).filter(|name| name.to_ascii_lowercase().ends_with(".conf"));
        names.map(|name| Ok((name.to_ascii_lowercase(), self.mtools("mtype", &[&format!("::loader/entries/{name}")])?))).collect()
    }

    /// SHA-256 of the kernels on the boot partition.
    ///
    /// # Errors
    /// A sentence with the tool's words.
    pub fn kernels(&self) -> Result<BTreeMap<String, String>, String> {
        let mut found = BTreeMap::new();
        for slot in ["a", "b"] {
            let name = format!("{slot}.efi");
            let output = self.mtools_raw("mtype", &[&format!("::EFI/warden/{name}")])?;
            found.insert(name, hex::encode(Sha256::digest(output)));
        }
        Ok(found)
    }

    /// All that a refused update must not change.
    ///
    /// # Errors
    /// A sentence when something cannot be read.
    pub fn untouched(&self) -> Result<Untouched, String> {
        let slots = ["a", "b"].into_iter().map(|slot| Ok((slot.to_owned(), self.slot_hash(slot)?))).collect::<Result<_, String>>()?;
        Ok(Untouched { slots, entries: self.entries()?, kernels: self.kernels()? })
    }

    /// Changes one byte of a slot's content, at a place of the file system.
    ///
    /// # Errors
    /// A sentence when it cannot be written.
    pub fn flip(&self, slot: &str, at: u64) -> Result<(), String> {
        let (first, _) = self.part(&format!("warden-root-{slot}"))?;
        let said = |e: std::io::Error| format!("{}: {e}", self.path.display());
        let file = File::options().read(true).write(true).open(&self.path).map_err(said)?;
        let mut byte = [0];
        file.read_exact_at(&mut byte, first + at).map_err(said)?;
        file.write_all_at(&[byte[0] ^ 0x20], first + at).map_err(said)
    }

    /// Changes one byte in the middle of a slot's kernel image on the boot partition.
    ///
    /// # Errors
    /// A sentence with the tool's words.
    pub fn spoil_kernel(&self, slot: &str) -> Result<(), String> {
        let name = format!("::EFI/warden/{slot}.efi");
        let mut bytes = self.mtools_raw("mtype", &[&name])?;
        let middle = bytes.len() / 2;
        *bytes.get_mut(middle).ok_or_else(|| format!("{name} is empty"))? ^= 0x20;
        let file = self.path.with_extension("efi");
        std::fs::write(&file, bytes).map_err(|e| format!("{}: {e}", file.display()))?;
        self.mtools("mcopy", &["-o", &file.to_string_lossy(), &name]).map(drop)
    }

    /// Puts these boot entries in the place of all others.
    ///
    /// # Errors
    /// A sentence with the tool's words.
    pub fn set_entries(&self, entries: &[(&str, &str)]) -> Result<(), String> {
        for name in self.entries()?.keys() {
            self.mtools("mdel", &[&format!("::loader/entries/{name}")])?;
        }
        let folder = self.path.with_extension("entries");
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for (name, text) in entries {
            let file = folder.join(name);
            std::fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
            self.mtools("mcopy", &["-o", &file.to_string_lossy(), &format!("::loader/entries/{name}")])?;
        }
        Ok(())
    }

    fn mtools(&self, tool: &str, arguments: &[&str]) -> Result<String, String> {
        self.mtools_raw(tool, arguments).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Runs one of the FAT tools on the boot partition.
    fn mtools_raw(&self, tool: &str, arguments: &[&str]) -> Result<Vec<u8>, String> {
        let (first, _) = self.part("warden-esp")?;
        let image = format!("{}@@{first}", self.path.display());
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let output = self.builder.command(tool, &[folder]).arg("-i").arg(image).args(arguments).output().map_err(|e| format!("{tool}: {e}"))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        Err(format!("{tool} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// Copies a disk; its holes stay holes.
///
/// # Errors
/// A sentence with cp's words.
pub fn copy(from: &Path, to: &Path) -> Result<(), String> {
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let output = Command::new("cp").arg("--sparse=always").arg("--reflink=auto").arg(from).arg(to).output().map_err(|e| format!("cp: {e}"))?;
    if output.status.success() { Ok(()) } else { Err(format!("copying {}: {}", from.display(), String::from_utf8_lossy(&output.stderr).trim())) }
}

/// The partitions of a GPT disk: label, first byte, length.
fn partitions(disk: &impl FileExt) -> std::io::Result<BTreeMap<String, (u64, u64)>> {
    let mut header = [0; 92];
    disk.read_exact_at(&mut header, SECTOR)?;
    let mut found = BTreeMap::new();
    if header[..8] != *b"EFI PART" {
        return Ok(found);
    }
    let long = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or(0);
    let short = |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes).unwrap_or(0);
    let (table, count, size) = (long(&header[72..80]) * SECTOR, u64::from(short(&header[80..84])), u64::from(short(&header[84..88])));
    for n in 0..count.min(128) {
        let mut entry = [0; 128];
        disk.read_exact_at(&mut entry, table + n * size)?;
        if entry[..16] == [0; 16] {
            continue;
        }
        let (first, last) = (long(&entry[32..40]), long(&entry[40..48]));
        let units: Vec<u16> = entry[56..128].chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).take_while(|u| *u != 0).collect();
        found.insert(String::from_utf16_lossy(&units), (first * SECTOR, (last + 1 - first) * SECTOR));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slots_hash_sees_one_byte_and_no_holes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let file = File::create(&path).unwrap();
        file.set_len(8 << 20).unwrap();
        file.write_all_at(b"x", (3 << 20) + 70_000).unwrap();
        let parts = BTreeMap::from([("warden-root-a".to_owned(), (1 << 20, 6 << 20))]);
        let drive = Drive { path: path.clone(), builder: BuilderRoot::at("/nonexistent"), parts };
        let before = drive.slot_hash("a").unwrap();
        file.write_all_at(&[0; 100_000], 5 << 20).unwrap();
        file.write_all_at(b"y", 7 << 20).unwrap();
        assert_eq!(drive.slot_hash("a").unwrap(), before, "zeros that were written are as good as a hole, and what is outside does not count");
        drive.flip("a", (2 << 20) + 70_000).unwrap();
        assert_ne!(drive.slot_hash("a").unwrap(), before);
    }

    #[test]
    fn a_partition_table_is_read_by_its_labels() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let mut disk = vec![0; 64 * 1024];
        disk[512..520].copy_from_slice(b"EFI PART");
        disk[584..592].copy_from_slice(&2u64.to_le_bytes());
        disk[592..596].copy_from_slice(&128u32.to_le_bytes());
        disk[596..600].copy_from_slice(&128u32.to_le_bytes());
        disk[1024] = 1;
        disk[1056..1064].copy_from_slice(&40u64.to_le_bytes());
        disk[1064..1072].copy_from_slice(&49u64.to_le_bytes());
        for (n, unit) in "warden-esp".encode_utf16().enumerate() {
            disk[1080 + 2 * n..1082 + 2 * n].copy_from_slice(&unit.to_le_bytes());
        }
        std::fs::write(&path, disk).unwrap();
        let parts = partitions(&File::open(&path).unwrap()).unwrap();
        assert_eq!(parts.get("warden-esp"), Some(&(40 * 512, 10 * 512)));
    }
}
