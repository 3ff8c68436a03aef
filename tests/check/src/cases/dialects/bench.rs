//! The gateway's figures, with all arms.

use super::super::{Case, Tier, case};
use super::not_written;

/// The cases of this group.
pub const CASES: &[Case] = &[case("bench", Tier::Host, not_written)];
