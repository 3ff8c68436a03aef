//! What the cases of this room share: an agent whose engine is a script that starts the genuine engine, sometimes with a fault.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::agent::{AgentSetup, AgentUnderTest};
use crate::command;
use crate::console::Console;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// A tiny model is up well within this time, also on a busy machine.
pub const LOAD: Duration = Duration::from_secs(60);

/// An agent with somebody signed in.
pub struct Bench {
    pub agent: AgentUnderTest,
    pub console: Console,
    _scripts: tempfile::TempDir,
}

impl Bench {
    /// `faults` are branches of a shell `case` over ` $* `, with `ENGINE` and `FAULTY` for the two programs; `rules` the lines of `[serving]`.
    pub fn start(stage: &mut Stage, task: &Task, faults: &str, rules: &str) -> Result<Self, String> {
        let program = stage.agent_program(&task.log)?;
        let engine = stage.engine_program(&task.log)?;
        let scripts = tempfile::Builder::new().prefix("engine").tempdir().map_err(|e| format!("no temporary folder: {e}"))?;
        let faulty = if faults.contains("FAULTY") { faulty_engine(stage, task)? } else { PathBuf::new() };
        let script = scripts.path().join("engine.sh");
        let text = format!("#!/bin/sh\ncase \" $* \" in\n{faults}*) exec ENGINE \"$@\";;\nesac\n")
            .replace("ENGINE", &engine.display().to_string())
            .replace("FAULTY", &faulty.display().to_string());
        fs::write(&script, text)
            .and_then(|()| fs::set_permissions(&script, fs::Permissions::from_mode(0o755)))
            .map_err(|e| format!("{}: {e}", script.display()))?;
        let setup = AgentSetup { stop_engines: false, more: format!("[serving]\n{rules}"), ..AgentSetup::dev(program, script) };
        let mut agent = AgentUnderTest::start(setup, &task.log)?;
        let console = agent.claimed()?;
        stage.write_tiny_model(&agent.model_path("tiny.gguf"))?;
        Ok(Self { agent, console, _scripts: scripts })
    }

    /// Registers the tiny model with so many replicas.
    pub fn register(&self, name: &str, replicas: u16) -> Result<String, String> {
        let body = json!({"path": "tiny.gguf", "served_model_name": name, "replicas": replicas, "slots": 2});
        let reply = self.console.expect("POST", "/api/models", Some(&body), &[201])?;
        reply.json()["id"].as_str().map(str::to_owned).ok_or_else(|| "the registered model has no id".to_owned())
    }

    /// Registers and loads, and waits until every replica runs.
    pub fn serve(&self, name: &str, replicas: u16) -> Result<(String, Value), String> {
        let id = self.register(name, replicas)?;
        self.console.load(&id)?;
        let model = self.until(&id, "running with all replicas", LOAD, |model| all_run(model, usize::from(replicas)))?;
        Ok((id, model))
    }

    /// Waits until something holds of the model's document.
    pub fn until(&self, id: &str, what: &str, limit: Duration, holds: impl Fn(&Value) -> bool) -> Result<Value, String> {
        let until = Instant::now() + limit;
        loop {
            let model = self.console.model(id)?;
            if holds(&model) {
                return Ok(model);
            }
            if Instant::now() >= until {
                return Err(format!("the model is not {what} after {} s: {}", limit.as_secs(), model["state"]));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// kill -9 of the agent; its engines go on.
    pub fn kill_agent(&mut self) -> Result<(), String> {
        self.agent.process()?.signal(Signal::SIGKILL);
        self.agent.wait_end(Duration::from_secs(10)).map(drop)
    }

    /// A new agent in the same folders.
    pub fn start_again(&mut self) -> Result<(), String> {
        self.agent.launch()?;
        self.agent.wait_healthy(Duration::from_secs(30))
    }

    /// Unloads what is loaded, ends the agent, and looks that nothing is left.
    pub fn end(mut self, ids: &[&str], result: &mut CaseResult) -> Result<(), String> {
        for id in ids {
            self.console.unload(id)?;
        }
        for id in ids {
            self.until(id, "stopped", LOAD, |model| model["status"] == "stopped")?;
        }
        result.expect(!self.agent.said().contains("panicked"), "the agent's log shows no panic");
        let code = self.agent.stop(Duration::from_secs(40))?;
        result.expect(code == Some(0), format!("the agent ends cleanly (exit code {code:?})"));
        result.expect(self.agent.engines().is_empty(), "no engine is left behind");
        Ok(())
    }
}

/// Builds the engine with faults.
fn faulty_engine(stage: &Stage, task: &Task) -> Result<PathBuf, String> {
    let mut cargo = stage.in_tree("cargo");
    cargo.args(["build", "--quiet", "-p", "warden-fixtures", "--bin", "faulty-engine"]);
    command::run_ok("building the engine with faults", cargo, Duration::from_secs(600), &task.log)?;
    Ok(stage.places.debug_program("faulty-engine"))
}

/// The replicas of a document.
pub fn replicas(model: &Value) -> Vec<Value> {
    model["state"]["replicas"].as_array().cloned().unwrap_or_default()
}

/// Whether it has so many replicas and all of them answer.
pub fn all_run(model: &Value, count: usize) -> bool {
    let replicas = replicas(model);
    replicas.len() == count && replicas.iter().all(|replica| replica["state"] == "running" && replica["phase"].is_null())
}

/// Launch identities of its replicas, in order.
pub fn launches(model: &Value) -> Vec<String> {
    replicas(model).iter().map(|replica| replica["launch"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The process of the first replica: the second part of its launch identity on a machine like this.
pub fn pid_of(model: &Value) -> Result<i32, String> {
    let launch = launches(model).first().cloned().unwrap_or_default();
    launch.split('/').nth(1).and_then(|pid| pid.parse().ok()).ok_or_else(|| format!("the launch identity {launch} names no process"))
}

/// Sends a signal.
pub fn signal(pid: i32, signal: Signal) -> Result<(), String> {
    kill(Pid::from_raw(pid), signal).map_err(|e| format!("{signal} to process {pid}: {e}"))
}

/// Children of a process.
pub fn children(pid: i32) -> Vec<i32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}
