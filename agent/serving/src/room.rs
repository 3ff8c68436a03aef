//! The room from outside: the port that api, pages and gateway use.
//!
//! Reads never wait: they take the last snapshot. Wishes go through the reconciler one after the other, so that of two people who press
//! the same button one wins and the other is told so.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use warden_domain::{
    Problem, ProblemKind,
    change::Changes,
    engine::{Engines, PackState},
    gpu::Gpus,
    ids::{ModelId, ReplicaId},
    model::{Model, ModelState, Registry, StateWord},
    replica::{InFlight, Kept, Reload, ReplicaTable, Sampled, Serving},
};
use warden_store::Store;

use crate::{
    bounded::{FILE_LIMIT, blocking, of_file},
    claims,
    demand::Loads,
    evidence,
    name::replica_id,
    plan::obstacle,
    reconciler::{Command, Reconciler},
    rules::ServingRules,
    work::Tools,
};

const EVIDENCE_LIMIT: std::time::Duration = std::time::Duration::from_secs(5);
/// A wish waits so long for the list of installed engines.
const PACKS_LIMIT: std::time::Duration = std::time::Duration::from_secs(3);

/// Longest wait until a change of the registry counts.
const CATCH_UP: Duration = Duration::from_secs(1);

/// What the room works with.
pub struct ServingParts {
    /// Keeps what is wanted.
    pub store: Store,
    /// Knows the models.
    pub registry: Arc<dyn Registry>,
    /// Runs the engines.
    pub engines: Arc<dyn Engines>,
    /// Knows the requests in flight.
    pub flights: Arc<dyn InFlight>,
    /// Knows the cards.
    pub gpus: Arc<dyn Gpus>,
    /// How patient it is.
    pub rules: ServingRules,
    /// Where evidence of engines that were given up is kept: `evidence` in the agent's state folder. Made when it is needed.
    pub evidence_dir: PathBuf,
    /// Where it is written down with which settings each engine was started: `launches` in the agent's state folder. Made when it is needed.
    pub launches_dir: PathBuf,
    /// Where news goes to and comes from.
    pub changes: Changes,
}

/// Snapshots of the room, swapped by the reconciler.
#[derive(Default)]
pub(crate) struct Boards {
    pub(crate) table: ArcSwap<ReplicaTable>,
    pub(crate) states: ArcSwap<BTreeMap<ModelId, ModelState>>,
    pub(crate) samples: ArcSwap<BTreeMap<ReplicaId, Sampled>>,
    /// Models that a request loads, by the name clients use.
    pub(crate) names: ArcSwap<BTreeMap<String, (ModelId, bool)>>,
}

/// Desired against observed, for all models.
pub struct ServingRoom {
    commands: mpsc::Sender<Command>,
    pub(crate) boards: Arc<Boards>,
    registry: Arc<dyn Registry>,
    engines: Arc<dyn Engines>,
    gpus: Arc<dyn Gpus>,
    pub(crate) loads: Loads,
    evidence_dir: PathBuf,
    pub(crate) this: Weak<Self>,
}

/// How often, and after which pause, a card that is too full is looked at again: an engine that just ended leaves its memory a moment later.
const LOOKS: u32 = 3;
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

impl ServingRoom {
    /// Adopts the engines that run, looks at each once, and starts what was wanted before and does not run. Returns with the table
    /// filled by what answers already. Dropping the room leaves the engines running.
    ///
    /// # Errors
    /// `DiskFull` or `Internal` when the store cannot be read. Engines that cannot be reached (no D-Bus) are no error: models wait.
    pub async fn start(parts: ServingParts) -> Result<Arc<Self>, Problem> {
        let boards = Arc::new(Boards::default());
        let (commands, queue) = mpsc::channel(64);
        let (events, reports) = mpsc::unbounded_channel();
        let (registry, engines) = (Arc::clone(&parts.registry), Arc::clone(&parts.engines));
        let (evidence_dir, launches_dir) = (parts.evidence_dir, parts.launches_dir);
        let kept_in = evidence_dir.clone();
        let tools = Tools { registry, engines, flights: parts.flights, evidence_dir, launches_dir, events };
        let mut reconciler = Reconciler::new(parts.store, tools, (Arc::clone(&parts.gpus), parts.rules), parts.changes, Arc::clone(&boards), reports);
        reconciler.wake_up().await?;
        tokio::spawn(reconciler.run(queue));
        let (registry, engines, gpus) = (parts.registry, parts.engines, parts.gpus);
        Ok(Arc::new_cyclic(|this| Self {
            commands,
            boards,
            registry,
            engines,
            gpus,
            loads: Loads::default(),
            evidence_dir: kept_in,
            this: this.clone(),
        }))
    }

    /// Ends the room. With `stop_engines` the engines are stopped too (what is wanted stays recorded); without, they go on and the next
    /// agent adopts them. Ends within about 40 s.
    pub async fn shutdown(&self, stop_engines: bool) {
        let (done, ended) = oneshot::channel();
        if self.commands.send(Command::Shutdown { stop_engines, done }).await.is_ok() {
            let _ = ended.await;
        }
    }

    async fn ask<T>(&self, make: impl FnOnce(oneshot::Sender<Result<T, Problem>>) -> Command) -> Result<T, Problem> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(make(reply)).await.map_err(|_| stopping())?;
        answer.await.unwrap_or_else(|_| Err(stopping()))
    }

    async fn file_is_whole(&self, model: &Model) -> Result<(), Problem> {
        let (registry, id) = (Arc::clone(&self.registry), model.id.clone());
        of_file(&model.config.path, FILE_LIMIT, async move { registry.verify(&id).await }).await
    }

    /// Refuses cards on which the engine would not start, unless an engine of this very model may be what fills them.
    async fn cards_have_room(&self, model: &Model) -> Result<(), Problem> {
        let own = self.boards.states.load().get(&model.id).is_some_and(|state| !matches!(state.state, StateWord::Stopped | StateWord::Failed));
        if own {
            return Ok(());
        }
        for _ in 1..LOOKS {
            if claims::room(&model.config, &self.gpus.snapshot()).is_ok() {
                return Ok(());
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        claims::room(&model.config, &self.gpus.snapshot())
    }

    async fn engine_is_there(&self, model: &Model) -> Result<(), Problem> {
        let engines = Arc::clone(&self.engines);
        // While they cannot be listed the load is recorded, and the model says what it waits for.
        let Ok(Ok(packs)) = timeout(PACKS_LIMIT, tokio::spawn(async move { engines.packs().await })).await else { return Ok(()) };
        let coming = packs.iter().any(|pack| pack.engine == model.config.engine && !matches!(pack.state, PackState::Broken { .. }));
        match obstacle(model.config.engine, &packs) {
            Some(reason) if !coming => Err(Problem::new(ProblemKind::EngineUnavailable, reason.message)),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Serving for ServingRoom {
    fn table(&self) -> Arc<ReplicaTable> {
        self.boards.table.load_full()
    }

    fn states(&self) -> Arc<BTreeMap<ModelId, ModelState>> {
        self.boards.states.load_full()
    }

    fn samples(&self) -> Arc<BTreeMap<ReplicaId, Sampled>> {
        self.boards.samples.load_full()
    }

    async fn caught_up(&self) {
        let _it_follows_by_itself = timeout(CATCH_UP, self.ask(|reply| Command::Follow { reply })).await;
    }

    async fn load(&self, id: &ModelId) -> Result<(), Problem> {
        let model = self.registry.get(id).await?;
        self.file_is_whole(&model).await?;
        self.engine_is_there(&model).await?;
        self.engines.check_arguments(model.config.engine, &model.config.layout.extra_args)?;
        self.cards_have_room(&model).await?;
        self.ask(|reply| Command::Load { model, reply }).await
    }

    async fn unload(&self, id: &ModelId) -> Result<(), Problem> {
        let model = self.registry.get(id).await?;
        self.ask(|reply| Command::Unload { id: model.id, reply }).await
    }

    async fn reload(&self, id: &ModelId) -> Result<Reload, Problem> {
        let model = self.registry.get(id).await?;
        self.file_is_whole(&model).await?;
        self.engines.check_arguments(model.config.engine, &model.config.layout.extra_args)?;
        self.ask(|reply| Command::Reload { model, reply }).await
    }

    async fn drain(&self, id: &ModelId, number: u16) -> Result<(), Problem> {
        let model = self.registry.get(id).await?;
        self.ask(|reply| Command::Drain { model, number, reply }).await
    }

    async fn evidence(&self, id: &ModelId) -> Result<Vec<Kept>, Problem> {
        let (model, folder) = (self.registry.get(id).await?.id, self.evidence_dir.clone());
        blocking(EVIDENCE_LIMIT, move || evidence::of_model(&folder, &model)).await.ok_or_else(evidence_hangs)
    }

    async fn evidence_file(&self, id: &ModelId, name: &str, file: &str) -> Result<String, Problem> {
        let (model, folder) = (self.registry.get(id).await?.id, self.evidence_dir.clone());
        let (folder_name, file_name) = (name.to_owned(), file.to_owned());
        let read = blocking(EVIDENCE_LIMIT, move || evidence::file(&folder, &model, &folder_name, &file_name)).await.ok_or_else(evidence_hangs)?;
        let shown = |text: &str| text.chars().filter(|c| !c.is_control()).take(80).collect::<String>();
        read.ok_or_else(|| {
            Problem::new(ProblemKind::NotFound, format!("Nothing called {}/{} was kept of this model.", shown(name), shown(file)))
                .hint("Only the newest are kept; the list says which.")
        })
    }

    async fn log_tail(&self, id: &ModelId, lines: usize) -> Result<Vec<String>, Problem> {
        let model = self.registry.get(id).await?;
        // The one that somebody would look for: a replica that failed or comes up, else the first.
        let states = self.boards.states.load();
        let replicas = states.get(id).map(|state| state.replicas.as_slice()).unwrap_or_default();
        let wanted = [StateWord::Failed, StateWord::Loading].into_iter().find_map(|word| replicas.iter().find(|replica| replica.state == word));
        let replica = wanted.map_or_else(|| replica_id(&model, 0), |replica| replica.id.clone());
        Ok(self.engines.log_tail(&replica, lines).await)
    }
}

fn evidence_hangs() -> Problem {
    Problem::new(ProblemKind::SystemService, "The disk with what was kept of engines does not answer.")
        .hint("Look at the disks on the page Storage, and try again.")
        .retry_after(std::time::Duration::from_secs(10))
}

fn stopping() -> Problem {
    Problem::new(ProblemKind::ShuttingDown, "The agent is stopping and takes no more changes.").retry_after(Duration::from_secs(5))
}
