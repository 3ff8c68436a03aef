//! The chat dialect: what an engine speaks, and what the two others are translated to and from.

pub(in crate::dialects) mod answer;
pub(in crate::dialects) mod calls;
mod chunk;
pub mod pieces;
pub(in crate::dialects) mod request;
mod said;
pub mod splice;
pub(in crate::dialects) mod stream;
pub(in crate::dialects) mod turns;
pub mod unseen;
pub(in crate::dialects) mod usage;
