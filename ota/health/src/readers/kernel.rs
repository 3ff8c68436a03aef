//! What the kernel and udev say: command line, mounts, addresses, GPUs. Parsers are apart from the files they read.

use std::fs;
use std::net::IpAddr;

use warden_update_record::{Slot, slot_of};

use crate::facts::{Gpus, Told};

fn read(path: &str) -> Told<String> {
    fs::read_to_string(path).map_err(|cause| format!("{path}: {cause}"))
}

/// The running slot.
pub(super) fn slot() -> Option<Slot> {
    slot_of(&read("/proc/cmdline").ok()?)
}

/// Whether the root is a verified device.
pub(super) fn verity() -> Told<bool> {
    let mounts = read("/proc/self/mountinfo")?;
    let device = device_of(&mounts, "/").ok_or("there is no root mount")?;
    Ok(fs::read_to_string(format!("/sys/dev/block/{device}/dm/uuid")).is_ok_and(|uuid| uuid.starts_with("CRYPT-VERITY-")))
}

/// Whether something is mounted at `path`.
pub(super) fn mounted(path: &str) -> Told<bool> {
    Ok(device_of(&read("/proc/self/mountinfo")?, path).is_some())
}

/// The file system UUID, by udev's word, of what is mounted at /data.
pub(super) fn data_uuid() -> Told<Option<String>> {
    let mounts = read("/proc/self/mountinfo")?;
    let Some(device) = device_of(&mounts, "/data") else { return Ok(None) };
    let about = read(&format!("/run/udev/data/b{device}"))?;
    Ok(Some(about.lines().find_map(|line| line.strip_prefix("E:ID_FS_UUID=")).unwrap_or("unknown").to_owned()))
}

/// The device number (`254:0`) of the last file system mounted at `path`; automounts that nothing triggered yet are none.
fn device_of<'a>(mountinfo: &'a str, path: &str) -> Option<&'a str> {
    mountinfo.lines().rev().find_map(|line| {
        let (fields, rest) = line.split_once(" - ")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        (fields.get(4) == Some(&path) && !rest.starts_with("autofs ")).then(|| fields.get(2).copied())?
    })
}

/// Addresses of the box that others can reach: no loopback, no link-local ones.
pub(super) fn addresses() -> Told<Vec<IpAddr>> {
    let all = nix::ifaddrs::getifaddrs().map_err(|errno| errno.to_string())?;
    let mut found: Vec<IpAddr> = all
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|a| IpAddr::from(a.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::from(a.ip())))
        })
        .filter(reachable)
        .collect();
    found.sort();
    found.dedup();
    Ok(found)
}

fn reachable(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local() && !v4.is_unspecified(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unspecified() && (v6.segments()[0] & 0xffc0) != 0xfe80,
    }
}

/// GPUs as NVIDIA's kernel driver lists them; without the driver there are none.
pub(super) fn gpus() -> Told<Gpus> {
    let driver = fs::read_to_string("/proc/driver/nvidia/version").ok();
    let count = match fs::read_dir("/proc/driver/nvidia/gpus") {
        Ok(list) => u32::try_from(list.flatten().count()).unwrap_or(u32::MAX),
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => 0,
        Err(cause) => return Err(cause.to_string()),
    };
    Ok(Gpus { count, driver: driver.as_deref().and_then(driver_version) })
}

/// The version in the driver's own line: the first word after "Kernel Module" that begins with a digit.
fn driver_version(text: &str) -> Option<String> {
    let (_, rest) = text.lines().next()?.split_once("Kernel Module")?;
    rest.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit())).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "22 1 254:0 / / ro,relatime shared:1 - squashfs /dev/mapper/root ro\n\
        30 22 254:5 / /state rw,nosuid shared:2 - ext4 /dev/vda4 rw\n\
        31 22 0:40 / /efi rw shared:3 - autofs systemd-1 rw,fd=50\n\
        33 22 254:6 / /data rw,nosuid shared:4 - ext4 /dev/vda5 rw\n";

    #[test]
    fn a_mount_is_found_by_its_whole_path() {
        assert_eq!(device_of(MOUNTS, "/"), Some("254:0"));
        assert_eq!(device_of(MOUNTS, "/data"), Some("254:6"));
        assert_eq!(device_of(MOUNTS, "/dat"), None);
    }

    #[test]
    fn an_automount_that_nothing_is_on_is_no_mount() {
        assert_eq!(device_of(MOUNTS, "/efi"), None);
        let both = format!("{MOUNTS}40 31 254:1 / /efi rw - vfat /dev/vda1 rw\n");
        assert_eq!(device_of(&both, "/efi"), Some("254:1"));
    }

    #[test]
    fn an_address_that_nobody_else_reaches_is_not_the_boxs() {
        for address in ["127.0.0.1", "169.254.3.4", "::1", "fe80::1", "0.0.0.0"] {
            assert!(!reachable(&address.parse().unwrap()), "{address}");
        }
        assert!(reachable(&"10.0.2.15".parse().unwrap()) && reachable(&"fd00::1".parse().unwrap()));
    }

    #[test]
    fn both_ways_the_driver_writes_its_version_are_read() {
        let old = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8\nGCC version:";
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build";
        assert_eq!(driver_version(old).as_deref(), Some("550.163.01"));
        assert_eq!(driver_version(open).as_deref(), Some("580.65.06"));
        assert_eq!(driver_version("nonsense"), None);
    }
}
