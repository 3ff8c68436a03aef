//! Official SDKs and real coding clients against a running agent.

use super::super::{Case, Tier, case};
use super::not_written;

/// The cases of this group.
pub const CASES: &[Case] = &[
    case("sdk-openai-py", Tier::Host, not_written),
    case("sdk-openai-ts", Tier::Host, not_written),
    case("sdk-anthropic-py", Tier::Host, not_written),
    case("sdk-anthropic-ts", Tier::Host, not_written),
    case("client-claude-code", Tier::Host, not_written),
    case("client-codex", Tier::Host, not_written),
    case("client-opencode", Tier::Host, not_written),
    case("keepalive", Tier::Host, not_written),
];
