//! Runs the tool in a folder of its own, with fixed keys and dates.

#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot set itself up should stop")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const AT: &str = "2027-02-01T00:00:00Z";
/// A week after `AT`, when boxes look.
pub const TODAY: &str = "2027-02-08T00:00:00Z";

pub struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    /// An empty one.
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// With development keys from a text.
    pub fn with_keys(seed: &str) -> Self {
        let desk = Self::new();
        desk.done(&["keys", "init", "--dir", "keys", "--development", "--dev-seed", seed, "--at", "2027-01-01T00:00:00Z"]);
        desk
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    pub fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.path(name), content).unwrap();
    }

    /// Runs the tool; `Ok` is what it printed, `Err` its sentence.
    pub fn run_with(&self, env: &[(&str, &str)], args: &[&str]) -> Result<String, String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warden-release"));
        command.args(args).current_dir(self.folder.path()).env_remove("SOURCE_DATE_EPOCH").env_remove("WARDEN_RELEASE_PASSPHRASE");
        let ran = command.envs(env.iter().copied()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if ran.status.success() { Ok(text(&ran.stdout)) } else { Err(text(&ran.stderr)) }
    }

    pub fn run(&self, args: &[&str]) -> Result<String, String> {
        self.run_with(&[], args)
    }

    pub fn done(&self, args: &[&str]) -> String {
        self.run(args).unwrap_or_else(|said| panic!("{args:?}: {said}"))
    }

    pub fn refused(&self, args: &[&str]) -> String {
        self.run(args).err().unwrap_or_else(|| panic!("{args:?} was not refused"))
    }

    /// Writes a recipe with an OS, an engine pack and a model; `more` goes before the targets.
    pub fn recipe(&self, version: u64, os: &str, channel: &str, more: &str) {
        self.write("os.raucb", format!("an image of the system {os}\n").repeat(300).as_bytes());
        self.write("engine.raw", b"an engine pack");
        self.write("model.gguf", &[7; 3000]);
        let text = format!(
            "channel = \"{channel}\"\nversion = {version}\nexpires_days = 365\nfloor = \"1.0.0\"\n{more}\n\
             [[target]]\nkind = \"os\"\nname = \"lm-warden\"\nversion = \"{os}\"\nfile = \"os.raucb\"\ndata_schema = 1\n\
             notes = \"What changed.\"\nrequires = {{ min_from = \"1.0.0\" }}\nwaves = [{{ at = \"2027-02-01T00:00:00Z\", percent = 100 }}]\n\
             [[target]]\nkind = \"engine\"\nname = \"llama.cpp\"\nversion = \"b1\"\nfile = \"engine.raw\"\n\
             [[target]]\nkind = \"model\"\nname = \"tiny\"\nversion = \"1\"\nfile = \"model.gguf\"\nlicence = \"Apache-2.0\"\nsource = \"https://example.org/tiny\"\n"
        );
        self.write("release.toml", text.as_bytes());
    }

    pub fn sign(&self) -> Result<String, String> {
        self.run(&["sign", "--keys", "keys", "--recipe", "release.toml", "--out", "release.json", "--at", AT])
    }

    pub fn publish(&self) -> Result<String, String> {
        self.run(&["publish", "--keys", "keys", "--recipe", "release.toml", "--release", "release.json", "--channel", "www", "--at", AT])
    }

    /// Keys, a signed release and a published channel.
    pub fn published(seed: &str) -> Self {
        let desk = Self::with_keys(seed);
        desk.recipe(1, "1.1.0", "stable", "");
        desk.sign().unwrap();
        desk.publish().unwrap();
        desk
    }

    pub fn verify(&self, path: &str) -> Result<String, String> {
        self.run(&["verify", path, "--root", "keys/root.1.json", "--development", "--at", TODAY])
    }

    pub fn bundle(&self) {
        self.done(&["bundle", "--channel", "www", "--out", "all.wob"]);
    }

    /// All files below a folder with their bytes.
    pub fn tree(&self, name: &str) -> Vec<(String, Vec<u8>)> {
        let mut all = Vec::new();
        let top = self.path(name);
        collect(&top, &top, &mut all);
        all.sort();
        all
    }
}

fn collect(top: &Path, at: &Path, all: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(top, &path, all);
        } else {
            all.push((path.strip_prefix(top).unwrap().display().to_string(), fs::read(&path).unwrap()));
        }
    }
}
