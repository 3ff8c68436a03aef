//! What can happen, and what is to be done about it.

use std::time::Duration;

use warden_domain::{engine::Capacity, ids::ReplicaId, units::Tokens};

/// Time since some fixed start; only differences count.
pub type Moment = Duration;

/// One request, from its arrival to its end. Made by the caller; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A conversation, as `identity` tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConversationId(pub u64);

/// Who goes first: 0 before 1 before 2. Inside a class, who came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(pub u8);

impl Class {
    /// Where nothing else was said.
    pub const USUAL: Self = Self(100);
}

/// A request that wants a replica.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its ticket.
    pub ticket: Ticket,
    /// Its class.
    pub class: Class,
    /// The conversation it belongs to; `None`: it belongs to none (a title, an embedding) and leaves no trace.
    pub conversation: Option<ConversationId>,
    /// Its answer is streamed, so that the engine notices when nobody reads any more.
    pub streamed: bool,
    /// How long it may wait for its start.
    pub patience: Duration,
}

/// What an answer used, as far as the engine said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Prompt tokens, cached ones included.
    pub prompt: Option<Tokens>,
    /// Of these, from the engine's cache.
    pub cached: Option<Tokens>,
}

/// Why a request that was sent comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return {
    /// Nothing listens where the replica was: others should not be sent there for now either.
    Unreachable,
    /// The connection ended before a byte of the answer.
    BrokeOff,
    /// It was answered that the engine failed. The request itself may be the reason, so others are kept away only when several fail.
    Failed,
    /// It was not sent: the replica was withdrawn in the same moment.
    Withdrawn,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A request came.
    Arrive(Arrival),
    /// The first byte of its answer came.
    FirstToken {
        /// Which.
        ticket: Ticket,
    },
    /// The engine is done with it, well or badly.
    Done {
        /// Which.
        ticket: Ticket,
        /// What it used.
        used: Used,
    },
    /// Nobody waits for it any more, whether it waits or runs.
    Cancel {
        /// Which.
        ticket: Ticket,
    },
    /// It was sent, got no byte, and is to be tried elsewhere.
    Back {
        /// Which.
        ticket: Ticket,
        /// Why.
        why: Return,
    },
    /// A replica answers. Told again, it corrects the capacity; a new launch starts cold.
    ReplicaUp {
        /// Which.
        replica: ReplicaId,
        /// Its launch identity.
        launch: String,
        /// What it can hold.
        capacity: Capacity,
    },
    /// That launch is gone. What runs on it is told by whoever talks to it (`Back`, `Done`, `Cancel`).
    ReplicaDown {
        /// Which.
        replica: ReplicaId,
        /// Its launch identity.
        launch: String,
    },
    /// It gets no new requests; those it has may finish.
    Drain {
        /// Which.
        replica: ReplicaId,
        /// Its launch identity.
        launch: String,
    },
    /// The engine told how many requests it works on.
    Sample {
        /// Which.
        replica: ReplicaId,
        /// Its launch identity.
        launch: String,
        /// Requests it works on or keeps waiting.
        at_work: u64,
    },
    /// The conversation turned out to be none (a title that came before its parent).
    Forget {
        /// Which.
        conversation: ConversationId,
    },
    /// Time passed.
    Tick,
}

/// Why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No replica takes requests.
    NoReplica,
    /// Too many wait already.
    QueueFull {
        /// When to try again.
        retry_after: Duration,
    },
    /// It would not start in time.
    TooLong {
        /// When it would start.
        expected: Duration,
    },
    /// It waited as long as it could.
    Expired {
        /// When to try again.
        retry_after: Duration,
    },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send it there, now.
    Dispatch {
        /// Which.
        ticket: Ticket,
        /// Where.
        replica: ReplicaId,
        /// The launch meant.
        launch: String,
    },
    /// Tell it no.
    Refuse {
        /// Which.
        ticket: Ticket,
        /// Why.
        why: Refusal,
    },
    /// It waits again, in front of those that came later.
    Requeue {
        /// Which.
        ticket: Ticket,
    },
}
