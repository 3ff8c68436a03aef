//! What a box is born with of the update metadata: the root it trusts first, and what it knows about its own build.

use std::path::Path;

use serde::Serialize;

use crate::fault::{Done, Fault};
use crate::files;
use crate::keys::Keys;

/// The product, as bundles and metadata name it.
pub(crate) const COMPATIBLE: &str = "lm-warden-x86_64";
const PLACE: &str = "usr/lib/warden/update";

/// The facts of one build.
pub(crate) struct Trust {
    root: Vec<u8>,
    build: Build,
}

/// `build.json`.
#[derive(Serialize)]
struct Build {
    /// No moment before this one is believed; seconds since 1970.
    build_epoch: u64,
    compatible: &'static str,
    /// The channel a box follows until an admin chooses another.
    channel: &'static str,
    /// True when the root of the metadata is a developer's.
    development: bool,
    /// Newest schema of the agent's database that the system inside brings.
    data_schema: i64,
}

impl Trust {
    /// Reads the root from `release/` in the folder of keys; a developer's is made there when it lacks and `make` is set.
    pub(crate) fn open(keys: &Keys, epoch: u64, make: bool) -> Done<Self> {
        let dir = keys.dir().join("release");
        let refused = |fault: warden_release::Fault| Fault::refused(dir.display().to_string(), fault.to_string(), "see docs/release.md");
        if make {
            warden_release::development_keys(&dir, COMPATIBLE).map_err(refused)?;
        }
        let (bytes, root) = warden_release::root_of(&dir).map_err(refused)?;
        if root.compatible != COMPATIBLE {
            return Err(Fault::refused(
                dir.display().to_string(),
                format!("its root is for {}", root.compatible),
                format!("make one for {COMPATIBLE}"),
            ));
        }
        let build = Build {
            build_epoch: epoch,
            compatible: COMPATIBLE,
            channel: "stable",
            development: root.development,
            data_schema: warden_store::DATA_SCHEMA,
        };
        Ok(Self { root: bytes, build })
    }

    /// Refuses a developer's root.
    pub(crate) fn refuse_development(&self) -> Done {
        if !self.build.development {
            return Ok(());
        }
        Err(Fault::refused("root.1.json", "it is a developer's, and anybody could sign updates for the boxes", "give the release's keys with --keys"))
    }

    /// Puts both files into a root tree.
    pub(crate) fn write(&self, root: &Path) -> Done {
        files::write(&root.join(PLACE).join("root.json"), &self.root)?;
        let text = serde_json::to_string_pretty(&self.build).map_err(|e| Fault::refused("build.json", e.to_string(), "report it"))?;
        files::write(&root.join(PLACE).join("build.json"), text + "\n")
    }
}
