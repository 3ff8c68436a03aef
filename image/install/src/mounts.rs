//! Mounts of the installer: small file systems, held only as long as they are looked at. Dropping one unmounts it.

use std::fs;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use warden_domain::{Problem, ProblemKind};

/// A mounted file system.
#[derive(Debug)]
pub struct Mounted {
    at: PathBuf,
}

/// Below it everything is mounted.
const PLACE: &str = "/run/warden-install";

impl Mounted {
    /// Mounts the partition with that kernel name.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(partition: &str, kind: &str, name: &str, writable: bool) -> Result<Self, Problem> {
        let at = Path::new(PLACE).join(name);
        let device = format!("/dev/{partition}");
        let failed = |cause: String| Problem::new(ProblemKind::SystemService, format!("The partition {partition} cannot be opened: {cause}."));
        fs::create_dir_all(&at).map_err(|error| failed(error.to_string()))?;
        let mut flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_NOATIME;
        if !writable {
            flags |= MsFlags::MS_RDONLY;
        }
        let options = if kind == "vfat" { Some("umask=0077,errors=remount-ro") } else { None };
        mount(Some(device.as_str()), &at, Some(kind), flags, options).map_err(|errno| failed(errno.to_string()))?;
        Ok(Self { at })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Unmounts it and says whether everything came to the medium.
    ///
    /// # Errors
    /// What the system says.
    pub fn close(self) -> Result<(), Problem> {
        let at = self.at.clone();
        std::mem::forget(self);
        umount2(&at, MntFlags::empty())
            .map_err(|errno| Problem::new(ProblemKind::SystemService, format!("{} cannot be unmounted: {errno}.", at.display())))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = umount2(&self.at, MntFlags::empty());
    }
}
