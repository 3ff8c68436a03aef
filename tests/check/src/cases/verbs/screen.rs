//! The local screen and the resets it offers.

use crate::cases::Case;

/// The rows of the table.
pub const CASES: &[Case] = &[];
