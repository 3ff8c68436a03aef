//! A chat answer in one piece, put together from the stream of an engine that would not notice otherwise that nobody waits any more.
//!
//! In: the engine's chunks, cut anywhere. Out: one `chat.completion` (or `text_completion`) document: text, thinking, calls, logprobs and
//! reasons by choice; every other member of the chunks, such as usage and timings, as it came last.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use warden_domain::{Problem, ProblemKind, units};

use super::{
    answer::unusable,
    calls::Calls,
    chunk::{ChoicePiece, Chunk, Logprobs},
    usage::Counts,
};
use crate::dialects::{
    json::{self, Object},
    refusal,
    sse::Framer,
};

/// Most bytes that are kept of an answer. What an engine says around them for every token is many times as long.
const MOST: usize = 64 * 1024 * 1024;
/// Most choices of one answer.
const CHOICES: u64 = 128;

/// See the module.
#[derive(Debug, Default)]
pub struct Pieces {
    framer: Framer,
    said: Said,
}

#[derive(Debug, Default)]
struct Said {
    choices: BTreeMap<u64, Choice>,
    /// Members that are no choices: name and JSON.
    others: Vec<(String, Box<str>)>,
    /// Legacy completions: plain text.
    is_text: bool,
    counts: Counts,
    fault: Option<Problem>,
    done: bool,
}

/// What was said in one choice.
#[derive(Debug, Default)]
struct Choice {
    text: String,
    /// Thinking, and the name the engine calls it by.
    thinking: Option<(&'static str, String)>,
    refusal: Option<String>,
    calls: Calls,
    /// Items of `logprobs.content`, with commas between.
    logprobs: Vec<u8>,
    finish: Option<Box<str>>,
}

impl Pieces {
    /// Takes bytes of the engine.
    pub fn feed(&mut self, bytes: &[u8]) {
        let Self { framer, said } = self;
        if framer.feed(bytes, |data| said.event(data)).is_err() {
            said.fault.get_or_insert_with(unusable);
        } else if said.kept() > MOST {
            said.fault.get_or_insert_with(too_long);
        }
    }

    /// The engine is done: the document. `seed` makes the ids that the engine left out.
    ///
    /// # Errors
    /// When what came is no whole answer, or the engine told of a fault.
    pub fn close(&mut self, seed: &str) -> Result<Vec<u8>, Problem> {
        let Self { framer, said } = self;
        framer.finish(|data| said.event(data));
        if let Some(problem) = said.fault.take() {
            return Err(problem);
        }
        if self.is_unfinished() {
            return Err(unusable());
        }
        let said = std::mem::take(&mut self.said);
        self.said.counts = said.counts;
        Ok(said.document(seed))
    }

    /// Ends the answer here, as if it had come to its limit of tokens; `why` is told beside it as `warden_stop`.
    ///
    /// # Errors
    /// As `close`.
    pub fn stop_short(&mut self, seed: &str, why: &str) -> Result<Vec<u8>, Problem> {
        for choice in self.said.choices.values_mut() {
            choice.finish.get_or_insert_with(|| "\"length\"".into());
        }
        self.said.others.push(("warden_stop".to_owned(), serde_json::Value::from(why).to_string().into()));
        self.close(seed)
    }

    /// Whether the model began to answer.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        !self.said.choices.is_empty()
    }

    /// Whether a stream that ends now is cut.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        self.said.fault.is_none() && (self.said.choices.is_empty() || self.said.choices.values().any(|choice| choice.finish.is_none()))
    }

    /// Why there will be no answer, once that is known.
    #[must_use]
    pub const fn fault(&self) -> Option<&Problem> {
        self.said.fault.as_ref()
    }

    /// What the answer used, as far as the engine said.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.said.counts
    }
}

impl Said {
    fn event(&mut self, data: &[u8]) {
        if self.done || self.fault.is_some() || data.is_empty() {
            return;
        }
        if data == b"[DONE]" {
            self.done = true;
            return;
        }
        let Ok(chunk) = serde_json::from_slice::<Chunk<'_>>(data) else {
            self.fault = Some(unusable());
            return;
        };
        if chunk.error.is_some() || chunk.object.as_deref() == Some("error") {
            self.fault = Some(refusal::in_stream(data));
            return;
        }
        self.is_text |= chunk.object.as_deref() == Some("text_completion");
        for (name, value) in chunk.others {
            if name == "usage" {
                self.counts.update(value);
            }
            match self.others.iter_mut().find(|(known, _)| *known == name) {
                Some((_, kept)) if **kept == *value.get() || value.get() == "null" => {}
                Some((_, kept)) => *kept = value.get().into(),
                None => self.others.push((name.into_owned(), value.get().into())),
            }
        }
        for piece in chunk.choices.into_iter().filter(|piece| piece.index < CHOICES) {
            self.choices.entry(piece.index).or_default().take(piece);
        }
    }

    /// Bytes that are kept until the end.
    fn kept(&self) -> usize {
        let others = self.others.iter().map(|(name, value)| name.len() + value.len());
        others.chain(self.choices.values().map(Choice::kept)).sum()
    }

    fn document(self, seed: &str) -> Vec<u8> {
        let is_text = self.is_text;
        json::document(|o| {
            o.list("choices", |list| {
                for (index, choice) in self.choices {
                    list.object(|o| choice.write(o, index, is_text, seed));
                }
            });
            o.string("object", if is_text { "text_completion" } else { "chat.completion" });
            for (name, value) in &self.others {
                o.named(name, value.as_bytes());
            }
        })
    }
}

impl Choice {
    fn take(&mut self, piece: ChoicePiece<'_>) {
        self.text.push_str(piece.text.as_deref().unwrap_or_default());
        if let Some(delta) = piece.delta {
            self.text.push_str(delta.content.as_deref().unwrap_or_default());
            for (name, said) in [("reasoning_content", delta.reasoning_content), ("reasoning", delta.reasoning)] {
                if let Some(said) = said {
                    self.thinking.get_or_insert_with(|| (name, String::new())).1.push_str(&said);
                }
            }
            if let Some(said) = delta.refusal {
                self.refusal.get_or_insert_default().push_str(&said);
            }
            delta.tool_calls.into_iter().flatten().for_each(|call| self.calls.add(call));
        }
        let items = piece.logprobs.and_then(|value| serde_json::from_str::<Logprobs<'_>>(value.get()).ok()).and_then(|l| l.content);
        for item in items.into_iter().flatten() {
            if !self.logprobs.is_empty() {
                self.logprobs.push(b',');
            }
            self.logprobs.extend_from_slice(item.get().as_bytes());
        }
        if let Some(reason) = piece.finish_reason.map(RawValue::get).filter(|reason| *reason != "null") {
            self.finish = Some(reason.into());
        }
    }

    fn kept(&self) -> usize {
        let thinking = self.thinking.as_ref().map_or(0, |(_, said)| said.len());
        let (refusal, finish) = (self.refusal.as_ref().map_or(0, String::len), self.finish.as_ref().map_or(0, |reason| reason.len()));
        self.text.len() + thinking + refusal + self.calls.kept() + self.logprobs.len() + finish
    }

    fn write(self, o: &mut Object<'_>, index: u64, is_text: bool, seed: &str) {
        o.number("index", index);
        let calls = self.calls.finish(seed);
        if is_text {
            o.string("text", &self.text);
        } else {
            o.object("message", |o| {
                o.string("role", "assistant");
                // As engines answer in one piece: a message that is only calls has no text.
                if self.text.is_empty() && !calls.is_empty() {
                    o.null("content");
                } else {
                    o.string("content", &self.text);
                }
                if let Some((name, said)) = &self.thinking {
                    o.string(name, said);
                }
                if let Some(said) = &self.refusal {
                    o.string("refusal", said);
                }
                if !calls.is_empty() {
                    o.list("tool_calls", |list| {
                        for call in &calls {
                            list.object(|o| {
                                o.string("type", "function");
                                o.object("function", |o| {
                                    o.string("name", &call.name);
                                    o.string("arguments", &call.arguments);
                                });
                                o.string("id", &call.id);
                            });
                        }
                    });
                }
            });
        }
        if !self.logprobs.is_empty() {
            o.object("logprobs", |o| o.json("content", &[b"[".as_slice(), &self.logprobs, b"]"].concat()));
        }
        o.json("finish_reason", self.finish.as_deref().unwrap_or("null").as_bytes());
    }
}

/// An answer in one piece that outgrew what is kept of one.
fn too_long() -> Problem {
    Problem::new(ProblemKind::Upstream, format!("The answer is longer than {}, which is too long for one piece.", units::Bytes(MOST as u64)))
        .hint("Ask for a streamed answer, for fewer 'top_logprobs', or for less with 'max_tokens'.")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn put_together(chunks: &[Value]) -> Result<Value, Problem> {
        let text: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect::<String>() + "data: [DONE]\n\n";
        let mut pieces = Pieces::default();
        text.as_bytes().chunks(13).for_each(|piece| pieces.feed(piece));
        let before = *pieces.counts();
        let answer = pieces.close("1").map(|body| serde_json::from_slice(&body).unwrap());
        assert_eq!(*pieces.counts(), before, "what it used is still known");
        answer
    }

    fn said(index: u64, delta: &Value, finish: Option<&str>) -> Value {
        json!({"choices": [{"index": index, "delta": delta, "finish_reason": finish}], "id": "c-1", "created": 5, "model": "tiny", "object": "chat.completion.chunk"})
    }

    #[test]
    fn an_answer_that_is_ended_here_says_that_it_came_to_its_limit_and_why() {
        let mut pieces = Pieces::default();
        pieces.feed(format!("data: {}\n\n", said(0, &json!({"content": "ha ha ha"}), None)).as_bytes());
        let answer: Value = serde_json::from_slice(&pieces.stop_short("s", "runaway_repetition").unwrap()).unwrap();
        assert_eq!((&answer["choices"][0]["finish_reason"], &answer["warden_stop"]), (&json!("length"), &json!("runaway_repetition")));
        assert_eq!(answer["choices"][0]["message"]["content"], "ha ha ha");
        assert!(Pieces::default().stop_short("s", "runaway_repetition").is_err());
    }

    #[test]
    fn every_choice_is_whole_and_what_is_no_choice_stays_as_it_came_last() {
        let mut with_logprobs = said(0, &json!({"content": "lo \"🦙\""}), None);
        with_logprobs["choices"][0]["logprobs"] = json!({"content": [{"token": "lo", "logprob": -0.5}]});
        let usage = json!({"choices": [], "id": "c-1", "object": "chat.completion.chunk", "usage": {"prompt_tokens": 7, "completion_tokens": 3}, "timings": {"cache_n": 1}});
        let answer = put_together(&[
            said(0, &json!({"role": "assistant", "content": null}), None),
            said(0, &json!({"reasoning_content": "hm"}), None),
            said(0, &json!({"content": "hel"}), None),
            with_logprobs,
            said(1, &json!({"tool_calls": [{"index": 0, "id": "t1", "type": "function", "function": {"name": "f", "arguments": "{\"a\""}}]}), None),
            said(1, &json!({"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}), None),
            said(1, &json!({}), Some("tool_calls")),
            said(0, &json!({}), Some("length")),
            usage,
        ]);
        assert_eq!(
            answer.unwrap(),
            json!({"id": "c-1", "object": "chat.completion", "created": 5, "model": "tiny", "usage": {"prompt_tokens": 7, "completion_tokens": 3}, "timings": {"cache_n": 1},
                "choices": [
                    {"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": "hello \"🦙\"", "reasoning_content": "hm"},
                        "logprobs": {"content": [{"token": "lo", "logprob": -0.5}]}},
                    {"index": 1, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": null,
                        "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]}}]})
        );
    }

    #[test]
    fn only_what_is_kept_of_an_answer_counts_however_much_is_said_around_it() {
        let mut pieces = Pieces::default();
        let mut chunk = said(0, &json!({"content": "ha"}), Some("stop"));
        chunk["system_fingerprint"] = json!("f".repeat(1 << 20));
        let chunk = format!("data: {chunk}\n\n");
        (0..70).for_each(|_| pieces.feed(chunk.as_bytes()));
        let answer: Value = serde_json::from_slice(&pieces.close("s").unwrap()).unwrap();
        assert_eq!(answer["choices"][0]["message"]["content"], "ha".repeat(70));
    }

    #[test]
    fn an_answer_that_is_too_long_to_keep_ends_at_once_and_says_what_to_do() {
        let mut pieces = Pieces::default();
        let long = format!("data: {}\n\n", said(0, &json!({"content": "x".repeat(1 << 20)}), None));
        let fed = (0..70).find(|_| {
            pieces.feed(long.as_bytes());
            pieces.fault().is_some()
        });
        assert_eq!(fed, Some(63));
        let words = pieces.close("s").unwrap_err().full_text();
        assert!(words.contains("longer than 64") && words.contains("streamed answer"), "{words}");
    }

    #[test]
    fn plain_completions_are_put_together_too() {
        let piece = |text: &str, finish: Option<&str>| json!({"choices": [{"index": 0, "text": text, "logprobs": null, "finish_reason": finish}], "object": "text_completion"});
        let answer = put_together(&[piece("a", None), piece("b", None), piece("", Some("stop"))]).unwrap();
        assert_eq!(answer, json!({"choices": [{"index": 0, "text": "ab", "finish_reason": "stop"}], "object": "text_completion"}));
    }

    #[test]
    fn half_an_answer_or_an_error_is_none() {
        assert!(put_together(&[said(0, &json!({"content": "x"}), None)]).is_err());
        assert!(put_together(&[]).is_err());
        let problem = put_together(&[said(0, &json!({"content": "x"}), None), json!({"error": {"message": "boom"}})]).unwrap_err();
        assert_eq!(problem.message, "boom");
    }
}
