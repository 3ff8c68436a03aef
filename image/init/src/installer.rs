//! The start from an installer stick: the same verified root, but no state, no agent and no screen of the appliance. What user space runs
//! instead is decided here, by the signed word on the command line, and told through files in /run.

use std::convert::Infallible;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::cmdline::Cmdline;
use crate::fatal::Fatal;
use crate::{bootdisk, disks, files, handover, mounts, say, state, verity};

/// Units in /run stand above those of the root.
const UNITS: &str = "/run/systemd/system";

/// Finds the stick, opens its root and hands over to the installer.
pub fn start(cmdline: &Cmdline) -> Result<Infallible, Fatal> {
    let stick = disks::wait_for_boot_disk(bootdisk::find_stick, mounts::loader_partition().as_deref())?;
    files::make("/run/warden-boot/stick", &bootdisk::told(&stick))?;
    // Arrays are not put together: their disks may be the ones to install on.
    files::make("/run/udev/rules.d/64-md-raid-assembly.rules", "# Nothing while installing.\n")?;
    files::make(&format!("{UNITS}/.keep"), "")?;
    link("/usr/lib/systemd/system/warden-install.target", "default.target")?;
    link("/dev/null", "warden-console@.service")?;

    verity::open(&disks::node(&stick.root), cmdline)?;
    mounts::root()?;
    state::without()?;
    say::milestone(&format!("initrd: the installer on {} is verified and mounted", stick.disk));
    handover::start_system()
}

fn link(target: &str, name: &str) -> Result<(), Fatal> {
    let path = PathBuf::from(UNITS).join(name);
    symlink(Path::new(target), &path).map_err(|source| Fatal::File { path, source })
}
