//! The one task that owns what is wanted and what is seen, and moves one towards the other.
//!
//! It wakes on wishes, on reports of its own tasks, on news of other rooms and on a tick. Everything slow happens in `work`. Reports of
//! an attempt that is not the present one any more are thrown away, so that a late answer about an old launch cannot touch a new one.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::{
        broadcast::{self, error::RecvError},
        mpsc, oneshot,
    },
    time::{Instant, sleep_until, timeout_at},
};
use warden_domain::{
    Problem, ProblemKind,
    change::{Changes, Topic},
    clock,
    engine::{Answering, Launch, LoadView, Observation},
    ids::{GenerationId, ModelId},
    model::Model,
    replica::ReplicaTable,
};
use warden_store::{Store, desired};

use crate::{
    entry::{Entry, Stage, again, reason_of},
    name::replica_id,
    plan::{Action, Standing, Subject, plan},
    room::Boards,
    work::{Event, Tools},
};

/// A wish, with where to answer.
pub(crate) enum Command {
    Load { model: Model, reply: oneshot::Sender<Result<(), Problem>> },
    Unload { id: ModelId, reply: oneshot::Sender<Result<(), Problem>> },
    Shutdown { stop_engines: bool, done: oneshot::Sender<()> },
}

const TICK_LOADING: Duration = Duration::from_millis(500);
const TICK_RUNNING: Duration = Duration::from_secs(1);
const TICK_IDLE: Duration = Duration::from_secs(5);
/// Requests in flight get this long when a model is unloaded, and this long when the agent stops its engines (it drained before).
const PATIENCE: Duration = Duration::from_secs(30);
const LAST_PATIENCE: Duration = Duration::from_secs(2);
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(40);
/// How long the start of the agent waits for the first look at adopted engines.
/// Short, because new clients wait as long: an engine that hangs is told apart later.
const FIRST_LOOK: Duration = Duration::from_millis(1200);

pub(crate) struct Reconciler {
    store: Store,
    tools: Tools,
    changes: Changes,
    news: broadcast::Receiver<Topic>,
    boards: Arc<Boards>,
    reports: mpsc::UnboundedReceiver<Event>,
    entries: BTreeMap<ModelId, Entry>,
    /// Engines that run were found and taken over. Until then nothing is started, or there could be two of one.
    adopted: bool,
    patience: Duration,
}

impl Reconciler {
    pub(crate) fn new(store: Store, tools: Tools, changes: Changes, boards: Arc<Boards>, reports: mpsc::UnboundedReceiver<Event>) -> Self {
        let news = changes.subscribe();
        Self { store, tools, changes, news, boards, reports, entries: BTreeMap::new(), adopted: false, patience: PATIENCE }
    }

    /// Reads what is wanted, adopts what runs, and waits a moment for the first looks.
    pub(crate) async fn wake_up(&mut self) -> Result<(), Problem> {
        let models = self.tools.registry.list().await?;
        let wanted = self.store.read(desired::wanted).await?;
        let now = clock::now();
        for model in models.into_iter().filter(|model| wanted.contains(&model.id)) {
            self.entries.insert(model.id.clone(), Entry::new(model, true, Stage::Idle, now));
        }
        self.adopt().await;
        self.look_at_all();
        let deadline = Instant::now() + FIRST_LOOK;
        while self.entries.values().any(|entry| entry.observed) {
            match timeout_at(deadline, self.reports.recv()).await {
                Ok(Some(event)) => self.take(event),
                _ => break,
            }
        }
        self.act().await;
        self.show();
        Ok(())
    }

    /// Until the room is dropped or shut down.
    pub(crate) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut next_look = Instant::now() + self.tick();
        loop {
            // Whoever asked is answered after the snapshots were swapped, so that the next read shows what the wish changed.
            let mut answer = None;
            tokio::select! {
                command = commands.recv() => match command {
                    None => return,
                    Some(Command::Load { model, reply }) => answer = Some((reply, self.load(model).await)),
                    Some(Command::Unload { id, reply }) => answer = Some((reply, self.unload(&id).await)),
                    Some(Command::Shutdown { stop_engines, done }) => {
                        if stop_engines {
                            self.stop_all().await;
                        }
                        let _ = done.send(());
                        return;
                    }
                },
                Some(event) = self.reports.recv() => self.take(event),
                news = self.news.recv() => match news {
                    Ok(Topic::Models) => self.forget_removed().await,
                    Ok(Topic::Storage) => self.try_again_where_the_disk_was_missing(),
                    Err(RecvError::Lagged(_)) => {
                        self.forget_removed().await;
                        self.try_again_where_the_disk_was_missing();
                    }
                    Ok(_) => {}
                    Err(RecvError::Closed) => return,
                },
                () = sleep_until(next_look) => {
                    if !self.adopted {
                        self.adopt().await;
                    }
                    self.look_at_all();
                    next_look = Instant::now() + self.tick();
                }
            }
            self.act().await;
            self.show();
            if let Some((reply, result)) = answer {
                let _ = reply.send(result);
            }
            next_look = next_look.min(Instant::now() + self.tick());
        }
    }

    async fn load(&mut self, model: Model) -> Result<(), Problem> {
        if let Some(entry) = self.entries.get(&model.id).filter(|entry| entry.wanted && entry.standing() != Standing::Failed) {
            let what = if matches!(entry.stage, Stage::Running { .. }) { "is running already" } else { "is being loaded already" };
            return Err(Problem::new(ProblemKind::Conflict, format!("The model {} {what}.", model.config.served_name))
                .hint("Unload it first to load it anew."));
        }
        self.record(&model.id, true).await?;
        let entry = self.entries.entry(model.id.clone()).or_insert_with(|| Entry::new(model, true, Stage::Idle, clock::now()));
        entry.wanted = true;
        (entry.tries, entry.not_before) = (0, None);
        if matches!(entry.stage, Stage::Failed(_)) {
            entry.stage = Stage::Idle;
        }
        Ok(())
    }

    async fn unload(&mut self, id: &ModelId) -> Result<(), Problem> {
        self.record(id, false).await?;
        if let Some(entry) = self.entries.get_mut(id) {
            entry.wanted = false;
            entry.not_before = None;
        }
        Ok(())
    }

    async fn record(&self, id: &ModelId, wanted: bool) -> Result<(), Problem> {
        let id = id.clone();
        Ok(self.store.write(move |tx| desired::set(tx, &id, wanted, clock::now())).await?)
    }

    /// Takes over the engines that run: those of wanted models are watched from now on, others are stopped.
    async fn adopt(&mut self) {
        let running = match self.tools.engines.running().await {
            Ok(running) => running,
            Err(problem) => {
                let reason = reason_of(problem);
                for entry in self.entries.values_mut().filter(|entry| entry.wanted) {
                    entry.stage = Stage::Waiting(reason.clone());
                }
                return;
            }
        };
        self.adopted = true;
        for launch in running {
            match self.entries.values_mut().find(|entry| entry.wanted && replica_id(&entry.model) == launch.replica) {
                Some(entry) => {
                    tracing::info!(replica = %launch.replica, launch = %launch.launch, "engine adopted");
                    entry.stage = Stage::Loading { launch, phase: None, last_line: None };
                }
                None => self.tools.stop_stray(&launch),
            }
        }
    }

    /// Makes the plan and carries it out as far as that is quick.
    async fn act(&mut self) {
        if !self.adopted {
            return;
        }
        let undecided = self.entries.values().any(|entry| entry.wanted && matches!(entry.standing(), Standing::Idle | Standing::Waiting));
        let packs = if undecided { self.tools.engines.packs().await } else { Vec::new() };
        let now = Instant::now();
        let subjects: Vec<Subject<'_>> = self
            .entries
            .values()
            .filter(|entry| entry.not_before.is_none_or(|moment| moment <= now))
            .map(|entry| Subject { id: &entry.model.id, engine: entry.model.config.engine, wanted: entry.wanted, standing: entry.standing() })
            .collect();
        for action in plan(&subjects, &packs) {
            self.apply(action);
        }
    }

    fn apply(&mut self, action: Action) {
        let (Action::Start(id) | Action::Stop(id) | Action::Wait(id, _) | Action::Rest(id)) = &action;
        let Some(entry) = self.entries.get_mut(id) else { return };
        match action {
            Action::Start(_) => {
                let generation = GenerationId::random();
                self.tools.start(&entry.model, generation.clone());
                entry.stage = Stage::Starting(generation);
            }
            Action::Stop(id) => {
                if let Some(launch) = entry.launch().cloned() {
                    self.tools.stop(&id, &launch, self.patience);
                    entry.stage = Stage::Stopping { launch, draining: true };
                }
            }
            Action::Wait(_, reason) => entry.stage = Stage::Waiting(reason),
            Action::Rest(_) => entry.stage = Stage::Idle,
        }
    }

    /// Takes a report in.
    fn take(&mut self, event: Event) {
        match event {
            Event::Started { id, generation, result } => {
                let current = self.entries.get_mut(&id).filter(|entry| entry.stage == Stage::Starting(generation));
                match (current, result) {
                    (Some(entry), Ok(launch)) => {
                        self.tools.look(&id, &launch);
                        entry.observed = true;
                        entry.tries = 0;
                        entry.stage = Stage::Loading { launch, phase: None, last_line: None };
                    }
                    (Some(entry), Err(problem)) => {
                        tracing::warn!(model = %id, %problem, "a model could not be started");
                        match again(&problem, entry.tries) {
                            Some(pause) => {
                                entry.tries += 1;
                                entry.not_before = Some(Instant::now() + pause);
                                entry.stage = Stage::Waiting(reason_of(problem));
                            }
                            None => entry.stage = Stage::Failed(reason_of(problem)),
                        }
                    }
                    (None, Ok(launch)) => self.tools.stop_stray(&launch),
                    (None, Err(_)) => {}
                }
            }
            Event::Drained { id, launch } => {
                if let Some(Stage::Stopping { launch: current, draining }) = self.entries.get_mut(&id).map(|entry| &mut entry.stage)
                    && current.launch == launch
                {
                    *draining = false;
                }
            }
            Event::Stopped { id, launch, result } => {
                if let Some(entry) = self.entries.get_mut(&id)
                    && matches!(&entry.stage, Stage::Stopping { launch: current, .. } if current.launch == launch)
                {
                    entry.stage = match result {
                        Ok(()) => Stage::Idle,
                        Err(problem) => {
                            tracing::warn!(model = %id, %problem, "a model could not be stopped");
                            // Wanted or not: the page must show that something still runs.
                            entry.wanted = true;
                            Stage::Failed(reason_of(problem))
                        }
                    };
                }
            }
            Event::Observed { id, launch, observation } => {
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.observed = false;
                    if let Some(current) = entry.launch().filter(|current| current.launch == launch).cloned() {
                        saw(entry, current, observation);
                    }
                }
            }
        }
    }

    fn look_at_all(&mut self) {
        for (id, entry) in &mut self.entries {
            if let Some(launch) = entry.launch().filter(|_| !entry.observed) {
                self.tools.look(id, launch);
                entry.observed = true;
            }
        }
    }

    /// Forgets models that are not registered any more; an engine of one is stopped first.
    async fn forget_removed(&mut self) {
        if self.entries.is_empty() {
            return;
        }
        let Ok(models) = self.tools.registry.list().await else { return };
        self.entries.retain(|id, entry| {
            let known = models.iter().any(|model| model.id == *id);
            entry.wanted &= known;
            known || entry.may_run()
        });
    }

    /// A wanted model that failed because its disk was missing is tried again when disks changed; while it is still missing, it fails again
    /// with the same reason.
    fn try_again_where_the_disk_was_missing(&mut self) {
        let code = ProblemKind::DiskMissing.code();
        for entry in self.entries.values_mut().filter(|entry| entry.wanted) {
            if matches!(&entry.stage, Stage::Failed(reason) if reason.code == code) {
                entry.stage = Stage::Idle;
            }
        }
    }

    /// Stops every engine without changing what is wanted after the next start.
    async fn stop_all(&mut self) {
        self.patience = LAST_PATIENCE;
        for entry in self.entries.values_mut() {
            entry.wanted = false;
        }
        let deadline = Instant::now() + SHUTDOWN_LIMIT;
        loop {
            self.act().await;
            self.show();
            if !self.entries.values().any(Entry::may_run) {
                return;
            }
            match timeout_at(deadline, self.reports.recv()).await {
                Ok(Some(event)) => self.take(event),
                _ => return,
            }
        }
    }

    fn tick(&self) -> Duration {
        let loading = self.entries.values().any(|entry| matches!(entry.stage, Stage::Loading { .. }));
        let waiting = !self.adopted || self.entries.values().any(|entry| entry.launch().is_some() || matches!(entry.stage, Stage::Waiting(_)));
        match (loading, waiting) {
            (true, _) => TICK_LOADING,
            (false, true) => TICK_RUNNING,
            (false, false) => TICK_IDLE,
        }
    }

    /// Swaps the snapshots when they changed, and tells.
    fn show(&mut self) {
        let now = clock::now();
        let states: BTreeMap<_, _> = self.entries.iter_mut().map(|(id, entry)| (id.clone(), entry.document(now))).collect();
        let models = self.entries.values().filter_map(Entry::served).map(|served| (served.served_name.clone(), served)).collect();
        let table = ReplicaTable { models };
        let mut changed = false;
        if self.boards.table.load().models != table.models {
            self.boards.table.store(Arc::new(table));
            changed = true;
        }
        if **self.boards.states.load() != states {
            self.boards.states.store(Arc::new(states));
            changed = true;
        }
        if changed {
            self.changes.publish(Topic::Models);
        }
    }
}

/// What a look means for an entry whose launch is still the one that was looked at.
fn saw(entry: &mut Entry, launch: Launch, observation: Observation) {
    entry.stage = match observation {
        Observation::Ready(Answering { context, .. }) => {
            if matches!(entry.stage, Stage::Loading { .. }) {
                tracing::info!(model = %entry.model.id, launch = %launch.launch, "model runs");
            }
            Stage::Running { launch, context, silent: false }
        }
        Observation::Starting(LoadView { phase, last_line, .. }) => Stage::Loading { launch, phase, last_line },
        Observation::Silent { .. } => {
            let context = if let Stage::Running { context, .. } = &entry.stage { *context } else { None };
            Stage::Running { launch, context, silent: true }
        }
        Observation::Gone { reason } => {
            tracing::warn!(model = %entry.model.id, launch = %launch.launch, code = %reason.code, reason = %reason.message, "the engine is gone");
            Stage::Failed(reason)
        }
    };
}
