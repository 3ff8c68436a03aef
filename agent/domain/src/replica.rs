//! Replicas as the gateway sees them, and the port through which models are loaded and unloaded.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{
    Problem, ProblemKind,
    engine::{Capacity, EngineKind, ReplicaSample},
    ids::{ModelId, ReplicaId},
    model::{Incident, ModelState, RunawayGuard, StateReason},
    units::{Bytes, Tokens},
};

/// Where an engine listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A Unix socket: the rule.
    Unix(PathBuf),
    /// A loopback port, for engines that cannot use a Unix socket.
    Loopback(SocketAddr),
}

/// A replica that answers now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Stable id.
    pub id: ReplicaId,
    /// Launch identity of the process behind it.
    pub launch: String,
    /// Where to send.
    pub endpoint: Endpoint,
    /// How much it can hold at a time.
    pub capacity: Capacity,
}

/// A model that answers now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedModel {
    /// The registered model.
    pub id: ModelId,
    /// The name clients use.
    pub served_name: String,
    /// Which engine runs it.
    pub engine: EngineKind,
    /// Context window per request, when the engine said so.
    pub context: Option<Tokens>,
    /// Whether it takes images: as its engine says, else as its files say; `None` when neither does.
    pub images: Option<bool>,
    /// What is done about answers that run away.
    pub runaway: RunawayGuard,
    /// When it was registered, in seconds since the epoch (`created` of `/v1/models`).
    pub created: i64,
    /// Its live replicas; never empty.
    pub replicas: Vec<Replica>,
}

/// The snapshot the gateway places by: served name -> model. Swapped as a whole by serving.
#[derive(Clone, Debug, Default)]
pub struct ReplicaTable {
    /// By served name.
    pub models: BTreeMap<String, ServedModel>,
}

/// Figures of one running replica, and when they were read.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// The launch they belong to.
    pub launch: String,
    /// When they were read.
    pub at: Timestamp,
    /// The figures.
    pub sample: ReplicaSample,
}

/// How a reload goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reload {
    /// One replica after the other; the others serve meanwhile.
    Rolling,
    /// All of it stops and starts again; nothing serves meanwhile.
    Restart {
        /// Why it cannot be done one after the other.
        why: String,
    },
}

/// What was kept of one engine that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The name of its folder.
    pub name: String,
    /// When, which and why.
    pub incident: Incident,
    /// Its files by name, with their size.
    pub files: Vec<(String, Bytes)>,
}

/// Desired against observed, as the api and the gateway use it.
#[async_trait]
pub trait Serving: Send + Sync {
    /// The snapshot for the hot path. Never waits.
    fn table(&self) -> Arc<ReplicaTable>;

    /// State of every model that was ever asked for; a registered model that is not in the map is stopped. Never waits.
    fn states(&self) -> Arc<BTreeMap<ModelId, ModelState>>;

    /// The last figures of every running replica, read about once a second; one that could not be read is not in it. Never waits.
    fn samples(&self) -> Arc<BTreeMap<ReplicaId, Sampled>> {
        Arc::default()
    }

    /// Returns once what the registry says by now counts for requests; for whoever changed it for somebody who waits for the answer (a
    /// download or an import has nobody waiting, and serving follows by itself). After a second at most, for serving may be busy.
    async fn caught_up(&self) {}

    /// Wants the model running; returns once that is recorded, not once it runs. `NotFound`, `BadModelFile`, `Conflict` (already
    /// running or loading, or another model has its cards), `Invalid` (cards that are not there), `EngineUnavailable` (no engine of its kind is installed), `DiskFull`.
    async fn load(&self, id: &ModelId) -> Result<(), Problem>;

    /// Wants it stopped: new requests are refused, running ones get up to 30 s, then the engine is stopped. Also cancels a load.
    /// `NotFound` when the model does not exist; stopping a stopped model is fine.
    async fn unload(&self, id: &ModelId) -> Result<(), Problem>;

    /// Starts its engines anew with the settings of this moment: each finishes its requests (up to 30 s) before it stops. Says how it will
    /// go. `NotFound`, `Conflict` (not running, a reload is under way, another model has its cards), `BadModelFile`.
    async fn reload(&self, id: &ModelId) -> Result<Reload, Problem>;

    /// Takes one replica, counted from 0, out of service: new requests go to the others, its own get up to 30 s, then its engine is stopped. It
    /// comes up again with the next load or reload of the model. `NotFound`, `Conflict` (it does not answer, no other one does, or a reload
    /// is under way).
    async fn drain(&self, id: &ModelId, number: u16) -> Result<(), Problem> {
        Err(Problem::new(ProblemKind::NotFound, format!("The model {id} has no replica {number}.")))
    }

    /// What was kept of engines of this model that were given up, newest first. `NotFound` when the model does not exist.
    async fn evidence(&self, id: &ModelId) -> Result<Vec<Kept>, Problem> {
        let _ = id;
        Ok(Vec::new())
    }

    /// One file of that, as text, without secrets. `NotFound`.
    async fn evidence_file(&self, id: &ModelId, name: &str, file: &str) -> Result<String, Problem> {
        Err(Problem::new(ProblemKind::NotFound, format!("Nothing called {name}/{file} was kept of the model {id}.")))
    }

    /// The last lines of the engine's log, oldest first; empty when it never ran.
    async fn log_tail(&self, id: &ModelId, lines: usize) -> Result<Vec<String>, Problem>;
}

/// What becomes of a request for a model that does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// No model of that name is loaded by a request.
    Not,
    /// It comes up, because of this request or already.
    Coming,
    /// It was tried, and does not come up.
    Failed(StateReason),
}

/// Where the gateway tells that somebody wants a model which does not answer.
pub trait Demand: Send + Sync {
    /// Tells it, as often as one likes while waiting. Never waits itself.
    fn wanted(&self, served_name: &str) -> Wanted;
}

/// A place where no request loads anything.
#[derive(Debug)]
pub struct NoDemand;

impl Demand for NoDemand {
    fn wanted(&self, _: &str) -> Wanted {
        Wanted::Not
    }
}

/// How many requests the gateway has in flight on a replica; serving waits for zero when it drains.
pub trait InFlight: Send + Sync {
    /// Requests of this model that are not finished yet.
    fn of_model(&self, id: &ModelId) -> usize;

    /// Requests on one of its replicas that are not finished yet.
    fn of_replica(&self, id: &ModelId, replica: &ReplicaId) -> usize;
}
