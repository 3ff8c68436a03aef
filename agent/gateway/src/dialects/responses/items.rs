//! The items of a Responses answer. An item has the same id wherever it is told.

use super::{plan::Plan, tools::Origin};
use crate::dialects::{
    chat::calls::MadeCall,
    json::{self, Object},
};

/// An item that says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Thinking,
    Text,
}

/// The id of the item at this place.
pub(super) fn id(plan: &Plan, prefix: &str, place: usize) -> String {
    format!("{prefix}_{}_{place}", plan.seed())
}

impl Kind {
    /// The id of an item of this kind at this place.
    pub(super) fn id(self, plan: &Plan, place: usize) -> String {
        id(plan, if self == Self::Thinking { "rs" } else { "msg" }, place)
    }
}

/// A message or a piece of thinking, as far as it is known: `None` when it just begins.
pub(super) fn said(kind: Kind, id: &str, text: Option<&str>, plan: &Plan) -> Vec<u8> {
    json::document(|o| {
        o.string("id", id);
        match kind {
            Kind::Thinking => {
                o.string("type", "reasoning");
                o.list("summary", |list| {
                    if let Some(text) = text {
                        list.object(|o| summary(o, text));
                    }
                });
                // Opaque to clients. It holds nothing: some send thinking back only when it is there.
                match text.filter(|_| plan.sealed) {
                    Some(_) => o.string("encrypted_content", id),
                    None => o.null("encrypted_content"),
                }
            }
            Kind::Text => {
                o.string("type", "message");
                o.string("status", if text.is_some() { "completed" } else { "in_progress" });
                o.string("role", "assistant");
                o.list("content", |list| {
                    if let Some(text) = text {
                        list.object(|o| output_text(o, text));
                    }
                });
            }
        }
    })
}

/// The part that holds a message's text.
pub(super) fn output_text(o: &mut Object<'_>, text: &str) {
    o.string("type", "output_text");
    o.string("text", text);
    o.list("annotations", |_| {});
    o.list("logprobs", |_| {});
}

/// The part that holds thinking.
pub(super) fn summary(o: &mut Object<'_>, text: &str) {
    o.string("type", "summary_text");
    o.string("text", text);
}

/// A call, as its client knows the tool.
#[derive(Debug)]
pub(super) struct ToldCall<'c> {
    pub id: String,
    pub free_text: bool,
    pub namespace: Option<&'c str>,
    /// Arguments, or free text.
    pub input: String,
    call: &'c MadeCall,
}

impl<'c> ToldCall<'c> {
    /// The call at this place in the answer.
    pub(super) fn new(call: &'c MadeCall, plan: &'c Plan, place: usize) -> Self {
        let (free_text, namespace) = match plan.origin(&call.name) {
            None => (false, None),
            Some(Origin::FreeText) => (true, None),
            Some(Origin::Group(group)) => (false, Some(&**group)),
            Some(Origin::FreeTextOf(group)) => (true, Some(&**group)),
        };
        let input = if free_text { free_text_of(&call.arguments) } else { call.arguments.clone() };
        Self { id: id(plan, if free_text { "ctc" } else { "fc" }, place), free_text, namespace, input, call }
    }

    /// The item; without its input when it just begins.
    pub(super) fn item(&self, begins: bool) -> Vec<u8> {
        json::document(|o| {
            o.string("id", &self.id);
            o.string("type", if self.free_text { "custom_tool_call" } else { "function_call" });
            o.string("status", if begins { "in_progress" } else { "completed" });
            o.string("call_id", &self.call.id);
            o.string("name", &self.call.name);
            if let Some(namespace) = self.namespace {
                o.string("namespace", namespace);
            }
            o.string(self.field(), if begins { "" } else { &self.input });
        })
    }

    /// Where the input stands.
    pub(super) const fn field(&self) -> &'static str {
        if self.free_text { "input" } else { "arguments" }
    }
}

/// The free text in the arguments of such a tool. A model that wrote no JSON wrote the text itself.
fn free_text_of(arguments: &str) -> String {
    #[derive(serde::Deserialize)]
    struct Input {
        input: String,
    }
    serde_json::from_str::<Input>(arguments).map_or_else(|_| arguments.to_owned(), |read| read.input)
}
