//! What happens around an answer: errors, commitment, usage, clients that leave, limits, and the rest of the surface.
//!
//! A real agent runs them, over scripted engines that fail, wait and break off when they are told to; what only a model can show is asked
//! of the genuine one. What clients see is read byte for byte.

mod bench;
mod bounds;
mod ends;
mod finished;
mod leaving;
mod raw;
mod runaway;
mod surface;

use super::super::{Case, Tier, case};

/// The cases of this group.
pub const CASES: &[Case] = &[
    case("error-mid-stream", Tier::Host, ends::error_mid_stream),
    case("committed", Tier::Host, ends::committed),
    case("usage", Tier::Host, ends::usage),
    case("count-tokens", Tier::Host, surface::count_tokens),
    case("abort-queue", Tier::Host, leaving::abort_queue),
    case("abort-prefill", Tier::Host, leaving::abort_prefill),
    case("abort-decode", Tier::Host, leaving::abort_decode),
    case("finished-once", Tier::Host, finished::once),
    case("limits-size", Tier::Host, bounds::size),
    case("stalled-reader", Tier::Host, bounds::stalled),
    case("models-list", Tier::Host, surface::models_list),
    case("websocket-fallback", Tier::Host, surface::websocket),
    case("runaway", Tier::Host, runaway::run),
];
