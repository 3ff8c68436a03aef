//! Addresses, names, time; changes that undo themselves.

use crate::cases::Case;

/// The rows of the table.
pub const CASES: &[Case] = &[];
