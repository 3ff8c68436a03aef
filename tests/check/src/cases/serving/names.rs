//! From a repository's name to a checked file: discovery, fit, download.

use super::super::Case;

/// The cases of this room.
pub const CASES: &[Case] = &[];
