//! The load generator: closed loop for processor time, open loop for latency, streams that lie idle, clients that leave.
//!
//! Plain threads with one blocking connection each: the generator shares the machine with what it measures, and a runtime would only
//! take time away from it. Every answer is looked at; one that is wrong ends the measurement, because a fast error is not fast.

mod cancel;
mod closed;
mod idle;
mod open;

use std::net::SocketAddr;

pub use cancel::{Left, cancel};
pub use closed::closed;
pub use idle::idle;
pub use open::open;

use crate::{
    bodies::{self, Ask},
    wire::{Answer, Request},
};

/// What is spoken to a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/messages`.
    Messages,
}

/// Whom to ask.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its name in sentences.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// The model it knows.
    pub model: String,
    /// Its key; without one no header is sent.
    pub key: Option<String>,
    /// The process whose time counts; `None` where nobody's does.
    pub pid: Option<u32>,
    /// Whether its children's time counts too: a gateway may share its work with them. Those of ours are engines.
    pub with_children: bool,
}

impl Target {
    /// A request to it, ready to be sent again and again.
    pub fn request(&self, dialect: Dialect, ask: Ask) -> Request {
        let key = self.key.as_ref();
        match dialect {
            Dialect::Chat => {
                let head = key.map_or(String::new(), |key| format!("authorization: Bearer {key}\r\n"));
                Request::post("/v1/chat/completions", &head, &bodies::chat(&self.model, ask))
            }
            Dialect::Messages => {
                let key = key.map_or(String::new(), |key| format!("x-api-key: {key}\r\n"));
                let head = format!("anthropic-version: 2023-06-01\r\n{key}");
                Request::post("/v1/messages", &head, &bodies::messages(&self.model, ask))
            }
        }
    }

    /// What is wrong with an answer.
    fn check(&self, answer: Answer) -> Result<(), String> {
        match answer {
            Answer { status: 200, whole: true } => Ok(()),
            Answer { status: 200, .. } => Err(format!("{} sent an answer that is not whole", self.name)),
            Answer { status, .. } => Err(format!("{} answered {status}", self.name)),
        }
    }
}
