//! A small file system in memory, mounted where a test wants it; unmounted when dropped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::command;
use crate::log::CaseLog;

/// The mount.
pub struct SmallDisk {
    at: PathBuf,
    log: CaseLog,
}

impl SmallDisk {
    /// Mounts one at a folder, which is made when it is missing.
    ///
    /// # Errors
    /// A sentence when it cannot be mounted.
    pub fn mount(at: &Path, mebibytes: u32, log: &CaseLog) -> Result<Self, String> {
        std::fs::create_dir_all(at).map_err(|e| format!("{}: {e}", at.display()))?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={mebibytes}m,mode=0700"), "warden-small-disk"]).arg(at);
        command::run_ok("mounting a small disk (this case must run as root)", mount, Duration::from_secs(20), log)?;
        Ok(Self { at: at.to_owned(), log: log.clone() })
    }

    /// Makes it read-only, or writable again.
    ///
    /// # Errors
    /// A sentence when something still writes to it.
    pub fn read_only(&self, yes: bool) -> Result<(), String> {
        let mut mount = Command::new("mount");
        mount.args(["-o", if yes { "remount,ro" } else { "remount,rw" }]).arg(&self.at);
        command::run_ok("remounting the small disk", mount, Duration::from_secs(20), &self.log).map(drop)
    }

    /// Lays an image of a system over it, as if the data partition were not mounted and the folder showed the root's own.
    ///
    /// # Errors
    /// A sentence when it cannot be mounted.
    pub fn cover(&self, image: &Path) -> Result<(), String> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "squashfs", "-o", "loop,ro"]).arg(image).arg(&self.at);
        command::run_ok("mounting an image over the small disk", mount, Duration::from_secs(20), &self.log).map(drop)
    }

    /// Takes the image away.
    ///
    /// # Errors
    /// A sentence when something uses it.
    pub fn uncover(&self) -> Result<(), String> {
        let mut umount = Command::new("umount");
        umount.arg(&self.at);
        command::run_ok("unmounting the image", umount, Duration::from_secs(20), &self.log).map(drop)
    }

    /// Writes a file so that only this share of the disk, in thousandths, stays free.
    ///
    /// # Errors
    /// A sentence when it cannot be written.
    pub fn leave_free(&self, thousandths: u64) -> Result<(), String> {
        let about = nix::sys::statvfs::statvfs(&self.at).map_err(|e| format!("{}: {e}", self.at.display()))?;
        let block = about.fragment_size();
        let leave = about.blocks() * thousandths / 1000;
        let write = about.blocks_available().saturating_sub(leave) * block;
        let bytes = usize::try_from(write).map_err(|e| e.to_string())?;
        self.log.line(format!("filling {} with {bytes} bytes", self.at.display()));
        std::fs::write(self.filler(), vec![0_u8; bytes]).map_err(|e| format!("{}: {e}", self.filler().display()))
    }

    /// Removes that file.
    ///
    /// # Errors
    /// A sentence when it cannot be removed.
    pub fn empty(&self) -> Result<(), String> {
        std::fs::remove_file(self.filler()).map_err(|e| format!("{}: {e}", self.filler().display()))
    }

    fn filler(&self) -> PathBuf {
        self.at.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let mut umount = Command::new("umount");
        umount.arg("--lazy").arg(&self.at);
        let _reported_in_the_log = command::run(umount, Duration::from_secs(20), &self.log);
    }
}
