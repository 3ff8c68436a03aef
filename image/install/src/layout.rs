//! What the partition files ask of a disk. Their text comes in, sizes go out. The files are those the image builder uses, so the disk
//! that is built and the disk that is installed have one description.

use std::collections::BTreeMap;
use std::path::Path;

use thiserror::Error;
use warden_domain::units::Bytes;

/// Where the files lie in the root.
pub const FOLDER: &str = "/usr/lib/warden/repart.d";
/// Partitions begin at multiples of this.
const GRAIN: u64 = 1 << 20;
/// Label of the partition that takes the rest of a disk.
pub const DATA: &str = "warden-data";
/// What an ext4 of that partition's size keeps for itself, generously: journal, tables.
const FILE_SYSTEM: u64 = 256 << 20;

/// One partition to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its label.
    pub label: String,
    /// Least size.
    pub min: Bytes,
}

/// All partitions in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The partitions.
    pub parts: Vec<Part>,
}

/// The partition files do not hold together.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LayoutError {
    /// A line that was expected is not there.
    #[error("{file} has no {key}=; the stick is damaged, make it again")]
    Lacks {
        /// The file.
        file: String,
        /// The key.
        key: &'static str,
    },
    /// A size that is none.
    #[error("{file} has the size {value:?}; the stick is damaged, make it again")]
    Size {
        /// The file.
        file: String,
        /// What stands there.
        value: String,
    },
    /// The folder cannot be read.
    #[error("the partition files in {0} cannot be read: {1}; the stick is damaged, make it again")]
    Unreadable(String, String),
}

/// Reads one partition from its file and the texts that override it, in their order.
///
/// # Errors
/// When label or size is missing or no size.
pub fn part(file: &str, texts: &[String]) -> Result<Part, LayoutError> {
    let mut values = BTreeMap::new();
    for line in texts.iter().flat_map(|text| text.lines()) {
        if let Some((key, value)) = line.split_once('=').filter(|_| !line.trim_start().starts_with('#')) {
            values.insert(key.trim(), value.trim());
        }
    }
    let of = |key: &'static str| values.get(key).copied().ok_or_else(|| LayoutError::Lacks { file: file.to_owned(), key });
    let min = of("SizeMinBytes")?;
    let min = size(min).ok_or_else(|| LayoutError::Size { file: file.to_owned(), value: min.to_owned() })?;
    Ok(Part { label: of("Label")?.to_owned(), min })
}

/// A size as the files write it: a number, with `K`, `M`, `G` or `T` for powers of 1024.
#[must_use]
pub fn size(text: &str) -> Option<Bytes> {
    let (digits, shift) = match text.chars().last()? {
        'K' => (&text[..text.len() - 1], 10),
        'M' => (&text[..text.len() - 1], 20),
        'G' => (&text[..text.len() - 1], 30),
        'T' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let number: u64 = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())??;
    number.checked_mul(1 << shift).map(Bytes)
}

impl Layout {
    /// Reads the folder of partition files.
    ///
    /// # Errors
    /// When it cannot be read or does not hold together.
    pub fn read(folder: &Path) -> Result<Self, LayoutError> {
        let unreadable = |path: &Path, error: std::io::Error| LayoutError::Unreadable(path.display().to_string(), error.to_string());
        let confs = |folder: &Path| -> Result<Vec<std::path::PathBuf>, LayoutError> {
            let listed = std::fs::read_dir(folder).map_err(|e| unreadable(folder, e))?;
            let mut paths: Vec<_> = listed.flatten().map(|item| item.path()).filter(|p| p.extension().is_some_and(|e| e == "conf")).collect();
            paths.sort();
            Ok(paths)
        };
        let mut parts = Vec::new();
        for path in confs(folder)?.into_iter().filter(|path| path.is_file()) {
            let mut over = path.clone().into_os_string();
            over.push(".d");
            let over = Path::new(&over);
            let mut texts = vec![std::fs::read_to_string(&path).map_err(|e| unreadable(&path, e))?];
            for more in if over.is_dir() { confs(over)? } else { Vec::new() } {
                texts.push(std::fs::read_to_string(&more).map_err(|e| unreadable(&more, e))?);
            }
            parts.push(part(&path.file_name().unwrap_or_default().to_string_lossy(), &texts)?);
        }
        if parts.is_empty() {
            return Err(LayoutError::Unreadable(folder.display().to_string(), "there are none".to_owned()));
        }
        Ok(Self { parts })
    }

    /// The least size of a disk that takes all of them, with room for both copies of the partition table.
    #[must_use]
    pub fn needed(&self) -> Bytes {
        let parts: u64 = self.parts.iter().map(|part| part.min.0.next_multiple_of(GRAIN)).fold(0, u64::saturating_add);
        Bytes(parts.saturating_add(2 * GRAIN))
    }

    /// The least size of a disk whose data partition also takes `carried` bytes of engine packs, with room for its file system.
    #[must_use]
    pub fn needed_for(&self, carried: Bytes) -> Bytes {
        if carried.0 == 0 {
            return self.needed();
        }
        let data = carried.0.saturating_add(carried.0 / 10).saturating_add(FILE_SYSTEM);
        let more = data.saturating_sub(self.size_of(DATA).unwrap_or_default().0).next_multiple_of(GRAIN);
        Bytes(self.needed().0.saturating_add(more))
    }

    /// The least size of a partition by its label.
    #[must_use]
    pub fn size_of(&self, label: &str) -> Option<Bytes> {
        self.parts.iter().find(|part| part.label == label).map(|part| part.min)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tree() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../repart.d")
    }

    #[test]
    fn the_files_of_the_tree_ask_for_what_the_design_says() {
        let layout = Layout::read(&tree()).unwrap();
        let labels: Vec<&str> = layout.parts.iter().map(|part| part.label.as_str()).collect();
        assert_eq!(labels, ["warden-esp", "warden-root-a", "warden-root-b", "warden-state", "warden-data"]);
        assert_eq!(layout.needed(), Bytes((512 << 20) + (20u64 << 30) + (2 << 20)));
        assert_eq!(layout.size_of("warden-root-a"), Some(Bytes(4 << 30)));
    }

    #[test]
    fn a_profile_s_sizes_stand_over_those_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("10-x.conf"), "[Partition]\nLabel=x\nSizeMinBytes=4G\n").unwrap();
        std::fs::create_dir(folder.path().join("10-x.conf.d")).unwrap();
        std::fs::write(folder.path().join("10-x.conf.d/10-sizes.conf"), "[Partition]\nSizeMinBytes=128M\n").unwrap();
        assert_eq!(Layout::read(folder.path()).unwrap().parts, [Part { label: "x".into(), min: Bytes(128 << 20) }]);
    }

    #[test]
    fn a_stick_without_its_partition_files_is_told_from_a_disk_of_size_zero() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Layout::read(folder.path()).is_err());
        assert!(Layout::read(&folder.path().join("none")).is_err());
        assert!(part("f", &["Label=x\n".into()]).is_err());
        assert!(part("f", &["Label=x\nSizeMinBytes=-1\n".into()]).is_err());
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, bytes) in [("0", 0), ("512", 512), ("3K", 3072), ("512M", 512 << 20), ("4G", 4 << 30), ("1T", 1u64 << 40)] {
            assert_eq!(size(text), Some(Bytes(bytes)));
        }
        for text in ["", "G", "4 G", "4g", "+4G", "99999999999T", "4.5G"] {
            assert_eq!(size(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_disk_must_also_take_the_engines_of_the_stick() {
        let layout = Layout::read(&tree()).unwrap();
        assert_eq!(layout.needed_for(Bytes(0)), layout.needed());
        assert_eq!(layout.needed_for(Bytes(4 << 30)), layout.needed(), "8 GiB of data hold them");
        assert_eq!(layout.needed_for(Bytes(20 << 30)), Bytes(layout.needed().0 + (14 << 30) + (256 << 20)));
    }

    proptest! {
        #[test]
        fn the_disk_is_never_asked_for_less_than_its_partitions(mins in proptest::collection::vec(0u64..1 << 44, 1..8)) {
            let layout = Layout { parts: mins.iter().map(|min| Part { label: String::new(), min: Bytes(*min) }).collect() };
            prop_assert!(layout.needed().0 >= mins.iter().sum::<u64>() + 2 * GRAIN);
            prop_assert!(layout.needed().0 <= mins.iter().sum::<u64>() + (2 + mins.len() as u64) * GRAIN);
        }
    }
}
