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

use async_trait::async_trait;
use jiff::Timestamp;
use warden_domain::{
    Problem, ProblemKind, Secret,
    access::{Accounts, ClientAddr, NewSession, Principal, Role, SetupState},
    alert::{AlertConfig, AlertState, Alerts, Delivery, DeliveryState, NewAlertConfig},
    change::{Changes, Topic},
    clock,
    engine::{EngineKind, EnginePack, Engines, Launch, Observation, PackState, ReplicaPlan},
    front::{Certificates, Front, FrontConfig, FrontState, PlainPort},
    ids::{AccountId, DeliveryId, IssueId, KeyId, ModelId, ReplicaId},
    issue::{Dismissal, Finding, Fix, Issue, IssueBoard, IssueCode, Issues},
    key::{Caller, Key, KeyDirectory, KeyRefusal, Keys, NewKey},
    machine::{Machine, Power},
    model::{Candidate, FileLook, Model, ModelConfig, ModelFacts, ModelState, NewModel, Registry, ReplicaState, StateReason, StateWord},
    recovery::{Audit, Recovery},
    replica::{Endpoint, InFlight, Replica, ReplicaTable, ServedModel, Serving},
    storage::Overview,
    tasks::Tasks,
    units::{Bytes, Tokens},
    usage::UsageTotals,
};

#[path = "storage.rs"]
mod storage;
#[path = "updates.rs"]
pub mod updates;

/// The claim code of every unclaimed world.
pub const CLAIM_CODE: &str = "K7QM-4TXH-2WPA";
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
    /// Its plain port.
    pub plain: Option<PlainPort>,
    /// What the next changing call answers instead, once.
    pub fail_next: Option<Problem>,
    /// The code of an open password reset.
    pub reset_code: Option<String>,
    /// What was asked of the machine, and what was noted about it.
    pub deeds: Vec<String>,
    /// Disks and model storage.
    pub overview: Overview,
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
    pub fn add_issue(&self, code: IssueCode, subject: &str, sentence: &str, fix: Option<Fix>) -> IssueId {
        let id = IssueId::from_stored(format!("iss_{code}"));
        let finding = Finding { code, subject: subject.to_owned(), sentence: sentence.to_owned(), hint: "Do what helps.".to_owned(), fix };
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

    fn session_of(&self, cookie: &str) -> Option<Principal> {
        let memory = self.memory.lock().unwrap();
        let (name, _, role) = memory.account.clone()?;
        memory.sessions.iter().any(|known| known == cookie).then(|| Principal {
            account: AccountId::from_stored("acc_ada"),
            username: name,
            role,
            csrf: Secret::new(CSRF.to_owned()),
        })
    }

    fn begin_session(&self) -> NewSession {
        let cookie = KeyId::random().to_string();
        self.memory.lock().unwrap().sessions.push(cookie.clone());
        let principal = self.session_of(&cookie).unwrap();
        NewSession { cookie: Secret::new(cookie), expires_at: earlier(-86_400), principal }
    }
}

#[async_trait]
impl Accounts for World {
    async fn setup_state(&self) -> Result<SetupState, Problem> {
        let done = self.memory.lock().unwrap().account.is_some();
        Ok(SetupState { done, step: if done { "done" } else { "claim" }.to_owned() })
    }

    async fn claim_code(&self) -> Result<Option<Secret<String>>, Problem> {
        Ok(self.memory.lock().unwrap().account.is_none().then(|| Secret::new(CLAIM_CODE.to_owned())))
    }

    async fn claim(&self, _: ClientAddr, code: &str, username: &str, password: &Secret<String>) -> Result<NewSession, Problem> {
        self.failing()?;
        if self.memory.lock().unwrap().account.is_some() {
            return Err(Problem::new(ProblemKind::Conflict, "This box is already set up.").hint("Sign in with the account that was made."));
        }
        if username.is_empty() || password.expose().chars().count() < 12 {
            return Err(Problem::new(ProblemKind::Invalid, "The password has fewer than 12 characters.")
                .hint("Use a few words in a row.")
                .param("password"));
        }
        if code != CLAIM_CODE {
            return Err(Problem::new(ProblemKind::Forbidden, "The claim code is not the one of this box.")
                .hint("Read it again from its screen. 9 tries are left before it changes."));
        }
        self.memory.lock().unwrap().account = Some((username.to_owned(), password.expose().clone(), Role::Admin));
        self.changes.publish(Topic::Setup);
        Ok(self.begin_session())
    }

    async fn login(&self, _: ClientAddr, username: &str, password: &Secret<String>) -> Result<NewSession, Problem> {
        self.failing()?;
        let known = self.memory.lock().unwrap().account.clone();
        match known {
            Some((name, word, _)) if name == username && word == *password.expose() => Ok(self.begin_session()),
            _ => {
                Err(Problem::new(ProblemKind::Unauthorized, "User name or password is wrong.")
                    .hint("Check both; the password has upper and lower case."))
            }
        }
    }

    async fn logout(&self, cookie: &str) -> Result<(), Problem> {
        self.memory.lock().unwrap().sessions.retain(|known| known != cookie);
        Ok(())
    }

    async fn session(&self, cookie: &str) -> Result<Option<Principal>, Problem> {
        Ok(self.session_of(cookie))
    }
}

#[async_trait]
impl Recovery for World {
    async fn reset_code(&self) -> Option<Secret<String>> {
        self.memory.lock().unwrap().reset_code.clone().map(Secret::new)
    }

    async fn admin_names(&self) -> Result<Vec<String>, Problem> {
        Ok(self.memory.lock().unwrap().account.iter().map(|(name, _, _)| name.clone()).collect())
    }

    async fn open_reset(&self, _: &str) -> Result<bool, Problem> {
        self.memory.lock().unwrap().reset_code = Some(CLAIM_CODE.to_owned());
        Ok(true)
    }

    async fn reset_password(&self, _: ClientAddr, code: &str, username: &str, password: &Secret<String>) -> Result<NewSession, Problem> {
        self.failing()?;
        {
            let mut memory = self.memory.lock().unwrap();
            let Some(right) = memory.reset_code.clone() else { return Err(Problem::new(ProblemKind::Conflict, "No password reset is open.")) };
            if code != right {
                return Err(Problem::new(ProblemKind::Forbidden, "This is not the reset code.").hint("Look at the screen.").param("reset_code"));
            }
            memory.reset_code = None;
            memory.account = Some((username.to_owned(), password.expose().clone(), Role::Admin));
        }
        Ok(self.begin_session())
    }
}

#[async_trait]
impl Audit for World {
    async fn note(&self, by: &Principal, action: &'static str, subject: Option<String>, outcome: &'static str) -> Result<(), Problem> {
        self.memory.lock().unwrap().deeds.push(format!("{} {action} {} {outcome}", by.username, subject.unwrap_or_default()));
        Ok(())
    }
}

#[async_trait]
impl Machine for World {
    fn offered(&self) -> bool {
        true
    }

    async fn power(&self, power: Power) -> Result<(), Problem> {
        self.failing()?;
        self.memory.lock().unwrap().deeds.push(format!("{power:?}"));
        Ok(())
    }

    async fn request_factory_reset(&self, keep_models: bool) -> Result<String, Problem> {
        self.failing()?;
        self.memory.lock().unwrap().deeds.push(format!("factory keep_models={keep_models}"));
        Ok("00112233445566778899aabbccddeeff".to_owned())
    }

    async fn handed_admin_reset(&self) -> Option<String> {
        None
    }

    async fn confirm_admin_reset(&self, _: &str) -> Result<(), Problem> {
        Ok(())
    }
}

#[async_trait]
impl Keys for World {
    async fn list(&self) -> Result<Vec<Key>, Problem> {
        Ok(self.memory.lock().unwrap().keys.iter().map(|(key, _)| key.clone()).collect())
    }

    async fn create(&self, by: &AccountId, name: &str) -> Result<NewKey, Problem> {
        self.failing()?;
        if name.is_empty() || name.chars().count() > 64 {
            return Err(Problem::new(ProblemKind::Invalid, "A key needs a name of 1 to 64 characters.").param("name"));
        }
        if self.memory.lock().unwrap().keys.iter().any(|(key, _)| key.name == name) {
            return Err(Problem::new(ProblemKind::Conflict, format!("There is a key named {name:?} already.")).hint("Choose another name."));
        }
        let secret = "vw_Zk3nQ8rT1vXy6bD0fHj2LmPs5uWa9cEgIiKoMqOtRwU".to_owned();
        let key = Key {
            id: KeyId::random(),
            name: name.to_owned(),
            prefix: secret.chars().take(8).collect(),
            created_at: clock::now(),
            created_by: by.clone(),
            revoked_at: None,
            last_used_at: None,
            usage: UsageTotals::default(),
        };
        self.edit(|m| m.keys.insert(0, (key.clone(), secret.clone())));
        Ok(NewKey { key, secret: Secret::new(secret) })
    }

    async fn revoke(&self, id: &KeyId) -> Result<Key, Problem> {
        self.failing()?;
        self.edit(|m| {
            let (key, _) = m.keys.iter_mut().find(|(key, _)| key.id == *id).ok_or_else(|| not_found("key", id.as_str()))?;
            key.revoked_at.get_or_insert_with(clock::now);
            Ok(key.clone())
        })
    }
}

impl KeyDirectory for World {
    fn identify(&self, secret: &str) -> Result<Caller, KeyRefusal> {
        let memory = self.memory.lock().unwrap();
        let (key, _) = memory.keys.iter().find(|(_, known)| known == secret).ok_or(KeyRefusal::Unknown)?;
        match key.revoked_at {
            Some(_) => Err(KeyRefusal::Revoked),
            None => Ok(Caller { key: Some(key.id.clone()), name: key.name.clone() }),
        }
    }
}

#[async_trait]
impl Registry for World {
    async fn list(&self) -> Result<Vec<Model>, Problem> {
        Ok(self.memory.lock().unwrap().models.clone())
    }

    async fn get(&self, id: &ModelId) -> Result<Model, Problem> {
        self.memory.lock().unwrap().models.iter().find(|model| model.id == *id).cloned().ok_or_else(|| not_found("model", id.as_str()))
    }

    async fn register(&self, new: NewModel) -> Result<Model, Problem> {
        self.failing()?;
        let path = if new.path.is_absolute() { new.path.clone() } else { PathBuf::from("/data/models").join(&new.path) };
        let found = self.memory.lock().unwrap().candidates.iter().find(|candidate| candidate.path == path).cloned();
        let Some(candidate) = found else {
            return Err(Problem::new(ProblemKind::BadModelFile, format!("{} does not exist.", path.display()))
                .hint("Copy the file into the models folder and try again.")
                .param("path"));
        };
        let name = new.served_name.unwrap_or(candidate.suggested_name);
        if self.memory.lock().unwrap().models.iter().any(|model| model.config.served_name == name) {
            return Err(Problem::new(ProblemKind::Conflict, format!("There is a model named {name:?} already.")).hint("Give it another name."));
        }
        let id = self.add_model(&name, None, None);
        self.edit(|m| {
            m.candidates.retain(|candidate| candidate.path != path);
            let model = m.models.iter_mut().find(|model| model.id == id).unwrap();
            model.config.path = path;
            model.config.context = new.context;
            model.config.slots = new.slots.unwrap_or(4);
            model.created_at = clock::now();
            Ok(model.clone())
        })
    }

    async fn remove(&self, id: &ModelId) -> Result<(), Problem> {
        self.failing()?;
        self.get(id).await?;
        if self.states().get(id).is_some_and(|state| !matches!(state.state, StateWord::Stopped | StateWord::Failed)) {
            return Err(Problem::new(ProblemKind::Conflict, "The model is loaded.").hint("Unload it first."));
        }
        self.edit(|m| {
            m.models.retain(|model| model.id != *id);
            m.states.remove(id);
        });
        Ok(())
    }

    async fn candidates(&self) -> Result<Vec<Candidate>, Problem> {
        Ok(self.memory.lock().unwrap().candidates.clone())
    }

    async fn verify(&self, id: &ModelId) -> Result<(), Problem> {
        self.get(id).await.map(drop)
    }

    async fn file_looks(&self) -> Result<Vec<(Model, FileLook)>, Problem> {
        Ok(self.memory.lock().unwrap().models.iter().map(|model| (model.clone(), FileLook::Whole)).collect())
    }
}

#[async_trait]
impl Serving for World {
    fn table(&self) -> Arc<ReplicaTable> {
        let memory = self.memory.lock().unwrap();
        let running = |model: &&Model| memory.states.get(&model.id).is_some_and(|state| state.state == StateWord::Running);
        let models = memory.models.iter().filter(running).map(|model| {
            let replica = Replica {
                id: ReplicaId::new("fake-1").unwrap(),
                launch: "launch".to_owned(),
                endpoint: Endpoint::Unix(PathBuf::from("/nowhere.sock")),
            };
            let served = ServedModel {
                id: model.id.clone(),
                served_name: model.config.served_name.clone(),
                context: Some(Tokens(4096)),
                created: model.created_at.as_second(),
                replicas: vec![replica],
            };
            (model.config.served_name.clone(), served)
        });
        Arc::new(ReplicaTable { models: models.collect() })
    }

    fn states(&self) -> Arc<BTreeMap<ModelId, ModelState>> {
        Arc::new(self.memory.lock().unwrap().states.clone())
    }

    async fn load(&self, id: &ModelId) -> Result<(), Problem> {
        self.failing()?;
        self.get(id).await?;
        if self.states().get(id).is_some_and(|state| matches!(state.state, StateWord::Running | StateWord::Loading)) {
            return Err(Problem::new(ProblemKind::Conflict, "The model is loaded or loading already."));
        }
        let mut loading = state_of(id, StateWord::Loading);
        loading.since = clock::now();
        let takes = self.edit(|m| {
            m.states.insert(id.clone(), loading);
            m.logs.insert(id.clone(), (1..=40).map(|n| format!("load_tensors: tensor {n} of 272 read")).collect());
            m.load_takes
        });
        let (world, id) = (self.clone(), id.clone());
        if let Some(takes) = takes {
            tokio::spawn(async move {
                tokio::time::sleep(takes).await;
                world.edit(|m| {
                    if m.states.get(&id).is_some_and(|state| state.state == StateWord::Loading) {
                        let mut running = state_of(&id, StateWord::Running);
                        running.since = clock::now();
                        m.states.insert(id, running);
                    }
                });
            });
        }
        Ok(())
    }

    async fn unload(&self, id: &ModelId) -> Result<(), Problem> {
        self.failing()?;
        self.get(id).await?;
        self.edit(|m| m.states.insert(id.clone(), ModelState::stopped(clock::now())));
        Ok(())
    }

    async fn log_tail(&self, id: &ModelId, lines: usize) -> Result<Vec<String>, Problem> {
        self.get(id).await?;
        let log = self.memory.lock().unwrap().logs.get(id).cloned().unwrap_or_default();
        Ok(log[log.len().saturating_sub(lines)..].to_vec())
    }
}

impl InFlight for World {
    fn of_model(&self, id: &ModelId) -> usize {
        self.memory.lock().unwrap().flights.get(id).copied().unwrap_or(0)
    }
}

#[async_trait]
impl Engines for World {
    async fn packs(&self) -> Vec<EnginePack> {
        self.memory.lock().unwrap().packs.clone()
    }

    async fn start(&self, _: &ReplicaPlan) -> Result<Launch, Problem> {
        Err(Problem::internal("There is no engine in this world."))
    }

    async fn stop(&self, _: &ReplicaId) -> Result<(), Problem> {
        Ok(())
    }

    async fn running(&self) -> Result<Vec<Launch>, Problem> {
        Ok(Vec::new())
    }

    async fn observe(&self, _: &Launch) -> Observation {
        Observation::Starting { phase: None, last_line: None }
    }

    async fn log_tail(&self, _: &ReplicaId, _: usize) -> Vec<String> {
        Vec::new()
    }
}

impl World {
    fn open_issue<T>(&self, id: &IssueId, change: impl FnOnce(&mut Issue) -> T) -> Result<T, Problem> {
        self.failing()?;
        self.edit(|m| {
            let issue = m.issues.iter_mut().find(|issue| issue.id == *id && issue.resolved_at.is_none());
            issue.map(change).ok_or_else(|| not_found("open issue", id.as_str()))
        })
    }
}

#[async_trait]
impl Issues for World {
    fn board(&self) -> Arc<IssueBoard> {
        let open = self.memory.lock().unwrap().issues.iter().filter(|issue| issue.resolved_at.is_none()).cloned().collect();
        Arc::new(IssueBoard { open, checked_at: Some(earlier(2)), ..IssueBoard::default() })
    }

    async fn resolved(&self, most: usize) -> Result<Vec<Issue>, Problem> {
        Ok(self.memory.lock().unwrap().issues.iter().filter(|issue| issue.resolved_at.is_some()).take(most).cloned().collect())
    }

    async fn check_now(&self) -> Result<(), Problem> {
        self.failing()
    }

    async fn dismiss(&self, by: &AccountId, id: &IssueId, reason: Option<&str>) -> Result<Issue, Problem> {
        let dismissal = Dismissal { at: clock::now(), by: by.clone(), reason: reason.map(ToOwned::to_owned) };
        self.open_issue(id, |issue| {
            issue.dismissed = Some(dismissal);
            issue.clone()
        })
    }

    async fn recall(&self, _: &AccountId, id: &IssueId) -> Result<Issue, Problem> {
        self.open_issue(id, |issue| {
            issue.dismissed = None;
            issue.clone()
        })
    }

    async fn fix(&self, _: &AccountId, id: &IssueId) -> Result<(), Problem> {
        let fix = self.open_issue(id, |issue| issue.finding.fix.clone())?;
        match fix {
            None => Err(Problem::new(ProblemKind::Conflict, "It has no fix of one click.")),
            Some(Fix::LoadModel(model)) => Serving::load(self, &model).await,
            Some(_) => Ok(()),
        }
    }
}

/// The secret of alerts in every world.
pub const ALERT_SECRET: &str = "whsec_of-this-world";

#[async_trait]
impl Alerts for World {
    async fn config(&self) -> Result<AlertConfig, Problem> {
        Ok(self.memory.lock().unwrap().alerts.clone())
    }

    async fn set(&self, _: &AccountId, new: NewAlertConfig) -> Result<Option<Secret<String>>, Problem> {
        self.failing()?;
        if new.enabled && !new.url.starts_with("http://") {
            return Err(Problem::new(ProblemKind::Invalid, "Alerts cannot be sent there.").hint("Give an address.").param("url"));
        }
        Ok(self.edit(|m| {
            let made = new.new_secret || (new.enabled && !m.alerts.has_secret);
            m.alerts = AlertConfig { enabled: new.enabled, url: new.url, codes: new.codes, has_secret: m.alerts.has_secret || made };
            made.then(|| Secret::new(ALERT_SECRET.to_owned()))
        }))
    }

    async fn test(&self, _: &AccountId) -> Result<DeliveryId, Problem> {
        self.failing()?;
        let id = DeliveryId::random();
        let state = DeliveryState::Waiting { next_at: clock::now() };
        let delivery = Delivery { id: id.clone(), event: "test".to_owned(), code: None, made_at: clock::now(), tries: 0, state, last_result: None };
        self.edit(|m| m.deliveries.insert(0, delivery));
        Ok(id)
    }

    async fn state(&self, most: usize) -> Result<AlertState, Problem> {
        let latest: Vec<Delivery> = self.memory.lock().unwrap().deliveries.iter().take(most).cloned().collect();
        Ok(AlertState { waiting: latest.iter().filter(|d| matches!(d.state, DeliveryState::Waiting { .. })).count(), latest })
    }
}

#[async_trait]
impl Front for World {
    fn config(&self) -> FrontConfig {
        self.memory.lock().unwrap().front.clone()
    }

    fn state(&self) -> FrontState {
        let config = Front::config(self);
        let mut names = vec!["test-box".to_owned(), "test-box.local".to_owned()];
        names.extend(config.names);
        let certificates = Certificates {
            authority_pem: "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n".to_owned(),
            authority_der: vec![0x30],
            authority_fingerprint: ["A1"; 32].join(":"),
            leaf_fingerprint: ["B2"; 32].join(":"),
            names: names.clone(),
            addresses: vec!["192.168.1.20".parse().unwrap()],
            issued_at: earlier(600),
            valid_until: earlier(-86_400 * 390),
        };
        let kept = self.memory.lock().unwrap().plain.clone();
        let plain = kept.unwrap_or(if config.plain_http { PlainPort::Open } else { PlainPort::Closed });
        FrontState { certificates: Some(certificates), names, plain }
    }

    fn is_own_name(&self, name: &str) -> bool {
        name.eq_ignore_ascii_case("box")
    }

    async fn configure(&self, _: &AccountId, config: FrontConfig) -> Result<(), Problem> {
        if let Some(problem) = self.memory.lock().unwrap().fail_next.take() {
            return Err(problem);
        }
        self.memory.lock().unwrap().front = config;
        self.changes.publish(Topic::Front);
        Ok(())
    }
}
