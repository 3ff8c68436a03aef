//! Which disk this system was started from, and which of its partitions is which. All later look-ups stay on that disk, so that an old
//! installation on another disk is never mixed in. A list of partitions and the loader's word go in, a layout or a reason comes out.

use std::collections::BTreeSet;

use thiserror::Error;
use warden_bootslot::entry::Slot;

/// A partition the kernel knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Kernel name of the partition, for example `vda2`.
    pub name: String,
    /// Kernel name of its disk, for example `vda`.
    pub disk: String,
    /// Label in the partition table.
    pub label: String,
    /// Unique id in the partition table, lower case; nothing when the table could not be read.
    pub id: Option<String>,
}

/// The partitions of the boot disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Kernel name of the disk.
    pub disk: String,
    /// EFI system partition.
    pub esp: Partition,
    /// First system slot.
    pub root_a: Partition,
    /// Second system slot.
    pub root_b: Partition,
    /// Identity and settings; nothing when it is gone from the table.
    pub state: Option<Partition>,
    /// Models and everything replaceable; nothing when it is not there.
    pub data: Option<Partition>,
}

impl Layout {
    /// The partition of a system slot.
    #[must_use]
    pub fn root(&self, slot: Slot) -> &Partition {
        match slot {
            Slot::A => &self.root_a,
            Slot::B => &self.root_b,
        }
    }
}

/// Why no boot disk could be told.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Unclear {
    /// No disk fits (yet).
    #[error("no disk with the partitions of LM Warden was found; check its cable and the firmware's disk settings")]
    None,
    /// The partition the loader was started from is not among the disks (yet).
    #[error("the partition {0} that the firmware started from is not among the disks the kernel sees")]
    LoaderPartition(String),
    /// Without a word from the loader, several disks fit.
    #[error("several disks carry LM Warden ({0}) and the firmware does not say which one was started; detach the others")]
    Several(String),
    /// One disk has a label twice, or lacks one of ESP and slots.
    #[error("disk {disk} has {count} partitions named {label}, exactly one is needed")]
    Label {
        /// The disk.
        disk: String,
        /// The label.
        label: &'static str,
        /// How many there are.
        count: usize,
    },
}

/// The partitions of an installer stick.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StickLayout {
    /// Kernel name of the stick.
    pub disk: String,
    /// EFI system partition.
    pub esp: Partition,
    /// The system.
    pub root: Partition,
    /// Answer file and result; nothing when it is gone from the table.
    pub files: Option<Partition>,
    /// Engine packs; nothing when the stick was made without any.
    pub packs: Option<Partition>,
}

/// Finds the stick this system was started from, by the same rules as [`find`].
///
/// # Errors
/// As [`find`].
pub fn find_stick(partitions: &[Partition], loader: Option<&str>) -> Result<StickLayout, Unclear> {
    let disk = started(partitions, loader, &["stick-root"])?;
    let labels = Labels { partitions, disk };
    Ok(StickLayout {
        disk: disk.to_owned(),
        esp: labels.needed("stick-esp")?,
        root: labels.needed("stick-root")?,
        files: labels.optional("stick-files")?,
        packs: labels.optional("stick-packs")?,
    })
}

/// What user space is told of the stick.
#[must_use]
pub fn told(stick: &StickLayout) -> String {
    let line = |key: &str, part: &Option<Partition>| part.as_ref().map_or_else(String::new, |part| format!("{key}={}\n", part.name));
    let more = line("files", &stick.files) + &line("packs", &stick.packs);
    format!("disk={}\nesp={}\nroot={}\n{more}", stick.disk, stick.esp.name, stick.root.name)
}

/// Finds the boot disk: the one that holds the loader's partition, or without a word from the loader the only one with our system slots.
///
/// # Errors
/// When no disk fits, several fit, or its labels are not exact.
pub fn find(partitions: &[Partition], loader: Option<&str>) -> Result<Layout, Unclear> {
    let disk = started(partitions, loader, &["warden-root-a", "warden-root-b"])?;
    let labels = Labels { partitions, disk };
    Ok(Layout {
        disk: disk.to_owned(),
        esp: labels.needed("warden-esp")?,
        root_a: labels.needed("warden-root-a")?,
        root_b: labels.needed("warden-root-b")?,
        state: labels.optional("warden-state")?,
        data: labels.optional("warden-data")?,
    })
}

/// The disk with the loader's partition, or without a word from the loader the only one that has one of `ours`.
fn started<'a>(partitions: &'a [Partition], loader: Option<&str>, ours: &[&str]) -> Result<&'a str, Unclear> {
    let fits = |part: &&Partition| match loader {
        Some(id) => part.id.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(id)),
        None => ours.contains(&part.label.as_str()),
    };
    let disks: BTreeSet<&str> = partitions.iter().filter(fits).map(|part| part.disk.as_str()).collect();
    if disks.len() > 1 {
        return Err(Unclear::Several(disks.into_iter().collect::<Vec<_>>().join(", ")));
    }
    disks.first().copied().ok_or_else(|| loader.map_or(Unclear::None, |id| Unclear::LoaderPartition(id.to_owned())))
}

/// The labels of one disk.
struct Labels<'a> {
    partitions: &'a [Partition],
    disk: &'a str,
}

impl Labels<'_> {
    fn optional(&self, label: &'static str) -> Result<Option<Partition>, Unclear> {
        let named: Vec<&Partition> = self.partitions.iter().filter(|part| part.disk == self.disk && part.label == label).collect();
        match named.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some((*one).clone())),
            several => Err(Unclear::Label { disk: self.disk.to_owned(), label, count: several.len() }),
        }
    }

    fn needed(&self, label: &'static str) -> Result<Partition, Unclear> {
        self.optional(label)?.ok_or(Unclear::Label { disk: self.disk.to_owned(), label, count: 0 })
    }
}

/// The partition id in the loader's EFI variable: four bytes of attributes, then UTF-16 text that ends with a zero.
#[must_use]
pub fn loader_partition(variable: &[u8]) -> Option<String> {
    let units = variable.get(4..)?.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).take_while(|unit| *unit != 0);
    let text = String::from_utf16(&units.collect::<Vec<_>>()).ok()?.to_ascii_lowercase();
    let id = text.len() == 36 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    id.then_some(text)
}

/// The udev rules that name the boot disk's partitions `/dev/warden/*` for everything that runs later.
#[must_use]
pub fn udev_rules(layout: &Layout) -> String {
    let named = [
        ("esp", Some(&layout.esp)),
        ("root-a", Some(&layout.root_a)),
        ("root-b", Some(&layout.root_b)),
        ("state", layout.state.as_ref()),
        ("data", layout.data.as_ref()),
    ];
    let mut rules = String::from("# Written at each start: the partitions of the disk this system was started from.\n");
    for (link, partition) in named {
        let Some(partition) = partition else { continue };
        let id = partition.id.as_ref().map_or_else(String::new, |id| format!("ENV{{ID_PART_ENTRY_UUID}}==\"{id}\", "));
        rules.push_str(&format!(
            "ACTION!=\"remove\", SUBSYSTEM==\"block\", ENV{{DEVTYPE}}==\"partition\", KERNEL==\"{}\", KERNELS==\"{}\", {id}SYMLINK+=\"warden/{link}\"\n",
            partition.name, layout.disk
        ));
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str, seed: u32, labels: &[&str]) -> Vec<Partition> {
        let part = |(number, label): (u32, &&str)| Partition {
            name: format!("{name}{number}"),
            disk: name.to_owned(),
            label: (*label).to_owned(),
            id: Some(format!("{seed:08x}-0000-4000-8000-{number:012x}")),
        };
        (1..).zip(labels).map(part).collect()
    }

    const OURS: [&str; 5] = ["warden-esp", "warden-root-a", "warden-root-b", "warden-state", "warden-data"];

    #[test]
    fn an_old_installation_on_another_disk_is_not_used() {
        let all = [disk("sda", 1, &OURS), disk("sdb", 2, &OURS)].concat();
        let layout = find(&all, Some("00000002-0000-4000-8000-000000000001")).unwrap();
        assert_eq!(layout.disk, "sdb");
        assert_eq!(layout.state.unwrap().name, "sdb4");
        assert!(matches!(find(&all, None), Err(Unclear::Several(_))));
    }

    #[test]
    fn a_direct_kernel_start_takes_the_only_disk() {
        let all = [disk("vda", 1, &OURS), disk("vdb", 2, &["models"])].concat();
        assert_eq!(find(&all, None).unwrap().disk, "vda");
        assert_eq!(find(&all[5..], None), Err(Unclear::None));
    }

    #[test]
    fn a_stick_is_found_beside_installed_disks_and_never_mixed_with_them() {
        let all = [disk("sda", 1, &OURS), disk("sdb", 2, &["stick-files", "stick-esp", "stick-root"])].concat();
        let stick = find_stick(&all, Some("00000002-0000-4000-8000-000000000002")).unwrap();
        assert_eq!(told(&stick), "disk=sdb\nesp=sdb2\nroot=sdb3\nfiles=sdb1\n");
        assert!(matches!(find_stick(&all, Some("00000001-0000-4000-8000-000000000001")), Err(Unclear::Label { count: 0, .. })));
        assert!(matches!(find(&all, Some("00000002-0000-4000-8000-000000000002")), Err(Unclear::Label { count: 0, .. })));
        assert_eq!(find_stick(&all[5..], None).unwrap().disk, "sdb");
        let with_packs = disk("sdb", 2, &["stick-files", "stick-esp", "stick-root", "stick-packs"]);
        assert_eq!(told(&find_stick(&with_packs, None).unwrap()), "disk=sdb\nesp=sdb2\nroot=sdb3\nfiles=sdb1\npacks=sdb4\n");
    }

    #[test]
    fn a_copied_disk_with_the_same_ids_stops_the_start() {
        let all = [disk("sda", 1, &OURS), disk("sdb", 1, &OURS)].concat();
        assert!(matches!(find(&all, Some("00000001-0000-4000-8000-000000000001")), Err(Unclear::Several(_))));
    }

    #[test]
    fn a_label_twice_on_the_disk_stops_the_start() {
        let mut labels = OURS.to_vec();
        labels.push("warden-root-a");
        assert_eq!(find(&disk("sda", 1, &labels), None), Err(Unclear::Label { disk: "sda".into(), label: "warden-root-a", count: 2 }));
    }

    #[test]
    fn a_disk_that_lost_state_or_data_still_starts() {
        let layout = find(&disk("sda", 1, &OURS[..3]), None).unwrap();
        assert_eq!((layout.state, layout.data), (None, None));
    }

    #[test]
    fn the_loader_s_partition_may_come_late() {
        let late = find(&disk("sda", 1, &OURS), Some("00000009-0000-4000-8000-000000000001"));
        assert!(matches!(late, Err(Unclear::LoaderPartition(_))));
    }

    #[test]
    fn the_loader_s_variable_is_read_in_its_own_spelling() {
        let mut variable = vec![6, 0, 0, 0];
        for unit in "0000ABCD-0000-4000-8000-00000000000F\0".encode_utf16() {
            variable.extend(unit.to_le_bytes());
        }
        assert_eq!(loader_partition(&variable).unwrap(), "0000abcd-0000-4000-8000-00000000000f");
        assert_eq!(loader_partition(&variable[..20]), None);
        assert_eq!(loader_partition(b""), None);
    }

    #[test]
    fn rules_name_only_partitions_of_the_boot_disk() {
        let rules = udev_rules(&find(&disk("sda", 1, &OURS), None).unwrap());
        assert_eq!(rules.lines().filter(|line| line.contains("KERNELS==\"sda\"")).count(), 5);
        assert!(rules.contains("SYMLINK+=\"warden/data\""));
    }
}
