//! The slow parts: starting, stopping, looking, reading figures, keeping evidence. Each is a task of its own that reports one event to the
//! reconciler.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use warden_domain::{
    Problem, clock,
    engine::{Activity, Engines, Launch, Observation, ReplicaPlan},
    ids::{GenerationId, ModelId, ReplicaId},
    model::{Incident, Model, Registry, StateReason},
    replica::{InFlight, Sampled},
    units::Tokens,
};

use crate::{
    bounded::{FILE_LIMIT, blocking, of_file},
    evidence::{self, Evidence},
    journal::{self, Started},
    name::replica_id,
    plan::Key,
};

/// What a task reports.
#[derive(Debug)]
pub(crate) enum Event {
    /// A start is through, well or not.
    Started { key: Key, generation: GenerationId, result: Result<Launch, Problem> },
    /// No request is in flight any more, or the time for them is over.
    Drained { key: Key, launch: String },
    /// A stop is through, well or not.
    Stopped { key: Key, launch: String, result: Result<(), Problem> },
    /// A further stop of an engine that could not be stopped before is through, well or not.
    StoppedAgain { key: Key, result: Result<(), Problem> },
    /// A look is through.
    Observed { key: Key, launch: String, observation: Observation },
    /// Figures were read, or could not be.
    Read { key: Key, launch: String, sampled: Option<Sampled>, activity: Option<Activity> },
    /// Evidence was kept.
    Kept { model: ModelId, incident: Incident },
}

/// What the tasks work with.
#[derive(Clone)]
pub(crate) struct Tools {
    pub(crate) registry: Arc<dyn Registry>,
    pub(crate) engines: Arc<dyn Engines>,
    pub(crate) flights: Arc<dyn InFlight>,
    pub(crate) evidence_dir: PathBuf,
    pub(crate) launches_dir: PathBuf,
    pub(crate) events: mpsc::UnboundedSender<Event>,
}

/// Context per request when neither the admin nor the model's file says one, and the most that is taken without being asked for.
const USUAL_CONTEXT: u64 = 4096;
const DRAIN_LOOK: Duration = Duration::from_millis(50);
/// Figures that are not there after this long are not waited for.
const READ_LIMIT: Duration = Duration::from_secs(3);
const EVIDENCE_LIMIT: Duration = Duration::from_secs(5);
/// A launch that cannot be written down within this time is not started.
const RECORD_LIMIT: Duration = Duration::from_secs(10);
/// Lines of the log that are kept.
const EVIDENCE_LINES: usize = 2000;

impl Tools {
    /// Checks the file once more, writes down what is started, then starts the engine.
    pub(crate) fn start(&self, key: Key, model: &Model, generation: GenerationId, device_minors: Vec<u32>) {
        let (tools, model) = (self.clone(), model.clone());
        tokio::spawn(async move {
            let plan = ReplicaPlan { device_minors, ..replica_plan(&model, key.seat, generation.clone()) };
            let result = tools.start_recorded(&plan, &model, key.seat).await;
            if result.is_ok() {
                let (replica, now) = (plan.replica.clone(), generation.clone());
                tools.forget_launches(move |started| started.replica != replica || started.generation == now);
            }
            let _ = tools.events.send(Event::Started { key, generation, result });
        });
    }

    async fn start_recorded(&self, plan: &ReplicaPlan, model: &Model, seat: u16) -> Result<Launch, Problem> {
        let (registry, id) = (self.registry.clone(), model.id.clone());
        of_file(&model.config.path, FILE_LIMIT, async move { registry.verify(&id).await }).await?;
        self.record(Started::new(plan.generation.clone(), plan.replica.clone(), model.id.clone(), seat, model.config.clone())).await?;
        self.engines.start(plan).await
    }

    /// Writes down with which settings a launch is started.
    async fn record(&self, started: Started) -> Result<(), Problem> {
        let folder = self.launches_dir.clone();
        let shown = folder.clone();
        of_file(&shown, RECORD_LIMIT, async move {
            let written = tokio::task::spawn_blocking(move || journal::write(&folder, &started).map_err(|cause| (folder, cause))).await;
            match written {
                Ok(Ok(())) => Ok(()),
                Ok(Err((folder, cause))) => Err(Problem::from_io(&folder.display().to_string(), &cause)),
                Err(_) => Err(Problem::internal("Writing down a launch ended unexpectedly.")),
            }
        })
        .await
    }

    /// Writes down that a launch answered. Nothing depends on it at once, so nobody waits for it.
    pub(crate) fn answered(&self, mut started: Started) {
        started.answered = true;
        let tools = self.clone();
        tokio::spawn(async move {
            if let Err(problem) = tools.record(started).await {
                tracing::warn!(%problem, "that an engine answered could not be written down");
            }
        });
    }

    /// Removes records of launches that are over.
    pub(crate) fn forget_launches(&self, kept: impl Fn(&Started) -> bool + Send + 'static) {
        let folder = self.launches_dir.clone();
        tokio::task::spawn_blocking(move || journal::keep(&folder, kept));
    }

    /// Waits for the replica's requests, then stops the engine.
    pub(crate) fn stop(&self, key: Key, launch: &Launch, patience: Duration) {
        let (tools, launch) = (self.clone(), launch.clone());
        tokio::spawn(async move {
            let begin = Instant::now();
            // Whoever read the table just before it was swapped is counted by then.
            sleep(DRAIN_LOOK).await;
            while tools.flights.of_replica(&key.model, &launch.replica) > 0 && begin.elapsed() < patience {
                sleep(DRAIN_LOOK).await;
            }
            let _ = tools.events.send(Event::Drained { key: key.clone(), launch: launch.launch.clone() });
            let result = tools.engines.stop(&launch.replica).await;
            let _ = tools.events.send(Event::Stopped { key, launch: launch.launch, result });
        });
    }

    /// Stops an engine once more that could not be stopped before.
    pub(crate) fn stop_again(&self, key: Key, replica: ReplicaId) {
        let tools = self.clone();
        tokio::spawn(async move {
            let result = tools.engines.stop(&replica).await;
            let _ = tools.events.send(Event::StoppedAgain { key, result });
        });
    }

    /// Keeps what can be told of an engine that was given up, then ends it. Nothing is waited for: its requests will not be answered.
    pub(crate) fn give_up(&self, key: Key, launch: &Launch, reason: StateReason, sample: Option<Sampled>) {
        let (tools, launch) = (self.clone(), launch.clone());
        tokio::spawn(async move {
            tools.keep_now(&key.model, &launch, reason, sample).await;
            let result = tools.engines.stop(&launch.replica).await;
            let _ = tools.events.send(Event::Stopped { key, launch: launch.launch, result });
        });
    }

    /// Keeps what can be told of an engine that is gone already.
    pub(crate) fn keep(&self, model: &ModelId, launch: &Launch, reason: StateReason, sample: Option<Sampled>) {
        let (tools, model, launch) = (self.clone(), model.clone(), launch.clone());
        tokio::spawn(async move { tools.keep_now(&model, &launch, reason, sample).await });
    }

    async fn keep_now(&self, model: &ModelId, launch: &Launch, reason: StateReason, sample: Option<Sampled>) {
        let gathered = async { (self.engines.log_tail(&launch.replica, EVIDENCE_LINES).await, self.engines.traces(launch).await) };
        let (log, traces) = timeout(EVIDENCE_LIMIT, gathered).await.unwrap_or_default();
        let mut incident = Incident { at: clock::now(), replica: launch.replica.clone(), reason: reason.clone(), evidence: None };
        let evidence = Evidence { model: model.clone(), launch: launch.clone(), reason, sample, log, traces };
        let folder = self.evidence_dir.clone();
        // A disk that hangs must not keep the engine from being ended and started again.
        match blocking(EVIDENCE_LIMIT, move || evidence::keep(&folder, &evidence)).await {
            Some(kept) => incident = kept,
            None => {
                tracing::warn!(replica = %launch.replica, folder = %self.evidence_dir.display(), "the disk did not take what was to be kept of an engine")
            }
        }
        let _ = self.events.send(Event::Kept { model: model.clone(), incident });
    }

    pub(crate) fn look(&self, key: Key, launch: &Launch) {
        let (tools, launch) = (self.clone(), launch.clone());
        tokio::spawn(async move {
            let observation = tools.engines.observe(&launch).await;
            let _ = tools.events.send(Event::Observed { key, launch: launch.launch, observation });
        });
    }

    /// Reads an engine's figures and what its processes did.
    pub(crate) fn read(&self, key: Key, launch: &Launch) {
        let (tools, launch) = (self.clone(), launch.clone());
        tokio::spawn(async move {
            let sample = timeout(READ_LIMIT, tools.engines.sample(&launch)).await.ok().and_then(Result::ok);
            let activity = timeout(READ_LIMIT, tools.engines.activity(&launch)).await.ok().flatten();
            let sampled = sample.map(|sample| Sampled { launch: launch.launch.clone(), at: clock::now(), sample });
            let _ = tools.events.send(Event::Read { key, launch: launch.launch, sampled, activity });
        });
    }

    /// Stops an engine that belongs to no wanted model.
    pub(crate) fn stop_stray(&self, launch: &Launch) {
        let (tools, launch) = (self.clone(), launch.clone());
        tokio::spawn(async move {
            tracing::warn!(replica = %launch.replica, "stopping an engine that belongs to no wanted model");
            if let Err(problem) = tools.engines.stop(&launch.replica).await {
                tracing::warn!(replica = %launch.replica, %problem, "it could not be stopped");
            }
        });
    }
}

fn replica_plan(model: &Model, number: u16, generation: GenerationId) -> ReplicaPlan {
    let trained = model.facts.trained_context.map_or(USUAL_CONTEXT, |tokens| tokens.0.min(USUAL_CONTEXT));
    ReplicaPlan {
        replica: replica_id(model, number),
        generation,
        engine: model.config.engine,
        served_name: model.config.served_name.clone(),
        model_path: model.config.path.clone(),
        context: model.config.context.unwrap_or(Tokens(trained)),
        slots: model.config.slots,
        gpus: model.config.layout.cards_of(number).to_vec(),
        device_minors: Vec::new(),
        extra_args: model.config.layout.extra_args.clone(),
        trust_remote_code: model.config.layout.trust_remote_code,
    }
}
