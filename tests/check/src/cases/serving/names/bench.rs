//! A real agent whose hub is the one on loopback, and what the cases ask of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::hub::FakeHub;
use crate::agent::{AgentSetup, AgentUnderTest};
use crate::console::Console;
use crate::stage::{Stage, Task};

/// Agent, visitor and hub.
pub struct Bench {
    /// The hub.
    pub hub: FakeHub,
    /// The agent.
    pub agent: AgentUnderTest,
    /// Its admin.
    pub console: Console,
}

impl Bench {
    /// Starts all three.
    ///
    /// # Errors
    /// A sentence when one does not come up.
    pub fn start(stage: &mut Stage, task: &Task) -> Result<Self, String> {
        let hub = FakeHub::start(&task.log)?;
        let more = format!("hub_endpoint = \"{}\"\ndownload_stall_seconds = 2\n", hub.endpoint());
        let setup = AgentSetup { more, ..AgentSetup::dev(stage.agent_program(&task.log)?, stage.engine_program(&task.log)?) };
        let mut agent = AgentUnderTest::start(setup, &task.log)?;
        let console = agent.claimed()?;
        Ok(Self { hub, agent, console })
    }

    /// Begins a download.
    ///
    /// # Errors
    /// A sentence that quotes the refusal.
    pub fn fetch(&self, body: &Value) -> Result<String, String> {
        let reply = self.console.expect("POST", "/api/models/downloads", Some(body), &[202])?;
        reply.json()["id"].as_str().map(str::to_owned).ok_or_else(|| "the download has no id".to_owned())
    }

    /// Its document.
    ///
    /// # Errors
    /// A sentence that quotes the refusal.
    pub fn download(&self, id: &str) -> Result<Value, String> {
        self.console.expect("GET", &format!("/api/models/downloads/{id}"), None, &[200]).map(|reply| reply.json())
    }

    /// Waits until something holds of a download.
    ///
    /// # Errors
    /// A sentence with its last document when the limit passes.
    pub fn wait(&self, id: &str, limit: Duration, what: &str, holds: impl Fn(&Value) -> bool) -> Result<Value, String> {
        let until = Instant::now() + limit;
        loop {
            let document = self.download(id)?;
            if holds(&document) {
                return Ok(document);
            }
            if Instant::now() >= until {
                return Err(format!("the download is not {what} within {} s: {document}", limit.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until it is over, one way or the other.
    ///
    /// # Errors
    /// As `wait`.
    pub fn over(&self, id: &str, limit: Duration) -> Result<Value, String> {
        self.wait(id, limit, "over", |document| ["done", "failed", "paused"].contains(&document["status"].as_str().unwrap_or_default()))
    }

    /// The verdict of a file with its arithmetic.
    ///
    /// # Errors
    /// A sentence that quotes the refusal.
    pub fn fit(&self, repo: &str, filename: &str, context: u64, slots: u64) -> Result<Value, String> {
        let body = json!({"hf_repo": repo, "filename": filename, "max_model_len": context, "max_batch_size": slots});
        self.console.expect("POST", "/api/models/fit-preview", Some(&body), &[200]).map(|reply| reply.json())
    }

    /// The models folder.
    pub fn models(&self) -> PathBuf {
        self.agent.home().join("data/models")
    }

    /// Every file below the models folder by its path inside, hidden ones too.
    pub fn files(&self) -> BTreeMap<String, PathBuf> {
        let mut found = BTreeMap::new();
        collect(&self.models(), &self.models(), &mut found);
        found
    }
}

fn collect(root: &Path, folder: &Path, found: &mut BTreeMap<String, PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(root, &path, found);
        } else {
            found.insert(path.strip_prefix(root).unwrap_or(&path).display().to_string(), path);
        }
    }
}

/// Message and hint of an error, or of a reason.
#[must_use]
pub fn words(document: &Value) -> String {
    let detail = [&document["detail"], &document["reason"]].into_iter().find(|part| part.is_object()).unwrap_or(document);
    format!("{} {}", detail["message"].as_str().unwrap_or_default(), detail["hint"].as_str().unwrap_or_default())
}
