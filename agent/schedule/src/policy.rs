//! The rules by which a replica is chosen, and the bounds that hold under every rule.

use std::time::Duration;

/// The rule. Each is a value, so that one model can run under another than the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// A conversation stays on its home. A new one gets the replica with the fewest conversations at home, then the fewest requests in
    /// flight. A home that is gone or drains is replaced once, and nothing is kept in two places.
    #[default]
    Sticky,
}

impl Policy {
    /// Its name, as shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sticky => "sticky",
        }
    }
}

/// Bounds under every rule.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Requests that may wait.
    pub queue: usize,
    /// Requests at a time on a replica that counts tokens, not slots.
    pub with_tokens: u32,
    /// Requests at a time on a replica that did not say what it can hold.
    pub unknown: u32,
    /// Homes kept in memory.
    pub homes: usize,
    /// A home that nobody used for so long is forgotten.
    pub idle: Duration,
    /// A conversation counts for the balance until it was silent for so long.
    pub live: Duration,
    /// A turn that waited so long for its home, or half as long as it can, takes another replica that has room, and stays there.
    pub move_after: Duration,
    /// A replica that could not be reached is the last choice for so long.
    pub suspect: Duration,
    /// A request that was given up while the engine could not notice holds its slot at most so long when no sample says otherwise.
    pub linger: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            queue: 256,
            with_tokens: 64,
            unknown: 16,
            homes: 8192,
            idle: Duration::from_secs(1800),
            live: Duration::from_secs(120),
            move_after: Duration::from_secs(20),
            suspect: Duration::from_secs(5),
            linger: Duration::from_secs(30),
        }
    }
}
