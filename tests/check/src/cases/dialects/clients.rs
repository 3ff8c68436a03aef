//! Official SDKs and real coding clients against a running agent.
//!
//! They are installed by lock file (`tests/clients/install.sh`) and run headless, each in an empty home and a network that holds nothing but
//! the agent.

mod claude;
mod codex;
mod keepalive;
mod opencode;
mod room;
mod round;
mod sdk;

use super::super::{Case, Tier, case};

/// The cases of this group.
pub const CASES: &[Case] = &[
    case("sdk-openai-py", Tier::Host, sdk::run),
    case("sdk-openai-ts", Tier::Host, sdk::run),
    case("sdk-anthropic-py", Tier::Host, sdk::run),
    case("sdk-anthropic-ts", Tier::Host, sdk::run),
    case("client-claude-code", Tier::Host, claude::run),
    case("client-codex", Tier::Host, codex::run),
    case("client-opencode", Tier::Host, opencode::run),
    case("keepalive", Tier::Host, keepalive::run),
];
