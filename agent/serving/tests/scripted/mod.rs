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
    engine::{Activity, Answering, Capacity, EngineKind, EnginePack, Engines, Launch, LoadView, Observation, PackState, ReplicaPlan, ReplicaSample},
    gpu::{GpuCard, GpuReading, GpuSnapshot, Gpus, PcieLink},
    ids::{GpuId, ModelId, ReplicaId},
    model::{Layout, Model, ModelState, NewModel, Registry, StateReason},
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
pub struct Script(Arc<Mutex<Memory>>);

impl Script {
    /// What a replica's next launches do; answering is the rule.
    pub fn next(&self, replica: &str, mode: Mode) {
        self.0.lock().unwrap().next.insert(replica.to_owned(), mode);
    }

    /// What the running launch of a replica does from now on.
    pub fn now(&self, replica: &str, mode: Mode) {
        let mut memory = self.0.lock().unwrap();
        memory.runs.get_mut(&ReplicaId::new(replica).unwrap()).unwrap_or_else(|| panic!("{replica} does not run")).1 = mode;
    }

    /// Whether a replica's engine can be stopped from now on.
    pub fn stops(&self, replica: &str, can: bool) {
        let mut memory = self.0.lock().unwrap();
        if can {
            memory.unstoppable.remove(replica);
        } else {
            memory.unstoppable.insert(replica.to_owned());
        }
    }

    pub fn in_flight(&self, replica: &str, requests: usize) {
        self.0.lock().unwrap().flights.insert(replica.to_owned(), requests);
    }

    pub fn figures(&self, replica: &str, sample: ReplicaSample) {
        self.0.lock().unwrap().samples.insert(replica.to_owned(), sample);
    }

    pub fn works(&self, so_far: Duration) {
        self.0.lock().unwrap().processor = so_far;
    }

    pub fn cards(&self, ids: &[&str]) {
        self.reader(GpuReading::Live, ids);
    }

    /// What the reader of cards tells from now on.
    pub fn reader(&self, reading: GpuReading, ids: &[&str]) {
        let card = |(id, index): (&&str, u32)| GpuCard {
            index,
            id: GpuId::from_stored(*id),
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
        self.0.lock().unwrap().gpus = Some(GpuSnapshot { reading, driver: None, simulated: true, cards });
    }

    pub fn started(&self) -> Vec<ReplicaPlan> {
        self.0.lock().unwrap().started.clone()
    }

    pub fn stopped(&self) -> Vec<String> {
        self.0.lock().unwrap().stopped.iter().map(ToString::to_string).collect()
    }

    /// As after a reboot: no process is left.
    pub fn power_off(&self) {
        self.0.lock().unwrap().runs.clear();
    }
}

#[async_trait]
impl Engines for Script {
    async fn packs(&self) -> Vec<EnginePack> {
        vec![EnginePack { engine: EngineKind::LlamaCpp, version: None, digest: None, state: PackState::Ready }]
    }

    async fn start(&self, plan: &ReplicaPlan) -> Result<Launch, Problem> {
        let mut memory = self.0.lock().unwrap();
        memory.launches += 1;
        let launch = Launch {
            replica: plan.replica.clone(),
            launch: format!("launch-{}", memory.launches),
            endpoint: Endpoint::Unix(format!("/nowhere/{}.sock", plan.replica).into()),
        };
        let mode = memory.next.get(plan.replica.as_str()).cloned().unwrap_or(Mode::Answers);
        memory.runs.insert(plan.replica.clone(), (launch.clone(), mode));
        memory.started.push(plan.clone());
        Ok(launch)
    }

    async fn stop(&self, replica: &ReplicaId) -> Result<(), Problem> {
        let mut memory = self.0.lock().unwrap();
        if memory.unstoppable.contains(replica.as_str()) {
            return Err(Problem::new(ProblemKind::SystemService, format!("The processes of {replica} do not end.")));
        }
        memory.runs.remove(replica);
        memory.stopped.push(replica.clone());
        Ok(())
    }

    async fn running(&self) -> Result<Vec<Launch>, Problem> {
        Ok(self.0.lock().unwrap().runs.values().map(|(launch, _)| launch.clone()).collect())
    }

    async fn observe(&self, launch: &Launch) -> Observation {
        let memory = self.0.lock().unwrap();
        let gone = |why: &str| Observation::Gone { reason: StateReason { code: "engine_crashed".to_owned(), message: why.to_owned(), hint: None } };
        match memory.runs.get(&launch.replica).filter(|(current, _)| current == launch) {
            None => gone("It is not there."),
            Some((_, Mode::Answers)) => Observation::Ready(Answering { context: Some(Tokens(4096)), capacity: Capacity::Slots(2), images: None }),
            Some((_, Mode::Loads(view))) => Observation::Starting(view.clone()),
            Some((_, Mode::Silent)) => Observation::Silent { since: Duration::from_secs(3600) },
            Some((_, Mode::Gone(why))) => gone(why),
        }
    }

    async fn sample(&self, launch: &Launch) -> Result<ReplicaSample, Problem> {
        let found = self.0.lock().unwrap().samples.get(launch.replica.as_str()).copied();
        found.ok_or_else(|| Problem::new(ProblemKind::Upstream, "no figures"))
    }

    async fn activity(&self, _: &Launch) -> Option<Activity> {
        Some(Activity { processor: self.0.lock().unwrap().processor, ..Activity::default() })
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
        self.0.lock().unwrap().flights.values().sum()
    }

    fn of_replica(&self, _: &ModelId, replica: &ReplicaId) -> usize {
        self.0.lock().unwrap().flights.get(replica.as_str()).copied().unwrap_or(0)
    }
}

impl Gpus for Script {
    fn snapshot(&self) -> Arc<GpuSnapshot> {
        Arc::new(self.0.lock().unwrap().gpus.clone().unwrap_or_else(GpuSnapshot::starting))
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
            registry: self.models.clone(),
            engines: Arc::new(self.script.clone()),
            flights: Arc::new(self.script.clone()),
            gpus: Arc::new(self.script.clone()),
            rules: self.rules.clone(),
            evidence_dir: self.dir.path().join("state/evidence"),
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
