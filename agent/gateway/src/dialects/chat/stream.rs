//! Reads an engine's stream of chat chunks and says what the model said, in order.
//!
//! In: bytes, cut anywhere. Out: `Step`s while it goes, an `Ending` once. Text and thinking go on as they come. Calls are collected and
//! told at the end: their pieces may come mixed, and what a client gets must be whole and valid. A stream without a reason for its end
//! is cut, whatever else it says.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use warden_domain::{Problem, ProblemKind};

use super::{
    answer::{Answer, Finish, unusable},
    calls::{Calls, MadeCall},
    said,
    usage::Counts,
};
use crate::dialects::{refusal, sse::Framer};

/// What the model said just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dialects) enum Step<'a> {
    Thinking(&'a str),
    Text(&'a str),
    /// A piece of a call came.
    Calling,
}

/// How the stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::dialects) enum Ending {
    /// As it should; text and thinking went by as steps already.
    Whole { calls: Vec<MadeCall>, finish: Finish },
    /// The engine told of a fault, or sent what cannot be read.
    Failed(Problem),
    /// It stopped in the middle.
    Cut,
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::dialects) struct Reader {
    framer: Framer,
    said: Said,
}

#[derive(Debug, Default)]
struct Said {
    calls: Calls,
    counts: Counts,
    finish: Option<Finish>,
    failed: Option<Problem>,
    done: bool,
    /// The engine closed; what comes now is what it left unfinished.
    closing: bool,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    prompt_progress: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// `error` when the chunk is one as a whole.
    #[serde(borrow, default)]
    object: Option<said::Text<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: u64,
    #[serde(borrow, default)]
    delta: Option<said::Said<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    stop_reason: Option<&'a RawValue>,
}

impl Reader {
    /// Takes a chunk; steps come in order, with the counts known then.
    pub(in crate::dialects) fn feed(&mut self, bytes: &[u8], mut step: impl FnMut(Step<'_>, &Counts)) {
        let Self { framer, said } = self;
        if framer.feed(bytes, |data| said.event(data, &mut step)).is_err() {
            said.failed.get_or_insert_with(unusable);
        }
    }

    /// The engine closed the stream.
    pub(in crate::dialects) fn close(&mut self, mut step: impl FnMut(Step<'_>, &Counts)) {
        let Self { framer, said } = self;
        said.closing = true;
        framer.finish(|data| said.event(data, &mut step));
        said.done = true;
    }

    /// How it ended, once it has. `seed` makes the ids that the engine left out.
    pub(in crate::dialects) fn ending(&mut self, seed: &str) -> Option<Ending> {
        let said = &mut self.said;
        if let Some(problem) = said.failed.take() {
            return Some(Ending::Failed(problem));
        }
        if !said.done {
            return None;
        }
        let Some(finish) = said.finish.take() else { return Some(Ending::Cut) };
        let calls = std::mem::take(&mut said.calls).finish(seed);
        let settled = Answer { thinking: String::new(), text: String::new(), calls, finish, counts: said.counts }.settled();
        Some(Ending::Whole { calls: settled.calls, finish: settled.finish })
    }

    /// Whether a reason for the end came.
    pub(in crate::dialects) const fn has_finish(&self) -> bool {
        self.said.finish.is_some()
    }

    /// Whether the engine told of a fault.
    pub(in crate::dialects) const fn has_failed(&self) -> bool {
        self.said.failed.is_some()
    }

    /// The answer is ended here, as if it had come to its limit of tokens.
    pub(in crate::dialects) fn stop_short(&mut self) {
        self.said.finish.get_or_insert(Finish::Length);
        self.said.done = true;
    }

    /// What the answer used, as far as known.
    pub(in crate::dialects) const fn counts(&self) -> &Counts {
        &self.said.counts
    }
}

impl Said {
    fn event(&mut self, data: &[u8], step: &mut impl FnMut(Step<'_>, &Counts)) {
        if self.done || self.failed.is_some() || data.is_empty() {
            return;
        }
        if data == b"[DONE]" {
            self.done = true;
            return;
        }
        let Ok(chunk) = serde_json::from_slice::<Chunk<'_>>(data) else {
            if !self.closing {
                self.failed = Some(unusable());
            }
            return;
        };
        if chunk.error.is_some() || chunk.object.as_deref() == Some("error") {
            self.failed = Some(refusal::in_stream(data));
            return;
        }
        if let Some(usage) = chunk.usage {
            self.counts.update(usage);
        }
        if let Some(progress) = chunk.prompt_progress {
            self.counts.progress(progress);
        }
        if chunk.choices.is_none() && chunk.usage.is_none() && chunk.prompt_progress.is_none() {
            // No chunk at all: one engine sends the bare object of an error.
            self.failed = refusal::told(data);
        }
        for choice in chunk.choices.into_iter().flatten().filter(|c| c.index == 0) {
            self.choice(choice, step);
        }
    }

    fn choice(&mut self, choice: Choice<'_>, step: &mut impl FnMut(Step<'_>, &Counts)) {
        let counts = self.counts;
        if let Some(delta) = choice.delta {
            if let Some(text) = delta.reasoning_content.or(delta.reasoning).filter(|t| !t.is_empty()) {
                step(Step::Thinking(&text), &counts);
            }
            for text in [delta.content, delta.refusal].into_iter().flatten().filter(|t| !t.is_empty()) {
                step(Step::Text(&text), &counts);
            }
            for piece in delta.tool_calls.into_iter().flatten() {
                self.calls.add(piece);
                step(Step::Calling, &counts);
            }
        }
        if let Some(reason) = choice.finish_reason {
            match Finish::read(Some(&reason), choice.stop_reason) {
                Some(finish) => self.finish = Some(finish),
                None => {
                    let message = format!("The engine gave up on this answer ({reason}).");
                    self.failed = Some(Problem::new(ProblemKind::Upstream, message).hint("Try again."));
                }
            }
        }
    }
}
