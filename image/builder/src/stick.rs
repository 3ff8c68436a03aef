//! The installer stick: the same root, kernel and add-ons as a disk, under other labels, with the add-on that starts the installer. The
//! stick's UKI lies at the removable path itself; no loader, no menu stands before it.

use std::path::{Path, PathBuf};

use warden_install::stick::{self, MANIFEST, Manifest, PackFile};
use warden_vm::BuilderRoot;

use crate::authority;
use crate::disk::seed;
use crate::fault::{Done, Fault};
use crate::files;
use crate::keys::{Keys, Purpose};
use crate::pack::Pack;
use crate::seal::Sealed;
use crate::steps::step;
use crate::tool::run;
use crate::uki::BootFiles;
use crate::workshop::Workshop;

/// Owner of our keys in the firmware's lists; any fixed value does.
const OWNER: &str = "6a3b0c1e-5d0f-4c7e-9a55-1d4f7c20be11";

/// What a stick is made of.
pub(crate) struct Ingredients<'a> {
    pub(crate) builder: &'a BuilderRoot,
    pub(crate) keys: &'a Keys,
    pub(crate) sealed: &'a Sealed,
    pub(crate) boot: &'a BootFiles,
    pub(crate) packs: &'a [Pack],
}

/// Makes `out/stick.img`.
pub(crate) fn build(shop: &Workshop, from: &Ingredients, out: &Path) -> Done<PathBuf> {
    let Ingredients { builder, keys, sealed, packs, .. } = *from;
    let (esp, engines) = (out.join("stick-esp"), out.join("stick-packs"));
    step("stick: boot files, keys, engine packs", || {
        fill_esp(shop, from, &esp)?;
        files::fresh_dir(&engines)?;
        for path in packs.iter().flat_map(Pack::files) {
            files::copy(&path, &engines.join(path.file_name().unwrap_or_default()), 0o644)?;
        }
        authorities(builder, keys, out, &esp.join("install/keys"))
    })?;
    let image = out.join("stick.img");
    step("stick.img", || {
        let owner = out.join("stick-files");
        files::fresh_dir(&owner)?;
        files::copy(&shop.image("answer-example.toml"), &owner.join("answer-example.toml"), 0o644)?;
        let definitions = out.join("repart.stick");
        files::fresh_dir(&definitions)?;
        let mut parts = vec![
            ("10-files.conf", format!("CopyFiles={}:/", owner.display())),
            ("20-esp.conf", format!("CopyFiles={}:/", esp.display())),
            ("30-root.conf", format!("CopyBlocks={}", sealed.image.display())),
        ];
        if !packs.is_empty() {
            parts.push(("40-packs.conf", format!("CopyFiles={}:/", engines.display())));
        }
        for (name, content) in parts {
            files::write(&definitions.join(name), files::read(&shop.image("repart.stick").join(name))?)?;
            files::write(&definitions.join(format!("{name}.d/20-content.conf")), format!("[Partition]\n{content}\n"))?;
        }
        files::remove(&image)?;
        let mut command = builder.command("systemd-repart", &[out]);
        // Packs are compressed already.
        command
            .env("SYSTEMD_REPART_MKFS_OPTIONS_SQUASHFS", "-no-compression")
            .args(["--offline=yes", "--sector-size=512", "--empty=create", "--size=auto", "--dry-run=no"])
            .arg(format!("--definitions={}", definitions.display()))
            .arg(format!("--seed={}", seed(&format!("stick {}", sealed.root_hash))))
            .arg(&image);
        run("systemd-repart", &mut command).map(drop)
    })?;
    Ok(image)
}

fn fill_esp(shop: &Workshop, from: &Ingredients, esp: &Path) -> Done {
    let Ingredients { sealed, boot, packs, .. } = *from;
    files::fresh_dir(esp)?;
    let uki = esp.join("EFI/BOOT/BOOTX64.EFI");
    files::copy(&boot.uki, &uki, 0o644)?;
    files::copy(&boot.stick, &esp.join("EFI/BOOT/BOOTX64.EFI.extra.d/stick.addon.efi"), 0o644)?;
    files::copy(&boot.loader, &esp.join("install/systemd-boot.efi"), 0o644)?;
    for (slot, addon) in &boot.slots {
        files::copy(addon, &esp.join(format!("install/slot-{slot}.addon.efi")), 0o644)?;
    }
    if let Some(test) = &boot.test {
        files::copy(test, &esp.join("EFI/BOOT/BOOTX64.EFI.extra.d/test.addon.efi"), 0o644)?;
        files::copy(test, &esp.join("install/test.addon.efi"), 0o644)?;
    }
    let manifest = Manifest {
        version: shop.version().to_owned(),
        root_bytes: files::length(&sealed.image)?,
        root_sha256: files::sha256(&sealed.image)?,
        packs: packs.iter().map(describe).collect::<Done<_>>()?,
    };
    let text = serde_json::to_string_pretty(&manifest).map_err(|e| Fault::refused(MANIFEST, e.to_string(), "report it"))?;
    files::write(&esp.join(MANIFEST), text + "\n")
}

/// A pack as the stick's manifest names it.
fn describe(pack: &Pack) -> Done<stick::Pack> {
    let about = pack.manifest()?;
    let file = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(PackFile { name, bytes: files::length(path)?, sha256: files::sha256(path)? })
    };
    Ok(stick::Pack { engine: about.engine, version: about.version, files: pack.files().iter().map(file).collect::<Done<_>>()? })
}

/// The signed lists by which a firmware in setup mode takes our keys: what it may start (`db`), who may change that (`KEK`), and whose
/// machine it is (`PK`).
pub(crate) fn authorities(builder: &BuilderRoot, keys: &Keys, out: &Path, to: &Path) -> Done {
    let work = out.join("stick-keys");
    files::fresh_dir(&work)?;
    files::make_dir(to)?;
    let list = |purposes: &[Purpose], name: &str| -> Done<PathBuf> {
        let mut bytes = Vec::new();
        for (n, purpose) in purposes.iter().enumerate() {
            let (der, esl) = (work.join(format!("{name}{n}.der")), work.join(format!("{name}{n}.esl")));
            let mut convert = builder.command("openssl", &[out, keys.dir()]);
            convert.args(["x509", "-outform", "DER", "-in"]).arg(keys.certificate(*purpose)).arg("-out").arg(&der);
            run("openssl", &mut convert)?;
            let mut make = builder.command("sbsiglist", &[out]);
            run("sbsiglist", make.args(["--owner", OWNER, "--type", "x509", "--output"]).arg(&esl).arg(&der))?;
            bytes.extend(std::fs::read(&esl).map_err(Fault::io("cannot read", &esl))?);
        }
        let path = work.join(format!("{name}.esl"));
        files::write(&path, bytes)?;
        Ok(path)
    };
    for (name, content) in [("db", &[Purpose::Boot, Purpose::StickAddon][..]), ("KEK", &[Purpose::Platform]), ("PK", &[Purpose::Platform])] {
        let list = list(content, name)?;
        files::write(&to.join(format!("{name}.auth")), authority::sign(builder, keys, name, &list, &work)?)?;
    }
    Ok(())
}
