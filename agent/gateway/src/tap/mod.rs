//! Taps: they watch an answer go by and note what it used, without changing or holding it up.
//!
//! In: the chunks of an engine's answer, cut anywhere. Out: the same bytes (a stream may lose the usage chunk its client did not ask
//! for), the usage, and whether the answer came to its end. Pure.

mod json;
mod last;
mod sse;
mod usage;

use std::collections::VecDeque;

use bytes::Bytes;
pub(crate) use json::JsonTap;
pub(crate) use sse::SseTap;
pub(crate) use usage::Usage;

use crate::runaway::Runaway;

/// The tap that fits the answer.
pub(crate) enum Tap {
    /// One JSON document, or anything else that is no event stream.
    Json(JsonTap),
    /// Server-sent events.
    Sse(SseTap),
}

impl Tap {
    /// Takes one chunk; what may go on to the client is added to `out`.
    pub(crate) fn feed(&mut self, chunk: Bytes, out: &mut VecDeque<Bytes>) {
        match self {
            Self::Json(tap) => {
                tap.watch(&chunk);
                out.push_back(chunk);
            }
            Self::Sse(tap) => tap.feed(&chunk, out),
        }
    }

    /// The engine closed the answer properly: lets go of what was held and says whether the answer is whole all the same.
    pub(crate) fn finish(&mut self, out: &mut VecDeque<Bytes>) -> End {
        match self {
            Self::Json(_) => End::Whole,
            Self::Sse(tap) => tap.finish(out),
        }
    }

    /// Ends a stream here, as if the answer had come to its limit of tokens; what was held of it is left out.
    pub(crate) fn cut_short(&mut self, how: Runaway, out: &mut VecDeque<Bytes>) {
        match self {
            Self::Json(_) => {}
            Self::Sse(tap) => tap.cut_short(how, out),
        }
    }

    /// Whether the end mark of a stream went by without an error before it.
    pub(crate) const fn reached_end(&self) -> bool {
        match self {
            Self::Json(_) => false,
            Self::Sse(tap) => tap.reached_end(),
        }
    }

    /// What the answer used, as far as the engine said.
    pub(crate) fn usage(&self) -> Usage {
        match self {
            Self::Json(tap) => tap.usage(),
            Self::Sse(tap) => tap.usage(),
        }
    }

    /// Whether an error can be told inside this answer.
    pub(crate) const fn is_stream(&self) -> bool {
        matches!(self, Self::Sse(_))
    }
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Complete.
    Whole,
    /// The engine told of an error inside the stream and then ended it properly.
    Failed,
    /// The stream ended before its end mark.
    Cut,
}
