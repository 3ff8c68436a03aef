//! Models as documents: `config` is what the admin wants, `state` is what is observed.

use std::path::PathBuf;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    Problem, ProblemKind,
    engine::EngineKind,
    ids::{GpuId, ModelId, ReplicaId},
    units::{Bytes, Millis, Tokens},
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

impl ModelConfig {
    /// Whether engines loaded with this are as they would be with `other`: some settings are nothing that an engine has.
    #[must_use]
    pub fn runs_as(&self, other: &Self) -> bool {
        let mut other = other.clone();
        other.take_at_once(self);
        *self == other
    }

    /// Takes from newer settings what is no affair of an engine and therefore counts at once.
    pub const fn take_at_once(&mut self, newer: &Self) {
        self.layout.on_request = newer.layout.on_request;
        self.layout.runaway = newer.layout.runaway;
    }
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
    /// A request for it loads it while it is stopped.
    pub on_request: bool,
    /// Code that lies beside the model may run in its engine. An administrator's own decision for this one model.
    pub trust_remote_code: bool,
    /// What is done about answers that run away.
    pub runaway: RunawayGuard,
}

/// What is done about an answer that repeats itself, never stops thinking, or never ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunawayGuard {
    /// Nothing; nobody looks.
    Off,
    /// It is counted and noted in the log; the answer goes on.
    #[default]
    Log,
    /// The answer is ended as if it had come to its limit of tokens, and the engine is let go.
    Enforce,
}

impl RunawayGuard {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Off, Self::Log, Self::Enforce];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Log => "log",
            Self::Enforce => "enforce",
        }
    }

    /// The one with this word.
    ///
    /// # Errors
    /// `Invalid` names the words there are.
    pub fn from_word(word: &str) -> Result<Self, Problem> {
        Self::ALL.into_iter().find(|guard| guard.as_str() == word).ok_or_else(|| {
            let word: String = word.chars().take(40).collect();
            Problem::new(ProblemKind::Invalid, format!("There is no runaway guard {word:?}.")).hint("Use off, log or enforce.").param("runaway_guard")
        })
    }
}

/// Most replicas of one model.
pub const MOST_REPLICAS: u16 = 16;

impl Layout {
    /// The cards of one replica, counted from 0; all of them when they cannot be shared out evenly.
    #[must_use]
    pub fn cards_of(&self, replica: u16) -> &[GpuId] {
        let (each, at) = (self.gpus.len() / usize::from(self.replicas.max(1)), usize::from(replica));
        self.gpus.get(at * each..(at + 1) * each).unwrap_or(&self.gpus)
    }

    /// Whether it makes sense by itself: 1 to 16 replicas, every card once, the same number of cards for each replica.
    ///
    /// # Errors
    /// `Invalid` names the field.
    pub fn check(&self) -> Result<(), Problem> {
        let refuse = |param: &str, message: String, hint: &str| Err(Problem::new(ProblemKind::Invalid, message).hint(hint).param(param));
        if !(1..=MOST_REPLICAS).contains(&self.replicas) {
            return refuse("replicas", format!("A model cannot have {} replicas.", self.replicas), "Use 1 to 16.");
        }
        if let Some(twice) = self.gpus.iter().enumerate().find(|(at, card)| self.gpus[..*at].contains(card)).map(|(_, card)| card) {
            return refuse("gpus", format!("The card {twice} is named twice."), "Name every card once.");
        }
        if !self.gpus.len().is_multiple_of(usize::from(self.replicas)) {
            let message = format!("{} cards cannot be shared out evenly among {} replicas.", self.gpus.len(), self.replicas);
            return refuse("gpus", message, "Each replica takes the same number of cards: use a multiple of the replicas, or none for processors.");
        }
        if self.extra_args.len() > 64 || self.extra_args.iter().any(|arg| arg.len() > 1000 || arg.contains(char::is_control)) {
            return refuse(
                "extra_args",
                "These arguments cannot be given to an engine.".to_owned(),
                "Use at most 64 of at most 1000 characters each.",
            );
        }
        Ok(())
    }
}

impl Default for Layout {
    fn default() -> Self {
        Self { replicas: 1, gpus: Vec::new(), extra_args: Vec::new(), on_request: false, trust_remote_code: false, runaway: RunawayGuard::default() }
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
    /// Whether it takes images, where its files tell; for a GGUF file that depends on what it is run with.
    #[serde(default)]
    pub images: Option<bool>,
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
    /// While loading, the phase by name; while running, `draining`, `stopping` or `not answering` when it is that.
    pub phase: Option<String>,
    /// When this state began.
    pub since: Timestamp,
    /// Why, for `failed` and `waiting`.
    pub reason: Option<StateReason>,
    /// Last line of its log, while it does not run.
    pub last_log_line: Option<String>,
    /// While loading: the phases of the load, those that are expected from earlier loads included.
    pub phases: Vec<LoadPhase>,
    /// Its engine runs with older settings than those that the model was loaded with last.
    #[serde(default)]
    pub outdated: bool,
}

/// One phase of a load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadPhase {
    /// By name, such as `weights`.
    pub name: String,
    /// When it began; `None`: not reached yet.
    pub began: Option<Timestamp>,
    /// What it took; `None`: it goes on, or is not reached yet.
    pub took: Option<Millis>,
    /// What it took in earlier loads of this model on this engine (the median); `None` when there was none.
    pub typical: Option<Millis>,
    /// Parts of it that are done, of how many, where the engine says so.
    pub part: Option<(u64, u64)>,
}

/// An engine that had to be given up while it was wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incident {
    /// When it was seen.
    pub at: Timestamp,
    /// Which replica.
    pub replica: ReplicaId,
    /// Why.
    pub reason: StateReason,
    /// The folder with what was kept of it, by its name in the state folder's `evidence`; `None` when nothing could be kept.
    pub evidence: Option<String>,
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
    /// The settings it was loaded with; `None` when it is not loaded. The registered ones may be newer.
    pub loaded: Option<ModelConfig>,
    /// Something about it that is no state, such as a reload that was given up.
    pub notice: Option<StateReason>,
    /// Its last incidents, newest first.
    pub incidents: Vec<Incident>,
    /// It does not answer, and comes up without anybody's doing: it is being loaded, or started again after its engine died.
    pub comes: bool,
}

impl ModelState {
    /// The state of a model nobody asked to run.
    #[must_use]
    pub const fn stopped(since: Timestamp) -> Self {
        Self {
            state: StateWord::Stopped,
            phase: None,
            since,
            reason: None,
            context: None,
            last_log_line: None,
            replicas: Vec::new(),
            loaded: None,
            notice: None,
            comes: false,
            incidents: Vec::new(),
        }
    }
}

/// What a caller gives to register a model.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct NewModel {
    /// A GGUF file, or a folder with exactly one model in it. Absolute, or relative to the models folder.
    pub path: PathBuf,
    /// The name to serve it under; `None` = made from the file name.
    pub served_name: Option<String>,
    /// Context window per request.
    pub context: Option<Tokens>,
    /// Slots; `None` = 4.
    pub slots: Option<u16>,
    /// Replicas, cards, arguments.
    #[serde(default)]
    pub layout: Layout,
}

/// Settings to change; what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelChange {
    /// Context window per request; the inner `None` = from the file.
    pub context: Option<Option<Tokens>>,
    /// Requests at the same time, of each replica.
    pub slots: Option<u16>,
    /// Engines beside each other.
    pub replicas: Option<u16>,
    /// Cards, in order.
    pub gpus: Option<Vec<GpuId>>,
    /// More arguments for the engine.
    pub extra_args: Option<Vec<String>>,
    /// Whether a request loads it.
    pub on_request: Option<bool>,
    /// Whether code that lies beside the model may run.
    pub trust_remote_code: Option<bool>,
    /// What is done about answers that run away.
    pub runaway: Option<RunawayGuard>,
}

impl ModelChange {
    /// The settings after the change.
    #[must_use]
    pub fn applied_to(self, config: &ModelConfig) -> ModelConfig {
        let layout = &config.layout;
        ModelConfig {
            context: self.context.unwrap_or(config.context),
            slots: self.slots.unwrap_or(config.slots),
            layout: Layout {
                replicas: self.replicas.unwrap_or(layout.replicas),
                gpus: self.gpus.unwrap_or_else(|| layout.gpus.clone()),
                extra_args: self.extra_args.unwrap_or_else(|| layout.extra_args.clone()),
                on_request: self.on_request.unwrap_or(layout.on_request),
                trust_remote_code: self.trust_remote_code.unwrap_or(layout.trust_remote_code),
                runaway: self.runaway.unwrap_or(layout.runaway),
            },
            ..config.clone()
        }
    }
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

    /// Changes settings of a model, all or none. They count from the next load or reload on. `NotFound`, `Invalid` names the field.
    async fn change(&self, id: &ModelId, change: ModelChange) -> Result<Model, Problem>;

    /// Forgets a model; the file stays. `Conflict` while it is loaded or loading.
    async fn remove(&self, id: &ModelId) -> Result<(), Problem>;

    /// Model files in the models folder that could be registered.
    async fn candidates(&self) -> Result<Vec<Candidate>, Problem>;

    /// Checks again that the registered file is still there and whole, before a load. `BadModelFile` says what is wrong.
    async fn verify(&self, id: &ModelId) -> Result<(), Problem>;

    /// A quick look at the files of every registered model, by directory entries alone.
    async fn file_looks(&self) -> Result<Vec<(Model, FileLook)>, Problem>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(replicas: u16, gpus: &[&str]) -> Layout {
        Layout { replicas, gpus: gpus.iter().map(|id| GpuId::from_stored(*id)).collect(), ..Layout::default() }
    }

    #[test]
    fn each_replica_gets_its_own_cards_in_order() {
        let four = layout(2, &["a", "b", "c", "d"]);
        four.check().unwrap();
        assert_eq!(four.cards_of(0), &four.gpus[..2]);
        assert_eq!(four.cards_of(1), &four.gpus[2..]);
        assert!(layout(3, &[]).cards_of(2).is_empty());
    }

    #[test]
    fn a_layout_that_cannot_be_shared_out_is_refused_by_the_field_at_fault() {
        for (wrong, field) in
            [(layout(0, &[]), "replicas"), (layout(17, &[]), "replicas"), (layout(2, &["a"]), "gpus"), (layout(1, &["a", "a"]), "gpus")]
        {
            assert_eq!(wrong.check().unwrap_err().param.as_deref(), Some(field), "{wrong:?}");
        }
    }

    #[test]
    fn what_no_engine_has_counts_at_once_and_rows_of_an_older_program_have_the_usual_guard() {
        let config = |layout: Layout| ModelConfig {
            served_name: "tiny".to_owned(),
            path: "/m".into(),
            engine: EngineKind::LlamaCpp,
            context: None,
            slots: 3,
            layout,
        };
        let (loaded, newer) = (config(Layout::default()), config(Layout { runaway: RunawayGuard::Enforce, on_request: true, ..Layout::default() }));
        assert!(loaded.runs_as(&newer) && !loaded.runs_as(&config(Layout { replicas: 2, ..newer.layout.clone() })));
        let mut taken = loaded;
        taken.take_at_once(&newer);
        assert_eq!(taken, newer);
        let older: Layout = serde_json::from_str(r#"{"replicas":2,"gpus":[],"extra_args":[],"on_request":true}"#).unwrap();
        assert_eq!((older.runaway, RunawayGuard::from_word("enforce").unwrap()), (RunawayGuard::Log, RunawayGuard::Enforce));
        assert_eq!(RunawayGuard::from_word("ON").unwrap_err().param.as_deref(), Some("runaway_guard"));
    }

    #[test]
    fn a_change_leaves_what_it_does_not_name() {
        let config = ModelConfig {
            served_name: "tiny".to_owned(),
            path: "/m".into(),
            engine: EngineKind::LlamaCpp,
            context: Some(Tokens(9)),
            slots: 3,
            layout: layout(1, &["a"]),
        };
        let changed = ModelChange { replicas: Some(2), context: Some(None), ..ModelChange::default() }.applied_to(&config);
        assert_eq!((changed.context, changed.slots, changed.layout.replicas, changed.layout.gpus.len()), (None, 3, 2, 1));
    }
}
