//! The language every room of the agent speaks: ids, units, documents and the ports (traits) through which rooms meet.
//!
//! In: nothing. Out: plain values and traits. This crate never opens a file, a socket or a database; the only outside facts it
//! takes are the wall clock (`clock`) and random bytes (`ids`), each in one place so that decisions elsewhere stay exact.

pub mod access;
pub mod address;
pub mod alert;
pub mod change;
pub mod clock;
pub mod download;
pub mod engine;
pub mod fit;
pub mod front;
pub mod gpu;
pub mod hub;
pub mod ids;
pub mod issue;
pub mod key;
pub mod machine;
pub mod model;
pub mod names;
pub mod network;
pub mod problem;
pub mod recovery;
pub mod replica;
pub mod routing;
mod said;
pub mod secret;
pub mod share;
pub mod steps;
pub mod storage;
pub mod tasks;
pub mod time;
pub mod units;
pub mod update;
pub mod usage;

pub use problem::{Problem, ProblemKind};
pub use secret::Secret;
