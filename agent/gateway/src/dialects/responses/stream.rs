//! Says an answer in events of the Responses API.
//!
//! Order: `created`, `in_progress`; for each item `output_item.added`, its parts with deltas and their ends, `output_item.done`; then
//! `completed` or `failed`. Numbers of events rise by one. An answer that was cut by its limit is `completed` with the status
//! "incomplete": told as `response.incomplete`, one client asks for the whole turn again.

use warden_domain::Problem;

use super::{
    answer::{self, Status},
    items::{self, Kind, ToldCall},
    plan::Plan,
};
use crate::dialects::{
    chat::{answer::Finish, calls::MadeCall, stream::Step, usage::Counts},
    json::Object,
    voice::{self, Voice},
};

/// See the module.
#[derive(Debug)]
pub(super) struct Speaker {
    plan: Plan,
    /// Number of the next event.
    number: u64,
    started: bool,
    open: Option<Open>,
    /// Items that are done.
    output: Vec<Vec<u8>>,
}

/// The item that is being said.
#[derive(Debug)]
struct Open {
    kind: Kind,
    id: String,
    text: String,
}

impl Speaker {
    pub(super) const fn new(plan: Plan) -> Self {
        Self { plan, number: 0, started: false, open: None, output: Vec::new() }
    }

    fn event(number: &mut u64, out: &mut Vec<u8>, name: &str, fill: impl FnOnce(&mut Object<'_>)) {
        voice::event(out, name, |o| {
            o.number("sequence_number", *number);
            fill(o);
        });
        *number += 1;
    }

    /// An event about the response as a whole.
    fn whole(&mut self, out: &mut Vec<u8>, name: &str, status: Status<'_>, counts: &Counts) {
        let Self { plan, number, output, .. } = self;
        Self::event(number, out, name, |o| o.object("response", |o| answer::response(o, plan, status, output, counts)));
    }

    /// An event about the item that is being said; `part` names the number of its part, if it is about one.
    fn about(&mut self, out: &mut Vec<u8>, name: &str, id: &str, part: Option<&str>, fill: impl FnOnce(&mut Object<'_>)) {
        let place = self.output.len();
        Self::event(&mut self.number, out, name, |o| {
            o.string("item_id", id);
            o.number("output_index", place);
            if let Some(part) = part {
                o.number(part, 0);
            }
            fill(o);
        });
    }

    fn item(&mut self, out: &mut Vec<u8>, name: &str, item: &[u8]) {
        let place = self.output.len();
        Self::event(&mut self.number, out, name, |o| {
            o.number("output_index", place);
            o.json("item", item);
        });
    }

    fn start(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.started, true) {
            self.whole(out, "response.created", Status::InProgress, &Counts::default());
            self.whole(out, "response.in_progress", Status::InProgress, &Counts::default());
        }
    }

    fn open(&mut self, kind: Kind, out: &mut Vec<u8>) {
        if self.open.as_ref().is_some_and(|open| open.kind == kind) {
            return;
        }
        self.close(out);
        let id = kind.id(&self.plan, self.output.len());
        let item = items::said(kind, &id, None, &self.plan);
        self.item(out, "response.output_item.added", &item);
        match kind {
            Kind::Thinking => self.about(out, "response.reasoning_summary_part.added", &id, Some("summary_index"), |o| {
                o.object("part", |o| items::summary(o, ""));
            }),
            Kind::Text => self.about(out, "response.content_part.added", &id, Some("content_index"), |o| {
                o.object("part", |o| items::output_text(o, ""));
            }),
        }
        self.open = Some(Open { kind, id, text: String::new() });
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        let Some(Open { kind, id, text }) = self.open.take() else { return };
        match kind {
            Kind::Thinking => {
                let part = Some("summary_index");
                self.about(out, "response.reasoning_summary_text.done", &id, part, |o| o.string("text", &text));
                self.about(out, "response.reasoning_summary_part.done", &id, part, |o| o.object("part", |o| items::summary(o, &text)));
            }
            Kind::Text => {
                let part = Some("content_index");
                self.about(out, "response.output_text.done", &id, part, |o| {
                    o.string("text", &text);
                    o.list("logprobs", |_| {});
                });
                self.about(out, "response.content_part.done", &id, part, |o| o.object("part", |o| items::output_text(o, &text)));
            }
        }
        let item = items::said(kind, &id, Some(&text), &self.plan);
        self.done(out, item);
    }

    fn done(&mut self, out: &mut Vec<u8>, item: Vec<u8>) {
        self.item(out, "response.output_item.done", &item);
        self.output.push(item);
    }

    fn call(&mut self, call: &MadeCall, out: &mut Vec<u8>) {
        let plan = self.plan.clone();
        let told = ToldCall::new(call, &plan, self.output.len());
        let stem = if told.free_text { "response.custom_tool_call_input" } else { "response.function_call_arguments" };
        self.item(out, "response.output_item.added", &told.item(true));
        self.about(out, &format!("{stem}.delta"), &told.id, None, |o| o.string("delta", &told.input));
        self.about(out, &format!("{stem}.done"), &told.id, None, |o| {
            if !told.free_text {
                o.string("name", &call.name);
            }
            o.string(told.field(), &told.input);
        });
        self.done(out, told.item(false));
    }
}

impl Voice for Speaker {
    fn say(&mut self, step: Step<'_>, _counts: &Counts, out: &mut Vec<u8>) {
        let (kind, text) = match step {
            Step::Thinking(_) if !self.plan.thinking => return,
            Step::Thinking(text) => (Kind::Thinking, text),
            Step::Text(text) => (Kind::Text, text),
            Step::Calling => return self.start(out),
        };
        self.start(out);
        self.open(kind, out);
        let Some(mut open) = self.open.take() else { return };
        open.text.push_str(text);
        match kind {
            Kind::Thinking => self.about(out, "response.reasoning_summary_text.delta", &open.id, Some("summary_index"), |o| o.string("delta", text)),
            Kind::Text => self.about(out, "response.output_text.delta", &open.id, Some("content_index"), |o| {
                o.string("delta", text);
                o.list("logprobs", |_| {});
            }),
        }
        self.open = Some(open);
    }

    fn end(&mut self, calls: &[MadeCall], finish: &Finish, counts: &Counts, out: &mut Vec<u8>) {
        self.start(out);
        self.close(out);
        calls.iter().for_each(|call| self.call(call, out));
        self.whole(out, "response.completed", Status::Ended(finish), counts);
    }

    fn fail(&mut self, problem: &Problem, counts: &Counts, out: &mut Vec<u8>) {
        self.start(out);
        self.whole(out, "response.failed", Status::Failed(problem), counts);
    }

    fn keep_alive(&mut self, out: &mut Vec<u8>) {
        if self.started {
            self.whole(out, "response.in_progress", Status::InProgress, &Counts::default());
        } else {
            self.start(out);
        }
    }
}
