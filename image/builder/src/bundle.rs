//! The update bundle: the sealed root and its kernel in RAUC's verity layout, signed. A box takes no other layout and runs nothing that
//! comes with it; the broken kinds exist so that tests can see it refuse them.

use std::path::{Path, PathBuf};

use warden_bootslot::handler::KERNEL;
use warden_vm::BuilderRoot;

use crate::cli::BundleArgs;
use crate::fault::Done;
use crate::files;
use crate::keys::{Keys, Purpose};
use crate::seal::Sealed;
use crate::steps::step;
use crate::tool::run;
use crate::trust::COMPATIBLE;
use crate::uki::BootFiles;

/// What a bundle is made from.
pub(crate) struct Ingredients<'a> {
    pub(crate) version: &'a str,
    pub(crate) builder: &'a BuilderRoot,
    pub(crate) keys: &'a Keys,
    pub(crate) sealed: &'a Sealed,
    pub(crate) boot: &'a BootFiles,
}

/// Makes the bundle of what was built in `work` and puts it into `out`.
pub(crate) fn build(args: &BundleArgs, from: &Ingredients, work: &Path, out: &Path) -> Done<PathBuf> {
    let Ingredients { version, builder, keys, sealed, boot } = *from;
    let bundle = out.join(format!("warden-{version}{}.raucb", kind(args)));
    step("bundle, signed", || {
        let content = work.join("content");
        files::fresh_dir(&content)?;
        files::link(&sealed.image, &content.join("root.img"))?;
        files::copy(&boot.uki, &content.join(KERNEL), 0o644)?;
        files::write(&content.join("manifest.raucm"), manifest(version, args.plain, args.hook))?;
        if args.hook {
            files::write(&content.join("hook"), "#!/bin/sh\ntouch /run/warden-hook-ran\n")?;
            files::mode(&content.join("hook"), 0o755)?;
        }
        files::remove(&bundle)?;
        let signer = if args.stranger { Purpose::Stranger } else { Purpose::Updates };
        let level = if args.build.release { "15" } else { "1" };
        let mut command = builder.command("rauc", &[out, work, keys.dir()]);
        command
            .arg("bundle")
            .arg(format!("--cert={}", keys.certificate(signer).display()))
            .arg(format!("--key={}", keys.key(signer).display()))
            .arg(format!("--keyring={}", keys.certificate(signer).display()))
            // The root inside is compressed already; its bytes go in as they are. No time of this machine enters the file system.
            .arg(format!("--mksquashfs-args=-comp zstd -Xcompression-level {level} -no-xattrs -mkfs-time 0 -all-time 0"))
            .arg(&content)
            .arg(&bundle);
        run("rauc", &mut command)?;
        files::remove(&content)
    })?;
    Ok(bundle)
}

/// What is wrong with it is in the name, so that nobody takes one for another.
fn kind(args: &BundleArgs) -> String {
    let kinds = [(args.bad_kernel, "bad-kernel"), (args.stranger, "stranger"), (args.plain, "plain"), (args.hook, "hook")];
    kinds.into_iter().filter(|(set, _)| *set).map(|(_, name)| format!("-{name}")).collect()
}

/// The manifest. Its hook is named so that RAUC would run it.
fn manifest(version: &str, plain: bool, hook: bool) -> String {
    let format = if plain { "plain" } else { "verity" };
    let (hooks, image) = if hook { ("[hooks]\nfilename=hook\n\n", "hooks=post-install\n") } else { ("", "") };
    format!("[update]\ncompatible={COMPATIBLE}\nversion={version}\n\n[bundle]\nformat={format}\n\n{hooks}[image.rootfs]\nfilename=root.img\n{image}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_bundle_has_one_image_and_runs_nothing() {
        let text = manifest("1.2.3", false, false);
        assert!(text.contains("\nformat=verity\n") && text.contains("[image.rootfs]\nfilename=root.img\n") && !text.contains("hook"));
    }
}
