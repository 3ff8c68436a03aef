//! What is built once for a run: the disk of the first version, good updates, broken ones.
//!
//! In: the tree. Out: files under `target/check/updates`. Each is made when a case first asks for it. A broken system is the good one with a
//! few files laid over its root (`tests/broken`), or a bundle that `warden-image` was told to spoil.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use warden_vm::BuilderRoot;

use crate::command;
use crate::images::work;
use crate::log::CaseLog;
use crate::stage::Stage;

/// The version on the disk of every machine.
pub const FIRST: &str = "1.0.0";
/// The first good update.
pub const SECOND: &str = "1.1.0";
/// The next one.
pub const THIRD: &str = "1.2.0";

/// The times by which a broken system is judged: a broken one needs no patience.
const SHORT: &str = "dwell = 5\ndeadline = 30\nmodel = 10\n";
/// A model takes its time to come up before it can be found to be missing.
const SHORT_WITH_MODEL: &str = "dwell = 5\ndeadline = 50\nmodel = 10\n";
const PROGRAMS: &str = "usr/lib/warden";
/// What a person needs of the console's door.
const FORM: &str = "<form class=\"panel\" method=\"post\" action=\"/ui/login\"";

/// An update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Build {
    /// [`SECOND`].
    Second,
    /// [`THIRD`].
    Third,
    /// Its agent ends by a signal.
    Crash,
    /// Its agent answers, and the console's door has no form.
    Console,
    /// Its engines never become ready.
    Model,
    /// Its agent changes the database for good, then ends.
    Migrates,
    /// Its kernel finds nothing to start.
    Kernel,
    /// It brings a program along.
    Hook,
    /// It is of the old format.
    Plain,
    /// Its image is signed by somebody else.
    Stranger,
    /// Its agent ends by a signal, and its health gate says yes to everything (a deliberate break).
    CrashUnseen,
}

impl Build {
    /// Its version.
    #[must_use]
    pub const fn version(self) -> &'static str {
        match self {
            Self::Second => SECOND,
            Self::Third => THIRD,
            Self::Crash => "1.9.1",
            Self::Console => "1.9.2",
            Self::Model => "1.9.3",
            Self::Migrates => "1.9.4",
            Self::Kernel => "1.9.5",
            Self::Hook => "1.9.6",
            Self::Plain => "1.9.7",
            Self::Stranger => "1.9.8",
            Self::CrashUnseen => "1.9.9",
        }
    }

    const fn flag(self) -> Option<&'static str> {
        match self {
            Self::Kernel => Some("--bad-kernel"),
            Self::Hook => Some("--hook"),
            Self::Plain => Some("--plain"),
            Self::Stranger => Some("--stranger"),
            _ => None,
        }
    }

    /// The stand-in programs of `tests/broken` and the programs they stand in for.
    const fn stand_ins(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Crash => &[("broken-crash", "warden-agent")],
            Self::Migrates => &[("broken-migrates", "warden-agent")],
            Self::CrashUnseen => &[("broken-crash", "warden-agent"), ("gate-says-yes", "warden-health")],
            _ => &[],
        }
    }
}

/// What was built.
#[derive(Debug)]
pub struct Works {
    folder: PathBuf,
    builder: BuilderRoot,
    golden: Option<BTreeMap<String, String>>,
    made: Vec<Build>,
    programs: bool,
}

impl Works {
    /// Nothing yet.
    ///
    /// # Errors
    /// A sentence when there is no builder root.
    pub fn open(stage: &mut Stage, log: &CaseLog) -> Result<Self, String> {
        let (images, places) = stage.images();
        let builder = images.builder(places, log)?;
        let folder = work(places)?.join("updates");
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Self { folder, builder, golden: None, made: Vec::new(), programs: false })
    }

    /// The folder of everything.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The builder root.
    #[must_use]
    pub const fn builder(&self) -> &BuilderRoot {
        &self.builder
    }

    /// The disk of [`FIRST`], never to be written to, and the hashes of what is on it.
    ///
    /// # Errors
    /// A sentence with the build's last words.
    pub fn golden(&mut self, stage: &mut Stage, log: &CaseLog) -> Result<(PathBuf, BTreeMap<String, String>), String> {
        let disk = self.folder.join("golden.img");
        if let Some(hashes) = &self.golden {
            return Ok((disk, hashes.clone()));
        }
        let (images, places) = stage.images();
        let hashes = if images.as_they_are() && disk.is_file() { BTreeMap::new() } else { images.golden(FIRST, &disk, places, log)? };
        self.golden = Some(hashes.clone());
        Ok((disk, hashes))
    }

    /// The file of an update.
    ///
    /// # Errors
    /// A sentence with the build's last words.
    pub fn update(&mut self, build: Build, stage: &mut Stage, log: &CaseLog) -> Result<PathBuf, String> {
        // First, because it compiles the programs that the updates take as they are.
        self.golden(stage, log)?;
        let path = self.folder.join(format!("warden-{}.raucb", build.version()));
        let kept = stage.images().0.as_they_are() && path.is_file();
        if kept || self.made.contains(&build) {
            return Ok(path);
        }
        let overlay = self.overlay(build, stage, log)?;
        let overlay = overlay.as_ref().map(|folder| folder.to_string_lossy().into_owned());
        let mut arguments = vec!["--version", build.version()];
        if let Some(overlay) = &overlay {
            arguments.extend(["--overlay", overlay]);
        }
        arguments.extend(build.flag());
        let (images, places) = stage.images();
        images.update(&arguments, &path, places, log)?;
        self.made.push(build);
        Ok(path)
    }

    /// The files that are laid over the root of a broken system.
    fn overlay(&mut self, build: Build, stage: &Stage, log: &CaseLog) -> Result<Option<PathBuf>, String> {
        if build.stand_ins().is_empty() && !matches!(build, Build::Console | Build::Model) {
            return Ok(None);
        }
        let folder = self.folder.join(format!("overlay-{}", build.version()));
        let programs = folder.join(PROGRAMS);
        let said = |e: std::io::Error| format!("the overlay {}: {e}", folder.display());
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(said)?;
        }
        fs::create_dir_all(&programs).map_err(said)?;
        fs::write(programs.join("health.toml"), if build == Build::Model { SHORT_WITH_MODEL } else { SHORT }).map_err(said)?;
        for (stand_in, program) in build.stand_ins() {
            fs::copy(self.stand_in(stand_in, stage, log)?, programs.join(program)).map_err(said)?;
        }
        if build == Build::Model {
            fs::copy(static_engine(stage, log)?, programs.join("warden-launch")).map_err(said)?;
        }
        if build == Build::Console {
            let agent = stage.places.root.join("target/release/warden-agent");
            let bytes = fs::read(&agent).map_err(|e| format!("{}: {e}", agent.display()))?;
            let emptied = without(&bytes, FORM.as_bytes()).ok_or("the agent's program does not hold the form of the console's door")?;
            fs::write(programs.join("warden-agent"), emptied).map_err(said)?;
            mode_755(&programs.join("warden-agent")).map_err(said)?;
        }
        Ok(Some(folder))
    }

    fn stand_in(&mut self, name: &str, stage: &Stage, log: &CaseLog) -> Result<PathBuf, String> {
        if !self.programs {
            let mut cargo = stage.in_tree("cargo");
            cargo.args(["build", "--release", "--locked", "--quiet", "-p", "warden-broken"]);
            command::run_ok("building the stand-in programs", cargo, Duration::from_secs(1800), log)?;
            self.programs = true;
        }
        Ok(stage.places.root.join("target/release").join(name))
    }

    /// Removes what was built; a run that takes things as they are leaves them for the next one.
    pub fn clear(&self, keep: bool) {
        if !keep {
            let _gone_already = fs::remove_dir_all(&self.folder);
        }
    }
}

/// The stand-in for the launcher runs inside an engine's root, where no library is.
fn static_engine(stage: &Stage, log: &CaseLog) -> Result<PathBuf, String> {
    let source = stage.places.root.join("tests/broken/src/bin/broken-engine.rs");
    let program = work(&stage.places)?.join("updates/broken-engine");
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition=2024", "-Copt-level=1", "-Ctarget-feature=+crt-static", "-o"]).arg(&program).arg(&source);
    command::run_ok("building the stand-in launcher", rustc, Duration::from_secs(120), log)?;
    Ok(program)
}

fn mode_755(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

/// The bytes with every place of `what` overwritten by spaces; `None` when there is none.
fn without(bytes: &[u8], what: &[u8]) -> Option<Vec<u8>> {
    let places: Vec<usize> = bytes.windows(what.len()).enumerate().filter(|(_, window)| *window == what).map(|(at, _)| at).collect();
    if places.is_empty() {
        return None;
    }
    let mut changed = bytes.to_vec();
    for at in places {
        changed[at..at + what.len()].fill(b' ');
    }
    Some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_that_is_not_there_is_told_instead_of_cutting_nothing() {
        assert_eq!(without(b"abcabc", b"bc").as_deref(), Some(b"a  a  ".as_slice()));
        assert_eq!(without(b"abcabc", b"x"), None);
    }

    #[test]
    fn the_form_that_is_cut_out_is_the_one_of_the_template() {
        assert!(include_str!("../../../../../web/templates/login.html").contains(FORM));
    }

    #[test]
    fn no_two_updates_share_a_version() {
        use Build::*;
        let all = [Second, Third, Crash, Console, Model, Migrates, Kernel, Hook, Plain, Stranger, CrashUnseen];
        let mut versions: Vec<_> = all.iter().map(|b| b.version()).collect();
        versions.sort_unstable();
        versions.dedup();
        assert_eq!(versions.len(), all.len());
    }
}
