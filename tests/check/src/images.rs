//! Images and packs for the machines of a run, built by `warden-image` from the tree and kept for the run.
//!
//! In: a flavour and which engine pack lies on the data partition. Out: a disk file to boot from (never written to) and the hashes of
//! what it was made of. The tiny model lies on every disk's data partition.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use warden_fixtures::TinyModel;
use warden_vm::BuilderRoot;

use crate::command;
use crate::log::CaseLog;
use crate::places::Places;

/// Which image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flavour {
    /// The product: driven through HTTP, serial output and the power button only.
    Production,
    /// The product and a root shell on the second serial port.
    Test,
}

impl Flavour {
    /// Its name, as `warden-image` knows it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Production => "production",
            Self::Test => "test",
        }
    }
}

/// Which engine pack lies on the data partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PackKind {
    /// The good one.
    Signed,
    /// The same without its signature.
    Unsigned,
    /// The good one with one byte changed.
    Flipped,
}

impl PackKind {
    /// The folder of its twin in the output of `warden-image packs`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Signed => "signed",
            Self::Unsigned => "unsigned",
            Self::Flipped => "flipped",
        }
    }
}

/// A disk to boot from.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The raw disk file.
    pub path: PathBuf,
    /// SHA-256 by name: root image, UKI, pack; and the root hash.
    pub hashes: BTreeMap<String, String>,
}

/// Name of the tiny model on the data partition.
pub const TINY_FILE: &str = "tiny.gguf";

/// The images of a run.
#[derive(Clone, Debug, Default)]
pub struct Images {
    builder: Option<BuilderRoot>,
    packs: bool,
    root: bool,
    compiled: bool,
    as_they_are: bool,
    disks: BTreeMap<(Flavour, PackKind), Disk>,
    stick: Option<PathBuf>,
}

impl Images {
    /// No images yet. With `as_they_are` the programs that an earlier image build left go into them.
    #[must_use]
    pub fn new(as_they_are: bool) -> Self {
        Self { compiled: as_they_are, as_they_are, ..Self::default() }
    }

    /// The builder root, which holds QEMU.
    ///
    /// # Errors
    /// A sentence with the last words of `warden-image`.
    pub fn builder(&mut self, places: &Places, log: &CaseLog) -> Result<BuilderRoot, String> {
        if let Some(builder) = &self.builder {
            return Ok(builder.clone());
        }
        let mut cargo = Command::new("cargo");
        // Everything at once, as `make bins` does: one crate alone would have other features of its dependencies, and be compiled anew.
        cargo.args(["build", "--quiet", "--workspace", "--bins"]).current_dir(&places.root);
        command::run_ok("building the programs", cargo, Duration::from_secs(1200), log)?;
        let told = warden_image(places, &["builder"], Duration::from_secs(1800), log)?;
        let dir = told.iter().rev().map(PathBuf::from).find(|p| p.is_absolute() && p.is_dir()).ok_or("warden-image builder printed no folder")?;
        let builder = BuilderRoot::at(dir);
        self.builder = Some(builder.clone());
        Ok(builder)
    }

    /// A disk with that flavour and pack, built when there is none yet in this run.
    ///
    /// # Errors
    /// A sentence with the last words of `warden-image`.
    pub fn disk(&mut self, flavour: Flavour, pack: PackKind, places: &Places, log: &CaseLog) -> Result<Disk, String> {
        if let Some(disk) = self.disks.get(&(flavour, pack)) {
            return Ok(disk.clone());
        }
        self.builder(places, log)?;
        if !self.packs {
            warden_image(places, &["packs"], Duration::from_secs(1800), log)?;
            self.packs = true;
        }
        let seed =
            tempfile::Builder::new().prefix("seed-").tempdir_in(work(places)?).map_err(|e| format!("no folder for the data partition: {e}"))?;
        let pack_file = fill_seed(places, pack, seed.path())?;
        let seed_path = seed.path().to_string_lossy().into_owned();
        let mut arguments = vec!["image", "--flavour", flavour.name(), "--seed-data", &seed_path, "--with-stick"];
        // The programs are compiled once per run; a second disk of any flavour takes them as they are.
        if self.compiled {
            arguments.push("--as-they-are");
        }
        warden_image(places, &arguments, Duration::from_secs(3600), log)?;
        self.compiled = true;
        self.root |= flavour == Flavour::Production;
        let out = places.root.join("target/image").join(flavour.name());
        let path = work(places)?.join(format!("{}-{}.img", flavour.name(), pack.name()));
        let _older_run = std::fs::remove_file(&path);
        let mut copy = Command::new("cp");
        copy.arg("--sparse=always").arg(out.join("disk.img")).arg(&path);
        command::run_ok("keeping the disk", copy, Duration::from_secs(300), log)?;
        if flavour == Flavour::Production && self.stick.is_none() {
            let stick = work(places)?.join("stick.img");
            let _older_run = std::fs::remove_file(&stick);
            let mut copy = Command::new("cp");
            copy.arg("--sparse=always").arg(out.join("stick.img")).arg(&stick);
            command::run_ok("keeping the stick", copy, Duration::from_secs(300), log)?;
            self.stick = Some(stick);
        }
        let mut hashes = manifest_hashes(&out.join("manifest.json"))?;
        let digest = pack_file.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        hashes.insert(format!("pack ({})", pack.name()), digest);
        let disk = Disk { path, hashes };
        self.disks.insert((flavour, pack), disk.clone());
        Ok(disk)
    }

    /// True when what an earlier run left may be taken as it is.
    #[must_use]
    pub const fn as_they_are(&self) -> bool {
        self.as_they_are
    }

    /// A production disk of a chosen version, put at `to`; model and signed pack lie on its data partition.
    ///
    /// # Errors
    /// A sentence with the last words of `warden-image`.
    pub fn golden(&mut self, version: &str, to: &Path, places: &Places, log: &CaseLog) -> Result<BTreeMap<String, String>, String> {
        self.builder(places, log)?;
        if !self.packs {
            warden_image(places, &["packs"], Duration::from_secs(1800), log)?;
            self.packs = true;
        }
        let seed =
            tempfile::Builder::new().prefix("seed-").tempdir_in(work(places)?).map_err(|e| format!("no folder for the data partition: {e}"))?;
        fill_seed(places, PackKind::Signed, seed.path())?;
        let seed_path = seed.path().to_string_lossy().into_owned();
        let mut arguments = vec!["image", "--flavour", Flavour::Production.name(), "--version", version, "--seed-data", &seed_path];
        if self.compiled {
            arguments.push("--as-they-are");
        }
        warden_image(places, &arguments, Duration::from_secs(3600), log)?;
        self.compiled = true;
        // Another version than that of the other lists: whoever needs that root builds it again.
        self.root = false;
        let out = places.root.join("target/image").join(Flavour::Production.name());
        let mut copy = Command::new("cp");
        copy.arg("--sparse=always").arg(out.join("disk.img")).arg(to);
        command::run_ok("keeping the disk", copy, Duration::from_secs(300), log)?;
        manifest_hashes(&out.join("manifest.json"))
    }

    /// An update bundle of the production flavour, by the further arguments of `warden-image bundle`; moved to `to`.
    ///
    /// # Errors
    /// A sentence with the last words of `warden-image`.
    pub fn update(&mut self, more: &[&str], to: &Path, places: &Places, log: &CaseLog) -> Result<(), String> {
        self.builder(places, log)?;
        let mut arguments = vec!["bundle", "--flavour", Flavour::Production.name()];
        arguments.extend(more);
        if self.compiled {
            arguments.push("--as-they-are");
        }
        let said = warden_image(places, &arguments, Duration::from_secs(3600), log)?;
        self.compiled = true;
        let word = said.iter().rev().flat_map(|line| line.split([' ', ','])).find(|word| word.ends_with(".raucb"));
        let made = places.root.join(word.ok_or_else(|| format!("warden-image named no bundle: {said:?}"))?);
        std::fs::rename(&made, to).map_err(|e| format!("{} to {}: {e}", made.display(), to.display()))
    }

    /// The production stick, and a production disk that was built with it.
    ///
    /// # Errors
    /// A sentence with the last words of `warden-image`.
    pub fn stick(&mut self, places: &Places, log: &CaseLog) -> Result<(PathBuf, PathBuf), String> {
        let disk = self.disk(Flavour::Production, PackKind::Signed, places, log)?;
        let stick = self.stick.clone().ok_or("no stick was built with the production disk")?;
        Ok((stick, disk.path))
    }

    /// The production root as a tree of files, built when this run has not built it yet.
    ///
    /// # Errors
    /// A sentence with the last words of `warden-image`.
    pub fn production_root(&mut self, places: &Places, log: &CaseLog) -> Result<PathBuf, String> {
        if !self.root {
            self.builder(places, log)?;
            let mut arguments = vec!["root", "--flavour", "production"];
            if self.compiled {
                arguments.push("--as-they-are");
            }
            warden_image(places, &arguments, Duration::from_secs(3600), log)?;
            self.compiled = true;
            self.root = true;
        }
        Ok(places.root.join("target/image/production/root"))
    }

    /// The content of the engine pack as a tree of files, for containers, which cannot attach a signed image.
    ///
    /// # Errors
    /// A sentence with the last words of `warden-image`.
    pub fn pack_tree(&mut self, places: &Places, log: &CaseLog) -> Result<PathBuf, String> {
        let tree = places.root.join("target/image/packs/tree");
        if !(self.packs || self.as_they_are && tree.is_dir()) {
            self.builder(places, log)?;
            warden_image(places, &["packs"], Duration::from_secs(1800), log)?;
            self.packs = true;
        }
        if tree.join("engine/bin/llama-server").is_file() { Ok(tree) } else { Err(format!("no engine in {}", tree.display())) }
    }

    /// Removes the disks of this run; outputs of `warden-image` itself stay.
    pub fn clear(&mut self) {
        for path in self.disks.values().map(|disk| &disk.path).chain(&self.stick) {
            let _gone_already = std::fs::remove_file(path);
        }
        self.stick = None;
        self.disks.clear();
    }
}

/// Runs `warden-image` and returns what it said.
///
/// # Errors
/// A sentence with its last words.
pub fn warden_image(places: &Places, arguments: &[&str], limit: Duration, log: &CaseLog) -> Result<Vec<String>, String> {
    let mut command = Command::new(places.debug_program("warden-image"));
    command.args(arguments).current_dir(&places.root);
    let purpose = format!("warden-image {}", arguments.first().copied().unwrap_or_default());
    command::run_ok(&purpose, command, limit, log).map(|f| f.output)
}

/// The harness's own folder for disks and machines.
///
/// # Errors
/// A sentence when it cannot be made.
pub fn work(places: &Places) -> Result<PathBuf, String> {
    let folder = places.root.join("target/check");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(folder)
}

/// Lays model and pack as they shall lie on the data partition; returns the pack file.
fn fill_seed(places: &Places, pack: PackKind, seed: &Path) -> Result<PathBuf, String> {
    let said = |e: std::io::Error| format!("the data partition's content: {e}");
    for folder in ["models", "packs"] {
        std::fs::create_dir_all(seed.join(folder)).map_err(said)?;
    }
    TinyModel::default().write(&seed.join("models").join(TINY_FILE)).map_err(said)?;
    let from = places.root.join("target/image/packs").join(pack.name());
    let mut found = None;
    for entry in std::fs::read_dir(&from).map_err(|e| format!("no {} pack in {}: {e}", pack.name(), from.display()))?.flatten() {
        let path = entry.path();
        std::fs::copy(&path, seed.join("packs").join(entry.file_name())).map_err(said)?;
        if path.extension().is_some_and(|e| e == "raw") {
            found = Some(path);
        }
    }
    found.ok_or_else(|| format!("no pack file in {}", from.display()))
}

/// Hashes of the manifest that lies beside an image.
fn manifest_hashes(path: &Path) -> Result<BTreeMap<String, String>, String> {
    let text = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let manifest: Value = serde_json::from_slice(&text).map_err(|e| format!("{} is not JSON: {e}", path.display()))?;
    let mut hashes = BTreeMap::new();
    if let Some(hash) = manifest["roothash"].as_str() {
        hashes.insert("roothash".to_owned(), hash.to_owned());
    }
    for file in manifest["files"].as_array().into_iter().flatten() {
        if let (Some(name), Some(hash)) = (file["name"].as_str(), file["sha256"].as_str()) {
            hashes.insert(name.to_owned(), hash.to_owned());
        }
    }
    Ok(hashes)
}
