//! From a root tree to what lies in a slot: a squashfs with its dm-verity hash tree appended, and the root hash that the signed
//! kernel command line will demand.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use warden_vm::BuilderRoot;

use crate::cli::{Flavour, Profile};
use crate::fault::{Done, Fault};
use crate::files;
use crate::steps::step;
use crate::tool::run;
use crate::workshop::Workshop;

/// A sealed root.
pub(crate) struct Sealed {
    pub(crate) image: PathBuf,
    pub(crate) root_hash: String,
    pub(crate) hash_offset: u64,
}

/// Verity works in blocks of this size.
const BLOCK: u64 = 4096;

/// Packs `root` into `out/root.img`.
pub(crate) fn seal(shop: &Workshop, builder: &BuilderRoot, root: &Path, out: &Path, release: bool) -> Done<Sealed> {
    let image = out.join("root.img");
    files::remove(&image)?;
    let epoch = shop.recipe.epoch.to_string();
    step("root.img: squashfs", || {
        // Fast for the inner loop; a release takes the time to be smaller.
        let level = if release { "15" } else { "3" };
        let mut command = builder.command("mksquashfs", &[root, out]);
        command.arg(root).arg(&image).args(["-comp", "zstd", "-Xcompression-level", level, "-noappend", "-quiet", "-no-progress", "-no-xattrs"]);
        command.args(["-mkfs-time", &epoch, "-all-time", &epoch]);
        run("mksquashfs", &mut command).map(drop)
    })?;
    step("root.img: verity tree", || {
        let hash_offset = files::length(&image)?.next_multiple_of(BLOCK);
        let file = OpenOptions::new().write(true).open(&image).map_err(Fault::io("cannot open", &image))?;
        file.set_len(hash_offset).map_err(Fault::io("cannot extend", &image))?;
        let mut command = builder.command("veritysetup", &[out]);
        // No salt: the same root gives the same hash on every machine, and nothing here is a secret.
        command.args(["format", "--salt=-", "--uuid=00000000-0000-0000-0000-000000000000"]).arg(format!("--hash-offset={hash_offset}"));
        let said = run("veritysetup", command.arg(&image).arg(&image))?;
        let root_hash = said.lines().find_map(|line| line.strip_prefix("Root hash:")).map(|hash| hash.trim().to_owned());
        let root_hash = root_hash.ok_or_else(|| Fault::refused("veritysetup", "it printed no root hash", "check its version in the builder root"))?;
        files::write(&out.join("roothash"), format!("{root_hash}\n"))?;
        Ok(Sealed { image: image.clone(), root_hash, hash_offset })
    })
}

/// Words of the UKI's own command line, the same on disks and sticks. What is started comes from the add-on.
pub(crate) fn command_line(sealed: &Sealed, profile: Profile) -> String {
    // A guest on a busy host may see its timer stand still for a moment at the start; the kernel would take it for broken hardware.
    let emulated = if profile == Profile::Vm { " no_timer_check" } else { "" };
    // Whoever sets the machine's SMBIOS strings could otherwise hand the system manager files to write.
    format!(
        "ro console=tty0 console=ttyS0,115200 quiet panic=5 systemd.show_status=0 systemd.gpt_auto=0 systemd.import_credentials=no roothash={} hashoffset={}{emulated}",
        sealed.root_hash, sealed.hash_offset
    )
}

/// Words of a slot's add-on.
pub(crate) fn slot_words(slot: &str) -> String {
    format!("warden.mode=appliance root=PARTLABEL=warden-root-{slot} rauc.slot={slot}")
}

/// Words of a stick's add-on.
pub(crate) const STICK_WORDS: &str = "warden.mode=install root=PARTLABEL=stick-root";

/// The word of the test flavour's add-on. The units of the test directory start only with it; production's initrd refuses it.
pub(crate) fn test_words(flavour: Flavour) -> Option<&'static str> {
    (flavour == Flavour::Test).then_some("warden.test=1")
}
