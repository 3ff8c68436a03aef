//! A hub of model repositories: what a repository holds, and how this box reaches the hub. Values and the port; no HTTP.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{
    Problem, Secret,
    engine::EngineKind,
    fit::{FitAsk, FitTable},
    gpu::GpuSnapshot,
    units::{Bytes, Tokens},
};

/// A repository as somebody asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoAsk {
    /// `owner/name`.
    pub repo: String,
    /// Branch, tag or commit; empty means `main`.
    pub revision: String,
}

/// What a file of a repository is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A model for llama.cpp, or a part of one.
    Gguf,
    /// The image part of a model for llama.cpp.
    Mmproj,
    /// An adapter, which is of no use alone.
    Adapter,
    /// All weights in one safetensors file.
    SafetensorsSingle,
    /// A part of weights in several safetensors files.
    SafetensorsSharded,
    /// Weights that an engine does not load, because the same ones are there in another form.
    Duplicate,
    /// A pickle; never loaded.
    PytorchBin,
    /// Settings of the model.
    Config,
    /// Vocabulary and chat template.
    Tokenizer,
    /// A program, which is never fetched.
    Code,
    /// Anything else.
    Other,
}

impl FileKind {
    /// The word in API and pages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gguf => "gguf",
            Self::Mmproj => "mmproj",
            Self::Adapter => "adapter",
            Self::SafetensorsSingle => "safetensors_single",
            Self::SafetensorsSharded => "safetensors_sharded",
            Self::Duplicate => "duplicate",
            Self::PytorchBin => "pytorch_bin",
            Self::Config => "config",
            Self::Tokenizer => "tokenizer",
            Self::Code => "code",
            Self::Other => "other",
        }
    }
}

/// How the content of a file is promised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "hex")]
pub enum Promise {
    /// SHA-256 of the content.
    Sha256(String),
    /// SHA-1 of a git blob: of `blob <length>`, a zero byte and the content.
    GitBlob(String),
}

/// One file of a repository at a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HubFile {
    /// Path inside the repository.
    pub path: String,
    /// Size.
    pub size: Bytes,
    /// What it is.
    pub kind: FileKind,
    /// How its content is promised.
    pub promise: Promise,
}

/// Something of a repository that can be fetched and run: one file, or all files of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Names it in later calls: the path of its first file.
    pub filename: String,
    /// Number format, such as `Q4_K_M`; `None` where nothing says.
    pub quantisation: Option<String>,
    /// Which engine runs it.
    pub engine: EngineKind,
    /// What is fetched, weights first.
    pub files: Vec<HubFile>,
    /// The weights of it, without its image part.
    pub weights: Bytes,
    /// All files of it.
    pub size: Bytes,
    /// Why it cannot be fetched: parts are missing.
    pub incomplete: Option<String>,
}

/// What `config.json` says of a model, as far as older scripts read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepoConfig {
    /// The chosen keys of `config.json`, as JSON text; `None` when there is no such file.
    pub json: Option<String>,
}

/// What a repository holds at one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// `owner/name`.
    pub repo: String,
    /// The revision asked for.
    pub revision: String,
    /// The commit it names now.
    pub commit: String,
    /// Whether people must accept terms to fetch it; `None`: the hub does not say.
    pub gated: Option<bool>,
    /// All files.
    pub files: Vec<HubFile>,
    /// What can be fetched and run, the smallest first.
    pub choices: Vec<Choice>,
    /// What `config.json` says.
    pub config: RepoConfig,
}

impl Choice {
    /// Its image part (mmproj), when the repository has one.
    #[must_use]
    pub fn projector(&self) -> Option<&HubFile> {
        self.files.iter().find(|file| file.kind == FileKind::Mmproj)
    }
}

impl Discovery {
    /// Files that would run code on this box when a program loaded them: scripts, programs, pickles. None of them is ever fetched.
    pub fn code(&self) -> impl Iterator<Item = &HubFile> {
        self.files.iter().filter(|file| matches!(file.kind, FileKind::Code | FileKind::PytorchBin))
    }
}

/// How this box reaches the hub. Holds no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubSettings {
    /// Its address.
    pub endpoint: String,
    /// Whether an access token is kept for that address.
    pub has_token: bool,
    /// Downloads take at most so many bytes a second; `None`: as much as there is.
    pub limit: Option<Bytes>,
}

/// A change of these settings; what is `None` stays.
#[derive(Clone, Debug, Default)]
pub struct HubChange {
    /// Another address; empty: the usual one.
    pub endpoint: Option<String>,
    /// Another token; empty: none.
    pub token: Option<Secret<String>>,
    /// Another limit; `Some(None)`: none.
    pub limit: Option<Option<Bytes>>,
}

/// The verdict for one choice of a repository.
#[derive(Clone, Debug, PartialEq)]
pub struct ChoiceFit {
    /// Which choice.
    pub filename: String,
    /// Its table.
    pub table: FitTable,
}

/// How much a verdict may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Care {
    /// The first keys of each header: enough for a list.
    Quick,
    /// The whole header of the file.
    Whole,
}

/// The hub.
#[async_trait]
pub trait Hub: Send + Sync {
    /// How the hub is reached.
    async fn settings(&self) -> Result<HubSettings, Problem>;

    /// Changes that. `Invalid` for an address that cannot be used.
    async fn configure(&self, change: HubChange) -> Result<HubSettings, Problem>;

    /// What a repository holds. `AuthRequired`, `NotFound`, `TooManyRequests` with its wait, `Upstream` when the hub cannot be reached.
    async fn discover(&self, ask: &RepoAsk) -> Result<Discovery, Problem>;

    /// Whether choices of a repository fit; of all of them when the ask names none.
    async fn fit(&self, ask: &FitAsk, care: Care) -> Result<Vec<ChoiceFit>, Problem>;

    /// The cards a verdict can be asked for.
    fn cards(&self) -> Arc<GpuSnapshot>;
}

/// A context that is used when none is asked for: what the model was trained for, at most this.
pub const USUAL_CONTEXT: Tokens = Tokens(4096);
