//! Engine adapters: command lines, environments, phases and root causes, against recorded logs and real engines.

use super::super::Case;

/// The cases of this room.
pub const CASES: &[Case] = &[];
