//! From a repository's name to a checked file: discovery, fit, download, against a hub on loopback that misbehaves as told.

use super::super::{Case, Tier, case};

mod bench;
mod discover;
mod download;
mod fit;
mod hub;

/// The cases of this room.
pub const CASES: &[Case] = &[
    case("hub-discover", Tier::Host, discover::run),
    case("fit-unknown", Tier::Host, fit::unknown),
    case("disk-check", Tier::Host, download::disk_check),
    case("download-faults", Tier::Host, download::faults),
    case("download-kill", Tier::Host, download::kill),
    case("fit-verdict", Tier::Host, fit::verdict),
];
