//! What a release consists of, written by its engineer: a TOML file beside the files it names. Unknown members are errors here, for a typing
//! mistake must not become a release.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use warden_trust::{Digest, Entry, Kind, Requires, Version, Wave};

use crate::fault::{Done, Fault};
use crate::files;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recipe {
    pub(crate) channel: String,
    pub(crate) version: u64,
    pub(crate) expires_days: i64,
    pub(crate) floor: Version,
    #[serde(default)]
    pub(crate) revoked: RevokedPart,
    #[serde(default, rename = "target")]
    pub(crate) targets: Vec<Target>,
    #[serde(skip)]
    folder: PathBuf,
}

/// What must never be used again.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RevokedPart {
    #[serde(default)]
    pub(crate) targets: Vec<Digest>,
    #[serde(default)]
    pub(crate) keys: Vec<Digest>,
}

/// One target.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) file: PathBuf,
    #[serde(default)]
    pub(crate) requires: RequiresPart,
    pub(crate) data_schema: Option<u32>,
    pub(crate) manifest_hash: Option<Digest>,
    #[serde(default)]
    pub(crate) waves: Vec<Wave>,
    pub(crate) notes: Option<String>,
    pub(crate) licence: Option<String>,
    pub(crate) source: Option<String>,
}

/// Demands; as [`Requires`], but strict.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequiresPart {
    driver: Option<Version>,
    agent: Option<Version>,
    min_from: Option<Version>,
}

impl From<&RequiresPart> for Requires {
    fn from(part: &RequiresPart) -> Self {
        Self { driver: part.driver.clone(), agent: part.agent.clone(), min_from: part.min_from.clone() }
    }
}

impl Recipe {
    /// Reads a recipe.
    pub(crate) fn read(path: &Path) -> Done<Self> {
        let content = files::read(path, 1024 * 1024)?;
        let text = String::from_utf8(content).map_err(|_| Fault::Said(format!("{} is not plain text.", path.display())))?;
        let mut recipe: Self = toml::from_str(&text).map_err(|e| Fault::Said(format!("{} is not a recipe of a release: {e}", path.display())))?;
        recipe.folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Ok(recipe)
    }

    /// Where a target's file lies.
    pub(crate) fn path(&self, target: &Target) -> PathBuf {
        self.folder.join(&target.file)
    }

    /// The file of an entry of the release that was signed from this recipe.
    pub(crate) fn file_of(&self, entry: &Entry) -> Done<PathBuf> {
        let found = self.targets.iter().find(|t| t.kind == entry.kind && t.name == entry.name && t.version == entry.version);
        let missing = || {
            Fault::Said(format!(
                "The recipe does not name {}, which the release lists. Give the recipe the release was signed from.",
                entry.subject()
            ))
        };
        found.map(|t| self.path(t)).ok_or_else(missing)
    }
}
