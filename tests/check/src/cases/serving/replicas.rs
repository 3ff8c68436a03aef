//! Replicas, claims, loads and the watchdog on a real agent with real engines.
//!
//! Engines with faults are started by the same runner as the genuine one: a small script in the engine's place starts either, by the name
//! that is served.

mod bench;
mod claims;
mod demand;
mod life;
mod loads;
mod watchdog;

use super::super::{Case, Tier, case};

/// The cases of this room.
pub const CASES: &[Case] = &[
    case("gpu-claims", Tier::Host, claims::run),
    case("phases-live", Tier::Host, loads::phases_live),
    case("stuck-load", Tier::Host, loads::stuck_load),
    case("adopt", Tier::Host, life::adopt),
    case("reboot-restore", Tier::Host, life::reboot_restore),
    case("drain", Tier::Host, life::drain),
    case("reload-cut", Tier::Host, life::reload_cut),
    case("load-on-request", Tier::Host, demand::load_on_request),
    case("watchdog-exit-zero", Tier::Host, watchdog::exit_zero),
    case("watchdog-core-dead", Tier::Host, watchdog::core_dead),
    case("watchdog-hang", Tier::Host, watchdog::hang),
    case("budget", Tier::Host, watchdog::budget),
];
