//! The polkit rule of this start: the list of the boot disk's devices, read by the image's own rules. Text from names, written so that
//! polkit sees the whole file or none. Without the file the image's rules refuse every storage action.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Writes the rule.
///
/// # Errors
/// The system's, and one of its own when there is nothing to protect.
pub fn write(path: &Path, devices: &BTreeSet<String>) -> io::Result<()> {
    let text = text(devices).ok_or_else(|| io::Error::other("no device, or one with an odd name, was found"))?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    // The rules' reader is another user; the umask must not lock it out.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    let fresh = folder.join(".boot-disk.new");
    let _an_unfinished_one = fs::remove_file(&fresh);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    fs::rename(&fresh, path)
}

/// The rule's text; `None` when the list is empty or a name could break out of its quotes.
fn text(devices: &BTreeSet<String>) -> Option<String> {
    let plain = |name: &String| name.starts_with("/dev/") && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-_.+:".contains(&b));
    if devices.is_empty() || !devices.iter().all(plain) {
        return None;
    }
    let list: Vec<String> = devices.iter().map(|name| format!("    \"{name}\"")).collect();
    Some(format!(
        "// The disk this machine was started from, found at this start. Read by 10-warden.rules.\npolkit.wardenBootDisk = [\n{}\n];\n",
        list.join(",\n")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_name_that_is_code_never_becomes_a_rule() {
        for bad in ["/dev/x\"];polkit.x=1//", "/dev/a\nb", "vda", "/dev/\\"] {
            assert_eq!(text(&names(&[bad])), None, "{bad:?}");
        }
        assert_eq!(text(&names(&[])), None);
    }

    #[test]
    fn the_rule_lists_every_device_and_can_be_read_by_its_reader() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rules.d/05.rules");
        write(&path, &names(&["/dev/vda", "/dev/mapper/root"])).unwrap();
        let said = fs::read_to_string(&path).unwrap();
        assert!(said.contains("\"/dev/vda\"") && said.contains("\"/dev/mapper/root\""), "{said}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
    }
}
