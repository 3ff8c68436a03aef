//! Which block devices are the boot disk: the disk that /state lies on, its partitions, and everything that is built on top of them.
//!
//! In: the kernel's device tree and the mounted state partition. Out: device paths as the disk manager names them. Only reads.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why the boot disk cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum Unknown {
    /// The state partition or its device cannot be looked at.
    #[error("the boot disk cannot be found from {path}: {cause}; storage stays refused as a whole, restart the machine")]
    Look {
        /// What was looked at.
        path: PathBuf,
        /// Why not.
        cause: std::io::Error,
    },
    /// What was found is no disk.
    #[error("the boot disk cannot be found: {0} is no disk; storage stays refused as a whole, restart the machine")]
    NoDisk(PathBuf),
}

/// The devices of the boot disk, the whole disk included.
///
/// # Errors
/// `Unknown` when the state partition does not lead to a disk.
pub fn devices(sys: &Path, state: &Path) -> Result<BTreeSet<String>, Unknown> {
    let look = |path: &Path| {
        let path = path.to_owned();
        move |cause| Unknown::Look { path, cause }
    };
    let number = fs::metadata(state).map_err(look(state))?.dev();
    of_number(sys, nix::sys::stat::major(number), nix::sys::stat::minor(number))
}

fn of_number(sys: &Path, major: u64, minor: u64) -> Result<BTreeSet<String>, Unknown> {
    let link = sys.join(format!("dev/block/{major}:{minor}"));
    let device = link.canonicalize().map_err(|cause| Unknown::Look { path: link.clone(), cause })?;
    let mut names = BTreeSet::new();
    for disk in bottoms(&device)? {
        gather(&disk, &mut names);
    }
    Ok(names)
}

/// The disks a device stands on: itself, the disk it is a partition of, or those below the devices it is made from.
fn bottoms(device: &Path) -> Result<Vec<PathBuf>, Unknown> {
    if device.join("partition").is_file() {
        return bottoms(device.parent().ok_or_else(|| Unknown::NoDisk(device.to_owned()))?);
    }
    let below = linked(&device.join("slaves"));
    if below.is_empty() {
        return if device.join("size").is_file() { Ok(vec![device.to_owned()]) } else { Err(Unknown::NoDisk(device.to_owned())) };
    }
    let mut disks = Vec::new();
    for part in below {
        disks.extend(bottoms(&part)?);
    }
    Ok(disks)
}

/// A device, its partitions and all that stands on them.
fn gather(device: &Path, names: &mut BTreeSet<String>) {
    let Some(name) = device.file_name().map(|n| n.to_string_lossy().replace('!', "/")) else { return };
    if !names.insert(format!("/dev/{name}")) {
        return;
    }
    if let Ok(mapped) = fs::read_to_string(device.join("dm/name")) {
        names.insert(format!("/dev/mapper/{}", mapped.trim()));
    }
    for holder in linked(&device.join("holders")) {
        gather(&holder, names);
    }
    for part in entries(device).into_iter().filter(|entry| entry.join("partition").is_file()) {
        gather(&part, names);
    }
}

/// The devices that the links in a folder lead to.
fn linked(folder: &Path) -> Vec<PathBuf> {
    entries(folder).iter().filter_map(|link| link.canonicalize().ok()).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).map(|found| found.flatten().map(|entry| entry.path()).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A machine: vda with two partitions, dm-0 on vda2, and another disk vdb.
    fn machine() -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        let at = |name: &str| sys.path().join(name);
        for (folder, partition) in [
            ("devices/vda", false),
            ("devices/vda/vda1", true),
            ("devices/vda/vda2", true),
            ("devices/virtual/dm-0", false),
            ("devices/vdb", false),
            ("devices/vdb/vdb1", true),
        ] {
            for inner in ["holders", "slaves"] {
                fs::create_dir_all(at(folder).join(inner)).unwrap();
            }
            fs::write(at(folder).join("size"), "8\n").unwrap();
            if partition {
                fs::write(at(folder).join("partition"), "1\n").unwrap();
            }
        }
        fs::create_dir_all(at("devices/virtual/dm-0/dm")).unwrap();
        fs::write(at("devices/virtual/dm-0/dm/name"), "root\n").unwrap();
        symlink(at("devices/virtual/dm-0"), at("devices/vda/vda2/holders/dm-0")).unwrap();
        symlink(at("devices/vda/vda2"), at("devices/virtual/dm-0/slaves/vda2")).unwrap();
        fs::create_dir_all(at("dev/block")).unwrap();
        symlink(at("devices/vda/vda1"), at("dev/block/254:1")).unwrap();
        symlink(at("devices/virtual/dm-0"), at("dev/block/253:0")).unwrap();
        sys
    }

    const BOOT: [&str; 5] = ["/dev/dm-0", "/dev/mapper/root", "/dev/vda", "/dev/vda1", "/dev/vda2"];

    #[test]
    fn the_verified_root_on_the_boot_disk_is_as_protected_as_the_disk() {
        let sys = machine();
        let found = of_number(sys.path(), 254, 1).unwrap();
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), BOOT);
    }

    #[test]
    fn a_state_partition_inside_a_mapping_still_leads_to_the_disk_below() {
        let sys = machine();
        let found = of_number(sys.path(), 253, 0).unwrap();
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), BOOT);
    }

    #[test]
    fn a_state_that_lies_on_no_disk_is_an_error_and_not_an_empty_list() {
        let sys = machine();
        assert!(matches!(of_number(sys.path(), 0, 42), Err(Unknown::Look { .. })));
    }
}
