//! A publisher of releases: the real `warden-release` with a folder of keys made for the run.
//!
//! In: what a release shall hold. Out: a channel folder, bundles, key files. The keys are copies of those the image was built with, so that a
//! rotation never reaches the developer's own; strangers get keys of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::command;
use crate::log::CaseLog;
use crate::places::Places;

/// The product of every image built here.
pub const COMPATIBLE: &str = "lm-warden-x86_64";
/// The channel every box follows first.
pub const CHANNEL: &str = "stable";

/// What a release says of the data its system reads: no box here has data of a later format.
const READS_ALL: &str = "data_schema = 1000";

/// One file of a release.
#[derive(Clone, Debug)]
pub struct Target {
    /// `os`, `engine`, `model`.
    pub kind: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: String,
    /// Where it lies.
    pub file: PathBuf,
    /// More lines of the recipe.
    pub more: String,
}

impl Target {
    /// A system image.
    #[must_use]
    pub fn os(version: &str, file: &Path) -> Self {
        Self { kind: "os", name: "lm-warden", version: version.to_owned(), file: file.to_owned(), more: READS_ALL.to_owned() }
    }
}

/// What a release shall say.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its version.
    pub version: u64,
    /// The oldest OS that may run.
    pub floor: &'static str,
    /// Its channel.
    pub channel: &'static str,
    /// SHA-256 of withdrawn files.
    pub revoked_targets: Vec<String>,
    /// Ids of withdrawn keys.
    pub revoked_keys: Vec<String>,
    /// How long it is valid, in days.
    pub expires_days: i64,
    /// How long its timestamp is valid, in days.
    pub fresh_days: i64,
    /// The date of everything, RFC 3339; none = now.
    pub at: Option<String>,
    /// Its files.
    pub targets: Vec<Target>,
    /// Release keys that sign, as names of files in the folder of keys; none = all.
    pub signers: Vec<&'static str>,
}

impl Wanted {
    /// A release of the usual channel.
    #[must_use]
    pub fn version(version: u64, targets: Vec<Target>) -> Self {
        Self {
            version,
            floor: "0.1.0",
            channel: CHANNEL,
            revoked_targets: Vec::new(),
            revoked_keys: Vec::new(),
            expires_days: 365,
            fresh_days: 14,
            at: None,
            targets,
            signers: Vec::new(),
        }
    }
}

/// A folder of keys and the program that uses them.
#[derive(Clone, Debug)]
pub struct Publisher {
    program: PathBuf,
    keys: PathBuf,
    work: PathBuf,
    log: CaseLog,
}

impl Publisher {
    /// The publisher that boxes built from this tree trust: a copy of the developer's keys in `work/keys`.
    ///
    /// # Errors
    /// A sentence when there are no such keys.
    pub fn trusted(places: &Places, work: &Path, log: &CaseLog) -> Result<Self, String> {
        let from = places.cache.join("keys/release");
        let publisher = Self { keys: work.join("keys"), ..Self::of(places, work, log)? };
        fs::create_dir_all(&publisher.keys).map_err(|e| format!("{}: {e}", publisher.keys.display()))?;
        for entry in fs::read_dir(&from).map_err(|e| format!("no release keys in {}: {e}", from.display()))?.flatten() {
            fs::copy(entry.path(), publisher.keys.join(entry.file_name())).map_err(|e| format!("copying {}: {e}", entry.path().display()))?;
        }
        Ok(publisher)
    }

    /// Somebody with development keys of their own, the same each time; `more` goes to `keys init`.
    ///
    /// # Errors
    /// A sentence with the program's words.
    pub fn stranger(places: &Places, work: &Path, seed: &str, more: &[&str], log: &CaseLog) -> Result<Self, String> {
        let publisher = Self { keys: work.join("keys"), ..Self::of(places, work, log)? };
        let keys = publisher.keys.display().to_string();
        let mut arguments = vec!["keys", "init", "--dir", &keys, "--development", "--dev-seed", seed, "--compatible", COMPATIBLE];
        arguments.extend(more);
        publisher.run(&arguments)?;
        Ok(publisher)
    }

    fn of(places: &Places, work: &Path, log: &CaseLog) -> Result<Self, String> {
        fs::create_dir_all(work).map_err(|e| format!("{}: {e}", work.display()))?;
        Ok(Self { program: places.debug_program("warden-release"), keys: PathBuf::new(), work: work.to_owned(), log: log.clone() })
    }

    /// The same publisher, writing to another log.
    #[must_use]
    pub fn logging_to(&self, log: &CaseLog) -> Self {
        Self { log: log.clone(), ..self.clone() }
    }

    /// The folder of keys.
    #[must_use]
    pub fn keys(&self) -> &Path {
        &self.keys
    }

    /// The root file a box is born with.
    #[must_use]
    pub fn first_root(&self) -> PathBuf {
        self.keys.join("root.1.json")
    }

    /// Runs the program.
    ///
    /// # Errors
    /// A sentence with its words.
    pub fn run(&self, arguments: &[&str]) -> Result<Vec<String>, String> {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(&self.work);
        let purpose = format!("warden-release {}", arguments.iter().take(2).copied().collect::<Vec<_>>().join(" "));
        command::run_ok(&purpose, command, Duration::from_secs(180), &self.log).map(|done| done.output)
    }

    /// Writes the recipe and signs the release; the recipe and the signed file.
    ///
    /// # Errors
    /// A sentence with the program's words.
    pub fn sign(&self, name: &str, wanted: &Wanted) -> Result<(PathBuf, PathBuf), String> {
        let recipe = self.work.join(format!("{name}.toml"));
        let release = self.work.join(format!("{name}.json"));
        fs::write(&recipe, recipe_text(wanted)).map_err(|e| format!("{}: {e}", recipe.display()))?;
        let (keys, from, to) = (self.keys.display().to_string(), recipe.display().to_string(), release.display().to_string());
        let signers: Vec<String> = wanted.signers.iter().map(|key| self.keys.join(key).display().to_string()).collect();
        let mut arguments = vec!["sign", "--keys", &keys, "--recipe", &from, "--out", &to];
        for signer in &signers {
            arguments.extend(["--key", signer]);
        }
        if let Some(at) = &wanted.at {
            arguments.extend(["--at", at]);
        }
        self.run(&arguments)?;
        Ok((recipe, release))
    }

    /// Signs a release and publishes it into the channel folder of that name; the folder.
    ///
    /// # Errors
    /// A sentence with the program's words.
    pub fn publish(&self, name: &str, wanted: &Wanted) -> Result<PathBuf, String> {
        let (recipe, release) = self.sign(name, wanted)?;
        let channel = self.channel(name);
        let (keys, from, what, to) =
            (self.keys.display().to_string(), recipe.display().to_string(), release.display().to_string(), channel.display().to_string());
        let days = format!("--days={}", wanted.fresh_days);
        let mut arguments = vec!["publish", "--keys", &keys, "--recipe", &from, "--release", &what, "--channel", &to, &days];
        if let Some(at) = &wanted.at {
            arguments.extend(["--at", at]);
        }
        self.run(&arguments)?;
        Ok(channel)
    }

    /// Where the channel folder of that name lies.
    #[must_use]
    pub fn channel(&self, name: &str) -> PathBuf {
        self.work.join("www").join(name)
    }

    /// Cuts a bundle from a channel folder.
    ///
    /// # Errors
    /// A sentence with the program's words.
    pub fn bundle(&self, channel: &Path, name: &str) -> Result<PathBuf, String> {
        let out = self.work.join(format!("{name}.wob"));
        self.run(&["bundle", "--channel", &channel.display().to_string(), "--out", &out.display().to_string()])?;
        Ok(out)
    }

    /// Replaces keys, such as `release-1`.
    ///
    /// # Errors
    /// A sentence with the program's words.
    pub fn rotate(&self, replace: &[&str], seed: &str) -> Result<(), String> {
        let keys = self.keys.display().to_string();
        let mut arguments = vec!["keys", "rotate", "--dir", &keys, "--dev-seed", seed];
        for key in replace {
            arguments.extend(["--replace", key]);
        }
        self.run(&arguments).map(drop)
    }

    /// The id of a key, by the name of its file without its end.
    ///
    /// # Errors
    /// A sentence when there is no such key.
    pub fn key_id(&self, name: &str) -> Result<String, String> {
        let shown = self.run(&["keys", "show", "--dir", &self.keys.display().to_string()])?;
        let line = shown.iter().find(|line| line.split_whitespace().any(|word| word == name));
        line.and_then(|line| line.split_whitespace().next().map(str::to_owned)).ok_or_else(|| format!("no key {name} among {shown:?}"))
    }
}

/// The recipe as its engineer would write it.
fn recipe_text(wanted: &Wanted) -> String {
    let list = |items: &[String]| items.iter().map(|item| format!("\"{item}\"")).collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "channel = \"{}\"\nversion = {}\nexpires_days = {}\nfloor = \"{}\"\n\n[revoked]\ntargets = [{}]\nkeys = [{}]\n",
        wanted.channel,
        wanted.version,
        wanted.expires_days,
        wanted.floor,
        list(&wanted.revoked_targets),
        list(&wanted.revoked_keys)
    );
    for target in &wanted.targets {
        text.push_str(&format!(
            "\n[[target]]\nkind = \"{}\"\nname = \"{}\"\nversion = \"{}\"\nfile = \"{}\"\n{}\n",
            target.kind,
            target.name,
            target.version,
            target.file.display(),
            target.more
        ));
    }
    text
}

/// The digest of a channel's target of a kind, and its length.
///
/// # Errors
/// A sentence when the published release cannot be read.
pub fn entry(channel: &Path, kind: &str) -> Result<Value, String> {
    let read = |name: String| -> Result<Value, String> {
        let path = channel.join("metadata").join(name);
        let text = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))
    };
    let stamp = read("timestamp.json".to_owned())?;
    let release = read(format!("release.{}.json", stamp["signed"]["release"]["version"]))?;
    let found = release["signed"]["entries"].as_array().and_then(|all| all.iter().find(|e| e["kind"] == kind).cloned());
    found.ok_or_else(|| format!("the channel {} has no {kind}", channel.display()))
}
