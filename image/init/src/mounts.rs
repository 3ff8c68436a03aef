//! The mounts of the initrd itself: kernel file systems, the loader's variables, the verified root. Thin calls, no decision.

use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};

use crate::bootdisk;
use crate::fatal::Fatal;

/// Where the verified root is put together.
pub const NEW_ROOT: &str = "/newroot";
const VARIABLES: &str = "/sys/firmware/efi/efivars";

/// Mounts `source` of type `kind` on `target`, which is made when it lacks.
pub fn put(source: &str, target: &str, kind: &str, flags: MsFlags, options: Option<&str>) -> Result<(), Fatal> {
    // On the read-only root the folder exists already; then the mount itself tells what is wrong.
    let _ = std::fs::create_dir_all(target);
    mount(Some(source), target, Some(kind), flags, options).map_err(|errno| Fatal::Mount { what: source.to_owned(), on: target.to_owned(), errno })
}

/// Shows `source`, a file or folder, at `target` too.
pub fn bind(source: &str, target: &str) -> Result<(), Fatal> {
    mount(Some(source), target, None::<&str>, MsFlags::MS_BIND, None::<&str>).map_err(|errno| Fatal::Mount {
        what: source.to_owned(),
        on: target.to_owned(),
        errno,
    })
}

/// Moves a mount.
pub fn shift(source: &str, target: &str) -> Result<(), Fatal> {
    mount(Some(source), target, None::<&str>, MsFlags::MS_MOVE, None::<&str>).map_err(|errno| Fatal::Mount {
        what: source.to_owned(),
        on: target.to_owned(),
        errno,
    })
}

/// /proc, /sys, /dev and /run.
pub fn system_folders() -> Result<(), Fatal> {
    let strict = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    for (kind, target, flags, options) in [
        ("proc", "/proc", strict, None),
        ("sysfs", "/sys", strict, None),
        ("devtmpfs", "/dev", MsFlags::MS_NOSUID, Some("mode=0755")),
        ("tmpfs", "/run", MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some("mode=0755")),
    ] {
        match put(kind, target, kind, flags, options) {
            // A kernel may have mounted its device folder by itself.
            Err(Fatal::Mount { errno: Errno::EBUSY, .. }) => {}
            other => other?,
        }
    }
    Ok(())
}

/// The id of the partition the loader was started from; nothing without EFI or when the loader left no word.
pub fn loader_partition() -> Option<String> {
    if !Path::new(VARIABLES).exists() {
        return None;
    }
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    put("efivarfs", VARIABLES, "efivarfs", flags, None).ok()?;
    let read = |name: &str| std::fs::read(format!("{VARIABLES}/{name}-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"));
    let found = read("StubDevicePartUUID").ok().and_then(|bytes| bootdisk::loader_partition(&bytes));
    // The system mounts them again as it needs them.
    let _ = nix::mount::umount(VARIABLES);
    found
}

/// Mounts the opened root, of whichever kind the builder made it.
pub fn root() -> Result<(), Fatal> {
    let squashfs = put(crate::verity::ROOT, NEW_ROOT, "squashfs", MsFlags::MS_RDONLY, None);
    squashfs.or_else(|_| put(crate::verity::ROOT, NEW_ROOT, "erofs", MsFlags::MS_RDONLY, None))
}
