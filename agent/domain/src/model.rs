//! Models as documents: `config` is what the admin wants, `state` is what is observed.

use std::path::PathBuf;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    Problem,
    engine::EngineKind,
    ids::{GpuId, ModelId, ReplicaId},
    units::{Bytes, Tokens},
};

/// What the admin wants of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// The name clients use in `model`: 1 to 100 of letters, digits, `.`, `-`, `_`; unique.
    pub served_name: String,
    /// The model file (GGUF), absolute. For a folder that was registered: the one model file found in it.
    pub path: PathBuf,
    /// Which engine runs it.
    pub engine: EngineKind,
    /// Context window per request; `None` = what the model was trained for, capped at 4096 for now.
    pub context: Option<Tokens>,
    /// Requests the engine works on at the same time, 1 to 64.
    pub slots: u16,
    /// Replicas, cards and more.
    #[serde(default)]
    pub layout: Layout,
}

/// On what and how often a model runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Layout {
    /// Engines of this model beside each other, 1 to 16.
    pub replicas: u16,
    /// Cards, in order; each replica takes the same number of them. Empty: processors.
    pub gpus: Vec<GpuId>,
    /// More arguments for the engine, as its own documentation spells them.
    pub extra_args: Vec<String>,
}

impl Default for Layout {
    fn default() -> Self {
        Self { replicas: 1, gpus: Vec::new(), extra_args: Vec::new() }
    }
}

/// What was read from the model file's header when it was registered. Unknown stays `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFacts {
    /// Size of the file.
    pub size: Bytes,
    /// `general.architecture`, such as `llama`.
    pub architecture: Option<String>,
    /// `general.name`.
    pub title: Option<String>,
    /// Context length it was trained for.
    pub trained_context: Option<Tokens>,
    /// True when the file carries a chat template.
    pub has_chat_template: Option<bool>,
}

/// A registered model: identity, config and facts. Its running state is `ModelState`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// Identity.
    pub id: ModelId,
    /// When it was registered.
    pub created_at: Timestamp,
    /// What the admin wants.
    pub config: ModelConfig,
    /// What the file says.
    pub facts: ModelFacts,
}

/// The few state words of the console; each means one thing everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateWord {
    /// Nothing runs, nothing is wanted.
    Stopped,
    /// Wanted, but something must happen first (the engine is still being built, for example).
    Waiting,
    /// An engine is coming up.
    Loading,
    /// At least one replica answers.
    Running,
    /// It was wanted and did not come up, or died.
    Failed,
}

impl StateWord {
    /// The word itself.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Waiting => "waiting",
            Self::Loading => "loading",
            Self::Running => "running",
            Self::Failed => "failed",
        }
    }
}

/// Why a model is in `Failed` or `Waiting`, for page and API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateReason {
    /// Stable code, such as `engine_failed`.
    pub code: String,
    /// What happened, to what, why.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// One replica as observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaState {
    /// Stable replica id.
    pub id: ReplicaId,
    /// The launch identity (systemd InvocationID, or boot id + pid + start time); `None` before the first launch.
    pub launch: Option<String>,
    /// State of this replica.
    pub state: StateWord,
}

/// What is observed of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelState {
    /// The one word.
    pub state: StateWord,
    /// While loading: the phase by name, such as `weights`.
    pub phase: Option<String>,
    /// When this state began.
    pub since: Timestamp,
    /// Why, for `failed` and `waiting`.
    pub reason: Option<StateReason>,
    /// The engine's context window per request, once it runs and said so.
    pub context: Option<Tokens>,
    /// Last line of the engine's log, if there is one.
    pub last_log_line: Option<String>,
    /// Its replicas.
    pub replicas: Vec<ReplicaState>,
}

impl ModelState {
    /// The state of a model nobody asked to run.
    #[must_use]
    pub const fn stopped(since: Timestamp) -> Self {
        Self { state: StateWord::Stopped, phase: None, since, reason: None, context: None, last_log_line: None, replicas: Vec::new() }
    }
}

/// What a caller gives to register a model.
#[derive(Clone, Debug, Deserialize)]
pub struct NewModel {
    /// A GGUF file, or a folder with exactly one model in it. Absolute, or relative to the models folder.
    pub path: PathBuf,
    /// The name to serve it under; `None` = made from the file name.
    pub served_name: Option<String>,
    /// Context window per request.
    pub context: Option<Tokens>,
    /// Slots; `None` = 4.
    pub slots: Option<u16>,
}

/// A model file lying in the models folder that is not registered yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// Absolute path.
    pub path: PathBuf,
    /// Size.
    pub size: Bytes,
    /// A served name made from the file name.
    pub suggested_name: String,
}

/// What a quick look at a registered model's files showed; their contents are not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileLook {
    /// All parts are there with the size they had.
    Whole,
    /// A part is gone or may not be read; a sentence says which and why.
    Missing(String),
    /// The size is another one now.
    Changed {
        /// All parts together, now.
        now: Bytes,
    },
}

/// The registry of models.
#[async_trait]
pub trait Registry: Send + Sync {
    /// All registered models, oldest first.
    async fn list(&self) -> Result<Vec<Model>, Problem>;

    /// One model. `NotFound` when there is none.
    async fn get(&self, id: &ModelId) -> Result<Model, Problem>;

    /// Checks the file and registers it. Nothing is copied and nothing is written when a check fails: `BadModelFile` (missing, not a
    /// GGUF, cut), `Conflict` (name taken), `Invalid` (name, slots or path not allowed), `DiskFull`.
    async fn register(&self, new: NewModel) -> Result<Model, Problem>;

    /// Forgets a model; the file stays. `Conflict` while it is loaded or loading.
    async fn remove(&self, id: &ModelId) -> Result<(), Problem>;

    /// Model files in the models folder that could be registered.
    async fn candidates(&self) -> Result<Vec<Candidate>, Problem>;

    /// Checks again that the registered file is still there and whole, before a load. `BadModelFile` says what is wrong.
    async fn verify(&self, id: &ModelId) -> Result<(), Problem>;

    /// A quick look at the files of every registered model, by directory entries alone.
    async fn file_looks(&self) -> Result<Vec<(Model, FileLook)>, Problem>;
}
