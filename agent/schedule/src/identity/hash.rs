//! The one hash in use. Collisions matter only inside one key's own conversations, so 64 bits are plenty, and a fast hash is the right
//! one: whole requests go through it, and the standard library's took longer than everything else about a large request.

use std::hash::{BuildHasher, Hash};

use foldhash::quality::FixedState;

/// The hash of a value. Only ever compared within one process.
pub(crate) fn of(value: &impl Hash) -> u64 {
    FixedState::with_seed(0).hash_one(value)
}
