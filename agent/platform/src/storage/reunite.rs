//! Which block device is which remembered disk.
//!
//! A remembered disk and what is plugged in, in; where it is, out. A disk is known again by the UUID of its file system and its serial
//! number together, whatever port it is on: a copy of it, or another disk that carries its label, is not it. Pure.

use std::path::{Path, PathBuf};

use warden_domain::storage::Recorded;

use super::objects::{Block, Drive, Objects};

/// Labels of model storage begin with this.
pub(super) const LABEL_LEAD: &str = "wm-";
/// Model storage is mounted below this, in a folder named by its label. Only root makes folders here.
const MOUNTS: &str = "/media";

/// Where a remembered disk is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Not plugged in.
    Nowhere,
    /// There, not mounted; the name of the block.
    Here(String),
    /// Mounted where it belongs.
    Mounted(PathBuf),
    /// There, mounted somewhere else (another device has its label); the name of the block.
    Misplaced(String),
    /// A file system with its UUID is on a disk with another serial number.
    Impostor(Option<String>),
}

/// The folder of a remembered disk.
pub(super) fn mount_point(label: &str) -> PathBuf {
    Path::new(MOUNTS).join(label)
}

/// Whether a block is the file system of a remembered disk.
pub(super) fn is_it(recorded: &Recorded, block: &Block, drive: &Drive) -> bool {
    block.uuid.as_deref() == Some(recorded.fs_uuid.as_str()) && drive.serial.as_deref() == Some(recorded.serial.as_str())
}

/// Looks for a remembered disk.
pub(super) fn find(recorded: &Recorded, all: &Objects) -> Found {
    let mut impostor = None;
    for block in all.blocks.values().filter(|b| b.uuid.as_deref() == Some(recorded.fs_uuid.as_str())) {
        let Some(drive) = block.drive.as_ref().and_then(|key| all.drives.get(key)) else { continue };
        if !is_it(recorded, block, drive) {
            impostor = Some(drive.serial.clone());
            continue;
        }
        let home = mount_point(&recorded.label);
        return match block.mounts.as_deref() {
            Some(mounts) if mounts.contains(&home) => Found::Mounted(home),
            Some([]) | None => Found::Here(block.name.clone()),
            Some(_) => Found::Misplaced(block.name.clone()),
        };
    }
    impostor.map_or(Found::Nowhere, Found::Impostor)
}

#[cfg(test)]
pub(super) mod tests {
    use jiff::Timestamp;
    use warden_domain::{ids::DiskId, units::Bytes};

    use super::*;
    use crate::storage::objects::tests::{part, plug};

    pub(in super::super) fn remembered(label: &str, uuid: &str, serial: &str) -> Recorded {
        Recorded {
            id: DiskId::from_stored(format!("dsk_{label}")),
            label: label.to_owned(),
            fs_uuid: uuid.to_owned(),
            serial: serial.to_owned(),
            wwn: None,
            model: Some("Disk".to_owned()),
            size: Bytes(1 << 30),
            filesystem: "ext4".to_owned(),
            adopted_at: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_disk_on_another_port_is_found_again() {
        let mut all = Objects::default();
        plug(&mut all, "vdf", &[part("ext4", "wm-1", "u1", &[])]);
        assert_eq!(find(&remembered("wm-1", "u1", "S-vdf"), &all), Found::Here("vdf1".to_owned()));
        all.blocks.get_mut("vdf1").unwrap().mounts = Some(vec!["/media/wm-1".into()]);
        assert_eq!(find(&remembered("wm-1", "u1", "S-vdf"), &all), Found::Mounted("/media/wm-1".into()));
    }

    #[test]
    fn a_missing_disk_is_missing_whatever_else_is_plugged_in() {
        let mut all = Objects::default();
        plug(&mut all, "vdb", &[]);
        plug(&mut all, "vdc", &[part("ext4", "wm-1", "other", &[])]);
        assert_eq!(find(&remembered("wm-1", "u1", "S-vdb"), &all), Found::Nowhere);
    }

    #[test]
    fn a_copy_on_another_disk_is_not_taken_for_the_disk() {
        let mut all = Objects::default();
        plug(&mut all, "vdb", &[part("ext4", "wm-1", "u1", &[])]);
        assert_eq!(find(&remembered("wm-1", "u1", "S-gone"), &all), Found::Impostor(Some("S-vdb".to_owned())));
        plug(&mut all, "vdc", &[part("ext4", "wm-1", "u1", &[])]);
        assert_eq!(find(&remembered("wm-1", "u1", "S-vdc"), &all), Found::Here("vdc1".to_owned()));
    }

    #[test]
    fn a_disk_mounted_in_the_wrong_place_is_not_used_there() {
        let mut all = Objects::default();
        plug(&mut all, "vdb", &[part("ext4", "wm-1", "u1", &["/media/wm-11"])]);
        assert_eq!(find(&remembered("wm-1", "u1", "S-vdb"), &all), Found::Misplaced("vdb1".to_owned()));
    }
}
