//! What the kernel tells of disks, read below a folder that stands for `/sys`, so that a made-up machine can be read too. Reads only.

use std::fs;
use std::path::{Path, PathBuf};

use warden_domain::units::Bytes;

use crate::disk::{Disk, Holds};

/// Where to look.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// `/sys`.
    pub sys: PathBuf,
    /// `/proc/self/mountinfo`.
    pub mounts: PathBuf,
}

impl Default for Kernel {
    fn default() -> Self {
        Self { sys: "/sys".into(), mounts: "/proc/self/mountinfo".into() }
    }
}

/// A partition of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Kernel name.
    pub name: String,
    /// Label in the table; empty when it has none.
    pub label: String,
}

/// Kinds of block devices that are no disks of the machine.
const NO_DISKS: [&str; 9] = ["loop", "ram", "dm-", "md", "zram", "sr", "fd", "nbd", "mtd"];

impl Kernel {
    /// All disks in the order of their names. `own` is the kernel name of the stick. `look` is asked what a disk holds that has no
    /// partitions (true = blank), `id` for the installation on a system partition.
    #[must_use]
    pub fn disks(&self, own: Option<&str>, look: &dyn Fn(&str) -> Option<bool>, id: &dyn Fn(&str) -> Option<String>) -> Vec<Disk> {
        let mut names: Vec<String> = list(&self.sys.join("block"));
        names.retain(|name| !NO_DISKS.iter().any(|kind| name.starts_with(kind)));
        names.sort_by_key(|name| (name.len(), name.clone()));
        names.into_iter().filter_map(|name| self.disk(name, own, look, id)).collect()
    }

    /// One whole device by its kernel name; also one that is no disk of the machine, such as a loop device, since somebody named it.
    #[must_use]
    pub fn named(&self, name: &str, look: &dyn Fn(&str) -> Option<bool>) -> Option<Disk> {
        let whole = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
        if whole { self.read(name.to_owned(), None, look, &|_| None) } else { None }
    }

    fn disk(&self, name: String, own: Option<&str>, look: &dyn Fn(&str) -> Option<bool>, id: &dyn Fn(&str) -> Option<String>) -> Option<Disk> {
        let folder = self.sys.join("block").join(&name);
        if !folder.join("device").exists() || word(&folder.join("hidden")).as_deref() == Some("1") {
            return None;
        }
        self.read(name, own, look, id)
    }

    fn read(&self, name: String, own: Option<&str>, look: &dyn Fn(&str) -> Option<bool>, id: &dyn Fn(&str) -> Option<String>) -> Option<Disk> {
        let folder = self.sys.join("block").join(&name);
        let size = Bytes(word(&folder.join("size"))?.parse::<u64>().ok()?.checked_mul(512)?);
        if size.0 == 0 {
            return None;
        }
        let parts = self.partitions(&name);
        let label = |label: &str| parts.iter().find(|part| part.label == label);
        let holds = match (label("warden-esp"), label("warden-root-a")) {
            (Some(esp), Some(_)) => Holds::Warden { install_id: id(&esp.name) },
            _ if !parts.is_empty() => {
                Holds::Partitions(parts.iter().map(|part| if part.label.is_empty() { part.name.clone() } else { part.label.clone() }).collect())
            }
            _ if look(&name) == Some(true) => Holds::Nothing,
            _ => Holds::Data,
        };
        Some(Disk {
            model: model(&folder),
            size,
            serial: serial(&folder),
            wwn: wwn(&folder),
            read_only: word(&folder.join("ro")).as_deref() == Some("1"),
            in_use: self.user(&folder, &parts),
            own_stick: own == Some(name.as_str()),
            holds,
            name,
        })
    }

    /// Whether the disk that now stands under that name is the one that was looked at before. Names are given anew when disks are pulled
    /// and plugged in.
    #[must_use]
    pub fn is_still(&self, disk: &Disk) -> bool {
        let folder = self.sys.join("block").join(&disk.name);
        let size = word(&folder.join("size")).and_then(|text| text.parse::<u64>().ok()?.checked_mul(512));
        size == Some(disk.size.0) && serial(&folder) == disk.serial && wwn(&folder) == disk.wwn && model(&folder) == disk.model
    }

    /// The partitions of a disk in their order.
    #[must_use]
    pub fn partitions(&self, disk: &str) -> Vec<Partition> {
        let folder = self.sys.join("block").join(disk);
        let mut found: Vec<(u32, Partition)> = Vec::new();
        for name in list(&folder) {
            let Some(number) = word(&folder.join(&name).join("partition")).and_then(|text| text.parse().ok()) else { continue };
            let uevent = fs::read_to_string(folder.join(&name).join("uevent")).unwrap_or_default();
            let label = uevent.lines().find_map(|line| line.strip_prefix("PARTNAME=")).unwrap_or_default().to_owned();
            found.push((number, Partition { name, label }));
        }
        found.sort_by_key(|(number, _)| *number);
        found.into_iter().map(|(_, part)| part).collect()
    }

    /// Who uses the disk or one of its partitions.
    fn user(&self, folder: &Path, parts: &[Partition]) -> Option<String> {
        let mounts = fs::read_to_string(&self.mounts).unwrap_or_default();
        let places = std::iter::once(folder.to_owned()).chain(parts.iter().map(|part| folder.join(&part.name)));
        for place in places {
            if let Some(holder) = list(&place.join("holders")).into_iter().next() {
                return Some(holder);
            }
            let Some(number) = word(&place.join("dev")) else { continue };
            let mounted = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|fields| fields.get(2) == Some(&number.as_str()));
            if let Some(at) = mounted.and_then(|fields| fields.get(4).map(|at| (*at).to_owned())) {
                return Some(format!("a mount at {at}"));
            }
        }
        None
    }
}

fn list(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|item| item.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The text of a one-word file; nothing when it is empty.
fn word(path: &Path) -> Option<String> {
    printable(&fs::read(path).ok()?)
}

/// What a device says of itself, as one printable word; nothing when that is empty.
fn printable(bytes: &[u8]) -> Option<String> {
    let text: String = String::from_utf8_lossy(bytes).chars().filter(|letter| !letter.is_control()).collect();
    let text = text.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn model(folder: &Path) -> String {
    let name = word(&folder.join("device/model"));
    let vendor = word(&folder.join("device/vendor")).filter(|vendor| vendor != "ATA" && !vendor.starts_with("0x"));
    match (vendor, name) {
        (Some(vendor), Some(name)) => format!("{vendor} {name}"),
        (None, Some(name)) => name,
        // Disks of virtual machines name nothing.
        _ if folder.join("serial").exists() => "virtual disk".to_owned(),
        _ => String::new(),
    }
}

/// The serial number: of the USB device when the disk is one, as everything else on the system shows it, else the disk's own.
fn serial(folder: &Path) -> Option<String> {
    usb_serial(folder).or_else(|| word(&folder.join("serial"))).or_else(|| word(&folder.join("device/serial"))).or_else(|| {
        let page = fs::read(folder.join("device/vpd_pg80")).ok()?;
        let length = usize::from(u16::from_be_bytes([*page.get(2)?, *page.get(3)?]));
        printable(page.get(4..4 + length)?)
    })
}

fn usb_serial(folder: &Path) -> Option<String> {
    let device = folder.join("device").canonicalize().ok()?;
    let usb = device.ancestors().find(|place| place.join("idVendor").exists())?;
    word(&usb.join("serial"))
}

/// The World Wide Name; other ids that kernels show in the same place are none.
fn wwn(folder: &Path) -> Option<String> {
    let found = word(&folder.join("wwid")).or_else(|| word(&folder.join("device/wwid")))?;
    ["naa.", "eui.", "uuid."].iter().any(|kind| found.starts_with(kind)).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a made-up `/sys`.
    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Kernel) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join("sys").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::write(folder.path().join("mountinfo"), "36 35 259:1 / /mnt/old rw - ext4 /dev/x rw\n").unwrap();
        let kernel = Kernel { sys: folder.path().join("sys"), mounts: folder.path().join("mountinfo") };
        (folder, kernel)
    }

    fn disks(kernel: &Kernel, own: Option<&str>) -> Vec<Disk> {
        kernel.disks(own, &|_| Some(true), &|part| (part == "vdb1").then(|| "one".to_owned()))
    }

    #[test]
    fn virtual_disks_sticks_and_nvme_disks_tell_who_they_are() {
        let (_folder, kernel) = machine(&[
            ("block/vda/size", "2097152\n"),
            ("block/vda/serial", "DISK0\n"),
            ("block/vda/device/vendor", "0x1af4\n"),
            ("block/nvme0n1/size", "8388608\n"),
            ("block/nvme0n1/wwid", "eui.0025385b71b0e1c2\n"),
            ("block/nvme0n1/device/model", "Fast 9000   \n"),
            ("block/nvme0n1/device/serial", "S3Z9NX0M   \n"),
            ("block/sda/size", "8388608\n"),
            ("block/sda/ro", "1\n"),
            ("block/sda/device/model", "Disk 1\n"),
            ("block/sda/device/vendor", "ATA     \n"),
            ("block/sda/device/wwid", "t10.ATA     Disk 1\n"),
            ("block/sda/device/vpd_pg80", "\0\u{80}\0\u{8}  WD-77  "),
        ]);
        // The page is binary: the length byte is written by hand.
        fs::write(kernel.sys.join("block/sda/device/vpd_pg80"), b"\0\x80\0\x08  WD-77 ").unwrap();
        let found = disks(&kernel, Some("vda"));
        let told: Vec<_> = found.iter().map(|d| (d.name.as_str(), d.model.as_str(), d.serial.as_deref(), d.wwn.as_deref())).collect();
        assert_eq!(
            told,
            [
                ("sda", "Disk 1", Some("WD-77"), None),
                ("vda", "virtual disk", Some("DISK0"), None),
                ("nvme0n1", "Fast 9000", Some("S3Z9NX0M"), Some("eui.0025385b71b0e1c2")),
            ]
        );
        assert!(found[1].own_stick && !found[0].own_stick && found[0].read_only);
        assert_eq!(found[1].size, Bytes(1 << 30));
    }

    #[test]
    fn a_disk_that_took_the_name_of_another_is_not_mistaken_for_it() {
        let files = |first: &'static str, second: &'static str| {
            [
                ("block/sda/size", "8388608\n"),
                ("block/sda/device/model", "Disk 1\n"),
                ("block/sda/device/serial", first),
                ("block/sdb/size", "8388608\n"),
                ("block/sdb/device/model", "Disk 1\n"),
                ("block/sdb/device/serial", second),
            ]
        };
        let (_folder, kernel) = machine(&files("ONE\n", "TWO\n"));
        let chosen = disks(&kernel, None).remove(1);
        assert!(kernel.is_still(&chosen));
        let (_folder, swapped) = machine(&files("TWO\n", "ONE\n"));
        assert!(!swapped.is_still(&chosen));
        fs::write(kernel.sys.join("block/sdb/size"), "8388600\n").unwrap();
        assert!(!kernel.is_still(&chosen), "another size is another disk");
        fs::remove_dir_all(kernel.sys.join("block/sdb")).unwrap();
        assert!(!kernel.is_still(&chosen));
    }

    #[test]
    fn devices_that_are_no_disks_are_left_out() {
        let (_folder, kernel) = machine(&[
            ("block/loop0/size", "1"),
            ("block/loop0/device/x", ""),
            ("block/dm-0/size", "1"),
            ("block/sr0/size", "1"),
            ("block/sr0/device/x", ""),
            ("block/sdb/size", "0"),
            ("block/sdb/device/x", ""),
            ("block/nvme0c0n1/size", "8"),
            ("block/nvme0c0n1/hidden", "1"),
            ("block/nvme0c0n1/device/x", ""),
            ("block/vdz/size", "8"),
        ]);
        assert_eq!(disks(&kernel, None), []);
    }

    #[test]
    fn an_older_installation_is_recognised_with_its_id() {
        let (_folder, kernel) = machine(&[
            ("block/vdb/size", "8"),
            ("block/vdb/device/x", ""),
            ("block/vdb/vdb1/partition", "1"),
            ("block/vdb/vdb1/uevent", "PARTN=1\nPARTNAME=warden-esp\n"),
            ("block/vdb/vdb2/partition", "2"),
            ("block/vdb/vdb2/uevent", "PARTNAME=warden-root-a\n"),
            ("block/vdc/size", "8"),
            ("block/vdc/device/x", ""),
            ("block/vdc/vdc1/partition", "1"),
            ("block/vdc/vdc1/uevent", "PARTNAME=EFI\n"),
            ("block/vdc/vdc2/partition", "2"),
            ("block/vdc/vdc2/uevent", "\n"),
        ]);
        let found = disks(&kernel, None);
        assert_eq!(found[0].holds, Holds::Warden { install_id: Some("one".into()) });
        assert_eq!(found[1].holds, Holds::Partitions(vec!["EFI".into(), "vdc2".into()]));
    }

    #[test]
    fn a_disk_in_an_array_or_mounted_is_in_use() {
        let (_folder, kernel) = machine(&[
            ("block/vdb/size", "8"),
            ("block/vdb/device/x", ""),
            ("block/vdb/vdb1/partition", "1"),
            ("block/vdb/vdb1/holders/md127", ""),
            ("block/vdc/size", "8"),
            ("block/vdc/device/x", ""),
            ("block/vdc/vdc1/partition", "1"),
            ("block/vdc/vdc1/dev", "259:1\n"),
        ]);
        let found = disks(&kernel, None);
        assert_eq!(found[0].in_use.as_deref(), Some("md127"));
        assert_eq!(found[1].in_use.as_deref(), Some("a mount at /mnt/old"));
    }
}
