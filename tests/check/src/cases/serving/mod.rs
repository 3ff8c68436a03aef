//! The cases of the list `serving`: a name turned into running engines, on the final interfaces, with the genuine llama.cpp on this host.
//!
//! One file per room. What is pure is shown by the room's own tests, run by name; everything else by a real agent with real engines.

mod cards;
mod engines;
mod names;
mod replicas;
mod schedule;

use super::Case;

/// All of them, grouped by room: cheap things first.
#[must_use]
pub fn table() -> Vec<Case> {
    [schedule::CASES, engines::CASES, cards::CASES, names::CASES, replicas::CASES].concat()
}
