//! What the running system says about itself, read the same way by everybody.

use std::fs;
use std::io;
use std::path::Path;

use warden_bootslot::entry::Slot;

/// The boot loader leaves it when, and only when, the entry it started is counted.
const COUNT: &str = "/sys/firmware/efi/efivars/LoaderBootCountPath-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";

/// Whether the boot loader counts this start: the slot was not marked good before it.
#[must_use]
pub fn counted() -> bool {
    Path::new(COUNT).exists()
}

/// The id of this boot, a UUID.
///
/// # Errors
/// The kernel does not say.
pub fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// The box's own id: the first line of `/etc/machine-id`.
///
/// # Errors
/// It has none.
pub fn machine_id() -> io::Result<String> {
    Ok(fs::read_to_string("/etc/machine-id")?.trim().to_owned())
}

/// The slot a kernel command line (`/proc/cmdline`) names; `None` without the word, with two of them, or with an unknown one.
#[must_use]
pub fn slot_of(command_line: &str) -> Option<Slot> {
    let mut words = command_line.split_whitespace().filter_map(|word| word.strip_prefix("rauc.slot="));
    let word = words.next()?;
    if words.next().is_some() { None } else { Slot::parse(word).ok() }
}

/// `IMAGE_VERSION` of an `os-release` text; `None` when it has none.
#[must_use]
pub fn image_version(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.trim().strip_prefix("IMAGE_VERSION="))?;
    let bare = value.trim().trim_matches(['"', '\'']);
    (!bare.is_empty()).then(|| bare.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_that_names_two_slots_names_none() {
        assert_eq!(slot_of("quiet rauc.slot=b ro\n"), Some(Slot::B));
        assert_eq!(slot_of("rauc.slot=a rauc.slot=b"), None);
        assert_eq!(slot_of("rauc.slot=c"), None);
        assert_eq!(slot_of(""), None);
    }

    #[test]
    fn the_images_version_is_read_with_and_without_quotes() {
        assert_eq!(image_version("ID=warden\nIMAGE_VERSION=\"1.4.0\"\n").as_deref(), Some("1.4.0"));
        assert_eq!(image_version("IMAGE_VERSION=1.4.0").as_deref(), Some("1.4.0"));
        assert_eq!(image_version("IMAGE_VERSION=\nID=x"), None);
        assert_eq!(image_version("VERSION=2"), None);
    }
}
