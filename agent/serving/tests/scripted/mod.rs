//! A serving room on engines that do what a test says: real store and registry, no processes. They come in through the port that the real
//! runners use.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests: what they need and do not get fails the test")]

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use tokio::time::Instant;
use warden_domain::{
    Problem, ProblemKind,
    change::Changes,
    engine::{
        Activity, Answering, Capacity, EngineKind, EnginePack, Engines, Found, Launch, LoadView, Observation, PackState, ReplicaPlan, ReplicaSample,
    },
    gpu::{GpuCard, GpuReading, GpuSnapshot, Gpus, PcieLink},
    ids::{GpuId, ModelId, ReplicaId},
    model::{Candidate, FileLook, Layout, Model, ModelChange, ModelState, NewModel, Registry, StateReason},
    replica::{Endpoint, InFlight, Serving},
    units::Tokens,
};
use warden_fixtures::TinyModel;
use warden_models::{Models, ModelsConfig};
use warden_serving::{ServingParts, ServingRoom, ServingRules};
use warden_store::Store;

/// What an engine does.
#[derive(Clone, Debug)]
pub enum Mode {
    Answers,
    Loads(LoadView),
    Silent,
    Gone(&'static str),
}

#[derive(Default)]
struct Memory {
    runs: BTreeMap<ReplicaId, (Launch, Mode)>,
    plans: BTreeMap<ReplicaId, ReplicaPlan>,
    agent: u32,
    cut: Option<usize>,
    cut_reached: bool,
    clashes: Vec<String>,
    hangs: HashSet<&'static str>,
    next: HashMap<String, Mode>,
    started: Vec<ReplicaPlan>,
    stopped: Vec<ReplicaId>,
    unstoppable: HashSet<String>,
    samples: HashMap<String, ReplicaSample>,
    processor: Duration,
    flights: HashMap<String, usize>,
    gpus: Option<GpuSnapshot>,
    launches: u32,
}

/// Engines, requests and cards in one.
#[derive(Clone, Default)]
pub struct Script {
    memory: Arc<Mutex<Memory>>,
    /// Which agent it works for; those of before are dead.
    agent: u32,
}

impl Script {
    /// What a replica's next launches do; answering is the rule.
    pub fn next(&self, replica: &str, mode: Mode) {
        self.memory.lock().unwrap().next.insert(replica.to_owned(), mode);
    }

    /// What the running launch of a replica does from now on.
    pub fn now(&self, replica: &str, mode: Mode) {
        let mut memory = self.memory.lock().unwrap();
        memory.runs.get_mut(&ReplicaId::new(replica).unwrap()).unwrap_or_else(|| panic!("{replica} does not run")).1 = mode;
    }

    /// Whether a replica's engine can be stopped from now on.
    pub fn stops(&self, replica: &str, can: bool) {
        let mut memory = self.memory.lock().unwrap();
        if can {
            memory.unstoppable.remove(replica);
        } else {
            memory.unstoppable.insert(replica.to_owned());
        }
    }

    pub fn in_flight(&self, replica: &str, requests: usize) {
        self.memory.lock().unwrap().flights.insert(replica.to_owned(), requests);
    }

    pub fn figures(&self, replica: &str, sample: ReplicaSample) {
        self.memory.lock().unwrap().samples.insert(replica.to_owned(), sample);
    }

    pub fn works(&self, so_far: Duration) {
        self.memory.lock().unwrap().processor = so_far;
    }

    pub fn cards(&self, ids: &[&str]) {
        self.reader(GpuReading::Live, ids);
    }

    /// What the reader of cards tells from now on.
    pub fn reader(&self, reading: GpuReading, ids: &[&str]) {
        let card = |(id, index): (&&str, u32)| GpuCard {
            index,
            id: GpuId::from_stored(*id),
            minor: Some(index),
            name: None,
            pci: None,
            memory_total: None,
            memory_used: None,
            utilisation_ratio: None,
            temperature: None,
            temperature_limit: None,
            power: None,
            power_cap: None,
            link: PcieLink::default(),
            holders: None,
        };
        let cards = ids.iter().zip(0..).map(card).collect();
        self.memory.lock().unwrap().gpus = Some(GpuSnapshot { reading, driver: None, simulated: true, cards });
    }

    pub fn started(&self) -> Vec<ReplicaPlan> {
        self.memory.lock().unwrap().started.clone()
    }

    pub fn stopped(&self) -> Vec<String> {
        self.memory.lock().unwrap().stopped.iter().map(ToString::to_string).collect()
    }

    /// The agent dies at its so-many-th step of starting and stopping: before it, or after it and before it knows.
    pub fn cut_after(&self, steps: usize) {
        self.memory.lock().unwrap().cut = Some(steps);
    }

    pub fn cut_reached(&self) -> bool {
        self.memory.lock().unwrap().cut_reached
    }

    /// The agent is dead: whatever it still asks is never answered. The engines go on.
    pub fn agent_dies(&self) {
        let mut memory = self.memory.lock().unwrap();
        memory.agent += 1;
        (memory.cut, memory.cut_reached) = (None, false);
    }

    /// The engines, for the agent of now.
    fn for_agent(&self) -> Self {
        Self { memory: Arc::clone(&self.memory), agent: self.memory.lock().unwrap().agent }
    }

    /// Whether a question (`packs`, `running`) is never answered.
    pub fn hangs(&self, question: &'static str, whether: bool) {
        let mut memory = self.memory.lock().unwrap();
        if whether {
            memory.hangs.insert(question);
        } else {
            memory.hangs.remove(question);
        }
    }

    /// What runs, as it was planned.
    pub fn plans(&self) -> Vec<ReplicaPlan> {
        self.memory.lock().unwrap().plans.values().cloned().collect()
    }

    /// Engines that were started on a card of another.
    pub fn clashes(&self) -> Vec<String> {
        self.memory.lock().unwrap().clashes.clone()
    }

    async fn step(&self) {
        let lives = {
            let mut memory = self.memory.lock().unwrap();
            let same = memory.agent == self.agent;
            match &mut memory.cut {
                _ if !same => false,
                Some(0) => {
                    memory.cut_reached = true;
                    false
                }
                Some(left) => {
                    *left -= 1;
                    true
                }
                None => true,
            }
        };
        if !lives {
            std::future::pending::<()>().await;
        }
    }

    async fn hang(&self, question: &str) {
        while self.memory.lock().unwrap().hangs.contains(question) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// As after a reboot: no process is left.
    pub fn power_off(&self) {
        let mut memory = self.memory.lock().unwrap();
        memory.runs.clear();
        memory.plans.clear();
    }
}

impl Script {
    fn begin(&self, plan: &ReplicaPlan) -> Launch {
        let mut memory = self.memory.lock().unwrap();
        memory.launches += 1;
        let launch = Launch {
            replica: plan.replica.clone(),
            launch: format!("launch-{}", memory.launches),
            endpoint: Endpoint::Unix(format!("/nowhere/{}.sock", plan.replica).into()),
        };
        let taken = memory.plans.values().find(|other| other.replica != plan.replica && other.gpus.iter().any(|card| plan.gpus.contains(card)));
        let clash = taken.map(|other| format!("{} was started on {:?}, which {} has", plan.replica, plan.gpus, other.replica));
        memory.clashes.extend(clash);
        let mode = memory.next.get(plan.replica.as_str()).cloned().unwrap_or(Mode::Answers);
        memory.runs.insert(plan.replica.clone(), (launch.clone(), mode));
        memory.plans.insert(plan.replica.clone(), plan.clone());
        memory.started.push(plan.clone());
        launch
    }

    fn end(&self, replica: &ReplicaId) -> Result<(), Problem> {
        let mut memory = self.memory.lock().unwrap();
        if memory.unstoppable.contains(replica.as_str()) {
            return Err(Problem::new(ProblemKind::SystemService, format!("The processes of {replica} do not end.")));
        }
        memory.runs.remove(replica);
        memory.plans.remove(replica);
        memory.stopped.push(replica.clone());
        Ok(())
    }
}

#[async_trait]
impl Engines for Script {
    async fn packs(&self) -> Vec<EnginePack> {
        self.hang("packs").await;
        vec![EnginePack { engine: EngineKind::LlamaCpp, version: None, digest: None, state: PackState::Ready }]
    }

    async fn start(&self, plan: &ReplicaPlan) -> Result<Launch, Problem> {
        self.step().await;
        let launch = self.begin(plan);
        self.step().await;
        Ok(launch)
    }

    async fn stop(&self, replica: &ReplicaId) -> Result<(), Problem> {
        self.step().await;
        self.end(replica)?;
        self.step().await;
        Ok(())
    }

    async fn running(&self) -> Result<Vec<Found>, Problem> {
        self.hang("running").await;
        let memory = self.memory.lock().unwrap();
        let generation = |replica| memory.plans.get(replica).map(|plan| plan.generation.clone());
        Ok(memory.runs.values().map(|(launch, _)| Found { launch: launch.clone(), generation: generation(&launch.replica) }).collect())
    }

    async fn observe(&self, launch: &Launch) -> Observation {
        let memory = self.memory.lock().unwrap();
        let gone = |why: &str| Observation::Gone { reason: StateReason { code: "engine_crashed".to_owned(), message: why.to_owned(), hint: None } };
        match memory.runs.get(&launch.replica).filter(|(current, _)| current == launch) {
            None => gone("It is not there."),
            Some((_, Mode::Answers)) => Observation::Ready(Answering { context: Some(Tokens(4096)), capacity: Capacity::Slots(2) }),
            Some((_, Mode::Loads(view))) => Observation::Starting(view.clone()),
            Some((_, Mode::Silent)) => Observation::Silent { since: Duration::from_secs(3600) },
            Some((_, Mode::Gone(why))) => gone(why),
        }
    }

    async fn sample(&self, launch: &Launch) -> Result<ReplicaSample, Problem> {
        let found = self.memory.lock().unwrap().samples.get(launch.replica.as_str()).copied();
        found.ok_or_else(|| Problem::new(ProblemKind::Upstream, "no figures"))
    }

    async fn activity(&self, _: &Launch) -> Option<Activity> {
        Some(Activity { processor: self.memory.lock().unwrap().processor, ..Activity::default() })
    }

    async fn traces(&self, launch: &Launch) -> Vec<(String, String)> {
        vec![("processes.txt".to_owned(), format!("State of {}", launch.launch))]
    }

    async fn log_tail(&self, replica: &ReplicaId, _: usize) -> Vec<String> {
        vec![format!("the log of {replica}")]
    }
}

impl InFlight for Script {
    fn of_model(&self, _: &ModelId) -> usize {
        self.memory.lock().unwrap().flights.values().sum()
    }

    fn of_replica(&self, _: &ModelId, replica: &ReplicaId) -> usize {
        self.memory.lock().unwrap().flights.get(replica.as_str()).copied().unwrap_or(0)
    }
}

impl Gpus for Script {
    fn snapshot(&self) -> Arc<GpuSnapshot> {
        Arc::new(self.memory.lock().unwrap().gpus.clone().unwrap_or_else(GpuSnapshot::starting))
    }
}

/// The real registry, whose look at a file may hang.
struct Patient {
    models: Arc<Models>,
    script: Script,
}

#[async_trait]
impl Registry for Patient {
    async fn list(&self) -> Result<Vec<Model>, Problem> {
        self.models.list().await
    }

    async fn get(&self, id: &ModelId) -> Result<Model, Problem> {
        self.models.get(id).await
    }

    async fn register(&self, new: NewModel) -> Result<Model, Problem> {
        self.models.register(new).await
    }

    async fn change(&self, id: &ModelId, change: ModelChange) -> Result<Model, Problem> {
        self.models.change(id, change).await
    }

    async fn remove(&self, id: &ModelId) -> Result<(), Problem> {
        self.models.remove(id).await
    }

    async fn candidates(&self) -> Result<Vec<Candidate>, Problem> {
        self.models.candidates().await
    }

    async fn verify(&self, id: &ModelId) -> Result<(), Problem> {
        self.script.hang("verify").await;
        self.models.verify(id).await
    }

    async fn file_looks(&self) -> Result<Vec<(Model, FileLook)>, Problem> {
        self.models.file_looks().await
    }
}

pub struct Bench {
    pub dir: tempfile::TempDir,
    pub store: Store,
    pub models: Arc<Models>,
    pub script: Script,
    pub rules: ServingRules,
    pub changes: Changes,
}

impl Bench {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("models")).unwrap();
        TinyModel::default().write(&dir.path().join("models/tiny.gguf")).unwrap();
        let store = Store::open(&dir.path().join("state")).unwrap();
        let changes = Changes::new();
        let config = ModelsConfig { models_dir: dir.path().join("models"), allowed_roots: vec![] };
        let models = Models::new(store.clone(), config, changes.clone());
        let rules = ServingRules {
            stuck_after: Duration::from_millis(300),
            silent_after: Duration::from_secs(1),
            hang_after: Duration::from_secs(1),
            restart_pause: Duration::from_millis(20),
            ..ServingRules::default()
        };
        Self { dir, store, models, script: Script::default(), rules, changes }
    }

    pub async fn register(&self, name: &str, replicas: u16, cards: &[&str]) -> Model {
        let gpus = cards.iter().map(|id| GpuId::from_stored(*id)).collect();
        let layout = Layout { replicas, gpus, ..Layout::default() };
        let new = NewModel { path: "tiny.gguf".into(), served_name: Some(name.to_owned()), layout, ..NewModel::default() };
        self.models.register(new).await.unwrap()
    }

    pub async fn room(&self) -> Arc<ServingRoom> {
        ServingRoom::start(ServingParts {
            store: self.store.clone(),
            registry: Arc::new(Patient { models: self.models.clone(), script: self.script.clone() }),
            engines: Arc::new(self.script.for_agent()),
            flights: Arc::new(self.script.clone()),
            gpus: Arc::new(self.script.clone()),
            rules: self.rules.clone(),
            evidence_dir: self.dir.path().join("state/evidence"),
            launches_dir: self.dir.path().join("state/launches"),
            changes: self.changes.clone(),
        })
        .await
        .unwrap()
    }
}

/// Waits until something holds of the model's state; panics with what it saw instead.
pub async fn until(room: &ServingRoom, id: &ModelId, what: &str, holds: impl Fn(&ModelState) -> bool) -> ModelState {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let state = room.states().get(id).cloned();
        match state {
            Some(state) if holds(&state) => return state,
            other if Instant::now() > deadline => panic!("never {what}: {other:?}"),
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Launches of the replicas in the gateway's table.
pub fn served(room: &ServingRoom, name: &str) -> Vec<String> {
    room.table().models.get(name).map(|model| model.replicas.iter().map(|replica| replica.id.to_string()).collect()).unwrap_or_default()
}
