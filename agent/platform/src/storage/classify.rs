//! What each disk is to this machine.
//!
//! Objects and remembered disks in, disks with their roles out. In doubt the role is the one that offers less. Pure.

use warden_domain::{
    storage::{Content, Disk, Recorded, Role},
    units::Bytes,
};

use super::{
    objects::{Block, Drive, Objects},
    reunite::{LABEL_LEAD, is_it},
};

/// The initrd names the boot disk's partitions here.
const BOOT_LINKS: &str = "/dev/warden/";
/// Mount points of the system itself.
const SYSTEM_MOUNTS: [&str; 4] = ["/", "/state", "/data", "/efi"];
/// File systems made for carrying files around.
pub(super) const CARRIERS: [&str; 2] = ["vfat", "exfat"];

/// All disks, the system disk first, then by handle.
pub(super) fn disks(all: &Objects, recorded: &[Recorded]) -> Vec<Disk> {
    let mut found: Vec<Disk> = all.drives.iter().filter_map(|(key, drive)| disk(all, key, drive, recorded)).collect();
    found.sort_by_key(|d| (d.role != Role::System, d.key.clone()));
    found
}

fn disk(all: &Objects, key: &str, drive: &Drive, recorded: &[Recorded]) -> Option<Disk> {
    let blocks = all.of_drive(key);
    let whole = all.whole(key)?;
    if whole.device.starts_with("/dev/sr") || whole.device.starts_with("/dev/fd") {
        return None;
    }
    let role = role(&blocks, whole, drive, recorded);
    Some(Disk {
        key: key.to_owned(),
        model: joined(drive),
        serial: drive.serial.clone(),
        wwn: drive.wwn.clone(),
        size: (whole.size > 0).then_some(Bytes(whole.size)),
        bus: drive.bus.clone(),
        removable: drive.removable,
        role,
        importable: role != Role::System && carrier(&blocks).is_some(),
        contents: blocks.iter().map(|b| content(b)).collect(),
    })
}

/// The roles that stand above the others come first.
fn role(blocks: &[&Block], whole: &Block, drive: &Drive, recorded: &[Recorded]) -> Role {
    let blank = whole.usage.is_empty() && whole.kind.is_none() && whole.table.is_none() && blocks.len() == 1;
    if blocks.iter().any(|b| is_system(b)) {
        Role::System
    } else if blocks.iter().any(|b| recorded.iter().any(|r| is_it(r, b, drive))) {
        Role::Storage
    } else if !drive.medium || whole.size == 0 {
        Role::Empty
    } else if blocks.iter().any(|b| in_use(b)) {
        Role::InUse
    } else if whole.read_only {
        Role::ReadOnly
    } else if blank {
        Role::Blank
    } else {
        Role::Foreign
    }
}

fn is_system(block: &Block) -> bool {
    block.links.iter().any(|link| link.starts_with(BOOT_LINKS))
        || block.mounts.iter().flatten().any(|at| SYSTEM_MOUNTS.iter().any(|system| at.as_os_str() == *system))
}

fn in_use(block: &Block) -> bool {
    block.in_array || block.swapping || block.mounts.as_ref().is_some_and(|mounts| !mounts.is_empty())
}

/// The partition (or whole disk) to import from: the largest one with a file system for carrying files. One that carries the name of
/// model storage is not opened: it would be mounted where a missing disk belongs.
pub(super) fn carrier<'a>(blocks: &[&'a Block]) -> Option<&'a Block> {
    let fits = |b: &&&Block| {
        b.kind.as_deref().is_some_and(|k| CARRIERS.contains(&k))
            && !b.label.as_deref().unwrap_or_default().starts_with(LABEL_LEAD)
            && b.mounts.is_some()
    };
    blocks.iter().filter(fits).max_by_key(|b| b.size).copied()
}

fn content(block: &Block) -> Content {
    Content {
        device: block.device.clone(),
        size: Bytes(block.size),
        kind: block.table.clone().or_else(|| block.kind.clone()),
        label: block.label.clone(),
        uuid: block.uuid.clone(),
        mounted_at: block.mounts.clone().unwrap_or_default(),
    }
}

fn joined(drive: &Drive) -> Option<String> {
    match (&drive.vendor, &drive.model) {
        (Some(vendor), Some(model)) if !model.starts_with(vendor.as_str()) => Some(format!("{vendor} {model}")),
        (_, Some(model)) => Some(model.clone()),
        (vendor, None) => vendor.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{
        objects::tests::{part, plug},
        reunite::tests::remembered,
    };

    fn role_of(all: &Objects, recorded: &[Recorded], key: &str) -> Role {
        disks(all, recorded).into_iter().find(|d| d.key == key).unwrap().role
    }

    #[test]
    fn the_boot_disk_is_the_system_disk_by_its_links_or_by_what_is_mounted_from_it() {
        let mut all = Objects::default();
        let linked = Block { links: vec!["/dev/warden/root-b".to_owned()], ..part("squashfs", "", "u1", &[]) };
        let by_link = plug(&mut all, "vda", &[linked]);
        let by_mount = plug(&mut all, "vdb", &[part("ext4", "", "u2", &["/state"])]);
        let other = plug(&mut all, "vdc", &[]);
        assert_eq!(role_of(&all, &[], &by_link), Role::System);
        assert_eq!(role_of(&all, &[], &by_mount), Role::System);
        assert_eq!(role_of(&all, &[], &other), Role::Blank);
        assert_eq!(disks(&all, &[])[0].role, Role::System);
    }

    #[test]
    fn an_older_installation_on_another_disk_is_foreign_and_not_the_system() {
        let mut all = Objects::default();
        plug(&mut all, "vda", &[part("ext4", "warden-state", "u1", &["/state"])]);
        let old = plug(&mut all, "vdb", &[part("ext4", "warden-state", "u9", &[])]);
        assert_eq!(role_of(&all, &[], &old), Role::Foreign);
    }

    #[test]
    fn a_mounted_disk_a_swap_and_a_member_of_an_array_are_in_use() {
        let mut all = Objects::default();
        let mounted = plug(&mut all, "vdb", &[part("ext4", "", "u1", &["/mnt/x"])]);
        let member = plug(&mut all, "vdc", &[Block { in_array: true, ..Block::default() }]);
        let swap = plug(&mut all, "vdd", &[Block { swapping: true, ..Block::default() }]);
        for key in [mounted, member, swap] {
            assert_eq!(role_of(&all, &[], &key), Role::InUse, "{key}");
        }
    }

    #[test]
    fn a_disk_with_a_partition_table_but_no_partition_is_not_called_blank() {
        let mut all = Objects::default();
        let key = plug(&mut all, "vdb", &[]);
        all.blocks.get_mut("vdb").unwrap().table = Some("gpt".to_owned());
        assert_eq!(role_of(&all, &[], &key), Role::Foreign);
    }

    #[test]
    fn a_write_protected_disk_and_an_empty_reader_offer_nothing() {
        let mut all = Objects::default();
        let locked = plug(&mut all, "vdb", &[]);
        all.blocks.get_mut("vdb").unwrap().read_only = true;
        let reader = plug(&mut all, "sdc", &[]);
        all.drives.get_mut(&reader).unwrap().medium = false;
        assert_eq!(role_of(&all, &[], &locked), Role::ReadOnly);
        assert_eq!(role_of(&all, &[], &reader), Role::Empty);
    }

    #[test]
    fn a_recorded_disk_is_known_by_uuid_and_serial_together() {
        let mut all = Objects::default();
        let key = plug(&mut all, "vdb", &[part("ext4", "wm-00000001", "u1", &[])]);
        assert_eq!(role_of(&all, &[remembered("wm-00000001", "u1", "S-vdb")], &key), Role::Storage);
        assert_eq!(role_of(&all, &[remembered("wm-00000001", "u1", "other")], &key), Role::Foreign);
    }

    #[test]
    fn a_stick_offers_its_largest_carrier_and_none_that_poses_as_model_storage() {
        let mut all = Objects::default();
        let small = part("vfat", "EFI", "u1", &[]);
        let stick = plug(&mut all, "sdb", &[small, part("exfat", "MODELS", "u2", &[])]);
        all.blocks.get_mut("sdb2").unwrap().size = 32 << 30;
        assert_eq!(carrier(&all.of_drive(&stick)).unwrap().name, "sdb2");
        let posing = plug(&mut all, "sdc", &[part("vfat", "wm-00000001", "u3", &[])]);
        assert!(carrier(&all.of_drive(&posing)).is_none());
        let ext = plug(&mut all, "sdd", &[part("ext4", "X", "u4", &[])]);
        assert!(carrier(&all.of_drive(&ext)).is_none());
    }
}
