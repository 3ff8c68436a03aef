//! Recorded requests of real clients: what becomes of each, that nothing of them vanishes, and that a running agent answers them.

use super::super::{Case, Tier, case};
use super::not_written;

/// The cases of this group.
pub const CASES: &[Case] = &[
    case("captures-chat", Tier::Host, not_written),
    case("captures-messages", Tier::Host, not_written),
    case("captures-responses", Tier::Host, not_written),
    case("no-silent-loss", Tier::Host, not_written),
];
