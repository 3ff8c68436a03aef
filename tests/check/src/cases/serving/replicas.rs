//! Replicas, claims, loads and the watchdog on a real agent with real engines.

use super::super::Case;

/// The cases of this room.
pub const CASES: &[Case] = &[];
