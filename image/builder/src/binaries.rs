//! The project's own programs as they go into the image: built by Cargo in release form, two of them static because they run where
//! no library is (inside an engine's pack, and in the initrd).

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fault::{Done, Fault};
use crate::steps::step;
use crate::tool::run;
use crate::workshop::Workshop;

const DYNAMIC: [&str; 8] =
    ["warden-agent", "warden-gpu", "warden-helper", "warden-console", "warden-bootslot", "warden-install", "warden-diskguard", "warden-health"];
const STATIC: [&str; 2] = ["warden-launch", "warden-init"];
const STATIC_TARGET: &str = "x86_64-unknown-linux-gnu";

/// Where the built programs lie.
pub(crate) struct Binaries {
    dynamic: PathBuf,
    fixed: PathBuf,
}

impl Binaries {
    /// Builds them all, or with `as_they_are` takes what an earlier build left.
    pub(crate) fn make(shop: &Workshop, as_they_are: bool) -> Done<Self> {
        let target = shop.target();
        let binaries = Self { dynamic: target.join("release"), fixed: target.join(STATIC_TARGET).join("release") };
        if !as_they_are {
            step("programs", || {
                cargo(shop, &DYNAMIC, |command| command)?;
                cargo(shop, &STATIC, |command| command.env("RUSTFLAGS", "-C target-feature=+crt-static").args(["--target", STATIC_TARGET]))
            })?;
        }
        for path in binaries.for_root().iter().map(|(path, _)| path).chain([&binaries.init()]) {
            if !path.is_file() {
                return Err(Fault::refused(path.display().to_string(), "the program is not built", "run the build without --as-they-are"));
            }
        }
        Ok(binaries)
    }

    /// The programs of `/usr/lib/warden` with their names there.
    pub(crate) fn for_root(&self) -> Vec<(PathBuf, &'static str)> {
        let mut all: Vec<_> = DYNAMIC.iter().map(|name| (self.dynamic.join(name), *name)).collect();
        // A second program of the helper's package.
        all.push((self.dynamic.join("warden-reset"), "warden-reset"));
        all.push((self.fixed.join("warden-launch"), "warden-launch"));
        all
    }

    /// The initrd's first program.
    pub(crate) fn init(&self) -> PathBuf {
        self.fixed.join("warden-init")
    }
}

fn cargo(shop: &Workshop, packages: &[&str], adjust: impl FnOnce(&mut Command) -> &mut Command) -> Done {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(Path::new(&cargo));
    command.current_dir(&shop.project).args(["build", "--release", "--locked", "--quiet"]);
    for package in packages {
        command.args(["--package", package]);
    }
    run("cargo", adjust(&mut command)).map(drop)
}
