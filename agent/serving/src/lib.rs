//! Desired against observed: which models should run, which do, and what to do about the difference.
//!
//! In: wishes (load, unload, reload), engines and cards behind ports, news of other rooms. Out: a table of replicas that answer now, for
//! the gateway, a state per model for pages and api, and the figures of running replicas, all swapped as a whole. The plan, who may have
//! which cards, and whether an engine hangs are pure functions; one task applies them, and nothing slow runs in that task. An engine that
//! served and died is started again within a budget. This room knows no dialect and no page.

mod adopt;
mod bounded;
mod budget;
mod claims;
mod demand;
mod entry;
mod events;
mod evidence;
mod journal;
mod loading;
mod motion;
mod name;
mod plan;
mod reconciler;
mod redact;
mod reload;
mod resume;
mod room;
mod rules;
#[cfg(test)]
mod samples;
mod seat;
mod watch;
mod wishes;
mod work;

pub use name::replica_id;
pub use room::{ServingParts, ServingRoom};
pub use rules::ServingRules;
