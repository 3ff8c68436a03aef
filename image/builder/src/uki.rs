//! The unified kernel image and the small signed add-ons beside it. One UKI serves both slots; what differs is in the add-on, which
//! the loader stub finds by the UKI's own file name.

use std::path::{Path, PathBuf};

use warden_vm::BuilderRoot;

use crate::cli::{Flavour, Profile};
use crate::fault::Done;
use crate::files;
use crate::keys::{Keys, Purpose};
use crate::seal::{STICK_WORDS, Sealed, command_line, slot_words, test_words};
use crate::steps::step;
use crate::stock::Kernel;
use crate::tool::run;

/// The signed boot files of an image.
pub(crate) struct BootFiles {
    pub(crate) uki: PathBuf,
    pub(crate) loader: PathBuf,
    pub(crate) slots: [(&'static str, PathBuf); 2],
    pub(crate) stick: PathBuf,
    pub(crate) test: Option<PathBuf>,
}

/// What a UKI is made from.
pub(crate) struct Ingredients<'a> {
    pub(crate) builder: &'a BuilderRoot,
    pub(crate) keys: &'a Keys,
    pub(crate) kernel: &'a Kernel,
    pub(crate) cache: &'a Path,
    pub(crate) initrd: &'a Path,
    pub(crate) root: &'a Path,
    pub(crate) sealed: &'a Sealed,
    pub(crate) profile: Profile,
}

/// Makes and signs all of them in `out`.
pub(crate) fn build(from: &Ingredients, flavour: Flavour, out: &Path) -> Done<BootFiles> {
    step("UKI and add-ons, signed", || {
        let uki = out.join("uki.efi");
        let words = command_line(from.sealed, from.profile);
        files::write(&out.join("cmdline"), format!("{words}\n"))?;
        let mut command = ukify(from, Purpose::Boot, out);
        command
            .arg(format!("--linux={}", from.kernel.image.display()))
            .arg(format!("--initrd={}", from.initrd.display()))
            .arg(format!("--os-release=@{}", from.root.join("usr/lib/os-release").display()))
            .arg(format!("--uname={}", from.kernel.release))
            .arg(format!("--cmdline={words}"))
            .arg(format!("--output={}", uki.display()));
        run("ukify", &mut command)?;
        let slots = ["a", "b"].map(|slot| (slot, out.join(format!("slot-{slot}.addon.efi"))));
        for (slot, path) in &slots {
            addon(from, Purpose::Boot, &slot_words(slot), path, out)?;
        }
        let stick = out.join("stick.addon.efi");
        addon(from, Purpose::StickAddon, STICK_WORDS, &stick, out)?;
        let test = match test_words(flavour) {
            Some(words) => {
                let path = out.join("test.addon.efi");
                addon(from, Purpose::TestAddon, words, &path, out)?;
                Some(path)
            }
            None => None,
        };
        let loader = out.join("BOOTX64.EFI");
        let mut sign = from.builder.command("sbsign", &[out, from.keys.dir()]);
        sign.arg("--key").arg(from.keys.key(Purpose::Boot)).arg("--cert").arg(from.keys.certificate(Purpose::Boot));
        run("sbsign", sign.arg("--output").arg(&loader).arg("/usr/lib/systemd/boot/efi/systemd-bootx64.efi"))?;
        Ok(BootFiles { uki, loader, slots, stick, test })
    })
}

fn addon(from: &Ingredients, key: Purpose, words: &str, path: &Path, out: &Path) -> Done {
    let mut command = ukify(from, key, out);
    run("ukify", command.arg(format!("--cmdline={words}")).arg(format!("--output={}", path.display()))).map(drop)
}

fn ukify(from: &Ingredients, key: Purpose, out: &Path) -> std::process::Command {
    let mut command = from.builder.command("ukify", &[out, from.keys.dir(), from.cache, from.root]);
    command
        .arg("build")
        .arg(format!("--secureboot-private-key={}", from.keys.key(key).display()))
        .arg(format!("--secureboot-certificate={}", from.keys.certificate(key).display()));
    command
}
