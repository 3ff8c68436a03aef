//! A chat request as the two other dialects make it, and how it is written.
//!
//! The order of members never changes, and text of the client is written as it came: the same conversation gives the same bytes, so
//! that an engine finds its prefix again.

use serde_json::value::RawValue;
use warden_domain::{engine::EngineKind, units::Tokens};

use crate::dialects::{
    json::{self, List, Object},
    text::{Quoted, Text},
};

/// Where a translated request goes.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The name the engine knows the model by.
    pub model: &'a str,
    /// The kind of engine.
    pub engine: EngineKind,
    /// Whether the model reads images; `None` when nobody knows, and then the engine decides.
    pub images: Option<bool>,
    /// The context window of one request, when known.
    pub window: Option<Tokens>,
}

/// A request for `/v1/chat/completions`.
#[derive(Debug, Default)]
pub(in crate::dialects) struct ChatRequest<'a> {
    pub messages: Vec<Message<'a>>,
    pub tools: Vec<Tool<'a>>,
    pub choice: Option<Choice<'a>>,
    /// Whether several tools may be called at once; `None` leaves it to the engine.
    pub parallel: Option<bool>,
    pub max_tokens: Option<u64>,
    pub stop: Vec<Quoted<'a>>,
    /// Sampling settings as they came: name and number.
    pub sampling: Vec<(&'static str, &'a RawValue)>,
    pub format: Option<Format<'a>>,
    /// The model is not to think first.
    pub no_thinking: bool,
    pub effort: Option<&'static str>,
    pub stream: bool,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::dialects) enum Message<'a> {
    System(Text<'a>),
    User(Vec<Part<'a>>),
    Assistant(Assistant<'a>),
    Tool { call: Quoted<'a>, text: Text<'a> },
}

/// A turn of the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::dialects) struct Assistant<'a> {
    pub thinking: Text<'a>,
    pub text: Text<'a>,
    pub calls: Vec<Call<'a>>,
}

/// A part of a user's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::dialects) enum Part<'a> {
    Text(Text<'a>),
    /// An image by its URL, which holds the image itself as a rule.
    Image(Text<'a>),
}

/// A tool the model called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::dialects) struct Call<'a> {
    pub id: Quoted<'a>,
    pub name: Quoted<'a>,
    pub arguments: Text<'a>,
}

/// A tool the model may call.
#[derive(Clone, Debug)]
pub(in crate::dialects) struct Tool<'a> {
    pub name: Quoted<'a>,
    pub description: Text<'a>,
    /// A JSON schema.
    pub parameters: &'a str,
}

/// Which tool the model is to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dialects) enum Choice<'a> {
    Auto,
    None,
    Required,
    Named(Quoted<'a>),
}

/// The form of the answer.
#[derive(Clone, Copy, Debug)]
pub(in crate::dialects) enum Format<'a> {
    Json,
    Schema { name: Option<Quoted<'a>>, schema: &'a RawValue, strict: bool },
}

impl ChatRequest<'_> {
    /// The body for the engine.
    pub(in crate::dialects) fn write(&self, target: &Target<'_>, room: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(room + room / 8 + 1024);
        json::object(&mut out, |o| {
            o.string("model", target.model);
            o.list("messages", |list| self.messages.iter().for_each(|m| list.object(|o| message(o, m))));
            self.tools(o);
            if let Some(max) = self.max_tokens {
                o.number("max_tokens", max);
            }
            if !self.stop.is_empty() {
                o.list("stop", |list| self.stop.iter().for_each(|s| list.text(&Text::from(*s))));
            }
            for (name, value) in &self.sampling {
                o.raw(name, value);
            }
            if let Some(format) = &self.format {
                o.object("response_format", |o| write_format(o, *format));
            }
            if let Some(effort) = self.effort {
                o.string("reasoning_effort", effort);
            }
            if self.no_thinking {
                o.object("chat_template_kwargs", |o| o.flag("enable_thinking", false));
            }
            if self.stream {
                self.streaming(o, target.engine);
            }
        });
        out
    }

    fn tools(&self, o: &mut Object<'_>) {
        if self.tools.is_empty() {
            return;
        }
        o.list("tools", |list| self.tools.iter().for_each(|t| write_tool(list, t)));
        match self.choice {
            None => {}
            Some(Choice::Auto) => o.string("tool_choice", "auto"),
            Some(Choice::None) => o.string("tool_choice", "none"),
            Some(Choice::Required) => o.string("tool_choice", "required"),
            Some(Choice::Named(name)) => o.object("tool_choice", |o| {
                o.string("type", "function");
                o.object("function", |o| o.text("name", &name.into()));
            }),
        }
        if let Some(parallel) = self.parallel {
            o.flag("parallel_tool_calls", parallel);
        }
    }

    /// Streams report usage at the end, and the length of the prompt as early as the engine can.
    fn streaming(&self, o: &mut Object<'_>, engine: EngineKind) {
        o.flag("stream", true);
        o.object("stream_options", |o| {
            o.flag("include_usage", true);
            if engine == EngineKind::Vllm {
                o.flag("continuous_usage_stats", true);
            }
        });
        if engine == EngineKind::LlamaCpp {
            o.flag("return_progress", true);
        }
    }
}

fn message(o: &mut Object<'_>, message: &Message<'_>) {
    match message {
        Message::System(text) => {
            o.string("role", "system");
            o.text("content", text);
        }
        Message::User(parts) => {
            o.string("role", "user");
            match parts.as_slice() {
                [Part::Text(text)] => o.text("content", text),
                parts => o.list("content", |list| parts.iter().for_each(|p| write_part(list, p))),
            }
        }
        Message::Assistant(turn) => {
            o.string("role", "assistant");
            // Never null: templates that join strings stumble over it.
            o.text("content", &turn.text);
            if !turn.thinking.is_empty() {
                o.text("reasoning_content", &turn.thinking);
            }
            if !turn.calls.is_empty() {
                o.list("tool_calls", |list| turn.calls.iter().for_each(|c| write_call(list, c)));
            }
        }
        Message::Tool { call, text } => {
            o.string("role", "tool");
            o.text("tool_call_id", &(*call).into());
            o.text("content", text);
        }
    }
}

fn write_part(list: &mut List<'_>, part: &Part<'_>) {
    list.object(|o| match part {
        Part::Text(text) => {
            o.string("type", "text");
            o.text("text", text);
        }
        Part::Image(url) => {
            o.string("type", "image_url");
            o.object("image_url", |o| o.text("url", url));
        }
    });
}

fn write_call(list: &mut List<'_>, call: &Call<'_>) {
    list.object(|o| {
        o.text("id", &call.id.into());
        o.string("type", "function");
        o.object("function", |o| {
            o.text("name", &call.name.into());
            o.text("arguments", &call.arguments);
        });
    });
}

fn write_tool(list: &mut List<'_>, tool: &Tool<'_>) {
    list.object(|o| {
        o.string("type", "function");
        o.object("function", |o| {
            o.text("name", &tool.name.into());
            if !tool.description.is_empty() {
                o.text("description", &tool.description);
            }
            o.json("parameters", tool.parameters.as_bytes());
        });
    });
}

fn write_format(o: &mut Object<'_>, format: Format<'_>) {
    match format {
        Format::Json => o.string("type", "json_object"),
        Format::Schema { name, schema, strict } => {
            o.string("type", "json_schema");
            o.object("json_schema", |o| {
                match name {
                    Some(name) => o.text("name", &name.into()),
                    None => o.string("name", "answer"),
                }
                o.raw("schema", schema);
                o.flag("strict", strict);
            });
        }
    }
}
