//! Streams: the order of events in each dialect, and that it does not matter where an engine's bytes are cut.

use super::super::{Case, Tier, case};
use super::not_written;

/// The cases of this group.
pub const CASES: &[Case] = &[
    case("cut-everywhere", Tier::Host, not_written),
    case("events-chat", Tier::Host, not_written),
    case("events-messages", Tier::Host, not_written),
    case("events-responses", Tier::Host, not_written),
];
