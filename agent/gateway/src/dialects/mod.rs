//! Dialects: what clients speak, what engines speak, and the way from one to the other.
//!
//! Engines speak chat. A chat request goes through as bytes (`chat::splice`); a request of the Messages or the Responses API is made
//! into a chat request, and the chat answer, whole or streamed, back into theirs. Everything here is pure: bytes and values in, bytes
//! and values out; no I/O, no waiting, no clock, no chance. Text of a conversation is not decoded on its way.

pub mod chat;
mod content;
pub mod errors;
mod fields;
pub mod ignored;
mod json;
pub mod listing;
mod lists;
pub mod messages;
pub(crate) mod numbers;
pub mod refusal;
pub mod responses;
pub mod sse;
mod text;
mod voice;
mod whole;

use warden_domain::{Problem, ProblemKind};

pub use self::{
    chat::{request::Target, usage::Counts},
    fields::Leftovers,
    voice::{Standing, Translation},
    whole::Whole,
};

/// How a client speaks, by the path it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// OpenAI's chat completions, and its other calls of the same manners.
    Chat,
    /// Anthropic's Messages.
    Messages,
    /// OpenAI's Responses.
    Responses,
}

fn unreadable(what: &str, api: &str) -> Problem {
    Problem::new(ProblemKind::BadRequest, format!("The body cannot be used: {what}.")).hint(format!("Send one JSON object, as {api} describes it."))
}
