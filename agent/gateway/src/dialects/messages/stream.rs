//! Says an answer in events of the Messages API.
//!
//! Order: `message_start`; for each block `content_block_start`, its deltas, `content_block_stop`; `message_delta` with reason and usage;
//! `message_stop`. One block is open at a time and numbers only rise. `message_start` comes with the first word, so that it can hold the
//! length of the prompt; until then comments keep the connection alive.

use warden_domain::Problem;

use super::{
    answer::{self, SIGNATURE},
    plan::Plan,
};
use crate::dialects::{
    chat::{answer::Finish, calls::MadeCall, stream::Step, usage::Counts},
    errors,
    voice::{Voice, event},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Thinking,
    Text,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Speaker {
    plan: Plan,
    started: bool,
    open: Option<Kind>,
    /// Number of the block that is open or comes next.
    block: u32,
}

impl Speaker {
    pub(super) const fn new(plan: Plan) -> Self {
        Self { plan, started: false, open: None, block: 0 }
    }

    fn start(&mut self, counts: &Counts, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        event(out, "message_start", |o| {
            o.object("message", |o| {
                answer::head(o, &self.plan);
                o.list("content", |_| {});
                o.null("stop_reason");
                o.null("stop_sequence");
                o.object("usage", |o| answer::usage(o, counts));
            });
        });
    }

    /// Opens a block of this kind unless one is open.
    fn open(&mut self, kind: Kind, out: &mut Vec<u8>) {
        if self.open == Some(kind) {
            return;
        }
        self.close(out);
        self.open = Some(kind);
        event(out, "content_block_start", |o| {
            o.number("index", self.block);
            o.object("content_block", |o| match kind {
                Kind::Thinking => {
                    o.string("type", "thinking");
                    o.string("thinking", "");
                    o.string("signature", "");
                }
                Kind::Text => {
                    o.string("type", "text");
                    o.string("text", "");
                }
            });
        });
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        let Some(kind) = self.open.take() else { return };
        if kind == Kind::Thinking {
            self.delta(out, "signature_delta", "signature", SIGNATURE);
        }
        self.stop_block(out);
    }

    fn stop_block(&mut self, out: &mut Vec<u8>) {
        event(out, "content_block_stop", |o| o.number("index", self.block));
        self.block += 1;
    }

    fn delta(&self, out: &mut Vec<u8>, kind: &str, field: &str, text: &str) {
        event(out, "content_block_delta", |o| {
            o.number("index", self.block);
            o.object("delta", |o| {
                o.string("type", kind);
                o.string(field, text);
            });
        });
    }

    fn call(&mut self, call: &MadeCall, out: &mut Vec<u8>) {
        event(out, "content_block_start", |o| {
            o.number("index", self.block);
            o.object("content_block", |o| {
                o.string("type", "tool_use");
                o.string("id", &call.id);
                o.string("name", &call.name);
                o.object("input", |_| {});
            });
        });
        self.delta(out, "input_json_delta", "partial_json", call.object());
        self.stop_block(out);
    }
}

impl Voice for Speaker {
    fn say(&mut self, step: Step<'_>, counts: &Counts, out: &mut Vec<u8>) {
        let (kind, delta, field, text) = match step {
            Step::Thinking(_) if !self.plan.thinking => return,
            Step::Thinking(text) => (Kind::Thinking, "thinking_delta", "thinking", text),
            Step::Text(text) => (Kind::Text, "text_delta", "text", text),
            Step::Calling => return self.start(counts, out),
        };
        self.start(counts, out);
        self.open(kind, out);
        self.delta(out, delta, field, text);
    }

    fn end(&mut self, calls: &[MadeCall], finish: &Finish, counts: &Counts, out: &mut Vec<u8>) {
        self.start(counts, out);
        self.close(out);
        calls.iter().for_each(|call| self.call(call, out));
        event(out, "message_delta", |o| {
            o.object("delta", |o| answer::stop(o, finish));
            o.object("usage", |o| answer::usage(o, counts));
        });
        event(out, "message_stop", |_| {});
    }

    fn fail(&mut self, problem: &Problem, _counts: &Counts, out: &mut Vec<u8>) {
        out.extend_from_slice(b"event: error\ndata: ");
        out.extend_from_slice(&errors::anthropic(problem, &self.plan.request));
        out.extend_from_slice(b"\n\n");
    }

    fn keep_alive(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b": keep-alive\n\n");
    }
}
