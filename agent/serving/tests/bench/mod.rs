//! A whole serving room on the genuine engine: store, registry, process runner, in a folder of its own. Ends every engine it started.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests: what they need and do not get fails the test")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http_body_util::{BodyExt, Full};
use hyper::{Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{net::UnixStream, time::Instant};
use warden_domain::{
    change::Changes,
    engine::Engines,
    gpu::NoGpus,
    ids::{ModelId, ReplicaId},
    model::{Model, ModelState, NewModel, Registry, StateWord},
    replica::{Endpoint, InFlight, Serving},
};
use warden_engines::{ProcessConfig, ProcessEngines};
use warden_fixtures::{TinyModel, engine::genuine_llama_server};
use warden_models::{Models, ModelsConfig};
use warden_serving::{ServingParts, ServingRoom, ServingRules};
use warden_store::Store;

/// Requests in flight, as a test sets them.
#[derive(Default)]
pub struct Flights(pub AtomicUsize);

impl InFlight for Flights {
    fn of_model(&self, _: &ModelId) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn of_replica(&self, _: &ModelId, _: &ReplicaId) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

pub struct Bench {
    pub dir: tempfile::TempDir,
    pub store: Store,
    pub changes: Changes,
    pub models: Arc<Models>,
    pub flights: Arc<Flights>,
    pub engines: Arc<ProcessEngines>,
    pub rules: ServingRules,
}

impl Bench {
    /// Everything but the room, with the engine ready.
    pub fn new() -> Self {
        let program = genuine_llama_server().unwrap_or_else(|sentence| panic!("{sentence}"));
        let bench = Self::without_engine();
        bench.engine_is(&format!(r#"{{"engine":"llama.cpp","version":"b0","state":"ready","program":"{}"}}"#, program.display()));
        bench
    }

    pub fn without_engine() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["models", "engines"] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        TinyModel::default().write(&dir.path().join("models/tiny.gguf")).unwrap();
        let store = Store::open(&dir.path().join("state")).unwrap();
        let changes = Changes::new();
        let config = ModelsConfig { models_dir: dir.path().join("models"), allowed_roots: vec![] };
        let models = Models::new(store.clone(), config, changes.clone());
        let engines = runner(dir.path(), &changes);
        Self { dir, store, changes, models, flights: Arc::default(), engines, rules: ServingRules::default() }
    }

    pub fn engine_is(&self, text: &str) {
        fs::write(self.path("engines/llama.cpp.json"), text).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub async fn register(&self, name: &str) -> Model {
        let new = NewModel { path: "tiny.gguf".into(), served_name: Some(name.to_owned()), slots: Some(2), ..NewModel::default() };
        self.models.register(new).await.unwrap()
    }

    pub async fn room(&self) -> Arc<ServingRoom> {
        ServingRoom::start(ServingParts {
            store: self.store.clone(),
            registry: self.models.clone(),
            engines: self.engines.clone(),
            flights: self.flights.clone(),
            gpus: Arc::new(NoGpus),
            rules: self.rules.clone(),
            evidence_dir: self.path("state/evidence"),
            launches_dir: self.path("state/launches"),
            changes: self.changes.clone(),
        })
        .await
        .unwrap()
    }

    /// A runner as a restarted agent would make it: no memory of the one before.
    pub fn restart_runner(&mut self) {
        self.engines = runner(self.dir.path(), &self.changes);
    }
}

fn runner(dir: &Path, changes: &Changes) -> Arc<ProcessEngines> {
    let config = ProcessConfig { engines_dir: dir.join("engines"), runtime_dir: dir.join("run"), log_dir: dir.join("logs") };
    ProcessEngines::new(config, changes.clone()).unwrap()
}

/// No process may outlive its test, whatever the test found.
impl Drop for Bench {
    fn drop(&mut self) {
        for pid in self.engine_pids() {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        }
    }
}

impl Bench {
    /// Living processes whose command line names this bench's folder.
    pub fn engine_pids(&self) -> Vec<i32> {
        let folder = self.dir.path().to_str().unwrap().to_owned();
        fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
            .filter(|pid| *pid != i32::try_from(std::process::id()).unwrap())
            .filter(|pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(&folder)))
            .filter(|pid| fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z ")))
            .collect()
    }
}

/// Waits until the model is in a state; panics with what it saw instead.
pub async fn wait_for(room: &ServingRoom, id: &ModelId, word: StateWord, limit: Duration) -> ModelState {
    let deadline = Instant::now() + limit;
    loop {
        let state = room.states().get(id).cloned();
        match state {
            Some(state) if state.state == word => return state,
            None if word == StateWord::Stopped => return ModelState::stopped(warden_domain::clock::now()),
            other if Instant::now() > deadline => panic!("not {word:?} within {limit:?}: {other:?}"),
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Waits until something holds of the model's state; panics with what it saw instead.
pub async fn wait_until(room: &ServingRoom, id: &ModelId, what: &str, holds: impl Fn(&ModelState) -> bool) -> ModelState {
    let deadline = Instant::now() + LOAD;
    loop {
        let state = room.states().get(id).cloned();
        match state {
            Some(state) if holds(&state) => return state,
            other if Instant::now() > deadline => panic!("never {what}: {other:?}"),
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

pub const LOAD: Duration = Duration::from_secs(60);

/// Asks the model itself, through the socket in the table.
pub async fn chat(room: &ServingRoom, name: &str) -> String {
    let table = room.table();
    let Endpoint::Unix(socket) = &table.models[name].replicas[0].endpoint else { panic!("not a Unix socket") };
    let stream = UnixStream::connect(socket).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let driver = tokio::spawn(connection);
    let body = r#"{"messages":[{"role":"user","content":"hello"}],"max_tokens":8}"#;
    let request = Request::post("/v1/chat/completions").header("host", "engine").body(Full::new(Bytes::from(body))).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    let status = answer.status();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    driver.abort();
    assert!(status.is_success(), "{status}: {bytes:?}");
    let document: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(document["model"], name);
    document["usage"]["completion_tokens"].to_string()
}

/// What the runner says runs now.
pub async fn running(bench: &Bench) -> Vec<String> {
    bench.engines.running().await.unwrap().into_iter().map(|found| found.launch.launch).collect()
}
