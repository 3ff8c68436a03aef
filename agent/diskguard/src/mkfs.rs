//! Which format commands pass. The disk manager hands extra arguments of its caller to the format program (`mkfs-args`), and such
//! arguments name other devices, journals, undo files and folders to copy in: the caller would write anywhere as root. Here a command
//! must be exactly what model storage needs, and what is fixed about it is added: owner and mode of the new root folder.
//!
//! In: the name the program was called by and its arguments. Out: the command to become, or a refusal. Pure.

/// The genuine program.
const EXT4: &str = "/usr/sbin/mkfs.ext4";
/// The agent's user and the group that engines read models by; numbers as in `sysusers.d/warden.conf`.
const ROOT_FOLDER: &str = "root_owner=700:711,root_perms=2750";
const LONGEST_LABEL: usize = 16;

/// Why a format command does not pass.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another file system than the one models are stored on.
    #[error("format: {0} is not offered on this appliance; model storage is ext4")]
    FileSystem(String),
    /// An argument that is not on the short list.
    #[error("format: the argument {0:?} is not allowed; a label, a UUID and one disk are")]
    Argument(String),
    /// None or more than one device, or no disk.
    #[error("format: exactly one disk or partition must be named")]
    Device,
}

/// The whole command, program first.
///
/// # Errors
/// The first thing that is not allowed.
pub fn checked(name: &str, args: &[String]) -> Result<Vec<String>, Refusal> {
    // The disk manager calls `mke2fs -t ext4`; the kind is in the name of the other.
    let kind = match args.iter().position(|word| word == "-t").map(|at| args.get(at + 1).map_or("", String::as_str)) {
        None if name == "mkfs.ext4" => "ext4",
        None => name,
        Some(kind) => kind,
    };
    if !["mke2fs", "mkfs.ext4"].contains(&name) || kind != "ext4" {
        return Err(Refusal::FileSystem(shown(if name == "mke2fs" { kind } else { name })));
    }
    let (mut label, mut uuid, mut device, mut dry, mut keep_blocks) = (None, None, None, false, false);
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().cloned().unwrap_or_default();
        match word.as_str() {
            "-F" | "-q" | "" => {}
            "-n" => dry = true,
            "-t" if value() == "ext4" => {}
            "-L" => label = Some(wanted(word, value(), is_label)?),
            "-U" => uuid = Some(wanted(word, value(), is_uuid)?),
            "-E" if value() == "nodiscard" => keep_blocks = true,
            other if is_disk(other) && device.is_none() => device = Some(other.to_owned()),
            other if is_disk(other) => return Err(Refusal::Device),
            other => return Err(Refusal::Argument(shown(other))),
        }
    }
    let device = device.ok_or(Refusal::Device)?;
    let extended = if keep_blocks { format!("{ROOT_FOLDER},nodiscard") } else { ROOT_FOLDER.to_owned() };
    // No blocks are kept back for root: the partition holds models only.
    let mut command: Vec<String> = [EXT4, "-F", "-q", "-m", "0", "-E", &extended].map(str::to_owned).into();
    if dry {
        command.push("-n".to_owned());
    }
    for (option, value) in [("-L", label), ("-U", uuid)] {
        if let Some(value) = value {
            command.extend([option.to_owned(), value]);
        }
    }
    command.push(device);
    Ok(command)
}

/// The value of an option, when it has the form it must have.
fn wanted(option: &str, value: String, fits: fn(&str) -> bool) -> Result<String, Refusal> {
    if fits(&value) { Ok(value) } else { Err(Refusal::Argument(shown(option))) }
}

/// A plain disk or partition, never a mapping, a loop or an array.
fn is_disk(word: &str) -> bool {
    let Some(name) = word.strip_prefix("/dev/") else { return false };
    let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let tail = |lead: &str| name.strip_prefix(lead).is_some_and(|rest| !rest.is_empty());
    plain && ["sd", "vd", "nvme", "mmcblk"].iter().any(|lead| tail(lead))
}

fn is_label(text: &str) -> bool {
    (1..=LONGEST_LABEL).contains(&text.len()) && !text.starts_with('-') && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36 && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') && !text.starts_with('-')
}

/// A caller's text, short enough for a message.
fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(args: &[&str]) -> Result<Vec<String>, Refusal> {
        checked("mkfs.ext4", &args.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn the_disk_managers_own_command_passes_and_gets_owner_and_mode() {
        let command = run(&["-F", "/dev/vdb1", "-L", "wm-0a1b2c3d"]).unwrap();
        assert_eq!(command.join(" "), "/usr/sbin/mkfs.ext4 -F -q -m 0 -E root_owner=700:711,root_perms=2750 -L wm-0a1b2c3d /dev/vdb1");
        let plain = |args: &[&str]| checked("mke2fs", &args.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(plain(&["-t", "ext4", "-F", "/dev/vdb1", "-L", "wm-0a1b2c3d"]).unwrap(), command);
        assert!(matches!(plain(&["-t", "ext2", "/dev/vdb1"]), Err(Refusal::FileSystem(_))));
        assert!(matches!(plain(&["-t", "ext4", "-t", "ext2", "/dev/vdb1"]), Err(Refusal::Argument(_))));
        assert!(matches!(plain(&["-t", "ext4", "-d", "/state", "/dev/vdb1"]), Err(Refusal::Argument(_))));
        assert!(run(&["-F", "/dev/nvme0n1p2", "-n", ""]).unwrap().contains(&"-n".to_owned()));
    }

    #[test]
    fn no_option_of_the_caller_reaches_the_format_program() {
        for planted in [
            &["-F", "/dev/vdb1", "-d", "/state"][..],
            &["-F", "/dev/vdb1", "-z", "/run/systemd/system/x.service"],
            &["-F", "/dev/vdb1", "-J", "device=/dev/vda3"],
            &["-F", "/dev/vdb1", "-E", "root_owner=0:0"],
            &["-F", "/dev/vdb1", "-E", "offset=4096"],
            &["-F", "/dev/vdb1", "-L", "-d"],
            &["-F", "/dev/vdb1", "-L"],
            &["-F", "/dev/vdb1", "-U", "x"],
            &["-F", "/dev/vdb1", "--", "8"],
            &["-F", "/dev/vdb1", "8"],
            &["-Fd", "/state", "/dev/vdb1"],
        ] {
            assert!(matches!(run(planted), Err(Refusal::Argument(_))), "{planted:?}");
        }
    }

    #[test]
    fn a_second_device_or_none_is_refused() {
        assert_eq!(run(&["-F", "/dev/vda3", "/dev/vdb1"]), Err(Refusal::Device));
        assert_eq!(run(&["-F"]), Err(Refusal::Device));
        for odd in ["/dev/dm-0", "/dev/mapper/root", "/dev/../etc/x", "/etc/passwd", "/dev/loop0", "/dev/md0", "/dev/vd"] {
            assert!(matches!(run(&["-F", odd]), Err(Refusal::Argument(_))), "{odd}");
        }
    }

    #[test]
    fn other_file_systems_are_not_made_at_all() {
        for name in ["mkfs.xfs", "mkfs.vfat", "mkfs.exfat", "mkswap", "mke2fs", "mkfs.ext2"] {
            assert!(matches!(checked(name, &["/dev/vdb1".to_owned()]), Err(Refusal::FileSystem(_))), "{name}");
        }
    }
}
