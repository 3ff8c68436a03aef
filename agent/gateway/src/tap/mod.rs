//! Taps: they watch an answer go by, note what it used, and say it in the client's dialect.
//!
//! In: the chunks of an engine's answer, cut anywhere. Out: what goes on to the client (the same bytes where nothing is translated; a
//! stream may lose the usage chunk its client did not ask for), the usage, and whether the answer came to its end. Pure.

mod json;
mod last;
#[cfg(test)]
mod recorded;
mod sse;
mod usage;

use std::collections::VecDeque;

use bytes::Bytes;
pub(crate) use json::JsonTap;
pub(crate) use sse::SseTap;
pub(crate) use usage::Usage;
use warden_domain::Problem;

use crate::{
    dialects::{Standing, Translation, Whole, chat::pieces::Pieces, errors},
    faults,
    runaway::Runaway,
};

/// What keeps a silent chat stream alive.
const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// The tap that fits the answer.
pub(crate) enum Tap {
    /// One JSON document, or anything else that is no event stream.
    Json(JsonTap),
    /// Server-sent events that go through.
    Sse(SseTap),
    /// A stream that is told in another dialect.
    Told(Box<Translation>),
    /// An answer in one piece, collected until it is complete, and told in another dialect.
    Whole(Box<Whole>),
    /// A chat answer in one piece, put together from a stream. With what makes the ids that the engine left out.
    Pieces(Box<Pieces>, String),
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
            Self::Told(translation) => told(out, |said| translation.feed(&chunk, said)),
            Self::Whole(whole) => whole.feed(&chunk),
            Self::Pieces(pieces, _) => pieces.feed(&chunk),
        }
    }

    /// The engine closed the answer properly: lets go of what was held and says whether the answer is whole all the same.
    pub(crate) fn finish(&mut self, out: &mut VecDeque<Bytes>) -> End {
        match self {
            Self::Json(_) => End::Whole,
            Self::Sse(tap) => tap.finish(out),
            Self::Told(translation) => {
                told(out, |said| {
                    translation.close(said);
                });
                match (translation.standing(), translation.fault()) {
                    (Standing::Whole, _) => End::Whole,
                    (_, Some(problem)) => End::Failed(problem.clone()),
                    (_, None) => End::Failed(faults::broke_off()),
                }
            }
            Self::Whole(whole) => collected(whole.close(), out),
            Self::Pieces(pieces, seed) => collected(pieces.close(seed), out),
        }
    }

    /// Ends the answer here, as if it had come to its limit of tokens; what was held of it is left out.
    pub(crate) fn cut_short(&mut self, how: Runaway, out: &mut VecDeque<Bytes>) {
        match self {
            Self::Json(_) => {}
            Self::Sse(tap) => tap.cut_short(how, out),
            Self::Told(translation) => told(out, |said| translation.stop_short(said)),
            Self::Whole(whole) => out.extend(whole.stop_short().ok().map(Bytes::from)),
            Self::Pieces(pieces, seed) => out.extend(pieces.stop_short(seed, how.as_str()).ok().map(Bytes::from)),
        }
    }

    /// Whether the client has nothing of the answer, so that another engine may begin anew.
    pub(crate) fn is_untold(&self) -> bool {
        self.is_collected() || !self.has_begun()
    }

    /// Whether the client gets one piece that is made here, at the end.
    pub(crate) const fn is_collected(&self) -> bool {
        matches!(self, Self::Whole(_) | Self::Pieces(..))
    }

    /// Whether a stream that ends now is cut.
    pub(crate) fn is_unfinished(&self) -> bool {
        match self {
            Self::Json(_) => false,
            Self::Sse(tap) => !tap.reached_end() && tap.fault().is_none(),
            Self::Told(translation) => translation.is_unfinished(),
            Self::Whole(whole) => whole.is_unfinished(),
            Self::Pieces(pieces, _) => pieces.is_unfinished(),
        }
    }

    /// What the engine failed with inside a stream.
    pub(crate) const fn fault(&self) -> Option<&Problem> {
        match self {
            Self::Json(_) | Self::Whole(_) => None,
            Self::Pieces(pieces, _) => pieces.fault(),
            Self::Sse(tap) => tap.fault(),
            Self::Told(translation) => translation.fault(),
        }
    }

    /// Whether the end of a stream went by without an error before it.
    pub(crate) fn reached_end(&self) -> bool {
        match self {
            Self::Json(_) | Self::Whole(_) | Self::Pieces(..) => false,
            Self::Sse(tap) => tap.reached_end(),
            Self::Told(translation) => translation.standing() == Standing::Whole,
        }
    }

    /// Whether the model began to answer, as far as can be told.
    pub(crate) fn has_begun(&self) -> bool {
        match self {
            Self::Json(tap) => tap.has_begun(),
            Self::Sse(tap) => tap.has_begun(),
            Self::Told(translation) => translation.has_said(),
            Self::Whole(whole) => whole.has_begun(),
            Self::Pieces(pieces, _) => pieces.has_begun(),
        }
    }

    /// Another engine begins where this one was lost; false when the client has something of the answer already.
    pub(crate) fn restart(&mut self) -> bool {
        match self {
            Self::Json(tap) => !tap.has_begun(),
            Self::Sse(tap) => tap.restart(),
            Self::Told(translation) => translation.restart(),
            Self::Whole(_) => true,
            Self::Pieces(pieces, _) => {
                **pieces = Pieces::default();
                true
            }
        }
    }

    /// What the answer used, as far as the engine said.
    pub(crate) fn usage(&self) -> Usage {
        match self {
            Self::Json(tap) => tap.usage(),
            Self::Sse(tap) => tap.usage(),
            Self::Told(translation) => translation.counts().into(),
            Self::Whole(whole) => whole.counts().into(),
            Self::Pieces(pieces, _) => pieces.counts().into(),
        }
    }

    /// Whether the client is answered with a stream of events.
    pub(crate) const fn is_stream(&self) -> bool {
        matches!(self, Self::Sse(_) | Self::Told(_))
    }

    /// Adds what keeps a silent stream alive.
    pub(crate) fn keep_alive(&mut self, out: &mut VecDeque<Bytes>) {
        match self {
            Self::Json(_) | Self::Whole(_) | Self::Pieces(..) => {}
            Self::Sse(tap) if tap.is_inside_an_event() => {}
            Self::Sse(_) => out.push_back(Bytes::from_static(KEEP_ALIVE)),
            Self::Told(translation) => told(out, |said| translation.keep_alive(said)),
        }
    }

    /// Adds the event that tells of a problem, as the last one.
    pub(crate) fn fail(&mut self, problem: &Problem, out: &mut VecDeque<Bytes>) {
        match self {
            Self::Json(_) | Self::Whole(_) | Self::Pieces(..) => {}
            Self::Sse(_) => out.push_back(Bytes::from(errors::chat_event(problem))),
            Self::Told(translation) => told(out, |said| translation.fail(problem, said)),
        }
    }
}

/// An answer that was collected, or why there is none.
fn collected(answer: Result<Vec<u8>, Problem>, out: &mut VecDeque<Bytes>) -> End {
    match answer {
        Ok(body) => {
            out.push_back(Bytes::from(body));
            End::Whole
        }
        Err(problem) => End::Failed(problem),
    }
}

/// All that is said at once is one piece.
fn told(out: &mut VecDeque<Bytes>, say: impl FnOnce(&mut Vec<u8>)) {
    let mut said = Vec::new();
    say(&mut said);
    if !said.is_empty() {
        out.push_back(Bytes::from(said));
    }
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Complete.
    Whole,
    /// It is not complete, for this reason.
    Failed(Problem),
}
