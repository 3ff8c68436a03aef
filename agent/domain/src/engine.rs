//! Engines and the port through which serving runs them. The runner behind the port is systemd over D-Bus on the appliance and
//! detached process groups on a dev machine; serving cannot tell them apart.

use std::{path::PathBuf, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{
    Problem,
    ids::{GenerationId, ReplicaId},
    model::StateReason,
    replica::Endpoint,
    units::Tokens,
};

/// Which engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EngineKind {
    /// llama.cpp's own server.
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
}

impl EngineKind {
    /// The name stored and shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LlamaCpp => "llama.cpp",
        }
    }

    /// Reads the stored name back; an unknown name is no engine.
    #[must_use]
    pub fn from_stored(name: &str) -> Option<Self> {
        [Self::LlamaCpp].into_iter().find(|k| k.as_str() == name)
    }
}

/// State of an engine that could run models here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum PackState {
    /// It can run models.
    Ready,
    /// It is being built or fetched.
    Building {
        /// Steps done, when known.
        step: Option<u32>,
        /// Steps in all, when known.
        of: Option<u32>,
        /// What is happening, in words.
        message: String,
    },
    /// It cannot be used.
    Broken {
        /// Why, and what to do.
        message: String,
    },
}

/// An engine installed, or on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnginePack {
    /// Which engine.
    pub engine: EngineKind,
    /// Its version, such as `b11434`; `None` while unknown.
    pub version: Option<String>,
    /// SHA-256 of the pack file in hex, on the appliance; `None` on a dev machine.
    pub digest: Option<String>,
    /// Ready or not.
    #[serde(flatten)]
    pub state: PackState,
}

/// Everything needed to launch one replica. Contains no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaPlan {
    /// Stable replica id.
    pub replica: ReplicaId,
    /// Identity of this attempt.
    pub generation: GenerationId,
    /// Which engine.
    pub engine: EngineKind,
    /// Name the engine reports (`--alias`).
    pub served_name: String,
    /// Model file.
    pub model_path: PathBuf,
    /// Context window per request.
    pub context: Tokens,
    /// Requests at the same time.
    pub slots: u16,
}

/// A launched replica, or one found running after an agent restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Which replica.
    pub replica: ReplicaId,
    /// Launch identity: systemd InvocationID, or boot id + pid + start time.
    pub launch: String,
    /// Where it listens.
    pub endpoint: Endpoint,
}

/// What one look at a launched replica showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// Its process is up, it does not answer yet.
    Starting {
        /// Phase by name, from its log.
        phase: Option<String>,
        /// Last log line.
        last_line: Option<String>,
    },
    /// It answers.
    Ready {
        /// Context window per request it reports.
        context: Option<Tokens>,
    },
    /// Its process is up and did answer before, but does not answer now.
    Silent {
        /// For how long.
        since: Duration,
    },
    /// Its process is gone, or the launch identity is another one now.
    Gone {
        /// Root cause from log and exit status.
        reason: StateReason,
    },
}

/// Runs engines: packs, launch, stop, look.
#[async_trait]
pub trait Engines: Send + Sync {
    /// Engines installed or on their way. Never empty of knowledge: an engine that should be here and is not is `Broken`.
    async fn packs(&self) -> Vec<EnginePack>;

    /// Launches a replica and returns its identity at once; readiness is seen by `observe`. A replica of that id that still runs is
    /// stopped first. `EngineUnavailable`, `SystemService` (no D-Bus, refused), `EngineFailed` (pack refused by signature), `DiskFull`.
    async fn start(&self, plan: &ReplicaPlan) -> Result<Launch, Problem>;

    /// Stops a replica and waits until its processes are gone (at most about 30 s, then they are killed). Stopping nothing is fine.
    async fn stop(&self, replica: &ReplicaId) -> Result<(), Problem>;

    /// Replicas whose processes run now, whoever started them; used to adopt after an agent restart.
    async fn running(&self) -> Result<Vec<Launch>, Problem>;

    /// One look at a launch.
    async fn observe(&self, launch: &Launch) -> Observation;

    /// Last lines of a replica's log, oldest first.
    async fn log_tail(&self, replica: &ReplicaId, lines: usize) -> Vec<String>;
}
