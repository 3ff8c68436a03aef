//! Disks as the appliance sees them: what is plugged in, what holds models, what a stick offers.
//!
//! Values and ports only. Which disk may be taken is decided in the platform room from these facts; nothing here writes.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    Problem,
    ids::{AccountId, DiskId, TaskId},
    model::Candidate,
    units::Bytes,
};

/// What a disk is to this machine. Each has one meaning and at most one verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The machine was started from it. Never offered for anything.
    System,
    /// Recorded model storage.
    Storage,
    /// Somebody else has it mounted, or it is part of an array.
    InUse,
    /// It cannot be written.
    ReadOnly,
    /// A reader without a card, or a disk that does not tell its size.
    Empty,
    /// Nothing is on it.
    Blank,
    /// Something is on it that is not ours.
    Foreign,
}

impl Role {
    /// The word itself.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Storage => "storage",
            Self::InUse => "in_use",
            Self::ReadOnly => "read_only",
            Self::Empty => "empty",
            Self::Blank => "blank",
            Self::Foreign => "foreign",
        }
    }
}

/// One thing on a disk: the disk as a whole or a partition of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Device path, such as `/dev/sdb1`; changes from start to start.
    pub device: String,
    /// Its size.
    pub size: Bytes,
    /// What it is: a file system such as `ext4`, `gpt` for a partition table; `None` when nothing is recognised on it.
    pub kind: Option<String>,
    /// Its label.
    pub label: Option<String>,
    /// File system UUID.
    pub uuid: Option<String>,
    /// Where it is mounted.
    pub mounted_at: Vec<PathBuf>,
}

/// One disk that is plugged in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Handle for calls: letters, digits and `_`; made from model and serial number by the disk manager.
    pub key: String,
    /// Model, as the disk tells it.
    pub model: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// World-wide name.
    pub wwn: Option<String>,
    /// Its size; `None` without a medium.
    pub size: Option<Bytes>,
    /// How it is connected: `usb`, `sdio`…; `None` for everything inside the chassis.
    pub bus: Option<String>,
    /// It, or its medium, is made to be pulled out.
    pub removable: bool,
    /// What it is to this machine.
    pub role: Role,
    /// What is on it, the whole disk first.
    pub contents: Vec<Content>,
    /// True when models can be imported from it: it carries a file system made for carrying files around.
    pub importable: bool,
}

/// A disk that was made model storage, as remembered in the database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// Identity.
    pub id: DiskId,
    /// Label of its file system; the folder it is mounted in has the same name.
    pub label: String,
    /// UUID of its file system; with the serial number the proof that it is the same disk.
    pub fs_uuid: String,
    /// Serial number of the disk.
    pub serial: String,
    /// World-wide name of the disk.
    pub wwn: Option<String>,
    /// Model of the disk.
    pub model: Option<String>,
    /// Size of the file system's partition.
    pub size: Bytes,
    /// Kind of file system.
    pub filesystem: String,
    /// When it was adopted.
    pub adopted_at: Timestamp,
}

/// Where a recorded disk is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Presence {
    /// Mounted; models can be used.
    Mounted {
        /// Where.
        path: PathBuf,
        /// Free for new models; `None` when it cannot be asked.
        free: Option<Bytes>,
        /// Size of the file system; `None` when it cannot be asked.
        total: Option<Bytes>,
    },
    /// It is plugged in and on its way.
    Mounting,
    /// Not plugged in.
    Missing,
    /// It is there and cannot be used; the sentence says why.
    Unusable {
        /// Cause and way out.
        reason: String,
    },
}

/// A recorded disk and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// What is remembered.
    pub recorded: Recorded,
    /// What is observed.
    pub presence: Presence,
}

/// Everything about storage at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overview {
    /// Disks plugged in, the system disk first.
    pub disks: Vec<Disk>,
    /// Recorded model storage, oldest first.
    pub volumes: Vec<Volume>,
    /// Why the machine is in degraded mode: one sentence per recorded disk that is not there. Empty = all is well.
    pub degraded: Vec<String>,
    /// True where disks are the owner's business (a development machine): nothing is listed and nothing can be adopted.
    pub elsewhere: bool,
}

/// What adopting a disk would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdoptionPlan {
    /// Handle of the disk.
    pub disk: String,
    /// Its serial number: repeated by the caller when `confirm_serial`.
    pub serial: String,
    /// True when something is on it, so that the caller must repeat the serial number.
    pub confirm_serial: bool,
    /// What will happen, one sentence each, in order.
    pub sentences: Vec<String>,
}

/// A wish to adopt.
#[derive(Clone, Debug, Deserialize)]
pub struct Adoption {
    /// Handle of the disk.
    pub disk: String,
    /// The serial number, repeated; needed when something is on the disk.
    pub serial: Option<String>,
}

/// A source that is mounted for reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSource {
    /// Handle of the disk.
    pub key: String,
    /// Folder with its files.
    pub path: PathBuf,
    /// The source's name for people: model and label.
    pub name: String,
}

/// A model lying on a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceModel {
    /// Path inside the source.
    pub file: String,
    /// Size of all its parts.
    pub size: Bytes,
    /// A served name made from the file name.
    pub suggested_name: String,
    /// True when a file with its SHA-256 lies beside it.
    pub has_checksum: bool,
}

impl From<(&Candidate, &Path, bool)> for SourceModel {
    fn from((candidate, root, has_checksum): (&Candidate, &Path, bool)) -> Self {
        let inside = candidate.path.strip_prefix(root).unwrap_or(&candidate.path);
        Self { file: inside.display().to_string(), size: candidate.size, suggested_name: candidate.suggested_name.clone(), has_checksum }
    }
}

/// A wish to import a model.
#[derive(Clone, Debug, Deserialize)]
pub struct Import {
    /// Handle of the disk it lies on.
    pub source: String,
    /// Path inside the source, as listed.
    pub file: String,
    /// Which model storage it goes to; `None` = the data partition.
    pub to: Option<DiskId>,
    /// The name to serve it under; `None` = made from the file name.
    pub served_name: Option<String>,
}

/// The disks of this machine.
#[async_trait]
pub trait Storage: Send + Sync {
    /// Everything at this moment. `SystemService` when the disk manager cannot be reached.
    async fn overview(&self) -> Result<Overview, Problem>;

    /// What adopting a disk would do. `Forbidden` for the system disk, `Conflict` for one in use, `Invalid` for one that cannot hold
    /// models, `NotFound`.
    async fn plan(&self, disk: &str) -> Result<AdoptionPlan, Problem>;

    /// Begins to adopt; the task shows the steps. Refuses as `plan` does, and `Invalid` when the serial number is needed and not repeated.
    async fn adopt(&self, by: &AccountId, wish: Adoption) -> Result<TaskId, Problem>;

    /// Unmounts a recorded disk and forgets it; what is on it stays. `NotFound`; `Conflict` while files on it are in use.
    async fn forget(&self, by: &AccountId, id: &DiskId) -> Result<(), Problem>;
}

/// Sources of models: sticks and disks that carry files around.
#[async_trait]
pub trait Sources: Send + Sync {
    /// Mounts a source for reading only. `NotFound`, `Forbidden` for the system disk, `Invalid` when it carries no known file system.
    async fn open(&self, disk: &str) -> Result<OpenSource, Problem>;

    /// Gives it back; the stick may be pulled after that.
    async fn close(&self, source: &OpenSource);
}

/// A folder models may lie in because a recorded disk is mounted there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelRoot {
    /// Which disk.
    pub id: DiskId,
    /// Where.
    pub path: PathBuf,
}

/// What the registry of models must know of disks. Answers from a snapshot, at once.
pub trait ModelDisks: Send + Sync {
    /// Folders of recorded disks that are mounted.
    fn roots(&self) -> Vec<ModelRoot>;

    /// Why a path cannot be used although it is registered: it lies on a recorded disk that is not there. `None` = it is no such path.
    fn absent(&self, path: &Path) -> Option<Problem>;
}

/// Imports of models from sources.
#[async_trait]
pub trait Imports: Send + Sync {
    /// The models on a source. Mounts it for the look and gives it back.
    async fn look(&self, source: &str) -> Result<Vec<SourceModel>, Problem>;

    /// Begins an import; the task shows the steps and can be cancelled.
    async fn begin(&self, by: &AccountId, wish: Import) -> Result<TaskId, Problem>;
}
