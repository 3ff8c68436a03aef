//! Desired against observed: which models should run, which do, and what to do about the difference.
//!
//! In: wishes (load, unload), engines behind a port, news of other rooms. Out: a table of replicas that answer now, for the gateway, and
//! a state per model for pages and api, both swapped as a whole. The plan is a pure function; one task applies it, and nothing slow
//! runs in that task. This room knows no dialect and no page, and never restarts an engine that died by itself.

mod entry;
mod name;
mod plan;
mod reconciler;
mod room;
mod work;

pub use name::replica_id;
pub use room::{ServingParts, ServingRoom};
