//! The one hash in use. Collisions matter only inside one key's own conversations, so 64 bits are plenty.

use std::hash::{DefaultHasher, Hash, Hasher};

/// The hash of a value.
pub(crate) fn of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
