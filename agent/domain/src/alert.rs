//! Alerts: issues told to a receiver outside the box, over a signed webhook.

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{
    Problem, Secret,
    ids::{AccountId, DeliveryId},
    issue::IssueCode,
};

/// Where alerts go. The secret is not in here: it is shown once, when it is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertConfig {
    /// Whether anything is sent.
    pub enabled: bool,
    /// The receiver, such as `http://ops.example:9000/warden`; empty when none was set.
    pub url: String,
    /// Which issues are told; `None` = all.
    pub codes: Option<Vec<IssueCode>>,
    /// Whether a secret exists.
    pub has_secret: bool,
}

/// What an admin gives to set it.
#[derive(Clone, Debug)]
pub struct NewAlertConfig {
    /// Whether anything is sent.
    pub enabled: bool,
    /// The receiver.
    pub url: String,
    /// Which issues are told; `None` = all.
    pub codes: Option<Vec<IssueCode>>,
    /// Makes a new secret even when there is one.
    pub new_secret: bool,
}

/// How a delivery stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// It waits for its next try.
    Waiting {
        /// When that is due.
        next_at: Timestamp,
    },
    /// The receiver took it.
    Delivered {
        /// When.
        at: Timestamp,
    },
    /// It was given up: too many tries, or pushed out by newer ones.
    GivenUp {
        /// When.
        at: Timestamp,
    },
}

/// One alert on its way, or through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Identity; the same over all tries, sent as `X-Warden-Delivery`.
    pub id: DeliveryId,
    /// `issue.opened`, `issue.resolved` or `test`.
    pub event: String,
    /// The issue's code; `None` for a test.
    pub code: Option<String>,
    /// When it was made.
    pub made_at: Timestamp,
    /// Tries so far.
    pub tries: u32,
    /// How it stands.
    pub state: DeliveryState,
    /// What the last try came to, in a sentence; `None` before the first.
    pub last_result: Option<String>,
}

/// What is known about alerts.
#[derive(Clone, Debug, Default)]
pub struct AlertState {
    /// How many wait.
    pub waiting: usize,
    /// The latest, newest first.
    pub latest: Vec<Delivery>,
}

/// Alerts, as the api and the pages use them.
#[async_trait]
pub trait Alerts: Send + Sync {
    /// The present settings.
    async fn config(&self) -> Result<AlertConfig, Problem>;

    /// Changes the settings. Returns the secret when one was made: the first time, and when a new one was asked for. `Invalid` for an
    /// address that cannot be used.
    async fn set(&self, by: &AccountId, new: NewAlertConfig) -> Result<Option<Secret<String>>, Problem>;

    /// Queues a test message, sent whatever the codes say. `Conflict` when alerts are off.
    async fn test(&self, by: &AccountId) -> Result<DeliveryId, Problem>;

    /// What waits and what became of the latest, at most `most`.
    async fn state(&self, most: usize) -> Result<AlertState, Problem>;
}
