//! Downloads of models: what is wanted, how far it is, and the port. What is wanted is kept on disk, so it outlives the agent.

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    Problem,
    ids::{AccountId, DownloadId, ModelId, TaskId},
    model::Layout,
    units::{Bytes, Tokens},
};

/// What an admin wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDownload {
    /// `owner/name`.
    pub repo: String,
    /// Branch, tag or commit; empty: `main`.
    pub revision: String,
    /// A choice of the repository, by any of its files; `None` when it has only one.
    pub filename: Option<String>,
    /// The name to serve it under; `None` = made from the file name.
    pub served_name: Option<String>,
    /// Context window per request.
    pub context: Option<Tokens>,
    /// Requests at the same time.
    pub slots: Option<u16>,
    /// Replicas and cards.
    pub layout: Layout,
    /// Load it as soon as it is registered.
    pub load: bool,
}

/// Where a download stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DownloadState {
    /// Another one runs first.
    Queued,
    /// Bytes come, or are about to.
    Running,
    /// It broke off, or the hub asked for patience; it goes on by itself.
    Waiting,
    /// Somebody paused it.
    Paused,
    /// It stopped; the reason says why. It goes on from its checked bytes when asked to.
    Failed,
    /// All files are there, checked, and the model is registered.
    Done,
}

impl DownloadState {
    /// The word in API and pages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Paused => "paused",
            Self::Failed => "failed",
            Self::Done => "done",
        }
    }
}

/// One file of a download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownloadFile {
    /// Path inside the repository.
    pub path: String,
    /// Size.
    pub size: Bytes,
    /// Bytes that are here.
    pub done: Bytes,
}

/// A download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    /// Identity.
    pub id: DownloadId,
    /// `owner/name`.
    pub repo: String,
    /// The commit it takes, whatever the branch names later.
    pub commit: String,
    /// The name to serve it under.
    pub served_name: String,
    /// Whether it is loaded at once.
    pub load: bool,
    /// Its files.
    pub files: Vec<DownloadFile>,
    /// All bytes.
    pub size: Bytes,
    /// Bytes that are here.
    pub done: Bytes,
    /// Where it stands.
    pub state: DownloadState,
    /// Bytes a second over the last moments; `None` while nothing comes.
    pub rate: Option<Bytes>,
    /// Seconds left at that rate.
    pub seconds_left: Option<u64>,
    /// Why it waits or failed, with the way out.
    pub reason: Option<Problem>,
    /// When a waiting one goes on.
    pub waits_until: Option<Timestamp>,
    /// The model it became.
    pub model: Option<ModelId>,
    /// Its steps, since the agent started.
    pub task: Option<TaskId>,
    /// When it was asked for.
    pub created_at: Timestamp,
}

/// Downloads.
#[async_trait]
pub trait Downloads: Send + Sync {
    /// All of them, the newest first.
    async fn list(&self) -> Result<Vec<Download>, Problem>;

    /// One of them. `NotFound`.
    async fn get(&self, id: &DownloadId) -> Result<Download, Problem>;

    /// Looks at the repository, checks name and room, writes the wish down and begins. `DiskFull` before the first byte, with numbers.
    async fn begin(&self, by: &AccountId, wish: NewDownload) -> Result<Download, Problem>;

    /// Stops it; what is here stays. `Conflict` when it is over.
    async fn pause(&self, id: &DownloadId) -> Result<Download, Problem>;

    /// Goes on with a paused or failed one from its checked bytes. `Conflict` when it runs or is done.
    async fn resume(&self, id: &DownloadId) -> Result<Download, Problem>;

    /// Gives it up and removes what is unfinished; of one that is done only the record.
    async fn cancel(&self, id: &DownloadId) -> Result<(), Problem>;
}
