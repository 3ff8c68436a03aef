//! The disk image: ESP with loader, UKIs and entries; the same sealed root in both slots; empty state; data with whatever the
//! caller wants on it. Partitions come from `image/repart.d` (the installer uses the same files) with the profile's sizes over them.

use std::path::{Path, PathBuf};

use warden_bootslot::entry;
use warden_vm::BuilderRoot;

use crate::cli::Profile;
use crate::fault::{Done, Fault};
use crate::files;
use crate::seal::Sealed;
use crate::steps::step;
use crate::tool::run;
use crate::uki::BootFiles;
use crate::workshop::Workshop;

/// Makes `out/disk.img`, sparse.
pub(crate) fn build(
    shop: &Workshop,
    builder: &BuilderRoot,
    profile: Profile,
    sealed: &Sealed,
    boot: &BootFiles,
    data: Option<&Path>,
    out: &Path,
) -> Done<PathBuf> {
    check_fit(sealed, shop.recipe.slot_bytes(profile)?)?;
    let disk = out.join("disk.img");
    step("disk.img: both slots, state, data", || {
        let esp = out.join("esp");
        fill_esp(boot, &esp)?;
        let definitions = out.join("repart.d");
        for name in self::definitions(shop, profile, &definitions)? {
            if let Some(content) = content(&name, &esp, sealed, data) {
                files::write(&definitions.join(format!("{name}.d/20-content.conf")), format!("[Partition]\n{content}\n"))?;
            }
        }
        files::remove(&disk)?;
        let mut command = builder.command("systemd-repart", &[out]);
        if let Some(data) = data {
            command = builder.command("systemd-repart", &[out, data]);
        }
        // The sector size is said, or a FAT with 4096-byte sectors comes out that no firmware reads.
        command
            .env("SYSTEMD_REPART_MKFS_OPTIONS_EXT4", "-q")
            .args(["--offline=yes", "--sector-size=512", "--empty=create", "--size=auto", "--dry-run=no"])
            .arg(format!("--definitions={}", definitions.display()))
            .arg(format!("--seed={}", seed(&sealed.root_hash)))
            .arg(&disk);
        run("systemd-repart", &mut command).map(drop)
    })?;
    Ok(disk)
}

/// Puts the partition files with the profile's sizes over them into `folder`; gives the names of the files.
pub(crate) fn definitions(shop: &Workshop, profile: Profile, folder: &Path) -> Done<Vec<String>> {
    files::fresh_dir(folder)?;
    let mut names = Vec::new();
    for path in files::walk(&shop.image("repart.d"))? {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        files::write(&folder.join(&name), files::read(&path)?)?;
        let sizes = shop.image("repart.vm").join(&name);
        if profile == Profile::Vm && sizes.is_file() {
            files::write(&folder.join(format!("{name}.d/10-sizes.conf")), files::read(&sizes)?)?;
        }
        names.push(name);
    }
    Ok(names)
}

/// A slot must take the next version too, so a root may fill half of it at most.
pub(crate) fn check_fit(sealed: &Sealed, slot: u64) -> Done {
    let size = files::length(&sealed.image)?;
    if size * 2 <= slot {
        return Ok(());
    }
    Err(Fault::refused(
        "root.img",
        format!("its {size} bytes are more than half of a slot of {slot}"),
        "take something out of the image, or give slots more room",
    ))
}

fn content(file: &str, esp: &Path, sealed: &Sealed, data: Option<&Path>) -> Option<String> {
    match file {
        "10-esp.conf" => Some(format!("CopyFiles={}:/", esp.display())),
        "20-root-a.conf" | "30-root-b.conf" => Some(format!("CopyBlocks={}", sealed.image.display())),
        "50-data.conf" => data.map(|dir| format!("CopyFiles={}:/", dir.display())),
        _ => None,
    }
}

/// The ESP: loader at the removable path, one UKI and one add-on per slot, the first slot on trial and the second confirmed.
fn fill_esp(boot: &BootFiles, esp: &Path) -> Done {
    files::fresh_dir(esp)?;
    files::copy(&boot.loader, &esp.join("EFI/BOOT/BOOTX64.EFI"), 0o644)?;
    for (slot, addon) in &boot.slots {
        files::copy(&boot.uki, &esp.join(format!("EFI/warden/{slot}.efi")), 0o644)?;
        let extra = esp.join(format!("EFI/warden/{slot}.efi.extra.d"));
        files::copy(addon, &extra.join("slot.addon.efi"), 0o644)?;
        if let Some(test) = &boot.test {
            files::copy(test, &extra.join("test.addon.efi"), 0o644)?;
        }
    }
    files::write(&esp.join("loader/loader.conf"), entry::LOADER_SETTINGS)?;
    for (name, text) in entry::fresh() {
        files::write(&esp.join("loader/entries").join(name), text)?;
    }
    Ok(())
}

/// A UUID derived from the root hash: the same image gives the same disk, another image never the same partition ids.
pub(crate) fn seed(root_hash: &str) -> String {
    let hex = files::key([root_hash, "first half"]) + &files::key([root_hash, "second half"]);
    format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_images_never_share_partition_ids() {
        assert_ne!(seed("aa"), seed("ab"));
        assert_eq!(seed("aa").len(), 36);
    }
}
