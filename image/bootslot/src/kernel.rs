//! The kernel image of a slot on the EFI system partition. Room is looked at first; the new file is whole on the medium before it takes the
//! old one's name.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use thiserror::Error;

use crate::entry::Slot;

/// Left free besides the kernel, in bytes: entries are rewritten there.
const SPARE: u64 = 1 << 20;
/// No kernel image of ours is smaller or larger, in bytes.
const SIZES: std::ops::RangeInclusive<u64> = (64 << 10)..=(256 << 20);

/// The kernel is not in place; the old one still is.
#[derive(Debug, Error)]
pub enum KernelError {
    /// The bundle has none, or something else under its name.
    #[error("the bundle's kernel {0} is not one: {1}; the image was made wrongly, fetch another one")]
    Odd(PathBuf, String),
    /// The partition is full.
    #[error("the EFI system partition has {free} bytes left and the new kernel needs {needed}; remove what does not belong to this product from it")]
    Room {
        /// What there is.
        free: u64,
        /// What it takes.
        needed: u64,
    },
    /// The partition cannot be written.
    #[error("the new kernel cannot be written to {path}: {source}; check the boot disk")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Puts the kernel image `from` in the place of the slot's.
///
/// # Errors
/// No kernel there, no room, or the partition cannot be written; the old one is then still whole.
pub fn place(from: &Path, esp: &Path, slot: Slot) -> Result<(), KernelError> {
    let odd = |cause: &str| KernelError::Odd(from.to_owned(), cause.to_owned());
    let folder = esp.join("EFI/warden");
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| KernelError::Io { path, source }
    };
    let file = File::open(from).map_err(|error| odd(&error.to_string()))?;
    let meta = file.metadata().map_err(|error| odd(&error.to_string()))?;
    if !meta.is_file() || !SIZES.contains(&meta.len()) {
        return Err(odd(&format!("it has {} bytes", meta.len())));
    }
    let mut bytes = Vec::new();
    file.take(*SIZES.end() + 1).read_to_end(&mut bytes).map_err(|error| odd(&error.to_string()))?;
    if !bytes.starts_with(b"MZ") {
        return Err(odd("it is no EFI program"));
    }
    let path = folder.join(format!("{slot}.efi"));
    // What an earlier cut left would take the room.
    warden_durable::clear(&path).map_err(failed(&path))?;
    let room = statvfs(&folder).map_err(|errno| failed(&folder)(errno.into()))?;
    let free = room.blocks_available().saturating_mul(room.fragment_size());
    let needed = meta.len() + SPARE;
    if free < needed {
        return Err(KernelError::Room { free, needed });
    }
    warden_durable::write(&path, &bytes).map_err(failed(&path))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn esp() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("EFI/warden")).unwrap();
        fs::write(folder.path().join("EFI/warden/b.efi"), "old").unwrap();
        folder
    }

    #[test]
    fn the_new_kernel_takes_the_place_of_that_slot_only() {
        let esp = esp();
        let from = esp.path().join("uki.efi");
        fs::write(&from, [b"MZ".as_slice(), &[7; 100_000]].concat()).unwrap();
        fs::write(esp.path().join("EFI/warden/a.efi"), "mine").unwrap();
        fs::write(esp.path().join("EFI/warden/.b.efi.new"), "half").unwrap();
        place(&from, esp.path(), Slot::B).unwrap();
        assert_eq!(fs::read(esp.path().join("EFI/warden/b.efi")).unwrap(), fs::read(&from).unwrap());
        assert_eq!(fs::read(esp.path().join("EFI/warden/a.efi")).unwrap(), b"mine");
        assert_eq!(fs::read_dir(esp.path().join("EFI/warden")).unwrap().count(), 2);
    }

    #[test]
    fn what_is_no_kernel_leaves_the_old_one() {
        let esp = esp();
        let from = esp.path().join("uki.efi");
        assert!(place(&from, esp.path(), Slot::B).unwrap_err().to_string().contains("No such file"));
        for content in [b"MZ short".to_vec(), vec![0; 100_000]] {
            fs::write(&from, content).unwrap();
            assert!(matches!(place(&from, esp.path(), Slot::B), Err(KernelError::Odd(..))));
        }
        assert_eq!(fs::read(esp.path().join("EFI/warden/b.efi")).unwrap(), b"old");
    }
}
