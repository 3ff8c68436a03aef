//! What real clients were recorded to send, held against the translators: every body becomes the chat request that was reviewed, a strict
//! reader of chat requests finds nothing wrong with it, and no field vanishes.
//!
//! The recordings lie beside the project and not in it, so the reviewed file holds structure only: each text is its length and a hash. Where
//! the recordings are not there, the committed requests of the same shapes are read instead, and only the reviewed file is not compared.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

#[path = "captures/corpus.rs"]
mod corpus;
#[path = "captures/loss.rs"]
mod loss;
#[path = "captures/reviewed.rs"]
mod reviewed;
#[path = "captures/skeleton.rs"]
mod skeleton;
