//! What is measured in a closed loop: which requests, and per what.

use super::arms::Arm;
use crate::{
    bodies::{Answer, Ask, Size},
    load::Dialect,
};

/// Events of a measured stream.
const EVENTS: u32 = 200;

/// One figure.
pub struct Figure {
    /// Its name, that of the list's limit.
    pub name: &'static str,
    /// What is spoken.
    pub dialect: Dialect,
    /// The request.
    pub ask: Ask,
    /// What a request's cost is divided by.
    pub per: f64,
    /// Requests of a series.
    count: usize,
}

impl Figure {
    /// Requests of a series on an arm; `None`: it is not measured there.
    pub fn count(&self, arm: &Arm) -> Option<usize> {
        // Without a process there is no processor time; one figure keeps the engine's own speed in the table.
        if (!arm.is_measured() || arm.collects()) && self.name != "chat_1k_us" {
            return None;
        }
        // A Python gateway takes milliseconds for what others do in microseconds.
        Some(if arm.keeps_up() { self.count } else { (self.count / 50).max(20) })
    }
}

/// A small chat that is answered whole.
pub const SMALL: Ask = Ask { size: Size::Small, streamed: false, answer: Answer::fast(1), conversation: 0 };
const LARGE: Ask = Ask { size: Size::Large, ..SMALL };
const STREAM: Ask = Ask { streamed: true, answer: Answer::fast(EVENTS), ..SMALL };

/// All of them.
pub const ALL: [Figure; 5] = [
    Figure { name: "chat_1k_us", dialect: Dialect::Chat, ask: SMALL, per: 1.0, count: 12_000 },
    Figure { name: "chat_180k_us", dialect: Dialect::Chat, ask: LARGE, per: 1.0, count: 4_000 },
    Figure { name: "chunk_pass_us", dialect: Dialect::Chat, ask: STREAM, per: EVENTS as f64, count: 600 },
    Figure { name: "messages_180k_us", dialect: Dialect::Messages, ask: LARGE, per: 1.0, count: 2_000 },
    Figure { name: "chunk_translated_us", dialect: Dialect::Messages, ask: STREAM, per: EVENTS as f64, count: 600 },
];
