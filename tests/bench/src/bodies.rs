//! The requests that are sent: a small chat, and one as large as a coding agent sends after an hour of work.
//!
//! The large one is made like theirs: a long system prompt, tools with schemas, turns with calls whose arguments are JSON in a string,
//! and results full of code with line breaks and quotes. Escapes are dense on purpose: a reader of strings slows down at each.

use std::time::Duration;

use serde_json::{Value, json};

/// Bytes of the large body, about.
const LARGE: usize = 180 * 1000;
/// Events up to which `max_tokens` is a number of events; above stands the pause.
const EVENTS: u32 = 100_000;
/// The pause that never ends.
const FOR_EVER: u32 = 9_999;

/// What the engine is asked to answer. It travels as `max_tokens`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Events between the first and the last ones.
    pub events: u32,
    /// Time before each of them; without it they come as fast as they are written.
    pub pause: Option<Duration>,
}

impl Answer {
    /// As fast as can be.
    pub const fn fast(events: u32) -> Self {
        Self { events, pause: None }
    }

    /// The beginning, then silence.
    pub const fn silent() -> Self {
        Self { events: 1, pause: Some(Duration::from_millis(FOR_EVER as u64)) }
    }

    /// Read back.
    pub const fn from_max_tokens(number: u32) -> Self {
        let pause = match number / EVENTS {
            0 => None,
            FOR_EVER => Some(Duration::from_secs(3600)),
            ms => Some(Duration::from_millis(ms as u64)),
        };
        Self { events: number % EVENTS, pause }
    }

    /// As it is sent.
    pub fn max_tokens(self) -> u32 {
        let ms = self.pause.map_or(0, |pause| u32::try_from(pause.as_millis()).unwrap_or(FOR_EVER).min(FOR_EVER));
        ms * EVENTS + self.events
    }
}

/// How large a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// About 1 KB.
    Small,
    /// About 180 KB.
    Large,
}

/// A request as it is sent.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Its size.
    pub size: Size,
    /// `None`: whole.
    pub streamed: bool,
    /// What is to be answered.
    pub answer: Answer,
    /// Whose: conversations differ in their first words.
    pub conversation: usize,
}

/// A chat completion.
pub fn chat(model: &str, ask: Ask) -> Vec<u8> {
    let mut body = json!({ "model": model, "max_tokens": ask.answer.max_tokens(), "temperature": 0.7, "stream": ask.streamed });
    if ask.streamed {
        body["stream_options"] = json!({"include_usage": true});
    }
    let opening = json!({"role": "user", "content": opening(ask.conversation)});
    match ask.size {
        Size::Small => {
            body["messages"] = json!([{"role": "system", "content": Words::new(1).prose(700)}, opening]);
        }
        Size::Large => {
            let tools = tools(24)
                .into_iter()
                .map(|(name, says, schema)| json!({"type": "function", "function": {"name": name, "description": says, "parameters": schema}}));
            body["tools"] = Value::Array(tools.collect());
            let mut messages = vec![json!({"role": "system", "content": Words::new(2).code(12_000)}), opening];
            let mut words = Words::new(3);
            let mut turn = 0;
            while bytes(&body) + messages.iter().map(bytes).sum::<usize>() < LARGE {
                turn += 1;
                let id = format!("call_{turn:04}");
                let arguments = json!({"path": format!("src/part_{turn}.rs"), "text": words.code(500)}).to_string();
                messages.push(json!({"role": "assistant", "content": words.prose(120), "tool_calls": [{"id": id, "type": "function", "function": {"name": "edit_3", "arguments": arguments}}]}));
                messages.push(json!({"role": "tool", "tool_call_id": id, "content": words.code(2_600)}));
            }
            messages.push(json!({"role": "user", "content": words.prose(200)}));
            body["messages"] = Value::Array(messages);
        }
    }
    body.to_string().into_bytes()
}

/// The same in the Messages dialect.
pub fn messages(model: &str, ask: Ask) -> Vec<u8> {
    let mut body = json!({ "model": model, "max_tokens": ask.answer.max_tokens(), "stream": ask.streamed });
    let text = |text: String| json!([{"type": "text", "text": text}]);
    let opening = json!({"role": "user", "content": text(opening(ask.conversation))});
    match ask.size {
        Size::Small => {
            body["system"] = json!(Words::new(1).prose(700));
            body["messages"] = json!([opening]);
        }
        Size::Large => {
            body["system"] = json!([{"type": "text", "text": Words::new(2).code(12_000), "cache_control": {"type": "ephemeral"}}]);
            body["metadata"] = json!({"user_id": format!("user_b_account__session_bench-{}", ask.conversation)});
            body["tools"] =
                tools(24).into_iter().map(|(name, says, schema)| json!({"name": name, "description": says, "input_schema": schema})).collect();
            let mut messages = vec![opening];
            let mut words = Words::new(3);
            let mut turn = 0;
            while bytes(&body) + messages.iter().map(bytes).sum::<usize>() < LARGE {
                turn += 1;
                let id = format!("toolu_{turn:04}");
                messages.push(json!({"role": "assistant", "content": [
                    {"type": "text", "text": words.prose(120)},
                    {"type": "tool_use", "id": id, "name": "edit_3", "input": {"path": format!("src/part_{turn}.rs"), "text": words.code(500)}}]}));
                messages.push(json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": text(words.code(2_600))}]}));
            }
            messages.push(json!({"role": "assistant", "content": text(words.prose(100))}));
            messages.push(json!({"role": "user", "content": text(words.prose(200))}));
            body["messages"] = Value::Array(messages);
        }
    }
    body.to_string().into_bytes()
}

fn bytes(value: &Value) -> usize {
    value.to_string().len()
}

fn opening(conversation: usize) -> String {
    format!("This is conversation {conversation}. {}", Words::new(7).prose(80))
}

fn tools(count: usize) -> Vec<(String, String, Value)> {
    let mut words = Words::new(11);
    (0..count)
        .map(|n| {
            let properties: serde_json::Map<String, Value> =
                (0..5).map(|p| (format!("field_{p}"), json!({"type": "string", "description": words.prose(90)}))).collect();
            (
                format!("edit_{n}"),
                words.prose(600),
                json!({"type": "object", "properties": properties, "required": ["field_0"], "additionalProperties": false}),
            )
        })
        .collect()
}

/// Words without meaning, always the same ones.
struct Words(u64);

impl Words {
    const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> &'static str {
        const LIST: [&str; 24] = [
            "the", "replica", "answers", "before", "a", "request", "leaves", "queue", "and", "its", "tokens", "are", "counted", "once", "for",
            "every", "key", "that", "asked", "window", "memory", "stream", "ends", "whole",
        ];
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        LIST[usize::try_from((self.0 >> 33) % 24).unwrap_or(0)]
    }

    fn prose(&mut self, bytes: usize) -> String {
        let mut text = String::with_capacity(bytes + 16);
        while text.len() < bytes {
            text.push_str(self.next());
            text.push(' ');
        }
        text
    }

    /// Lines of about 40 bytes, every fourth with a string in quotes, now and then a letter beyond ASCII.
    fn code(&mut self, bytes: usize) -> String {
        let (mut text, mut line) = (String::with_capacity(bytes + 64), 0u32);
        while text.len() < bytes {
            line += 1;
            let (a, b, c) = (self.next(), self.next(), self.next());
            match line % 8 {
                0 => text.push_str(&format!("    // {a} → {b} {c}\n")),
                4 => text.push_str(&format!("    say(\"{a} {b}\", {c}_{line});\n")),
                _ => text.push_str(&format!("    let {a}_{line} = {b}.{c}(&mut state)?;\n")),
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASK: Ask = Ask { size: Size::Large, streamed: true, answer: Answer::fast(5), conversation: 3 };

    #[test]
    fn sizes_are_those_that_are_told() {
        for size in [chat("m", ASK).len(), messages("m", ASK).len()] {
            assert!((175_000..190_000).contains(&size), "{size}");
        }
        let small = Ask { size: Size::Small, ..ASK };
        for size in [chat("m", small).len(), messages("m", small).len()] {
            assert!((850..1150).contains(&size), "{size}");
        }
    }

    #[test]
    fn the_answer_asked_for_survives_the_journey() {
        for answer in [Answer::fast(200), Answer { events: 50, pause: Some(Duration::from_millis(20)) }] {
            assert_eq!(Answer::from_max_tokens(answer.max_tokens()), answer);
        }
        assert!(Answer::from_max_tokens(Answer::silent().max_tokens()).pause.unwrap() > Duration::from_secs(600));
    }
}
