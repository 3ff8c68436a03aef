//! The builder root: a folder with a Debian system that holds every tool of the build, QEMU and the firmware included.
//!
//! In goes a program with its arguments and the folders it works on; out comes a [`Command`] that runs it chrooted, with those
//! folders bound at their own paths. The binds live in a mount namespace of the child, so nothing is left on the host, and the
//! child keeps one process id through all wrappers, so that killing it kills the tool.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A usable builder root.
#[derive(Debug, Clone)]
pub struct BuilderRoot {
    dir: PathBuf,
}

/// Binds `$2..` below `$1`, then becomes the program. Runs in a private mount namespace.
const ENTER: &str = r#"set -e
root=$1; count=$2; shift 2
while [ "$count" -gt 0 ]; do
  if [ -d "$1" ]; then mkdir -p "$root$1"; elif [ ! -e "$root$1" ]; then mkdir -p "${root}${1%/*}"; : > "$root$1"; fi
  mount --rbind "$1" "$root$1"; shift; count=$((count - 1))
done
exec chroot "$root" "$@""#;

impl BuilderRoot {
    /// Takes a folder that `warden-image builder` made.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The folder itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A command that runs `program` inside, with `/proc`, `/dev` and each of `binds` visible at its own path.
    /// The environment is fixed, so that a build does not depend on the caller's.
    pub fn command(&self, program: &str, binds: &[&Path]) -> Command {
        let mut command = Command::new("/usr/bin/unshare");
        command
            .args(["--mount", "--propagation", "private", "/bin/sh", "-c", ENTER, "sh"])
            .arg(&self.dir)
            .arg((binds.len() + 2).to_string())
            .args(["/proc", "/dev"])
            .args(binds)
            .arg(program)
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", "/root")
            .env("LC_ALL", "C.UTF-8");
        command
    }
}
