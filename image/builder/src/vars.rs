//! Firmware variable stores for machines with Secure Boot: in setup mode, with a vendor's keys, and with ours. Ours comes about as it does on
//! real machines: the boot loader finds the signed lists on its partition and hands them to a firmware in setup mode.

use std::path::{Path, PathBuf};

use warden_vm::{BuilderRoot, Drive, Guest, Machine, quiet};

use crate::cli::{Flavour, Profile};
use crate::fault::{Done, Fault};
use crate::files;
use crate::keys::Keys;
use crate::steps::step;
use crate::stick;
use crate::tool::run;
use crate::workshop::Workshop;

/// Stores that come with the firmware.
const READY: [(&str, &str); 2] = [("setup", "/usr/share/OVMF/OVMF_VARS_4M.fd"), ("vendor", "/usr/share/OVMF/OVMF_VARS_4M.ms.fd")];
/// The boot loader takes the lists without asking when they lie in a folder of this name and it is told so.
const SETTINGS: &str = "timeout 0\nsecure-boot-enroll force\n";

/// Makes `target/image/vars/{setup,vendor,ours}.fd`. The boot loader of an image that was built before is used.
pub(crate) fn build(shop: &Workshop, builder: &BuilderRoot, keys: &Keys, flavour: Flavour) -> Done {
    let out = shop.project.join("target/image/vars");
    files::fresh_dir(&out)?;
    for (name, from) in READY {
        files::copy(&builder.dir().join(from.trim_start_matches('/')), &out.join(format!("{name}.fd")), 0o644)?;
    }
    let loader = shop.out(flavour, Profile::Vm).join("BOOTX64.EFI");
    if !loader.is_file() {
        return Err(Fault::refused(loader.display().to_string(), "there is no signed boot loader yet", "run `warden-image image` first"));
    }
    let disk = step("partition with our keys", || partition(builder, keys, &loader, &out))?;
    step("firmware takes our keys", || enrol(builder, &disk, &out))?;
    println!("{}", out.display());
    Ok(())
}

/// A disk that is nothing but a FAT with the boot loader and the lists.
fn partition(builder: &BuilderRoot, keys: &Keys, loader: &Path, out: &Path) -> Done<PathBuf> {
    let tree = out.join("tree");
    files::fresh_dir(&tree)?;
    files::copy(loader, &tree.join("EFI/BOOT/BOOTX64.EFI"), 0o644)?;
    stick::authorities(builder, keys, out, &tree.join("loader/keys/auto"))?;
    files::write(&tree.join("loader/loader.conf"), SETTINGS)?;
    let disk = out.join("keys.img");
    let file = std::fs::File::create(&disk).map_err(Fault::io("cannot make", &disk))?;
    file.set_len(16 << 20).map_err(Fault::io("cannot extend", &disk))?;
    run("mkfs.vfat", builder.command("mkfs.vfat", &[out]).args(["-S", "512"]).arg(&disk))?;
    run("mcopy", builder.command("mcopy", &[out]).args(["-s", "-i"]).arg(&disk).args([tree.join("EFI"), tree.join("loader")]).arg("::"))?;
    Ok(disk)
}

fn enrol(builder: &BuilderRoot, disk: &Path, out: &Path) -> Done {
    let mut machine = Machine::from_drives(vec![Drive { boot_order: Some(0), ..Drive::new(disk, "KEYS") }]);
    machine.secure_boot = Some(out.join("setup.fd"));
    machine.network = false;
    let run_dir = out.join("run");
    let mut guest = Guest::start(builder, &machine, &run_dir, true)?;
    guest.wait("(?i)custom secure boot (variables|keys) successfully enrolled", quiet(20))?;
    // It restarts by itself; the firmware that comes up then has written everything.
    let mark = guest.serial().mark();
    guest.wait_after(mark, "BdsDxe: (loading|starting) Boot", quiet(20))?;
    guest.quit();
    files::copy(&run_dir.join("vars.fd"), &out.join("ours.fd"), 0o644)
}
