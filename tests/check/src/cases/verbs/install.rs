//! Installing from a stick.

use crate::cases::Case;

/// The rows of the table.
pub const CASES: &[Case] = &[];
