//! Where refusals are looked at: the machine that lives through the whole list, or an agent on this machine.
//!
//! In: the bench. Out: a console, a channel it follows, and a look at what must not change. A complete run uses the machine, whose slots and
//! boot entries are looked at from outside; deliberate breaks of the agent's code use an agent built from a changed copy of the tree.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::broken_tree;
use super::calls;
use super::chain::Bench;
use super::drive::{Drive, Untouched};
use super::publisher::{COMPATIBLE, Publisher};
use super::server::ChannelServer;
use crate::agent::{AgentSetup, AgentUnderTest};
use crate::console::Console;
use crate::log::CaseLog;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Whether a case that can use either uses an agent on this machine. Two always do: they are about files that come over a network or by an
/// upload, never reach a slot, and wait long for slow peers; they run beside the machine.
#[must_use]
pub fn on_this_machine(task: &Task) -> bool {
    task.sabotage || matches!(task.id, "ref-cut-file" | "ref-paths") || std::env::var_os("WARDEN_UPDATES_HOST").is_some()
}

/// What must not change when something is refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Still {
    disk: Option<Untouched>,
    phase: Value,
    version: Value,
    slots: Value,
    release: Value,
}

impl Still {
    /// Whether the disk and its slots are as they were then.
    #[must_use]
    pub fn disk_is(&self, then: &Self) -> bool {
        self.disk == then.disk && self.slots == then.slots && self.version == then.version
    }
}

/// A box that is to refuse.
pub struct Site<'a> {
    console: Console,
    place: Place<'a>,
    work: PathBuf,
}

enum Place<'a> {
    Machine { bench: &'a mut Bench, drive: Drive },
    Host(Box<Host>),
}

struct Host {
    agent: AgentUnderTest,
    publisher: Publisher,
    server: ChannelServer,
    release: u64,
    _folder: tempfile::TempDir,
}

impl<'a> Site<'a> {
    /// The machine of the bench, or an agent on this machine where [`on_this_machine`] says so.
    ///
    /// # Errors
    /// A sentence with what does not come up.
    pub fn of(bench: &'a mut Bench, stage: &mut Stage, task: &Task) -> Result<Self, String> {
        let machine = bench.machine(stage, task)?;
        let (console, drive) = (machine.console()?, machine.drive().clone());
        let work = bench.works.folder().join("publisher");
        Ok(Self { console, place: Place::Machine { bench, drive }, work })
    }

    /// An agent on this machine that was born with the keys of a publisher of its own.
    ///
    /// # Errors
    /// A sentence with what does not come up.
    pub fn host(stage: &mut Stage, task: &Task) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("wardn").tempdir_in("/tmp").map_err(|e| format!("no temporary folder: {e}"))?;
        let work = folder.path().join("publisher");
        let publisher = Publisher::stranger(&stage.places, &work, "the box's publisher", &[], &task.log)?;
        fs::create_dir_all(work.join("www")).map_err(|e| format!("{}: {e}", work.display()))?;
        let server = ChannelServer::start(&work.join("www"), &task.log)?;
        let trust = folder.path().join("trust");
        let said = |e: std::io::Error| format!("{}: {e}", trust.display());
        fs::create_dir_all(&trust).map_err(said)?;
        fs::copy(publisher.first_root(), trust.join("root.json")).map_err(said)?;
        let build =
            json!({"build_epoch": "2026-01-01T00:00:00Z", "compatible": COMPATIBLE, "channel": "stable", "development": true, "data_schema": 1000});
        fs::write(trust.join("build.json"), build.to_string()).map_err(said)?;
        let program = if task.sabotage { broken_tree::agent(task.id, stage, &task.log)? } else { stage.agent_program(&task.log)? };
        let setup =
            AgentSetup { engine: None, more: format!("update_trust_dir = \"{}\"\n", trust.display()), ..AgentSetup::dev(program, PathBuf::new()) };
        let mut agent = AgentUnderTest::start(setup, &task.log)?;
        let console = agent.claimed()?;
        Ok(Self { console, place: Place::Host(Box::new(Host { agent, publisher, server, release: 1, _folder: folder })), work })
    }

    /// The owner's console.
    #[must_use]
    pub fn console(&self) -> Console {
        self.console.clone()
    }

    /// The publisher it trusts.
    #[must_use]
    pub fn publisher(&self) -> &Publisher {
        match &self.place {
            Place::Machine { bench, .. } => &bench.publisher,
            Place::Host(host) => &host.publisher,
        }
    }

    /// The server it can reach.
    #[must_use]
    pub fn server(&self) -> &ChannelServer {
        match &self.place {
            Place::Machine { bench, .. } => &bench.server,
            Place::Host(host) => &host.server,
        }
    }

    /// The number of the next release; each is handed out once.
    pub fn next_release(&mut self) -> u64 {
        let next = match &mut self.place {
            Place::Machine { bench, .. } => &mut bench.release,
            Place::Host(host) => &mut host.release,
        };
        *next += 1;
        *next - 1
    }

    /// A folder for files of a case.
    #[must_use]
    pub fn work(&self) -> &Path {
        &self.work
    }

    /// Whether it is a machine with slots.
    #[must_use]
    pub const fn is_machine(&self) -> bool {
        matches!(self.place, Place::Machine { .. })
    }

    /// A file that stands for a system image where nothing looks into it, of so many bytes; each version has other ones.
    ///
    /// # Errors
    /// A sentence when it cannot be written.
    pub fn dummy(&self, version: &str, bytes: usize) -> Result<PathBuf, String> {
        let path = self.work.join(format!("dummy-{version}.raucb"));
        let mut state = version.bytes().fold(1_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        let content: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        })
        .take(bytes)
        .collect();
        fs::write(&path, content).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(path)
    }

    /// Has the box follow the channel folder of that name; its address.
    ///
    /// # Errors
    /// A sentence that quotes the refusal.
    pub fn follow(&self, name: &str, automatic: &str) -> Result<String, String> {
        let base = if self.is_machine() { self.server().for_guest() } else { self.server().here() };
        let address = format!("{base}/{name}");
        calls::follow(&self.console, &address, automatic)?;
        Ok(address)
    }

    /// What must not change.
    ///
    /// # Errors
    /// A sentence when it cannot be seen.
    pub fn still(&self) -> Result<Still, String> {
        let document = if self.is_machine() { calls::with_slots(&self.console)? } else { calls::document(&self.console)? };
        let disk = match &self.place {
            Place::Machine { drive, .. } => Some(drive.untouched()?),
            Place::Host(_) => None,
        };
        let part = |name: &str| document[name].clone();
        Ok(Still { disk, phase: part("phase"), version: part("version"), slots: part("slots"), release: part("release") })
    }

    /// Expects that nothing changed since.
    ///
    /// # Errors
    /// A sentence when it cannot be seen.
    pub fn expect_still(&self, before: &Still, what: &str, result: &mut CaseResult) -> Result<(), String> {
        let now = self.still()?;
        let told = if now == *before { String::new() } else { format!(": {before:?} became {now:?}") };
        let seen = if self.is_machine() { "slots, boot entries, kernels and record" } else { "the record" };
        result.expect(now == *before, format!("{what} changed nothing of {seen}{told}"));
        Ok(())
    }

    /// Asks the channel, which must be refused with this code; what the box believes stays as it was.
    ///
    /// # Errors
    /// A sentence when nobody answers.
    pub fn expect_refused(&self, what: &str, codes: &[&str], result: &mut CaseResult) -> Result<(), String> {
        let before = self.still()?;
        let ended = calls::check(&self.console)?;
        let fault = calls::document(&self.console)?["check_fault"].clone();
        let (code, sentence) = (fault["code"].as_str().unwrap_or_default(), fault["message"].as_str().unwrap_or_default());
        result.expect(!ended.done && codes.contains(&code), format!("{what} is refused as {} ({code}): {sentence}", codes.join(" or ")));
        result.expect(whole_sentence(sentence), format!("the sentence says what to do: {sentence}"));
        self.expect_still(&before, what, result)
    }

    /// Uploads bytes as a bundle, which must be refused with one of these codes.
    ///
    /// # Errors
    /// A sentence when nobody answers.
    pub fn expect_bundle_refused(&self, what: &str, bytes: &[u8], codes: &[&str], words: &[&str], result: &mut CaseResult) -> Result<(), String> {
        let before = self.still()?;
        let id = calls::upload_bytes(&self.console, "bad.wob", bytes)?;
        let ended = calls::take(&self.console, &id, true, Duration::from_secs(120))?;
        let fault = calls::document(&self.console)?["fault"].clone();
        let code = fault["code"].as_str().map_or_else(|| ended.code.clone(), str::to_owned);
        let sentence = fault["message"].as_str().map_or_else(|| ended.sentence.clone(), str::to_owned);
        let fits = codes.is_empty() || codes.contains(&code.as_str());
        result.expect(!ended.done && fits, format!("{what} is refused ({code}): {sentence}"));
        result.expect(words.iter().all(|word| sentence.contains(word)), format!("the sentence names it ({words:?}): {sentence}"));
        calls::drop_upload(&self.console, &id)?;
        self.expect_still(&before, what, result)
    }

    /// The folder in which the agent of this machine keeps what it fetches.
    ///
    /// # Errors
    /// A sentence on a machine, whose folders nobody sees.
    pub fn updates_folder(&self) -> Result<PathBuf, String> {
        match &self.place {
            Place::Host(host) => Ok(host.agent.home().join("data/warden/updates/targets")),
            Place::Machine { .. } => Err("the folders of a machine cannot be seen".to_owned()),
        }
    }

    /// Kills the agent of this machine.
    ///
    /// # Errors
    /// A sentence when it does not end.
    pub fn kill_agent(&mut self) -> Result<(), String> {
        let Place::Host(host) = &mut self.place else { return Err("only the agent of this machine is killed".to_owned()) };
        host.agent.process()?.signal(Signal::SIGKILL);
        host.agent.wait_end(Duration::from_secs(10)).map(drop)
    }

    /// Starts it again.
    ///
    /// # Errors
    /// A sentence when it does not come up.
    pub fn start_agent(&mut self) -> Result<(), String> {
        let Place::Host(host) = &mut self.place else { return Err("only the agent of this machine is started".to_owned()) };
        host.agent.launch()?;
        host.agent.wait_healthy(Duration::from_secs(30))
    }

    /// A publisher nobody trusts, in a folder of its own.
    ///
    /// # Errors
    /// A sentence with the program's words.
    pub fn stranger(&self, stage: &Stage, name: &str, more: &[&str], log: &CaseLog) -> Result<Publisher, String> {
        let work = self.work.join(name);
        let _older = fs::remove_dir_all(&work);
        Publisher::stranger(&stage.places, &work, "a stranger", more, log)
    }

    /// A channel folder that goes on from where another stands, without its files: what is published into it continues its numbers.
    ///
    /// # Errors
    /// A sentence when it cannot be copied.
    pub fn continued(&self, from: &str, name: &str) -> Result<PathBuf, String> {
        let (from, to) = (self.publisher().channel(from).join("metadata"), self.publisher().channel(name));
        let said = |e: std::io::Error| format!("copying {}: {e}", from.display());
        let _older = fs::remove_dir_all(&to);
        fs::create_dir_all(to.join("metadata")).map_err(said)?;
        for entry in fs::read_dir(&from).map_err(said)?.flatten() {
            fs::copy(entry.path(), to.join("metadata").join(entry.file_name())).map_err(said)?;
        }
        Ok(to)
    }

    /// Puts a channel folder made elsewhere among those that are served.
    ///
    /// # Errors
    /// A sentence when it cannot be copied.
    pub fn serve_copy(&self, from: &Path, name: &str) -> Result<PathBuf, String> {
        let to = self.publisher().channel(name);
        let _older = fs::remove_dir_all(&to);
        for folder in ["metadata", "targets"] {
            let (from, to) = (from.join(folder), to.join(folder));
            let said = |e: std::io::Error| format!("copying {}: {e}", from.display());
            fs::create_dir_all(&to).map_err(said)?;
            for entry in fs::read_dir(&from).map_err(said)?.flatten() {
                fs::copy(entry.path(), to.join(entry.file_name())).map_err(said)?;
            }
        }
        Ok(to)
    }
}

/// A sentence of the product: a beginning, an end, and more than a code.
fn whole_sentence(text: &str) -> bool {
    text.ends_with('.') && text.split_whitespace().count() > 6
}
