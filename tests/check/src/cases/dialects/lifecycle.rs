//! What happens around an answer: errors, commitment, usage, clients that leave, limits, and the rest of the surface.

use super::super::{Case, Tier, case};
use super::not_written;

/// The cases of this group.
pub const CASES: &[Case] = &[
    case("error-mid-stream", Tier::Host, not_written),
    case("committed", Tier::Host, not_written),
    case("usage", Tier::Host, not_written),
    case("count-tokens", Tier::Host, not_written),
    case("abort-queue", Tier::Host, not_written),
    case("abort-prefill", Tier::Host, not_written),
    case("abort-decode", Tier::Host, not_written),
    case("finished-once", Tier::Host, not_written),
    case("limits-size", Tier::Host, not_written),
    case("stalled-reader", Tier::Host, not_written),
    case("models-list", Tier::Host, not_written),
    case("websocket-fallback", Tier::Host, not_written),
    case("runaway", Tier::Host, not_written),
];
