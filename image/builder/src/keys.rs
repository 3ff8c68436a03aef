//! Signing keys: those of a developer, made at the first build and kept outside the tree, or a folder that somebody else made. Which of the
//! two they are is in the certificates themselves, so that a release can refuse a developer's.

use std::path::{Path, PathBuf};

use warden_vm::BuilderRoot;

use crate::fault::{Done, Fault};
use crate::files;
use crate::steps::note;
use crate::tool::run;

/// What a key signs. Separate keys, so that one of them can be given up alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Boot loader, UKI and slot add-ons.
    Boot,
    /// The add-on of installer sticks: a key of its own, so that an owner can stop trusting sticks.
    StickAddon,
    /// The add-on of the test flavour.
    TestAddon,
    /// The firmware's platform and exchange keys, which sign what else it trusts.
    Platform,
    /// Engine packs.
    Packs,
    /// Update bundles.
    Updates,
    /// Bundles that every box must refuse, for tests.
    Stranger,
}

impl Purpose {
    const ALL: [Purpose; 7] =
        [Purpose::Boot, Purpose::StickAddon, Purpose::TestAddon, Purpose::Platform, Purpose::Packs, Purpose::Updates, Purpose::Stranger];
    /// What a release is signed with.
    const RELEASE: [Purpose; 5] = [Purpose::Boot, Purpose::StickAddon, Purpose::Platform, Purpose::Packs, Purpose::Updates];

    fn name(self) -> &'static str {
        match self {
            Purpose::Boot => "boot",
            Purpose::StickAddon => "stick-addon",
            Purpose::TestAddon => "test-addon",
            Purpose::Platform => "platform",
            Purpose::Packs => "packs",
            Purpose::Updates => "updates",
            Purpose::Stranger => "stranger",
        }
    }
}

/// Organisation in the certificates of a developer's keys.
const DEVELOPMENT: &str = "LM Warden development";

/// The folder of keys.
pub(crate) struct Keys {
    dir: PathBuf,
}

impl Keys {
    /// Opens the folder, making the keys that are missing.
    pub(crate) fn open(dir: PathBuf, builder: &BuilderRoot) -> Done<Self> {
        files::make_dir(&dir)?;
        files::mode(&dir, 0o700)?;
        let keys = Self { dir };
        for purpose in Purpose::ALL {
            if !keys.key(purpose).exists() || !keys.certificate(purpose).exists() {
                note(&format!("new development key: {}", purpose.name()));
                let mut command = builder.command("openssl", &[&keys.dir]);
                command
                    .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-sha256", "-days", "3650", "-subj"])
                    .arg(format!("/O={DEVELOPMENT}/CN={}", purpose.name()))
                    .arg("-keyout")
                    .arg(keys.key(purpose))
                    .arg("-out")
                    .arg(keys.certificate(purpose));
                run("openssl", &mut command)?;
                files::mode(&keys.key(purpose), 0o600)?;
            }
        }
        Ok(keys)
    }

    /// Opens a folder that was made elsewhere. Nothing is made in it.
    pub(crate) fn given(dir: PathBuf) -> Done<Self> {
        let dir = dir.canonicalize().map_err(Fault::io("no such folder of keys", &dir))?;
        let keys = Self { dir };
        for path in Purpose::RELEASE.into_iter().flat_map(|purpose| [keys.key(purpose), keys.certificate(purpose)]) {
            if !path.is_file() {
                return Err(Fault::refused(
                    path.display().to_string(),
                    "there is no such key or certificate",
                    "put it there; no key is made in a given folder",
                ));
            }
        }
        Ok(keys)
    }

    /// Refuses the keys of a developer: whoever has this program has them too.
    pub(crate) fn refuse_development(&self, builder: &BuilderRoot) -> Done {
        for purpose in Purpose::RELEASE {
            let certificate = self.certificate(purpose);
            let subject = run("openssl", builder.command("openssl", &[&self.dir]).args(["x509", "-noout", "-subject", "-in"]).arg(&certificate))?;
            if subject.contains(DEVELOPMENT) {
                return Err(Fault::refused(
                    certificate.display().to_string(),
                    "it is a developer's, and a release signed with it could be replaced by anybody",
                    "give the release's keys with --keys",
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn key(&self, purpose: Purpose) -> PathBuf {
        self.dir.join(format!("{}.key", purpose.name()))
    }

    pub(crate) fn certificate(&self, purpose: Purpose) -> PathBuf {
        self.dir.join(format!("{}.crt", purpose.name()))
    }
}
