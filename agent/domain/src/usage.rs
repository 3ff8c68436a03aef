//! What was used, by whom: one `Finished` per admitted request, totals per key.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    ids::{KeyId, ModelId, RequestId},
    units::{Millis, Tokens},
};

/// How a request ended. It is stored by its word; older programs keep words they do not know as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The engine finished its answer.
    Completed,
    /// The client left before the end.
    ClientGone,
    /// The engine refused the request (4xx of its own).
    Refused,
    /// The engine failed or broke off.
    EngineFailed,
    /// The agent stopped while it ran.
    ShutDown,
    /// It was not given a place: the queue was full, it waited for as long as it could, or the model went meanwhile. No engine saw it.
    TurnedAway,
    /// Its answer ran away and was ended here.
    CutShort,
}

impl Outcome {
    /// The word stored and sent.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::ClientGone => "client_gone",
            Self::Refused => "refused",
            Self::EngineFailed => "engine_failed",
            Self::ShutDown => "shut_down",
            Self::TurnedAway => "turned_away",
            Self::CutShort => "cut_short",
        }
    }
}

/// The one record of one admitted request. Token counts are `None` when the engine did not say; they are never guessed as 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The request.
    pub request: RequestId,
    /// The key it is charged to; `None` for the console's own chat.
    pub key: Option<KeyId>,
    /// The model that answered.
    pub model: ModelId,
    /// When it was admitted.
    pub started_at: Timestamp,
    /// From admission to the last byte.
    pub duration: Millis,
    /// From admission to the first byte of the answer's body, when there was one.
    pub first_byte: Option<Millis>,
    /// Prompt tokens, cached ones included.
    pub prompt: Option<Tokens>,
    /// Of the prompt, those that came from the engine's cache.
    pub cached: Option<Tokens>,
    /// Tokens of the answer.
    pub completion: Option<Tokens>,
    /// How it ended.
    pub outcome: Outcome,
    /// The HTTP status sent.
    pub status: u16,
}

/// Sums over requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageTotals {
    /// Requests finished.
    pub requests: u64,
    /// Of these, requests whose engine gave no token counts; the token sums below do not hold them.
    pub requests_without_counts: u64,
    /// Prompt tokens, cached ones included.
    pub prompt: Tokens,
    /// Prompt tokens that came from cache.
    pub cached: Tokens,
    /// Answer tokens.
    pub completion: Tokens,
}

/// One place in the ledger, taken at admission so that a finished request can always be charged.
pub trait LedgerEntry: Send {
    /// Charges the request. Never waits.
    fn finish(self: Box<Self>, finished: Finished);
}

/// Where the gateway charges. Implemented over the store's writer; `open` never touches the database.
pub trait Ledger: Send + Sync {
    /// Takes a place. `None` when the ledger is so far behind that charges could be lost: the request must then be refused.
    fn open(&self) -> Option<Box<dyn LedgerEntry>>;
}
