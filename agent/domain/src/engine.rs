//! Engines and the port through which serving runs them. The runner behind the port is systemd over D-Bus on the appliance and
//! detached process groups on a dev machine; serving cannot tell them apart.

use std::{path::PathBuf, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{
    Problem, ProblemKind,
    ids::{GenerationId, GpuId, ReplicaId},
    model::StateReason,
    replica::Endpoint,
    units::{Bytes, Tokens},
};

/// Which engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EngineKind {
    /// llama.cpp's own server.
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
    /// vLLM's OpenAI server.
    #[serde(rename = "vllm")]
    Vllm,
}

impl EngineKind {
    /// The name stored and shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LlamaCpp => "llama.cpp",
            Self::Vllm => "vllm",
        }
    }

    /// Whether it could run code that lies beside a model, so that allowing it makes sense.
    ///
    /// # Errors
    /// `Invalid` for `trust_remote_code`.
    pub fn check_trust(self) -> Result<(), Problem> {
        match self {
            Self::Vllm => Ok(()),
            Self::LlamaCpp => Err(Problem::new(ProblemKind::Invalid, "llama.cpp never runs code of a model, so there is nothing to allow.")
                .hint("Leave it out; a model that needs its own code runs on vLLM.")
                .param("trust_remote_code")),
        }
    }

    /// Reads the stored name back; an unknown name is no engine.
    #[must_use]
    pub fn from_stored(name: &str) -> Option<Self> {
        [Self::LlamaCpp, Self::Vllm].into_iter().find(|k| k.as_str() == name)
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
    /// Cards this replica may use, in order; empty: it runs on processors.
    pub gpus: Vec<GpuId>,
    /// Numbers of the device files of these cards, in the same order; fewer where the driver does not tell all.
    pub device_minors: Vec<u32>,
    /// More arguments that the admin gave, checked against those the box owns.
    pub extra_args: Vec<String>,
    /// Code that lies beside the model may run in its engine.
    pub trust_remote_code: bool,
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

/// An engine that was found running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What runs.
    pub launch: Launch,
    /// The attempt that started it; `None` when that was not written down.
    pub generation: Option<GenerationId>,
}

/// How far a load is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadView {
    /// Phase by name, from its log: `start`, `weights`, `compile`, `kv_cache`, `graphs`, `warmup`.
    pub phase: Option<String>,
    /// Parts of the phase that are done, of how many, where the engine says so.
    pub part: Option<(u64, u64)>,
    /// Last log line.
    pub last_line: Option<String>,
    /// What its processes did so far. `None`: it cannot be told.
    pub activity: Option<Activity>,
}

/// What the processes of an engine did since their start, as the system counts it. Each figure only grows while the same processes live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Length of its log.
    pub log: Bytes,
    /// Read from disks.
    pub read: Bytes,
    /// Time on processors, or waiting for one that is taken, of all its threads together: what it wants to compute, however busy the
    /// machine is with other things.
    pub processor: Duration,
}

/// What an engine that answers says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answering {
    /// Context window per request.
    pub context: Option<Tokens>,
    /// How much it can hold at a time.
    pub capacity: Capacity,
}

/// How much an engine can hold at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Capacity {
    /// It did not say.
    #[default]
    Unknown,
    /// So many requests, each with the whole window (llama.cpp).
    Slots(u16),
    /// So many tokens of all requests together, and at most so many requests (vLLM).
    Tokens {
        /// Its token memory.
        tokens: Tokens,
        /// Requests that it was told to work on at the same time; more would queue inside it, unseen. `None`: it is not known.
        slots: Option<u16>,
    },
}

/// Figures of a running engine at one moment. Counters count from its launch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReplicaSample {
    /// Requests it works on.
    pub running: Option<u64>,
    /// Requests it keeps waiting.
    pub waiting: Option<u64>,
    /// Share of its token memory in use, 0..1.
    pub kv_used_ratio: Option<f64>,
    /// Prompt tokens it computed and took from its cache, together.
    pub prompt_total: Option<Tokens>,
    /// Of these, from its cache.
    pub cached_total: Option<Tokens>,
    /// Answer tokens.
    pub generated_total: Option<Tokens>,
    /// Requests pushed out of memory again.
    pub preemptions_total: Option<u64>,
    /// Steps it computed, each of one batch of prompt or answer tokens. Told where the token counters move only when a request ends, so
    /// that a long answer is seen to get on.
    pub steps_total: Option<u64>,
}

/// What one look at a launched replica showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// Its process is up, it does not answer yet.
    Starting(LoadView),
    /// It answers.
    Ready(Answering),
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

    /// Replicas whose processes run now, whoever started them; used to adopt after an agent restart. Ends nothing that it would have to
    /// wait for.
    async fn running(&self) -> Result<Vec<Found>, Problem>;

    /// One look at a launch.
    async fn observe(&self, launch: &Launch) -> Observation;

    /// One reading of a running engine's own figures; at most 2 s. `Upstream` when it does not answer.
    async fn sample(&self, launch: &Launch) -> Result<ReplicaSample, Problem> {
        Err(Problem::new(crate::ProblemKind::Upstream, format!("The figures of {} cannot be read yet.", launch.replica)))
    }

    /// How many tokens a text has for the model of a running engine, as its own tokeniser counts; at most 2 s. `Upstream` when it does not
    /// answer or cannot tell.
    async fn count_tokens(&self, launch: &Launch, text: &str) -> Result<Tokens, Problem> {
        Err(Problem::new(crate::ProblemKind::Upstream, format!("{} cannot count the {} bytes of a text yet.", launch.replica, text.len())))
    }

    /// What its processes did so far; `None` when that cannot be told. Never waits for the engine itself.
    async fn activity(&self, launch: &Launch) -> Option<Activity> {
        let _ = launch;
        None
    }

    /// What the system says of its processes now, as named texts for whoever looks into a fault later; empty when nothing can be told.
    async fn traces(&self, launch: &Launch) -> Vec<(String, String)> {
        let _ = launch;
        Vec::new()
    }

    /// Refuses arguments that an admin may not give to this engine, because the box gives them itself. `Invalid` names the argument and the
    /// setting to use instead.
    fn check_arguments(&self, engine: EngineKind, arguments: &[String]) -> Result<(), Problem> {
        let _ = (engine, arguments);
        Ok(())
    }

    /// Last lines of a replica's log, oldest first.
    async fn log_tail(&self, replica: &ReplicaId, lines: usize) -> Vec<String>;
}
