//! The local screen and the resets it offers.

mod agent_dead;
mod desk;
mod one_shot;
mod states;

use crate::cases::{Case, Tier, case};

/// The rows of the table: what needs no kernel of its own first, then two cases that share a boot.
pub const CASES: &[Case] = &[
    case("reset-one-shot", Tier::Nspawn, one_shot::run),
    case("screen-states", Tier::Vm, states::run),
    case("screen-agent-dead", Tier::Vm, agent_dead::run),
];
