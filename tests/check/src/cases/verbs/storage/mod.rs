//! Model disks and sticks, on a machine with sockets for disks.
//!
//! All cases share one machine and go through one story: a blank disk is adopted, a model loads from it, the machine is powered off and on,
//! a stick is imported from, the disk stays away for a start, and comes back late. Each case makes what it needs when it is run alone.

mod adopt;
pub mod bench;
mod refused;
mod stick;
mod without;

use crate::cases::{Case, Tier, case};

pub use bench::strike;

/// The rows of the table.
pub const CASES: &[Case] = &[
    case("disk-system-refused-polkit", Tier::Vm, refused::by_polkit),
    case("disk-system-refused-agent", Tier::Vm, refused::by_agent),
    case("disk-adopt", Tier::Vm, adopt::run),
    case("stick-import", Tier::Vm, stick::run),
    case("disk-missing", Tier::Vm, without::missing),
    case("disk-late", Tier::Vm, without::late),
];
