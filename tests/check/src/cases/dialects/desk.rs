//! What the cases of this list share: an agent with one model behind it, a key, and questions in each dialect.
//!
//! The engine is the genuine llama.cpp with the tiny model, or the scripted one, which answers what its script says and writes down what it
//! was asked. Both are started by the agent's own runner, the same way.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use warden_fake_engine::Folder;
use warden_fixtures::TinyModel;

use crate::agent::{AgentSetup, AgentUnderTest};
use crate::command;
use crate::console::Console;
use crate::http::Reply;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// The model's name for clients.
pub const MODEL: &str = "tiny";
/// Time for the engine to come up.
const LOAD: Duration = Duration::from_secs(90);

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// The genuine llama.cpp with the tiny model.
    Genuine,
    /// The genuine llama.cpp with the tiny model's wide twin, which coding clients can work with.
    Wide,
    /// The scripted engine.
    Scripted,
    /// The same, with a model that takes images.
    Seeing,
}

/// How a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/messages`
    Messages,
    /// `/v1/responses`
    Responses,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Chat, Self::Messages, Self::Responses];

    /// Its path.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Messages => "/v1/messages",
            Self::Responses => "/v1/responses",
        }
    }

    /// A short question in it.
    pub fn question(self, text: &str, streamed: bool) -> Value {
        let said = json!([{"role": "user", "content": text}]);
        match self {
            Self::Chat => json!({"model": MODEL, "messages": said, "stream": streamed, "max_tokens": 200}),
            Self::Messages => json!({"model": MODEL, "messages": said, "stream": streamed, "max_tokens": 200}),
            Self::Responses => json!({"model": MODEL, "input": said, "stream": streamed, "max_output_tokens": 200}),
        }
    }
}

/// One server-sent event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its name; empty when it has none.
    pub name: String,
    /// Its data; `[DONE]` is a string, as it is no JSON.
    pub data: Value,
}

/// A streamed answer, read to its end.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Its status.
    pub status: u16,
    /// Its events.
    pub events: Vec<Event>,
    /// How many comments came between.
    pub comments: usize,
    /// What came instead of events.
    pub other: String,
    /// Why it broke off; `None` when it was closed as it should be.
    pub broke: Option<String>,
}

impl Told {
    /// The events' names, in order.
    pub fn names(&self) -> Vec<&str> {
        self.events.iter().map(|e| e.name.as_str()).collect()
    }
}

/// The agent and its model.
pub struct Desk {
    /// The agent.
    pub agent: AgentUnderTest,
    /// The admin's visitor.
    pub console: Console,
    /// A key.
    pub key: String,
    scripted: Option<(Folder, tempfile::TempDir)>,
    /// What the engine had noted when the last question was put.
    noted: AtomicUsize,
}

impl Desk {
    /// Starts an agent (`program`: another one than the tree's) with one replica of the model, `context` tokens long. `more` are further
    /// lines of the agent's configuration.
    pub fn start(stage: &mut Stage, task: &Task, program: Option<PathBuf>, behind: Behind, context: u32, more: &str) -> Result<Self, String> {
        let program = match program {
            Some(program) => program,
            None => stage.agent_program(&task.log)?,
        };
        let (engine, scripted) = match behind {
            Behind::Genuine | Behind::Wide => (stage.engine_program(&task.log)?, None),
            Behind::Scripted | Behind::Seeing => {
                let (folder, kept) = scripted_engine(stage, task)?;
                folder.script(&json!({"vision": behind == Behind::Seeing}))?;
                (folder.program(), Some((folder, kept)))
            }
        };
        let setup = AgentSetup { more: more.to_owned(), ..AgentSetup::dev(program, engine) };
        let mut agent = AgentUnderTest::start(setup, &task.log)?;
        let path = agent.model_path("tiny.gguf");
        TinyModel { context, wide: behind == Behind::Wide, ..TinyModel::default() }
            .write(&path)
            .map_err(|e| format!("the tiny model {}: {e}", path.display()))?;
        let console = agent.claimed()?;
        let body = json!({"path": "tiny.gguf", "served_model_name": MODEL, "context": context});
        let made = console.expect("POST", "/api/models", Some(&body), &[200, 201])?.json();
        let id = made["id"].as_str().ok_or_else(|| format!("the registered model has no id: {made}"))?.to_owned();
        console.load(&id)?;
        console.wait_state(&id, &["running"], LOAD)?;
        let (_, key) = console.make_key("dialects")?;
        Ok(Self { agent, console, key, scripted, noted: AtomicUsize::new(0) })
    }

    /// The scripted engine: what it is to do, and what it noted.
    pub fn engine(&self) -> Result<&Folder, String> {
        self.scripted.as_ref().map(|(folder, _)| folder).ok_or_else(|| "this engine is genuine and has no script".to_owned())
    }

    /// What the scripted engine does from now on.
    pub fn script(&self, script: &Value) -> Result<(), String> {
        self.engine()?.script(script)
    }

    /// What the scripted engine was asked since it was started, one document each.
    pub fn asked(&self) -> Result<Vec<Value>, String> {
        Ok(self.engine()?.asked())
    }

    /// Asks and reads the whole answer.
    pub fn ask(&self, path: &str, body: &[u8]) -> Result<Reply, String> {
        self.ask_as(path, &[("content-type", "application/json")], body)
    }

    /// The same with these headers and the key.
    pub fn ask_as(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Reply, String> {
        self.begin();
        let bearer = format!("Bearer {}", self.key);
        let headers: Vec<(&str, &str)> = headers.iter().copied().chain([("authorization", bearer.as_str())]).collect();
        self.console.http.send("POST", path, &headers, Some(body))
    }

    /// The body with which the last request reached the scripted engine's chat, as text.
    pub fn reached(&self) -> Result<String, String> {
        let before = self.noted.load(Ordering::Relaxed);
        let body = |a: &Value| (a["path"] == Dialect::Chat.path()).then(|| a["body"].as_str().map(str::to_owned))?;
        // It is noted when all is over, which the client may know first.
        self.engine()?
            .wait("the engine notes what it was asked", Duration::from_secs(5), |engine| engine.asked().iter().skip(before).rev().find_map(body))
    }

    fn begin(&self) {
        if let Ok(engine) = self.engine() {
            self.noted.store(engine.asked().len(), Ordering::Relaxed);
        }
    }

    /// Asks and reads the events of the answer to the end, whatever end that is.
    pub fn listen(&self, path: &str, body: &[u8]) -> Result<Told, String> {
        self.begin();
        let bearer = format!("Bearer {}", self.key);
        let headers = [("content-type", "application/json"), ("authorization", bearer.as_str())];
        let mut stream = self.console.http.stream("POST", path, &headers, Some(body))?;
        let mut told = Told { status: stream.status, ..Told::default() };
        let mut name = String::new();
        loop {
            let line = match stream.next_line() {
                Ok(Some((_, line))) => line,
                Ok(None) => return Ok(told),
                Err(cause) => {
                    told.broke = Some(cause);
                    return Ok(told);
                }
            };
            if let Some(said) = line.strip_prefix("event: ") {
                name = said.to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                let data = serde_json::from_str(data).unwrap_or_else(|_| Value::from(data));
                told.events.push(Event { name: std::mem::take(&mut name), data });
            } else if line.starts_with(':') {
                told.comments += 1;
            } else if !line.is_empty() {
                told.other.push_str(&line);
            }
        }
    }

    /// Ends the agent and looks for what it left.
    pub fn end(mut self, result: &mut CaseResult) -> Result<(), String> {
        result.expect(!self.agent.said().contains("panicked"), "the agent's log shows no panic");
        let code = self.agent.stop(Duration::from_secs(40))?;
        let left = self.agent.engines().len();
        result.expect(code == Some(0) && left == 0, format!("the agent ends cleanly and leaves no engine (exit code {code:?}, {left} engines)"));
        Ok(())
    }
}

/// A folder of its own with the scripted engine in it, under the name of the genuine one. It is built from the tree, or named by
/// `WARDEN_FAKE_ENGINE`.
fn scripted_engine(stage: &Stage, task: &Task) -> Result<(Folder, tempfile::TempDir), String> {
    let program = match std::env::var_os("WARDEN_FAKE_ENGINE") {
        Some(path) => PathBuf::from(path),
        None => {
            let mut cargo = stage.in_tree("cargo");
            cargo.args(["build", "--quiet", "-p", "warden-fake-engine"]);
            command::run_ok("building the scripted engine", cargo, Duration::from_secs(900), &task.log)?;
            stage.places.debug_program("warden-fake-engine")
        }
    };
    let kept = tempfile::Builder::new().prefix("engine").tempdir().map_err(|e| format!("no temporary folder: {e}"))?;
    Ok((Folder::lay(kept.path(), &program)?, kept))
}
