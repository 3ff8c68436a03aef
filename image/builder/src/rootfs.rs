//! The root tree of one flavour: base root, kernel modules, the project's overlay and programs, accounts, certificates.
//!
//! Production comes first; the test flavour is a copy of it with one more directory, `/usr/lib/warden-test`, and nothing else.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use warden_vm::BuilderRoot;

use crate::binaries::Binaries;
use crate::cli::{Flavour, Profile};
use crate::disk;
use crate::fault::{Done, Fault};
use crate::files;
use crate::keys::{Keys, Purpose};
use crate::steps::step;
use crate::stock::Kernel;
use crate::tool::run;
use crate::trust::Trust;
use crate::workshop::Workshop;

/// What a root is made from.
pub(crate) struct Parts<'a> {
    pub(crate) base: &'a Path,
    pub(crate) kernel: &'a Kernel,
    pub(crate) binaries: &'a Binaries,
    pub(crate) keys: &'a Keys,
    pub(crate) builder: &'a BuilderRoot,
    pub(crate) profile: Profile,
    pub(crate) version: &'a str,
    pub(crate) trust: &'a Trust,
    /// Folders laid over everything else, for tests.
    pub(crate) overlays: &'a [PathBuf],
}

/// The one directory by which the test flavour differs.
pub(crate) const TEST_DIR: &str = "usr/lib/warden-test";

/// Makes the tree at `root` anew.
pub(crate) fn build(shop: &Workshop, flavour: Flavour, parts: &Parts, root: &Path) -> Done {
    step("root: base and kernel modules", || {
        files::fresh_dir(root)?;
        files::mode(root, 0o755)?;
        files::copy_tree(parts.base, root)?;
        files::copy_tree(&parts.kernel.modules, &root.join("usr/lib/modules").join(&parts.kernel.release))
    })?;
    step("root: overlay, programs, accounts", || {
        lay_over(&shop.image("overlay"), root)?;
        for (from, name) in parts.binaries.for_root() {
            files::copy(&from, &root.join("usr/lib/warden").join(name), 0o755)?;
        }
        files::copy(&parts.keys.certificate(Purpose::Packs), &root.join("usr/lib/verity.d/warden-packs.crt"), 0o644)?;
        files::copy(&parts.keys.certificate(Purpose::Updates), &root.join("etc/rauc/keyring.pem"), 0o644)?;
        // The installer partitions disks by the same files that built this image.
        disk::definitions(shop, parts.profile, &root.join("usr/lib/warden/repart.d"))?;
        name_version(root, parts.version)?;
        parts.trust.write(root)?;
        times(shop, parts.profile, root)?;
        for mount_point in ["data", "efi", "state", "media", "proc", "sys", "dev", "run", "tmp", "var"] {
            files::make_dir(&root.join(mount_point))?;
        }
        accounts(parts.builder, root)
    })?;
    if flavour == Flavour::Test {
        step("root: test directory", || test_directory(shop, parts.builder, root))?;
    }
    for overlay in parts.overlays {
        step("root: overlay of a test", || lay_over(overlay, root))?;
    }
    Ok(())
}

/// Copies the overlay: folders 0755, files 0644 or 0755 if executable, all owned by root; links as they are.
fn lay_over(overlay: &Path, root: &Path) -> Done {
    for from in files::walk(overlay)? {
        let Ok(name) = from.strip_prefix(overlay) else { continue };
        let to = root.join(name);
        let meta = from.symlink_metadata().map_err(Fault::io("cannot look at", &from))?;
        if meta.is_dir() {
            if !to.is_dir() {
                files::make_dir(&to)?;
                files::mode(&to, 0o755)?;
            }
        } else if meta.is_symlink() {
            files::remove(&to)?;
            let target = std::fs::read_link(&from).map_err(Fault::io("cannot read the link", &from))?;
            symlink(target, &to).map_err(Fault::io("cannot link", &to))?;
        } else {
            files::remove(&to)?;
            files::copy(&from, &to, if meta.permissions().mode() & 0o111 == 0 { 0o644 } else { 0o755 })?;
        }
    }
    Ok(())
}

/// Writes the version where programs and the system manager look for it.
fn name_version(root: &Path, version: &str) -> Done {
    files::write(&root.join("usr/lib/warden/version"), format!("{version}\n"))?;
    let path = root.join("usr/lib/os-release");
    let debian = files::read(&path)?;
    let kept = ["VERSION_CODENAME", "DEBIAN_VERSION_FULL"];
    let mut text = format!(
        "NAME=\"LM Warden Appliance\"\nPRETTY_NAME=\"LM Warden Appliance {version}\"\nID=lm-warden\nID_LIKE=debian\n\
         VERSION_ID={version}\nIMAGE_ID=lm-warden\nIMAGE_VERSION={version}\nDEFAULT_HOSTNAME=warden\n"
    );
    for line in debian.lines().filter(|line| kept.iter().any(|key| line.starts_with(&format!("{key}=")))) {
        text.push_str(line);
        text.push('\n');
    }
    files::write(&path, text)
}

/// How long an update is watched before it counts as good: by the machine it runs on, because emulated ones are for tests.
fn times(shop: &Workshop, profile: Profile, root: &Path) -> Done {
    let from = shop.image("health").join(format!("{}.toml", profile.name()));
    files::copy(&from, &root.join("usr/lib/warden/health.toml"), 0o644)
}

/// Makes the accounts that the overlay declares; at run time /etc is read-only and none can be added. No account has a shell.
fn accounts(builder: &BuilderRoot, root: &Path) -> Done {
    run("systemd-sysusers", builder.command("systemd-sysusers", &[root]).arg("--root").arg(root))?;
    let passwd = root.join("etc/passwd");
    let text = files::read(&passwd)?;
    let without: String = text
        .lines()
        .filter_map(|line| line.rsplit_once(':'))
        .filter(|(account, _)| !PACKAGING_ACCOUNTS.iter().any(|name| account.starts_with(&format!("{name}:"))))
        .map(|(account, _)| format!("{account}:/nonexistent\n"))
        .collect();
    files::write(&passwd, without)?;
    for leftover in
        ["etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-", "etc/.pwd.lock", "etc/subuid", "etc/subgid", "etc/subuid-", "etc/subgid-"]
    {
        files::remove(&root.join(leftover))?;
    }
    // Bound over from the state partition before the system manager starts.
    files::write(&root.join("etc/machine-id"), "")
}

/// Accounts of services that Debian always creates and that are not in the image.
const PACKAGING_ACCOUNTS: [&str; 14] =
    ["_apt", "bin", "backup", "games", "irc", "list", "lp", "mail", "man", "news", "proxy", "sync", "uucp", "www-data"];

/// Busybox with its names, and the unit that offers it on the second serial port. Every root has a link from one of the system
/// manager's unit folders to this directory's; in production it leads nowhere, and the verified root keeps it so. The unit also asks
/// for a word on the kernel command line that only the test add-on carries.
fn test_directory(shop: &Workshop, builder: &BuilderRoot, root: &Path) -> Done {
    let dir = root.join(TEST_DIR);
    lay_over(&shop.image("test-overlay"), root)?;
    let busybox = builder.dir().join("usr/bin/busybox");
    files::copy(&busybox, &dir.join("bin/busybox"), 0o755)?;
    let names = run("busybox", builder.command("busybox", &[]).arg("--list"))?;
    for name in names.lines().filter(|name| !name.is_empty() && *name != "busybox") {
        symlink("busybox", dir.join("bin").join(name)).map_err(Fault::io("cannot link", dir.join("bin").join(name)))?;
    }
    Ok(())
}
