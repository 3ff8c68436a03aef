//! The folders the helper works in, and the steps of an activation there. On the appliance they are fixed; a test gives others, so that
//! every step runs without root. Names are switched by rename: who looks sees the old pack or the new one.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use crate::reset::desk::Desk;
use crate::reset::scope::Askers;
use crate::verb::{Activation, Refusal, is_revoked};

/// Where packs, names and unit settings are.
#[derive(Debug, Clone)]
pub struct Places {
    /// Engine packs, `<digest>.raw`.
    pub packs: PathBuf,
    /// The list of withdrawn packs; a missing one withdraws nothing.
    pub revoked: PathBuf,
    /// Links `<replica>` to the pack in use.
    pub roots: PathBuf,
    /// Per-replica folders for socket and log.
    pub engines: PathBuf,
    /// Unit settings that last until the next start of the machine.
    pub units: PathBuf,
    /// Where resets wait.
    pub desk: Desk,
    /// The users who may ask for one.
    pub askers: Askers,
}

impl Places {
    /// The folders of the appliance.
    #[must_use]
    pub fn appliance() -> Self {
        Self {
            packs: PathBuf::from("/data/packs"),
            revoked: PathBuf::from("/usr/share/warden/packs/revoked"),
            roots: PathBuf::from("/run/warden/root"),
            engines: PathBuf::from("/run/warden-engine"),
            units: PathBuf::from("/run/systemd/system"),
            desk: Desk::appliance(),
            askers: Askers::APPLIANCE,
        }
    }

    /// Points the replica at its pack and writes its unit settings. Returns whether the system manager must read its files again.
    ///
    /// # Errors
    /// A missing, odd or withdrawn pack, or a folder that cannot be written.
    pub fn activate(&self, wish: &Activation) -> Result<bool, Refusal> {
        let list = match fs::read_to_string(&self.revoked) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            other => other.map_err(|error| failed("read", &self.revoked, &error))?,
        };
        if is_revoked(&list, wish.digest()) {
            return Err(Refusal::Revoked(wish.digest().to_owned()));
        }
        let pack = self.packs.join(format!("{}.raw", wish.digest()));
        if !is_plain_file(&pack) {
            return Err(Refusal::NoSuchPack(wish.digest().to_owned()));
        }
        self.make_engine_folder(wish.replica())?;
        self.point(wish.replica(), &pack)?;
        self.write_drop_in(wish)
    }

    /// Takes the unit settings away again, so that the next activation writes and announces them anew.
    pub fn forget_drop_in(&self, wish: &Activation) {
        let _ = fs::remove_file(self.units.join(wish.drop_in_folder()).join("50-warden.conf"));
    }

    fn make_engine_folder(&self, replica: &str) -> Result<(), Refusal> {
        let folder = self.engines.join(replica);
        match fs::create_dir(&folder) {
            // The parent hands its group on; the umask must not take the group's rights.
            Ok(()) => fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
        .map_err(|error| failed("make", &folder, &error))
    }

    fn point(&self, replica: &str, pack: &Path) -> Result<(), Refusal> {
        let link = self.roots.join(replica);
        if fs::read_link(&link).is_ok_and(|target| target == pack) {
            return Ok(());
        }
        // A replica's id has no dot, so the name of the unfinished link is nobody's.
        let fresh = self.roots.join(format!(".{replica}.new"));
        let _ = fs::remove_file(&fresh);
        symlink(pack, &fresh).and_then(|()| fs::rename(&fresh, &link)).map_err(|error| failed("make", &link, &error))
    }

    fn write_drop_in(&self, wish: &Activation) -> Result<bool, Refusal> {
        let folder = self.units.join(wish.drop_in_folder());
        let (path, fresh) = (folder.join("50-warden.conf"), folder.join(".50-warden.conf.new"));
        let text = wish.drop_in();
        if fs::read_to_string(&path).is_ok_and(|before| before == text) {
            return Ok(false);
        }
        let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&fresh, text)).and_then(|()| fs::rename(&fresh, &path));
        written.map(|()| true).map_err(|error| failed("write", &path, &error))
    }
}

/// Looks at what the name itself is, without following a link, waiting for a pipe or needing the right to read.
fn is_plain_file(path: &Path) -> bool {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path);
    opened.and_then(|file| file.metadata()).is_ok_and(|meta| meta.is_file() && meta.len() > 0)
}

fn failed(verb: &str, path: &Path, error: &io::Error) -> Refusal {
    Refusal::Io(format!("cannot {verb} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    fn places() -> (tempfile::TempDir, Places) {
        let top = tempfile::tempdir().unwrap();
        let made = |name: &str| {
            fs::create_dir(top.path().join(name)).unwrap();
            top.path().join(name)
        };
        let places = Places {
            packs: made("packs"),
            revoked: top.path().join("revoked"),
            roots: made("roots"),
            engines: made("engines"),
            units: made("units"),
            desk: Desk { state: top.path().join("state"), product: top.path().join("product") },
            askers: Askers::APPLIANCE,
        };
        fs::write(places.packs.join(format!("{DIGEST}.raw")), b"pack").unwrap();
        (top, places)
    }

    fn wish(memory: u64) -> Activation {
        Activation::check("a-0", DIGEST, &[], memory).unwrap()
    }

    #[test]
    fn an_activation_points_the_replica_at_its_pack_and_says_when_to_reload() {
        let (_top, places) = places();
        assert_eq!(places.activate(&wish(0)), Ok(true));
        assert_eq!(fs::read_link(places.roots.join("a-0")).unwrap(), places.packs.join(format!("{DIGEST}.raw")));
        assert_eq!(places.activate(&wish(0)), Ok(false));
        assert_eq!(places.activate(&wish(1 << 30)), Ok(true));
        assert_eq!(fs::metadata(places.engines.join("a-0")).unwrap().permissions().mode() & 0o777, 0o770);
    }

    #[test]
    fn a_new_pack_takes_the_place_of_the_old_one() {
        let (_top, places) = places();
        places.activate(&wish(0)).unwrap();
        let other = DIGEST.replace('0', "9");
        fs::write(places.packs.join(format!("{other}.raw")), b"pack").unwrap();
        places.activate(&Activation::check("a-0", &other, &[], 0).unwrap()).unwrap();
        assert_eq!(fs::read_link(places.roots.join("a-0")).unwrap(), places.packs.join(format!("{other}.raw")));
        assert_eq!(fs::read_dir(&places.roots).unwrap().count(), 1);
    }

    #[test]
    fn a_link_in_the_pack_folder_is_not_a_pack() {
        let (top, places) = places();
        let other = DIGEST.replace('0', "9");
        fs::write(top.path().join("shadow"), b"secret").unwrap();
        symlink(top.path().join("shadow"), places.packs.join(format!("{other}.raw"))).unwrap();
        let wish = Activation::check("a-0", &other, &[], 0).unwrap();
        assert_eq!(places.activate(&wish), Err(Refusal::NoSuchPack(other)));
        assert!(!places.roots.join("a-0").exists());
    }

    #[test]
    fn a_withdrawn_pack_is_not_activated() {
        let (_top, places) = places();
        fs::write(&places.revoked, format!("{DIGEST}\n")).unwrap();
        assert_eq!(places.activate(&wish(0)), Err(Refusal::Revoked(DIGEST.to_owned())));
    }

    #[test]
    fn a_missing_folder_is_told_with_its_path() {
        let (_top, places) = places();
        fs::remove_dir(&places.roots).unwrap();
        assert!(matches!(places.activate(&wish(0)), Err(Refusal::Io(text)) if text.contains("roots/a-0")));
    }
}
