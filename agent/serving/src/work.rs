//! The slow parts: starting, stopping, looking. Each is a task of its own that reports one event to the reconciler.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{sync::mpsc, time::sleep};
use warden_domain::{
    Problem,
    engine::{Engines, Launch, Observation, ReplicaPlan},
    ids::{GenerationId, ModelId},
    model::{Model, Registry},
    replica::InFlight,
    units::Tokens,
};

use crate::name::replica_id;

/// What a task reports.
#[derive(Debug)]
pub(crate) enum Event {
    /// A start is through, well or not.
    Started { id: ModelId, generation: GenerationId, result: Result<Launch, Problem> },
    /// No request is in flight any more, or the time for them is over.
    Drained { id: ModelId, launch: String },
    /// A stop is through, well or not.
    Stopped { id: ModelId, launch: String, result: Result<(), Problem> },
    /// A look is through.
    Observed { id: ModelId, launch: String, observation: Observation },
}

/// What the tasks work with.
#[derive(Clone)]
pub(crate) struct Tools {
    pub(crate) registry: Arc<dyn Registry>,
    pub(crate) engines: Arc<dyn Engines>,
    pub(crate) flights: Arc<dyn InFlight>,
    pub(crate) events: mpsc::UnboundedSender<Event>,
}

/// Context per request when neither the admin nor the model's file says one, and the most that is taken without being asked for.
const USUAL_CONTEXT: u64 = 4096;
const DRAIN_LOOK: Duration = Duration::from_millis(50);

impl Tools {
    /// Checks the file once more, then starts the engine.
    pub(crate) fn start(&self, model: &Model, generation: GenerationId) {
        let (tools, model) = (self.clone(), model.clone());
        tokio::spawn(async move {
            let plan = replica_plan(&model, generation.clone());
            let result = match tools.registry.verify(&model.id).await {
                Ok(()) => tools.engines.start(&plan).await,
                Err(problem) => Err(problem),
            };
            let _ = tools.events.send(Event::Started { id: model.id, generation, result });
        });
    }

    /// Waits for the model's requests, then stops the engine.
    pub(crate) fn stop(&self, id: &ModelId, launch: &Launch, patience: Duration) {
        let (tools, id, launch) = (self.clone(), id.clone(), launch.clone());
        tokio::spawn(async move {
            let begin = Instant::now();
            while tools.flights.of_model(&id) > 0 && begin.elapsed() < patience {
                sleep(DRAIN_LOOK).await;
            }
            let _ = tools.events.send(Event::Drained { id: id.clone(), launch: launch.launch.clone() });
            let result = tools.engines.stop(&launch.replica).await;
            let _ = tools.events.send(Event::Stopped { id, launch: launch.launch, result });
        });
    }

    pub(crate) fn look(&self, id: &ModelId, launch: &Launch) {
        let (tools, id, launch) = (self.clone(), id.clone(), launch.clone());
        tokio::spawn(async move {
            let observation = tools.engines.observe(&launch).await;
            let _ = tools.events.send(Event::Observed { id, launch: launch.launch, observation });
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

fn replica_plan(model: &Model, generation: GenerationId) -> ReplicaPlan {
    let trained = model.facts.trained_context.map_or(USUAL_CONTEXT, |tokens| tokens.0.min(USUAL_CONTEXT));
    ReplicaPlan {
        replica: replica_id(model),
        generation,
        engine: model.config.engine,
        served_name: model.config.served_name.clone(),
        model_path: model.config.path.clone(),
        context: model.config.context.unwrap_or(Tokens(trained)),
        slots: model.config.slots,
        gpus: model.config.layout.gpus.clone(),
        extra_args: model.config.layout.extra_args.clone(),
    }
}
