//! The clock of the box: from time servers, or set by hand where there are none.

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Problem, ids::AccountId};

/// Where the time comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case", deny_unknown_fields)]
pub enum TimeConfig {
    /// From time servers.
    Ntp {
        /// Names or addresses, asked in this order; empty = none is asked and the clock runs free.
        #[serde(default)]
        servers: Vec<String>,
    },
    /// From the clock of the machine, set by hand.
    Manual,
}

impl Default for TimeConfig {
    fn default() -> Self {
        Self::Ntp { servers: Vec::new() }
    }
}

/// The clock as it is. Unknown is `None`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimeState {
    /// Now, in UTC.
    pub now: Timestamp,
    /// Whether the time client runs.
    pub client_runs: Option<bool>,
    /// Whether a time server has set the clock since the start.
    pub synchronized: Option<bool>,
    /// The servers the time client was told.
    pub servers: Option<Vec<String>>,
    /// The server it listens to.
    pub server: Option<String>,
    /// What the battery-backed clock says, in UTC.
    pub hardware_clock: Option<Timestamp>,
}

/// The clock as a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimeDocument {
    /// What an admin wants.
    pub config: TimeConfig,
    /// What is.
    pub state: TimeState,
    /// Why nothing can be set here, with the way out.
    pub unavailable: Option<String>,
}

/// The time room.
#[async_trait]
pub trait Time: Send + Sync {
    /// The clock as wanted and as it is.
    async fn document(&self) -> TimeDocument;

    /// Where the time shall come from; asks no service, so that it costs nothing.
    async fn wanted(&self) -> TimeConfig;

    /// Stores where the time comes from and applies it now and at each start.
    ///
    /// # Errors
    /// `Invalid` for a server that is none; `SystemService` when the system refuses.
    async fn configure(&self, config: TimeConfig, account: &AccountId) -> Result<TimeDocument, Problem>;

    /// Sets the clock.
    ///
    /// # Errors
    /// `Conflict` while the time comes from servers; `Invalid` for a moment before the image was made.
    async fn set_clock(&self, to: Timestamp, account: &AccountId) -> Result<TimeDocument, Problem>;
}
