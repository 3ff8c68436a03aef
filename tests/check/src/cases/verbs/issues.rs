//! Problems that are found, shown, fixed and reported.

use crate::cases::Case;

/// The rows of the table.
pub const CASES: &[Case] = &[];
