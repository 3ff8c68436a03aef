//! Inference keys (`vw_…`): what an app shows to use `/v1`.

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    Problem, ProblemKind, Secret,
    ids::{AccountId, KeyId},
    usage::UsageTotals,
};

/// Who of those that wait goes first: 9 before 8 and so on to 0; among equals who came first. Nothing keeps lower ones from waiting for as
/// long as higher ones keep coming.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Priority(u8);

impl Priority {
    /// The highest.
    pub const HIGHEST: u8 = 9;
    /// What a key has that was given none, and the console's own chat.
    pub const USUAL: Self = Self(5);

    /// 0 to 9.
    ///
    /// # Errors
    /// `Invalid` for another number.
    pub fn new(number: u64) -> Result<Self, Problem> {
        u8::try_from(number).ok().filter(|number| *number <= Self::HIGHEST).map(Self).ok_or_else(|| {
            Problem::new(ProblemKind::Invalid, format!("A key cannot have the priority {number}."))
                .hint("Use 0 to 9: 9 goes first, 5 is the usual one.")
                .param("priority")
        })
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::USUAL
    }
}

/// A key as the console shows it. The secret itself is never stored and never shown again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Key {
    /// Public identity.
    pub id: KeyId,
    /// The name its owner gave it, 1 to 64 characters.
    pub name: String,
    /// The first 8 characters of the secret, to recognise it by.
    pub prefix: String,
    /// How its requests stand among those that wait.
    pub priority: Priority,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who made it.
    pub created_by: AccountId,
    /// When it was revoked, if it was.
    pub revoked_at: Option<Timestamp>,
    /// When it was last used; kept to the minute.
    pub last_used_at: Option<Timestamp>,
    /// What was charged to it since it was made.
    pub usage: UsageTotals,
}

/// A key just made, with the secret that is shown once.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// The key.
    pub key: Key,
    /// `vw_` and 43 characters of base64url (256 random bits).
    pub secret: Secret<String>,
}

/// Who is asking on the data plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The key used; `None` for the console's own chat.
    pub key: Option<KeyId>,
    /// Name for the in-flight table and logs.
    pub name: String,
    /// How its requests stand among those that wait.
    pub priority: Priority,
}

/// Why a presented key is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRefusal {
    /// It does not have the form of a key (`vw_…`).
    Malformed,
    /// No such key.
    Unknown,
    /// It was revoked.
    Revoked,
}

/// The hot path's look-up: an immutable snapshot, never the store.
pub trait KeyDirectory: Send + Sync {
    /// Who presents this secret.
    ///
    /// # Errors
    /// `KeyRefusal` says why it is not accepted.
    fn identify(&self, secret: &str) -> Result<Caller, KeyRefusal>;
}

/// Management of keys, as the api and the pages use it.
#[async_trait]
pub trait Keys: Send + Sync {
    /// All keys, newest first, revoked ones included.
    async fn list(&self) -> Result<Vec<Key>, Problem>;

    /// Makes a key. `Invalid` for a name that is empty, longer than 64 characters or has control characters; `Conflict` for a name in use.
    async fn create(&self, by: &AccountId, name: &str, priority: Priority) -> Result<NewKey, Problem>;

    /// Gives a key another priority, for requests that come from then on. `NotFound` when there is none.
    async fn set_priority(&self, by: &AccountId, id: &KeyId, priority: Priority) -> Result<Key, Problem>;

    /// Revokes a key from the next request on. `NotFound` when there is none; revoking twice is fine.
    async fn revoke(&self, id: &KeyId) -> Result<Key, Problem>;
}
