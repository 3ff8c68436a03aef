//! The encrypted port, its certificates, the firewall, restarts without a refusal.

use crate::cases::Case;

/// The rows of the table.
pub const CASES: &[Case] = &[];
