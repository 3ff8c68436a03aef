//! The end of the initrd: into the new root, or a restart. Neither returns.

use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::reboot::{RebootMode, reboot};
use nix::unistd::{chdir, chroot, sync};

use crate::fatal::Fatal;
use crate::mounts::{NEW_ROOT, shift};

/// Moves into the new root and becomes the system manager.
pub fn start_system() -> Result<Infallible, Fatal> {
    for folder in ["/proc", "/sys", "/dev", "/run"] {
        shift(folder, &format!("{NEW_ROOT}{folder}"))?;
    }
    free_memory();
    let step = |what: &'static str| move |errno: nix::errno::Errno| Fatal::Start(what, errno.into());
    chdir(NEW_ROOT).map_err(step("the new root"))?;
    shift(".", "/")?;
    chroot(".").map_err(step("the new root"))?;
    chdir("/").map_err(step("the new root"))?;
    let first = "/usr/lib/systemd/systemd";
    let program = if Path::new(first).exists() { first } else { "/sbin/init" };
    Err(Fatal::Start(program, Command::new(program).env_clear().exec()))
}

/// The initrd's files lie in memory and nobody will see them again. Only its own file system is touched: by now everything else has
/// moved away except the new root, which is another device.
fn free_memory() {
    let Ok(own) = fs::symlink_metadata("/") else { return };
    for item in fs::read_dir("/").into_iter().flatten().flatten() {
        let Ok(meta) = item.metadata() else { continue };
        if meta.dev() != own.dev() || item.path() == Path::new(NEW_ROOT) {
            continue;
        }
        let _ = if meta.is_dir() { fs::remove_dir_all(item.path()) } else { fs::remove_file(item.path()) };
    }
}

/// Restarts the machine after a time to read the last line.
pub fn restart_after(time: Duration) -> ! {
    std::thread::sleep(time);
    sync();
    let _ = reboot(RebootMode::RB_AUTOBOOT);
    // A first program that ends makes the kernel panic, and that restarts too.
    std::process::exit(1)
}
