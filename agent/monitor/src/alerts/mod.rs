//! Alerts: issues told to a receiver outside, over a webhook that is signed, tried again and never repeated.
//!
//! What is to be told is written to the store's outbox in the transaction of the event itself; one task sends it. See `docs/issues.md`
//! for what a receiver sees.

pub(crate) mod message;
pub(crate) mod pauses;
pub(crate) mod post;
pub(crate) mod sender;
pub(crate) mod settings;
pub(crate) mod sign;
pub(crate) mod target;
