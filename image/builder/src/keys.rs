//! Signing keys of development builds, made at the first build and kept outside the tree. Production keys never come near this
//! program: a release is signed elsewhere.

use std::path::{Path, PathBuf};

use warden_vm::BuilderRoot;

use crate::fault::Done;
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
    /// Update bundles; only the certificate is used so far.
    Updates,
}

impl Purpose {
    const ALL: [Purpose; 6] = [Purpose::Boot, Purpose::StickAddon, Purpose::TestAddon, Purpose::Platform, Purpose::Packs, Purpose::Updates];

    fn name(self) -> &'static str {
        match self {
            Purpose::Boot => "boot",
            Purpose::StickAddon => "stick-addon",
            Purpose::TestAddon => "test-addon",
            Purpose::Platform => "platform",
            Purpose::Packs => "packs",
            Purpose::Updates => "updates",
        }
    }
}

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
                    .arg(format!("/O=LM Warden development/CN={}", purpose.name()))
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
