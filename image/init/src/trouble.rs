//! A slot whose starts do not prove healthy. Looks at the boot entries on the EFI system partition and, only when the other slot is good,
//! gives up its own slot there. Works from the initrd, so that a damaged root cannot keep it from doing so.

use std::path::Path;
use std::process::{Command, Stdio};

use nix::mount::{MsFlags, umount};
use warden_bootslot::choice;
use warden_bootslot::entry::Slot;
use warden_bootslot::folder::Entries;

use crate::bootdisk::Layout;
use crate::count::{self, Verdict};
use crate::disks::node;
use crate::fatal::Fatal;
use crate::state::State;
use crate::{files, mounts, say};

const ESP: &str = "/esp";

/// How the start goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// As usual.
    On,
    /// There is nothing else to start: with all care, and never again by itself.
    LastResort,
}

/// Decides and acts; an error means that the machine must restart now, into the other slot.
pub fn face(layout: &Layout, slot: Slot, state: &State) -> Result<Way, Fatal> {
    let device = node(&layout.esp);
    // A medium without its repair program is still tried; the mount tells.
    let _ = Command::new("/bin/fsck.vfat")
        .args(["-a", "-w", &device])
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_SYNCHRONOUS;
    if let Err(fatal) = mounts::put(&device, ESP, "vfat", flags, Some("umask=0077")) {
        return stay(&format!("the boot entries cannot be seen ({fatal})"));
    }
    let entries = Entries::on(Path::new(ESP));
    let judged = entries.list().and_then(|found| {
        let verdict = count::verdict(&found, slot);
        if verdict == Verdict::FallBack {
            entries.apply(choice::set_state(&found, slot, false))?;
        }
        Ok(verdict)
    });
    let _ = umount(ESP);
    match judged {
        Ok(Verdict::LoaderCounts) => Ok(Way::On),
        Ok(Verdict::FallBack) => {
            let fatal = Fatal::FellBack(slot, count::LIMIT);
            state.record_fallback(slot, &fatal.to_string());
            Err(fatal)
        }
        Ok(Verdict::NowhereToGo) => stay("the other slot is not good either"),
        Err(error) => stay(&error.to_string()),
    }
}

/// No loop: the slot is started once more and says on its screens that it has been in trouble.
fn stay(reason: &str) -> Result<Way, Fatal> {
    let sentence = format!("This system was started {} times without proving healthy, and there is no other to start: {reason}.", count::LIMIT);
    say::urgent(&format!("initrd: RECOVERY {sentence}"));
    files::make("/run/warden-boot/recovery-boot", &format!("warden.recovery=boot\n{sentence}\n"))?;
    // What restarts a machine in trouble would only make it a loop: the kernel after a panic, the watchdog after that.
    let _ = std::fs::write("/proc/sys/kernel/panic", "0");
    files::make("/run/sysctl.d/90-recovery.conf", "kernel.panic = 0\n")?;
    files::make("/run/systemd/system.conf.d/90-recovery.conf", "[Manager]\nRuntimeWatchdogSec=off\nCrashAction=freeze\n")?;
    Ok(Way::LastResort)
}

/// The end of the last resort: a screen that says so, for ever. Whoever reads it restarts the machine, or starts it from a stick.
pub fn recovery_screen(fatal: &Fatal) -> ! {
    for line in [
        "RECOVERY No system on this machine can be started.",
        &format!("RECOVERY {fatal}."),
        "RECOVERY Settings and models were not touched. Start the machine from an installer stick, or restart it to try again.",
    ] {
        say::urgent(&format!("initrd: {line}"));
    }
    loop {
        std::thread::sleep(std::time::Duration::from_secs(3600));
    }
}
