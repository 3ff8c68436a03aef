//! Where a conversation goes: the scheduler's properties, identities, and two real replicas.

use super::super::Case;

/// The cases of this room.
pub const CASES: &[Case] = &[];
