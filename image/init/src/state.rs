//! The state partition: checked, mounted, never formatted. From it come the machine's id, /var and the count of starts. When it cannot be
//! read the system still starts, with nothing of it, and user space is told by a file that it must not begin anew.

use std::path::Path;
use std::process::{Command, Stdio};

use nix::mount::MsFlags;
use warden_bootslot::entry::Slot;
use warden_update_record::Fallback;

use crate::bootdisk::Partition;
use crate::count::{self, Count};
use crate::disks::node;
use crate::fatal::Fatal;
use crate::mounts::{self, NEW_ROOT};
use crate::{files, say};

const HERE: &str = "/state";
/// Tells user space that state could not be read.
const RECOVERY: &str = "/run/warden-boot/recovery-state";

/// The state partition of this start: mounted at /state, or unreadable.
#[derive(Debug)]
pub enum State {
    /// It is there.
    Mounted,
    /// It is not, and why.
    Unreadable(String),
}

/// Checks and mounts the state partition.
pub fn mount(partition: Option<&Partition>) -> State {
    let outcome = match partition {
        None => Err("the boot disk has no partition named warden-state".to_owned()),
        Some(partition) => check(&node(partition)).and_then(|()| {
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOATIME;
            mounts::put(&node(partition), HERE, "ext4", flags, None).map_err(|fatal| fatal.to_string())
        }),
    };
    match outcome {
        Ok(()) => State::Mounted,
        Err(reason) => {
            say::urgent(&format!("initrd: RECOVERY the state partition cannot be read: {reason}. Nothing was changed on it."));
            State::Unreadable(reason)
        }
    }
}

fn check(device: &str) -> Result<(), String> {
    let run = Command::new("/bin/fsck.ext4").args(["-p", device]).env_clear().stdin(Stdio::null()).output();
    match run {
        // 1: repaired, 2: repaired and a restart would be due if it had been mounted.
        Ok(output) if output.status.code().is_some_and(|code| code & !3 == 0) => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            Err(format!("the file system check of {device} ended with {}: {}", output.status, said.lines().last().unwrap_or_default()))
        }
        Err(error) => {
            say::note(&format!("initrd: no file system check of {device}: {error}"));
            Ok(())
        }
    }
}

impl State {
    /// Counts this start of the slot and puts the count on the medium; nothing without state.
    pub fn count_start(&self, slot: Slot) -> Option<Count> {
        if matches!(self, Self::Unreadable(_)) {
            return None;
        }
        let path = Path::new(HERE).join("boot/unconfirmed");
        let before = std::fs::read_to_string(&path).ok().as_deref().and_then(Count::parse);
        let count = count::next(before, slot);
        let written = std::fs::create_dir_all(Path::new(HERE).join("boot")).and_then(|()| warden_durable::write(&path, count.render().as_bytes()));
        if let Err(error) = written {
            say::note(&format!("initrd: this start is not counted: {error}"));
        }
        Some(count)
    }

    /// Leaves the reason of a fallback for the system that starts next.
    pub fn record_fallback(&self, from_slot: Slot, sentence: &str) {
        if matches!(self, Self::Mounted) {
            let at_boot = warden_update_record::boot_id().unwrap_or_default();
            let fallback = Fallback { from_slot, reason: sentence.to_owned(), at_boot };
            if let Err(error) = warden_update_record::write(&Path::new(HERE).join("boot"), &fallback) {
                say::note(&format!("initrd: the reason is not recorded: {error}"));
            }
        }
    }

    /// Puts /state, /var and the machine's id into the new root.
    pub fn hand_over(self) -> Result<(), Fatal> {
        let (var, id) = (format!("{NEW_ROOT}/var"), format!("{NEW_ROOT}/etc/machine-id"));
        match self {
            Self::Mounted => {
                let failed = |path: &str| {
                    let path = path.into();
                    move |source| Fatal::File { path, source }
                };
                std::fs::create_dir_all("/state/var").map_err(failed("/state/var"))?;
                let own = format!("{HERE}/machine-id");
                if !std::fs::read_to_string(&own).is_ok_and(|text| is_machine_id(text.trim())) {
                    warden_durable::write(Path::new(&own), new_machine_id()?.as_bytes()).map_err(failed(&own))?;
                }
                let target = format!("{NEW_ROOT}{HERE}");
                mounts::shift(HERE, &target)?;
                mounts::bind(&format!("{target}/var"), &var)?;
                mounts::bind(&format!("{target}/machine-id"), &id)
            }
            Self::Unreadable(reason) => {
                files::make(RECOVERY, &format!("warden.recovery=state\nThe state partition cannot be read: {reason}\n"))?;
                without()
            }
        }
    }
}

/// A system without state: /var and the machine's id live in memory.
pub fn without() -> Result<(), Fatal> {
    let (var, id) = (format!("{NEW_ROOT}/var"), format!("{NEW_ROOT}/etc/machine-id"));
    mounts::put("tmpfs", &var, "tmpfs", MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some("mode=0755"))?;
    files::make("/run/warden-boot/machine-id", &new_machine_id()?)?;
    mounts::bind("/run/warden-boot/machine-id", &id)
}

fn new_machine_id() -> Result<String, Fatal> {
    let uuid = files::read("/proc/sys/kernel/random/uuid")?;
    Ok(format!("{}\n", uuid.trim().replace('-', "")))
}

fn is_machine_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)) && text.bytes().any(|byte| byte != b'0')
}

#[cfg(test)]
mod tests {
    use super::is_machine_id;

    #[test]
    fn a_torn_machine_id_is_not_taken_for_one() {
        assert!(is_machine_id("0123456789abcdef0123456789abcdef"));
        for text in ["", "uninitialized", "0123456789abcdef", "0123456789ABCDEF0123456789ABCDEF", "00000000000000000000000000000000"] {
            assert!(!is_machine_id(text), "{text:?}");
        }
    }
}
