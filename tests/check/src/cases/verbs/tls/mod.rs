//! The encrypted port, its certificates, the firewall, restarts without a refusal.
//!
//! A container with the image's root stands on a network of two: everything is looked at as its neighbour sees it.

mod bench;
mod certificate;
mod firewall;
mod host;
mod restart;
mod shake;
mod units;

use crate::cases::{Case, Tier, case};

/// The rows of the table.
pub const CASES: &[Case] = &[
    case("unit-security", Tier::Nspawn, units::run),
    case("tls-ca", Tier::Nspawn, certificate::authority),
    case("tls-rename", Tier::Nspawn, certificate::rename),
    case("host-header", Tier::Nspawn, host::run),
    case("firewall", Tier::Nspawn, firewall::run),
    case("restart-no-refusal", Tier::Nspawn, restart::run),
];
