//! The script: rules in order, of which the first that fits a request says what is done. Text in, what to do out; no I/O.
//!
//! ```json
//! {"rules": [
//!   {"when": {"path": "/v1/chat/completions", "contains": "weather"}, "times": 1, "act": {"chat": {"say": ["It ", "rains."], "between_ms": 20}}},
//!   {"when": {"path": "/v1/chat/completions"}, "act": {"answer": {"status": 503, "json": {"error": {"message": "busy"}}}}}
//! ]}
//! ```
//!
//! A request that no rule fits gets the engine's own short answer.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// All of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// In order; the first that fits is taken.
    pub rules: Vec<Rule>,
    /// How long a load takes; read once, at the start.
    pub load_ms: u64,
    /// What the text of a prompt costs: characters per token in `/tokenize` and in figures that are not said. 0 stands for 4.
    pub letters_per_token: usize,
    /// Whether it says that its model takes images; read whenever the agent asks, that is at the end of a load.
    pub vision: bool,
}

/// One rule.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Which requests it fits.
    #[serde(default)]
    pub when: When,
    /// How often it is taken, counted by each engine for itself and anew after a change of the script; without it always.
    pub times: Option<u64>,
    /// What is done.
    pub act: Act,
}

/// Which requests: everything that is said must hold.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct When {
    /// The path, without its query.
    pub path: Option<String>,
    /// `GET`, `POST`…
    pub method: Option<String>,
    /// Part of the body's text.
    pub contains: Option<String>,
    /// The body's `stream`; an absent one is false.
    pub stream: Option<bool>,
    /// End of the socket's name without `.sock`, to tell replicas apart: `-0`, `-1`…
    pub replica: Option<String>,
}

/// What is done.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// An answer of a model: a stream of chunks where the request asks for one, otherwise one document made of the same.
    Chat(Box<Chat>),
    /// 200 with this document.
    Json(Value),
    /// Any answer.
    Answer(Answer),
    /// These bytes in the place of head and body, then the end of the connection.
    Bytes(String),
    /// Nothing, until the client is gone.
    Hang,
    /// The connection is closed without a byte.
    Close,
    /// The engine ends with this status; by signal 9 when it is negative.
    Die(i32),
}

/// An answer of a model.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Chat {
    /// Silence before the first chunk, as while a prompt is computed.
    pub before_ms: u64,
    /// A streamed answer's head leaves before that silence, not after it.
    pub early_head: bool,
    /// Silence between chunks.
    pub between_ms: u64,
    /// What is said, in order.
    pub say: Vec<Part>,
    /// From the end of `say` it begins again, for ever.
    pub endless: bool,
    /// The first chunk tells the role, as llama.cpp's does.
    pub role: bool,
    /// `finish_reason`; null: no chunk tells one.
    pub finish: Option<String>,
    /// Figures; null: none. Told in a stream when the request asks for them.
    pub usage: Option<Used>,
    /// The stream ends with `[DONE]`.
    pub done: bool,
    /// More headers.
    pub headers: BTreeMap<String, String>,
    /// The connection is cut when so many bytes of the body are out.
    pub cut_after_bytes: Option<u64>,
    /// The same after so many chunks.
    pub cut_after_events: Option<u64>,
}

impl Default for Chat {
    fn default() -> Self {
        Self {
            before_ms: 0,
            early_head: false,
            between_ms: 0,
            say: vec![Part::Text("Hello from the script.".to_owned())],
            endless: false,
            role: true,
            finish: Some("stop".to_owned()),
            usage: Some(Used::default()),
            done: true,
            headers: BTreeMap::new(),
            cut_after_bytes: None,
            cut_after_events: None,
        }
    }
}

/// Figures of an answer; what is not said is reckoned from the texts.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Used {
    /// Tokens of the prompt, the cached ones included.
    pub prompt: Option<u64>,
    /// Of these from the cache.
    pub cached: Option<u64>,
    /// Tokens of the answer.
    pub completion: Option<u64>,
    /// Of these for thinking; told only when it is said here.
    pub reasoning: Option<u64>,
}

/// A part of what is said: a text, or a step.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Part {
    /// A chunk of text.
    Text(String),
    /// Anything else.
    Step(Box<Step>),
}

/// A step; what is said in it is done in the order of these fields, `repeat` times.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Step {
    /// Silence.
    pub pause_ms: u64,
    /// A chunk of thinking (`reasoning_content`).
    pub reason: Option<String>,
    /// A chunk of text.
    pub text: Option<String>,
    /// A chunk of tool calls: one or a list. `{"index": 0, "id": "c1", "name": "f", "arguments": "{"}`; what is not said is left out. One that
    /// has `function` is taken as it is.
    pub call: Option<Value>,
    /// A chunk with any delta.
    pub delta: Option<Value>,
    /// An event of any document.
    pub event: Option<Value>,
    /// An error event `{"error": …}`; not streamed it is the answer, with its `code` as status.
    pub error: Option<Value>,
    /// Bytes of the stream as they are.
    pub raw: Option<String>,
    /// The connection is cut.
    pub cut: bool,
    /// The engine ends with this status; by signal 9 when it is negative.
    pub die: Option<i32>,
    /// How often all this is done; 0 stands for once.
    pub repeat: u64,
}

/// Any answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Silence before it.
    pub before_ms: u64,
    /// Headers; a content type of JSON is added when none is given.
    pub headers: BTreeMap<String, String>,
    /// The body as a document.
    pub json: Option<Value>,
    /// The body as a text.
    pub text: Option<String>,
    /// The connection is cut when so many bytes of the body are out.
    pub cut_after_bytes: Option<u64>,
}

impl Default for Answer {
    fn default() -> Self {
        Self { status: 200, before_ms: 0, headers: BTreeMap::new(), json: None, text: None, cut_after_bytes: None }
    }
}

/// What of a request the rules look at.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Its method.
    pub method: &'a str,
    /// Its path, without the query.
    pub path: &'a str,
    /// Its body.
    pub body: &'a str,
    /// Whether a stream is asked for.
    pub stream: bool,
    /// The engine's socket, without `.sock`.
    pub replica: &'a str,
}

impl When {
    /// Whether it fits a request.
    #[must_use]
    pub fn fits(&self, asked: Asked<'_>) -> bool {
        let same = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|w| w == is);
        same(&self.path, asked.path)
            && same(&self.method, asked.method)
            && self.contains.as_deref().is_none_or(|part| asked.body.contains(part))
            && self.stream.is_none_or(|wanted| wanted == asked.stream)
            && self.replica.as_deref().is_none_or(|end| asked.replica.ends_with(end))
    }
}

impl Script {
    /// The rule for a request; `taken` counts how often each was taken, and counts this one.
    pub fn pick(&self, asked: Asked<'_>, taken: &mut Vec<u64>) -> Option<&Rule> {
        taken.resize(self.rules.len(), 0);
        let (rule, count) =
            self.rules.iter().zip(taken).find(|(rule, count)| rule.when.fits(asked) && rule.times.is_none_or(|times| **count < times))?;
        *count += 1;
        Some(rule)
    }

    /// How many tokens a text has.
    #[must_use]
    pub fn tokens(&self, text: &str) -> u64 {
        let each = if self.letters_per_token == 0 { 4 } else { self.letters_per_token };
        text.chars().count().div_ceil(each) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(path: &'static str, body: &'static str) -> Asked<'static> {
        Asked { method: "POST", path, body, stream: body.contains("\"stream\":true"), replica: "tiny-1" }
    }

    fn script(text: &str) -> Script {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn the_first_rule_that_fits_and_is_not_used_up_is_taken() {
        let script = script(
            r#"{"rules": [{"when": {"path": "/a", "contains": "x"}, "times": 1, "act": "hang"}, {"when": {"path": "/a", "stream": true}, "act": "close"},
                {"when": {"replica": "-1", "path": "/b"}, "act": {"die": 3}}, {"when": {"replica": "-0"}, "act": "hang"}]}"#,
        );
        let mut taken = Vec::new();
        let mut pick = |asked| script.pick(asked, &mut taken).map(|rule| format!("{:?}", rule.act));
        assert_eq!(pick(asked("/a", "xyz")).as_deref(), Some("Hang"));
        assert_eq!(pick(asked("/a", "xyz")), None);
        assert_eq!(pick(asked("/a", "xyz\"stream\":true")).as_deref(), Some("Close"));
        assert_eq!(pick(asked("/b", "")).as_deref(), Some("Die(3)"));
    }

    #[test]
    fn a_misspelt_script_is_refused_and_an_absent_word_has_its_usual_meaning() {
        for bad in [r#"{"rule": []}"#, r#"{"rules": [{"act": {"chat": {"sya": []}}}]}"#, r#"{"rules": [{"act": {"chat": {"say": [{"txt": "a"}]}}}]}"#]
        {
            assert!(serde_json::from_str::<Script>(bad).is_err(), "{bad}");
        }
        let usual = script(r#"{"rules": [{"act": {"chat": {}}}, {"act": {"chat": {"finish": null, "usage": null}}}]}"#);
        let Act::Chat(first) = &usual.rules[0].act else { panic!("a chat") };
        let Act::Chat(second) = &usual.rules[1].act else { panic!("a chat") };
        assert_eq!(first.finish.as_deref(), Some("stop"));
        assert!(first.done && first.usage.is_some() && second.finish.is_none() && second.usage.is_none());
        assert_eq!((usual.tokens("12345"), usual.tokens("")), (2, 0));
    }
}
