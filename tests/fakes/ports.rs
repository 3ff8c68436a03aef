//! The ports of `warden_domain`, in memory, for tests of pages and API and for the page preview. Included by path; never shipped.
//!
//! In: a `World` that a test fills. Out: the same answers the real rooms give, without disk, engine or crypto. Passwords are kept in
//! the clear here, because nothing here is real.
#![allow(dead_code, reason = "each user of this file needs another part of it")]
#![allow(clippy::unwrap_used, reason = "test code: a poisoned lock is a failed test")]

#[path = "network.rs"]
pub mod network;

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::Timestamp;
use warden_domain::{
    Problem, ProblemKind,
    access::Role,
    alert::{AlertConfig, Delivery},
    change::{Changes, Topic},
    clock,
    engine::{EngineKind, EnginePack, PackState},
    front::{FrontConfig, PlainPort},
    gpu::GpuReport,
    ids::{AccountId, IssueId, KeyId, ModelId, ReplicaId},
    issue::{Finding, Fix, Issue, IssueCode, Said},
    key::Key,
    model::{Candidate, Model, ModelConfig, ModelFacts, ModelState, ReplicaState, StateReason, StateWord},
    routing::RoutingView,
    storage::Overview,
    tasks::Tasks,
    units::{Bytes, Tokens},
    usage::UsageTotals,
};

#[path = "access.rs"]
mod access;
#[path = "gpus.rs"]
mod gpus;
#[path = "hub.rs"]
pub mod hub;
#[path = "issues.rs"]
mod issues;
#[path = "models.rs"]
mod models;
#[path = "storage.rs"]
mod storage;
#[path = "updates.rs"]
pub mod updates;

/// The claim code of every unclaimed world.
pub const CLAIM_CODE: &str = "K7QM-4TXH-2WPA";
/// The secret of alerts in every world.
pub const ALERT_SECRET: &str = "whsec_of-this-world";
/// The CSRF proof of every session.
pub const CSRF: &str = "proof-of-this-session";
/// The cookie of the session a claimed world starts with.
pub const COOKIE: &str = "cookie-of-the-admin";

/// Everything the ports read and write.
#[derive(Default)]
pub struct Memory {
    /// The one account: name, password, role.
    pub account: Option<(String, String, Role)>,
    /// Cookie values.
    pub sessions: Vec<String>,
    /// Keys, newest first, with their secrets.
    pub keys: Vec<(Key, String)>,
    /// Models, oldest first.
    pub models: Vec<Model>,
    /// States by model.
    pub states: BTreeMap<ModelId, ModelState>,
    /// Files lying in the models folder.
    pub candidates: Vec<Candidate>,
    /// Engine packs.
    pub packs: Vec<EnginePack>,
    /// Requests in flight.
    pub flights: HashMap<ModelId, usize>,
    /// Where requests go, by model.
    pub routing: HashMap<ModelId, RoutingView>,
    /// Log lines by model.
    pub logs: HashMap<ModelId, Vec<String>>,
    /// Issues, open and over.
    pub issues: Vec<Issue>,
    /// Settings of alerts.
    pub alerts: AlertConfig,
    /// Messages of alerts, newest first.
    pub deliveries: Vec<Delivery>,
    /// What was decided about the front door.
    pub front: FrontConfig,
    /// In how many days its certificate ends; `None` = in more than a year.
    pub certificate_days: Option<i64>,
    /// Its plain port.
    pub plain: Option<PlainPort>,
    /// What the next changing call answers instead, once.
    pub fail_next: Option<Problem>,
    /// The code of an open password reset.
    pub reset_code: Option<String>,
    /// What was asked of the machine, and what was noted about it.
    pub deeds: Vec<String>,
    /// GPU cards; `None` = the reader has not answered yet.
    pub gpus: Option<GpuReport>,
    /// Disks and model storage.
    pub overview: Overview,
    /// Repositories of models and downloads.
    pub hub: hub::HubMemory,
    /// Updates.
    pub updates: updates::UpdateMemory,
    /// Time a load takes; `None` = it stays loading.
    pub load_takes: Option<Duration>,
}

/// One box in memory; all ports are this.
#[derive(Clone)]
pub struct World {
    /// What it knows.
    pub memory: Arc<Mutex<Memory>>,
    /// Its board of news.
    pub changes: Changes,
    /// Its network, name and clock.
    pub place: Arc<network::Place>,
    /// Its long work.
    pub tasks: Tasks,
}

impl World {
    /// A box nobody has claimed.
    pub fn fresh() -> Self {
        let memory = Memory {
            packs: vec![EnginePack { engine: EngineKind::LlamaCpp, version: Some("b11434".to_owned()), digest: None, state: PackState::Ready }],
            load_takes: Some(Duration::ZERO),
            ..Memory::default()
        };
        let changes = Changes::new();
        Self { memory: Arc::new(Mutex::new(memory)), tasks: Tasks::new(changes.clone()), changes, place: Arc::default() }
    }

    /// A claimed box with the admin `ada` signed in under `COOKIE`.
    pub fn claimed() -> Self {
        let world = Self::fresh();
        world.edit(|m| {
            m.account = Some(("ada".to_owned(), "a long enough password".to_owned(), Role::Admin));
            m.sessions.push(COOKIE.to_owned());
        });
        world
    }

    /// Changes what the box knows and tells everybody.
    pub fn edit<T>(&self, change: impl FnOnce(&mut Memory) -> T) -> T {
        let out = change(&mut self.memory.lock().unwrap());
        for topic in [Topic::Models, Topic::Keys, Topic::Engines, Topic::Issues, Topic::Storage, Topic::Updates] {
            self.changes.publish(topic);
        }
        out
    }

    /// Adds a model file to the models folder.
    pub fn lay_file(&self, name: &str, size: u64) {
        let candidate = Candidate { path: PathBuf::from(format!("/data/models/{name}.gguf")), size: Bytes(size), suggested_name: name.to_owned() };
        self.edit(|m| m.candidates.push(candidate));
    }

    /// Adds a registered model in a state.
    pub fn add_model(&self, name: &str, title: Option<&str>, state: Option<StateWord>) -> ModelId {
        let id = ModelId::from_stored(format!("mdl_{name}"));
        let model = Model {
            id: id.clone(),
            created_at: earlier(90_000),
            config: ModelConfig {
                served_name: name.to_owned(),
                path: PathBuf::from(format!("/data/models/{name}.gguf")),
                engine: EngineKind::LlamaCpp,
                context: None,
                slots: 4,
                layout: warden_domain::model::Layout::default(),
            },
            facts: ModelFacts {
                size: Bytes(144_811_008),
                architecture: Some("llama".to_owned()),
                title: title.map(ToOwned::to_owned),
                trained_context: Some(Tokens(8192)),
                has_chat_template: Some(true),
            },
        };
        self.edit(|m| {
            m.models.push(model);
            if let Some(word) = state {
                m.states.insert(id.clone(), state_of(&id, word));
            }
        });
        id
    }

    /// Adds an open issue about a subject.
    pub fn add_issue(&self, code: IssueCode, subject: &str, said: impl Into<Said>, fix: Option<Fix>) -> IssueId {
        let id = IssueId::from_stored(format!("iss_{code}"));
        let finding = Finding { code, subject: subject.to_owned(), said: said.into(), hint: "Do what helps.".to_owned(), fix };
        let issue = Issue { id: id.clone(), finding, first_seen: earlier(700), last_seen: earlier(3), resolved_at: None, dismissed: None };
        self.edit(|m| m.issues.push(issue));
        id
    }

    /// Adds a key with usage.
    pub fn add_key(&self, name: &str, usage: UsageTotals, used: bool, revoked: bool) -> KeyId {
        let id = KeyId::from_stored(format!("key_{name}"));
        let secret = format!("vw_{}secret", name.replace('-', ""));
        let key = Key {
            id: id.clone(),
            name: name.to_owned(),
            prefix: secret.chars().take(8).collect(),
            created_at: earlier(260_000),
            created_by: AccountId::from_stored("acc_ada"),
            revoked_at: revoked.then(|| earlier(3_600)),
            last_used_at: used.then(|| earlier(240)),
            usage,
        };
        self.edit(|m| m.keys.push((key, secret)));
        id
    }
}

/// A moment some seconds ago.
pub fn earlier(seconds: i64) -> Timestamp {
    Timestamp::from_second(clock::now().as_second() - seconds).unwrap()
}

/// A believable state of a model.
pub fn state_of(id: &ModelId, word: StateWord) -> ModelState {
    let replica = ReplicaState {
        id: ReplicaId::new(format!("{}-1", id.as_str().replace('_', "-").to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-"))).unwrap(),
        launch: Some("9f3c1e0a7b5d4c2f8a6e1d0b3c5a7e91".to_owned()),
        state: word,
        phase: None,
        since: earlier(372),
        reason: None,
        last_log_line: None,
        phases: Vec::new(),
        outdated: false,
    };
    let mut state = ModelState::stopped(earlier(372));
    state.state = word;
    match word {
        StateWord::Running => {
            state.context = Some(Tokens(4096));
            state.last_log_line = Some("srv  update_slots: all slots are idle".to_owned());
            state.replicas = vec![replica];
        }
        StateWord::Loading => {
            state.since = earlier(9);
            state.phase = Some("weights".to_owned());
            state.last_log_line = Some("load_tensors: loading model tensors, this can take a while... (mmap = true)".to_owned());
            state.replicas = vec![replica];
        }
        StateWord::Failed => {
            state.reason = Some(StateReason {
                code: "engine_failed".to_owned(),
                message: "The engine ended while it was reading the weights: it was killed for using more memory than the 4.0 GiB it may have."
                    .to_owned(),
                hint: Some("Choose a smaller file or a shorter context window, then load it again.".to_owned()),
            });
            state.last_log_line = Some("llama_kv_cache: size = 3072.00 MiB (131072 cells, 32 layers)".to_owned());
        }
        StateWord::Waiting => {
            state.since = earlier(40);
            state.reason = Some(StateReason {
                code: "engine_unavailable".to_owned(),
                message: "llama.cpp is still being built.".to_owned(),
                hint: Some("Loading goes on by itself when it is ready.".to_owned()),
            });
        }
        StateWord::Stopped => {}
    }
    state
}

fn not_found(what: &str, id: &str) -> Problem {
    Problem::new(ProblemKind::NotFound, format!("There is no {what} {id:?}.")).hint("Look at the list for those that exist.")
}

impl World {
    fn failing(&self) -> Result<(), Problem> {
        self.memory.lock().unwrap().fail_next.take().map_or(Ok(()), Err)
    }
}
