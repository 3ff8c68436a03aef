//! One Debian tree by mmdebstrap: from a list of packages to a folder, without recommendations, documentation or traces of the mirror.

use std::path::Path;
use std::process::Command;

use crate::apt::Apt;
use crate::debs::Debs;
use crate::fault::{Done, Fault};
use crate::files;
use crate::recipe::Recipe;
use crate::tool::run;

/// How deep a tree is installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// A system: essential packages and what is asked for, configured.
    Installed,
    /// Only unpacked, no maintainer script runs: enough for a kernel.
    Unpacked,
}

/// Makes `out` anew with `packages`; the tree appears under its name only when it is complete.
pub(crate) fn tree(apt: &Apt, debs: &Debs, recipe: &Recipe, packages: &[String], depth: Depth, out: &Path) -> Done {
    let growing = out.with_extension("new");
    files::remove(&growing)?;
    if let Some(parent) = out.parent() {
        files::make_dir(parent)?;
    }
    let mut command = Command::new("mmdebstrap");
    command
        .arg(match depth {
            Depth::Installed => "--variant=minbase",
            Depth::Unpacked => "--variant=extract",
        })
        .args(["--mode=root", "--format=directory", "--keyring=/usr/share/keyrings", "--skip=essential/unlink", "--skip=cleanup/apt/cache"])
        .arg(format!("--setup-hook={}", debs.offer_hook()))
        .arg(format!("--customize-hook={}", debs.collect_hook()))
        .args(["--aptopt=APT::Install-Recommends \"false\"", "--aptopt=Acquire::Languages \"none\""]);
    for option in apt.options() {
        if let Some((name, value)) = option.split_once('=') {
            command.arg(format!("--aptopt={name} \"{value}\""));
        }
    }
    for folder in ["man", "doc", "locale", "info", "lintian"] {
        command.arg(format!("--dpkgopt=path-exclude=/usr/share/{folder}/*"));
    }
    command
        .arg("--dpkgopt=force-unsafe-io")
        .arg(format!("--include={}", packages.join(",")))
        .arg(&recipe.suite)
        .arg(&growing)
        .args(apt.sources(recipe));
    run("mmdebstrap", &mut command)?;
    debs.file()?;
    for trace in [
        "etc/apt/sources.list",
        "etc/apt/sources.list.d",
        "etc/apt/apt.conf.d",
        "var/lib/apt/lists",
        "var/cache/apt",
        "var/log",
        "etc/hostname",
        "etc/resolv.conf",
    ] {
        files::remove(&growing.join(trace))?;
    }
    files::remove(out)?;
    std::fs::rename(&growing, out).map_err(Fault::io("cannot put in place", &growing))
}
