//! Where a client is put: an empty home, a network with the agent and nothing else in it, and an ear for all it says.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::agent::processes_naming;
use crate::alone::Alone;
use crate::cases::dialects::desk::{Behind, Desk};
use crate::command;
use crate::log::CaseLog;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Context of the models here: what the clients are told, and more than they send.
pub const CONTEXT: u32 = 131_072;

/// A desk, and room for clients beside it.
pub struct Room {
    /// The agent and its engine.
    pub desk: Desk,
    alone: Alone,
    home: tempfile::TempDir,
    installed: PathBuf,
    log: CaseLog,
}

/// What a client did.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Every line that is a JSON document.
    pub events: Vec<Value>,
    /// Everything it said.
    pub text: String,
    /// From its start to its end.
    pub took: Duration,
}

impl Said {
    fn of(finished: &command::Finished, took: Duration) -> Self {
        let events = finished.output.iter().filter_map(|line| serde_json::from_str(line).ok()).filter(Value::is_object).collect();
        Self { code: finished.code, events, text: finished.text(), took }
    }

    /// Events of a type.
    pub fn of_type<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.events.iter().filter(move |event| event["type"] == kind)
    }

    /// Its last words, for a sentence.
    pub fn tail(&self) -> String {
        let from = self.text.char_indices().rev().nth(600).map_or(0, |(at, _)| at);
        self.text[from..].replace('\n', " | ")
    }
}

/// What is installed: everything, or the SDKs without the coding clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Everything.
    All,
    /// The SDKs.
    Sdk,
}

/// The folder that `install.sh` made, now or long ago.
pub fn installed(stage: &Stage, what: What, log: &CaseLog) -> Result<PathBuf, String> {
    let mut install = Command::new(stage.places.root.join("tests/clients/install.sh"));
    install.arg(if what == What::All { "all" } else { "sdk" }).env("WARDEN_CACHE", &stage.places.cache);
    let said = command::run_ok("installing the clients (tests/clients/install.sh)", install, Duration::from_secs(1200), log)?;
    let folder = said.output.iter().rev().map(PathBuf::from).find(|line| line.is_absolute() && line.is_dir());
    folder.ok_or_else(|| format!("tests/clients/install.sh named no folder; last: {}", said.tail(3)))
}

impl Room {
    /// Starts an agent and makes an empty home. `more` are further lines of the agent's configuration.
    pub fn open(stage: &mut Stage, task: &Task, behind: Behind, what: What, more: &str) -> Result<Self, String> {
        let installed = installed(stage, what, &task.log)?;
        let desk = Desk::start(stage, task, None, behind, CONTEXT, more)?;
        let alone = Alone::with_door(desk.agent.port())?;
        let home = tempfile::Builder::new().prefix("client").tempdir().map_err(|e| format!("no temporary folder: {e}"))?;
        for folder in ["work", "tmp"] {
            std::fs::create_dir(home.path().join(folder)).map_err(|e| format!("{}: {e}", home.path().display()))?;
        }
        std::fs::write(home.path().join("work/note.txt"), "a note\n").map_err(|e| format!("{}: {e}", home.path().display()))?;
        Ok(Self { desk, alone, home, installed, log: task.log.clone() })
    }

    /// The client's home.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Writes a file of the home.
    pub fn put(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.home().join(name);
        let folder = path.parent().unwrap_or(self.home());
        std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, text)).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// A program of the installation, or an absolute one, with nothing of this machine's environment.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.installed.join(program));
        command
            .env_clear()
            .current_dir(self.home().join("work"))
            .env("HOME", self.home())
            .env("TMPDIR", self.home().join("tmp"))
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .env("CLIENTS", &self.installed);
        command
    }

    /// Runs it to its end, in its network.
    pub fn run(&self, command: Command, limit: Duration) -> Result<Said, String> {
        let began = Instant::now();
        let finished = self.alone.start(command, &self.log)?.wait(limit)?;
        Ok(Said::of(&finished, began.elapsed()))
    }

    /// Answers of a model that the engine was asked for since `from` of them, bodies as documents. Waits shortly until there are
    /// `wanted`: the engine notes a request when it is over.
    pub fn chats(&self, from: usize, wanted: usize) -> Result<Vec<Value>, String> {
        let until = Instant::now() + Duration::from_secs(3);
        loop {
            let mut chats = self.all_chats()?;
            if chats.len() >= from + wanted || Instant::now() >= until {
                return Ok(chats.split_off(from.min(chats.len())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// How many there were so far.
    pub fn count(&self) -> Result<usize, String> {
        Ok(self.all_chats()?.len())
    }

    fn all_chats(&self) -> Result<Vec<Value>, String> {
        let mut asked = self.desk.asked()?;
        asked.retain(|note| note["path"] == "/v1/chat/completions");
        for note in &mut asked {
            let body = note["body"].as_str().and_then(|text| serde_json::from_str(text).ok());
            note["body"] = body.unwrap_or(Value::Null);
        }
        Ok(asked)
    }

    /// Ends the agent, and whatever the client left running.
    pub fn leave(self, result: &mut CaseResult) -> Result<(), String> {
        for pid in processes_naming(self.home()) {
            // A client may leave helpers of its own; they are not ours to judge, and not ours to keep.
            self.log.line(format!("ending process {pid}, which a client left behind"));
            let _gone_already = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        }
        result.note(format!("the client made {} connections, all to the agent", self.alone.connections()));
        self.desk.end(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_apart_from_chatter() {
        let output = vec!["Reading input".to_owned(), r#"{"type":"turn"}"#.to_owned(), "7".to_owned(), r#"{"type":"turn","n":2}"#.to_owned()];
        let said = Said::of(&command::Finished { code: Some(0), output }, Duration::ZERO);
        assert_eq!((said.events.len(), said.of_type("turn").count(), said.of_type("end").count()), (2, 2, 0));
    }
}
