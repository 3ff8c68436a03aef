//! Rules of translation over a running agent: billing lines, tools, structured output, images.

use super::super::{Case, Tier, case};
use super::not_written;

/// The cases of this group.
pub const CASES: &[Case] = &[
    case("billing-line", Tier::Host, not_written),
    case("tools-parallel", Tier::Host, not_written),
    case("tools-namespace", Tier::Host, not_written),
    case("structured", Tier::Host, not_written),
    case("images", Tier::Host, not_written),
];
