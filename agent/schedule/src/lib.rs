//! The pure scheduler: which replica a request goes to, who waits and for how long, and which conversation a request belongs to.
//!
//! In: events (a request came, a replica died, time passed) with their moment. Out: actions (send this one there, refuse that one).
//! One small `State` per model; `step` (or `steps`) is the only way to change it. No I/O, no clock, no randomness, no async: the gateway drives it
//! behind one short lock, and the tests drive it alone.

mod event;
mod homes;
pub mod identity;
mod pace;
mod policy;
mod queue;
mod replicas;
mod state;
mod step;
mod view;

pub use event::{Action, Arrival, Class, ConversationId, Event, Moment, Refusal, Return, Ticket, Used};
pub use policy::{Bounds, Policy};
pub use state::State;
pub use step::{step, steps};
