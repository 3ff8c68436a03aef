//! What clients send and what engines answer, translated: recorded requests and streams against reviewed goldens, and the rules that
//! hold for every stream.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

#[path = "dialects/bounds.rs"]
mod bounds;
#[path = "dialects/fixtures.rs"]
mod fixtures;
#[path = "dialects/requests.rs"]
mod requests;
#[path = "dialects/round_trips.rs"]
mod round_trips;
#[path = "dialects/streams.rs"]
mod streams;
