//! Room and kind of the file system a folder lies on.

use std::path::Path;

use nix::sys::{
    statfs::{FsType, statfs},
    statvfs::{FsFlags, statvfs},
};
use warden_domain::units::Bytes;

/// File systems an image's root can be; data on one of them means that the data partition is not mounted.
const IMAGES: [FsType; 2] = [FsType(0x7371_7368), FsType(0xe0f5_e1e2)];

/// One look at a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Size as the file system counts it.
    pub(crate) total: Bytes,
    /// What the agent may still write.
    pub(crate) free: Bytes,
    /// Mounted read-only, or turned read-only by the kernel after a fault.
    pub(crate) read_only: bool,
    /// It is the root of an image, not a disk.
    pub(crate) is_image: bool,
}

/// Looks at the file system of a folder. Blocking, as a disk that hangs may hang it.
pub(crate) fn room(folder: &Path) -> Result<Room, std::io::Error> {
    let about = statvfs(folder).map_err(std::io::Error::from)?;
    let kind = statfs(folder).map_err(std::io::Error::from)?.filesystem_type();
    let bytes = |blocks: u64| Bytes(blocks.saturating_mul(about.fragment_size()));
    Ok(Room {
        total: bytes(about.blocks()),
        free: bytes(about.blocks_available()),
        read_only: about.flags().contains(FsFlags::ST_RDONLY),
        is_image: IMAGES.contains(&kind),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_this_machine_has_a_size_and_takes_writes() {
        let folder = tempfile::tempdir().unwrap();
        let room = room(folder.path()).unwrap();
        assert!(room.total >= room.free && room.total.0 > 0 && !room.read_only && !room.is_image, "{room:?}");
    }
}
