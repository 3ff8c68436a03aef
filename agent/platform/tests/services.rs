//! The rooms against services on a bus of their own that do what the real ones do when they are restarted, slow or gone in the middle.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "a test that cannot go on fails")]

#[path = "services/bus.rs"]
mod bus;
#[path = "services/names.rs"]
mod names;
#[path = "services/network.rs"]
mod network;
