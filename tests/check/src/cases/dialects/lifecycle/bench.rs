//! What the cases of this group share: an agent whose engines are scripted, a key, and what the agent counts.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use warden_fake_engine::Folder;

use super::super::super::updates::broken_tree;
use super::super::desk::{Dialect, MODEL};
use super::raw::{Answer, Raw};
use crate::agent::{AgentSetup, AgentUnderTest};
use crate::command;
use crate::console::Console;
use crate::log::CaseLog;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Time for the engines to come up.
const LOAD: Duration = Duration::from_secs(60);
/// Longest wait for an answer that is expected to end.
pub const SOON: Duration = Duration::from_secs(20);

/// How the model is served.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Engines.
    pub replicas: u16,
    /// Requests at a time on each.
    pub slots: u16,
    /// Further lines of the agent's configuration.
    pub more: &'static str,
}

impl Default for Wish {
    fn default() -> Self {
        Self { replicas: 1, slots: 4, more: "" }
    }
}

/// The agent and its model.
pub struct Bench {
    /// The agent.
    pub agent: AgentUnderTest,
    /// The admin's visitor.
    pub console: Console,
    /// The model's id.
    pub id: String,
    /// A key's secret.
    pub key: String,
    /// Its id.
    pub key_id: String,
    /// The engines' folder: their script and what they noted.
    pub engine: Folder,
    log: CaseLog,
    _folder: tempfile::TempDir,
}

/// One row of the requests that were charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The request.
    pub id: String,
    /// How it ended.
    pub outcome: String,
    /// The status sent.
    pub status: u64,
}

impl Bench {
    /// Starts the agent (with the case's break, if that is asked for) and loads the model.
    pub fn start(stage: &mut Stage, task: &Task, wish: &Wish) -> Result<Self, String> {
        let whole = stage.agent_program(&task.log)?;
        let program = if task.sabotage { broken_tree::agent(task.id, stage, &task.log)? } else { whole };
        let (engine, folder) = scripted(stage, task)?;
        let setup = AgentSetup { more: wish.more.to_owned(), ..AgentSetup::dev(program, engine.program()) };
        let mut agent = AgentUnderTest::start(setup, &task.log)?;
        stage.write_tiny_model(&agent.model_path("tiny.gguf"))?;
        let console = agent.claimed()?;
        let id = register(&console, MODEL, wish)?;
        let (key_id, key) = console.make_key("lifecycle")?;
        let bench = Self { agent, console, id, key, key_id, engine, log: task.log.clone(), _folder: folder };
        bench.load(&bench.id, wish.replicas)?;
        Ok(bench)
    }

    /// Loads a model and waits until all its replicas run.
    pub fn load(&self, id: &str, replicas: u16) -> Result<(), String> {
        self.console.load(id)?;
        self.runs(id, replicas, &[])
    }

    /// Waits until so many replicas of a model run that are none of these launches.
    pub fn runs(&self, id: &str, replicas: u16, not: &[String]) -> Result<(), String> {
        let until = Instant::now() + LOAD;
        loop {
            let model = self.console.model(id)?;
            let new = running(&model).iter().filter(|launch| !not.contains(launch)).count();
            if new >= usize::from(replicas) {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(format!("the model does not take requests after {} s: {}", LOAD.as_secs(), model["state"]));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Launches that run now.
    pub fn launches(&self) -> Result<Vec<String>, String> {
        Ok(running(&self.console.model(&self.id)?))
    }

    /// What the engines do from now on.
    pub fn script(&self, rules: &Value) -> Result<(), String> {
        self.log.line(format!("script: {rules}"));
        self.engine.script(&json!({ "rules": rules }))
    }

    /// A request on its way.
    pub fn post(&self, dialect: Dialect, body: &Value) -> Result<Raw, String> {
        Raw::post(self.agent.port(), dialect.path(), &self.key, body.to_string().as_bytes())
    }

    /// A question and its answer to the end.
    pub fn ask(&self, dialect: Dialect, body: &Value) -> Result<Answer, String> {
        let answer = self.post(dialect, body)?.end(SOON);
        self.log.line(format!("{} {body} -> {} clean={} {}", dialect.path(), answer.status, answer.clean, answer.text()));
        Ok(answer)
    }

    /// Where requests go.
    pub fn routing(&self) -> Result<Value, String> {
        Ok(self.console.expect("GET", &format!("/api/models/{}/dp-routing", self.id), None, &[200])?.json())
    }

    /// Waits until nothing runs, waits or lingers any more; how long that took.
    pub fn idle(&self, limit: Duration) -> Result<Duration, String> {
        let begun = Instant::now();
        loop {
            let routing = self.routing()?;
            if counters(&routing) == (0, 0, 0) {
                return Ok(begun.elapsed());
            }
            if begun.elapsed() > limit {
                return Err(format!("after {} s the counters are not zero: {routing}", limit.as_secs()));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Expects all counters to be zero soon, at gateway and engines.
    pub fn expect_idle(&self, result: &mut CaseResult) {
        let idle = self.idle(Duration::from_secs(5));
        let sentence = idle.as_ref().map_or_else(Clone::clone, |_| "nothing runs, waits or lingers: all counters are zero".to_owned());
        result.expect(idle.is_ok(), sentence);
    }

    /// What is charged to the key, once it is this many requests (or after a while).
    pub fn charged(&self, requests: u64) -> Result<Value, String> {
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            let key = self.console.expect("GET", &format!("/api/tokens/{}", self.key_id), None, &[200])?.json();
            if key["usage"]["requests"] == requests || Instant::now() > until {
                return Ok(key["usage"].clone());
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends the agent and looks for what it left; the rows of all requests that were charged.
    pub fn end(mut self, result: &mut CaseResult) -> Result<Vec<Row>, String> {
        result.expect(!self.agent.said().contains("panicked"), "the agent's log shows no panic");
        let code = self.agent.stop(Duration::from_secs(40))?;
        let left = self.agent.engines().len();
        result.expect(code == Some(0) && left == 0, format!("the agent ends cleanly and leaves no engine (exit code {code:?}, {left} engines)"));
        rows(&self.agent.home().join("state/config.db"), &self.log)
    }
}

/// Launches of a model's replicas that run.
fn running(model: &Value) -> Vec<String> {
    let all = model["state"]["replicas"].as_array().into_iter().flatten();
    all.filter(|r| r["state"] == "running").filter_map(|r| r["launch"].as_str().map(str::to_owned)).collect()
}

/// Requests that run, wait, and linger on an engine after their client left.
pub fn counters(routing: &Value) -> (u64, u64, u64) {
    let ranks = routing["ranks"].as_array().cloned().unwrap_or_default();
    let sum = |name: &str| ranks.iter().filter_map(|rank| rank[name].as_u64()).sum::<u64>();
    (sum("in_flight"), routing["queue"]["waiting"].as_u64().unwrap_or_default(), sum("lingering"))
}

/// Registers a model over the tiny file.
pub fn register(console: &Console, name: &str, wish: &Wish) -> Result<String, String> {
    let body = json!({"path": "tiny.gguf", "served_model_name": name, "replicas": wish.replicas, "slots": wish.slots});
    let made = console.expect("POST", "/api/models", Some(&body), &[200, 201])?.json();
    made["id"].as_str().map(str::to_owned).ok_or_else(|| format!("the registered model has no id: {made}"))
}

/// A folder with the scripted engine.
fn scripted(stage: &Stage, task: &Task) -> Result<(Folder, tempfile::TempDir), String> {
    let program = stage.places.debug_program("warden-fake-engine");
    if !program.is_file() {
        let mut cargo = stage.in_tree("cargo");
        cargo.args(["build", "--quiet", "-p", "warden-fake-engine"]);
        command::run_ok("building the scripted engine", cargo, Duration::from_secs(900), &task.log)?;
    }
    let folder = tempfile::Builder::new().prefix("engine").tempdir().map_err(|e| format!("no temporary folder: {e}"))?;
    Ok((Folder::lay(folder.path(), &program)?, folder))
}

/// The rows of single requests, read from the stopped agent's database: no page tells of them yet.
fn rows(database: &std::path::Path, log: &CaseLog) -> Result<Vec<Row>, String> {
    const READ: &str = "import json, sqlite3, sys\nfor row in sqlite3.connect(sys.argv[1]).execute('SELECT id, outcome, status FROM requests'):\n    \
                        print(json.dumps(row))";
    let mut python = Command::new("python3");
    python.args(["-c", READ]).arg(database);
    let ran = command::run_ok("reading the rows of requests", python, Duration::from_secs(30), log)?;
    let lines = ran.output.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let row = |v: Value| Some(Row { id: v[0].as_str()?.to_owned(), outcome: v[1].as_str()?.to_owned(), status: v[2].as_u64()? });
    Ok(lines.filter_map(row).collect())
}
