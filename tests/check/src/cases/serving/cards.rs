//! The GPU reader: cards of each scenario, a call that hangs, no library.

use super::super::Case;

/// The cases of this room.
pub const CASES: &[Case] = &[];
