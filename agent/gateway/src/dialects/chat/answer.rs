//! A chat answer that came whole, and what every answer ends with.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use warden_domain::{Problem, ProblemKind};

use super::{
    calls::{Calls, MadeCall},
    said::{Said, Text},
    usage::Counts,
};
use crate::dialects::refusal;

/// Why the model stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::dialects) enum Finish {
    /// It was done.
    Stop,
    /// It came to a text at which it was to stop, if the engine says which.
    StopSequence(String),
    /// It came to its limit.
    Length,
    /// It wants tools.
    Calls,
    /// It was made to stop for what it said.
    Filtered,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::dialects) struct Answer {
    pub thinking: String,
    pub text: String,
    pub calls: Vec<MadeCall>,
    pub finish: Finish,
    pub counts: Counts,
}

#[derive(Deserialize)]
struct Whole<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: u64,
    #[serde(borrow, default)]
    message: Option<Said<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    stop_reason: Option<&'a RawValue>,
}

impl Answer {
    /// Reads an engine's answer. `seed` makes the ids that the engine left out.
    ///
    /// # Errors
    /// When it is no answer, or one without an end.
    pub(in crate::dialects) fn read(body: &[u8], seed: &str) -> Result<Self, Problem> {
        let whole: Whole<'_> = serde_json::from_slice(body).map_err(|_| unusable())?;
        if whole.error.is_some() {
            return Err(refusal::problem(500, body));
        }
        let choice = whole.choices.into_iter().flatten().find(|c| c.index == 0).ok_or_else(unusable)?;
        let said = choice.message.ok_or_else(unusable)?;
        let mut counts = Counts::default();
        if let Some(usage) = whole.usage {
            counts.update(usage);
        }
        let mut calls = Calls::default();
        said.tool_calls.into_iter().flatten().for_each(|piece| calls.add(piece));
        let finish = Finish::read(choice.finish_reason.as_deref(), choice.stop_reason).ok_or_else(unusable)?;
        let thinking = said.reasoning_content.or(said.reasoning).map(Text::into_owned).unwrap_or_default();
        let text = said.content.filter(|text| !text.is_empty()).or(said.refusal).map(Text::into_owned).unwrap_or_default();
        Ok(Self { thinking, text, calls: calls.finish(seed), finish, counts }.settled())
    }

    /// With an end that fits: calls that were made are what it stopped for.
    pub(in crate::dialects) fn settled(mut self) -> Self {
        match (&self.finish, self.calls.is_empty()) {
            (Finish::Stop, false) => self.finish = Finish::Calls,
            (Finish::Calls, true) => self.finish = Finish::Stop,
            _ => {}
        }
        self
    }
}

impl Finish {
    /// Reads it; a word nobody knows is a plain end, and none is none.
    pub(in crate::dialects) fn read(reason: Option<&str>, matched: Option<&RawValue>) -> Option<Self> {
        Some(match reason? {
            "length" => Self::Length,
            "tool_calls" | "function_call" => Self::Calls,
            "content_filter" => Self::Filtered,
            reason if reason.starts_with("runaway_") => Self::Length,
            // An engine that gave up says so here.
            "abort" | "error" => return None,
            _ => match matched.and_then(|m| serde_json::from_str::<String>(m.get()).ok()) {
                Some(text) => Self::StopSequence(text),
                None => Self::Stop,
            },
        })
    }
}

/// The engine's answer cannot be used.
pub(in crate::dialects) fn unusable() -> Problem {
    Problem::new(ProblemKind::Upstream, "The engine sent an answer that cannot be read.")
        .hint("Try again. If it happens again, the model's log in the console says more.")
}
