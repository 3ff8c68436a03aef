//! Where requests of a model go, as the console shows it, and the port through which it is asked.

use std::time::Duration;

use jiff::Timestamp;

use crate::{
    ids::{ModelId, ReplicaId},
    units::Tokens,
};

/// One replica as the scheduler sees it. Counters count from the agent's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedReplica {
    /// Which.
    pub id: ReplicaId,
    /// Its launch identity.
    pub launch: String,
    /// It takes new requests; false: it drains, or is gone.
    pub offered: bool,
    /// Requests it may have at a time.
    pub places: u64,
    /// Requests that run on it.
    pub in_flight: u64,
    /// Requests that were given up and that its engine is believed to work on still.
    pub lingering: u64,
    /// Conversations at home on it.
    pub homes: u64,
    /// Conversations that got their first home here.
    pub placed: u64,
    /// Turns that stayed.
    pub stayed: u64,
    /// Conversations that had another home before.
    pub moved: u64,
    /// Requests that belong to no conversation.
    pub one_shots: u64,
    /// Requests it lost before the first byte of an answer.
    pub lost: u64,
    /// Prompt tokens of its answers; `None` until one told both sums.
    pub prompt: Option<Tokens>,
    /// Of these, from its cache.
    pub cached: Option<Tokens>,
}

/// What the scheduler does for one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutingView {
    /// The rule in force, such as `sticky`.
    pub policy: &'static str,
    /// When the first request was placed; `None`: none yet.
    pub since: Option<Timestamp>,
    /// Requests that wait.
    pub waiting: u64,
    /// How long the first of them has waited.
    pub longest_wait: Option<Duration>,
    /// When a request that came now would start; `None`: not known yet.
    pub expected_start: Option<Duration>,
    /// Requests refused for want of room.
    pub refused: u64,
    /// Answers that ran away, ended or not.
    pub runaways: u64,
    /// By id.
    pub replicas: Vec<RoutedReplica>,
}

/// The scheduler, as api and pages see it. Nothing here waits.
pub trait Routing: Send + Sync {
    /// What it does for a model; `None` when it never saw one of that id.
    fn routing(&self, id: &ModelId) -> Option<RoutingView>;
}
