//! A stream of chat chunks becomes a stream of another dialect.
//!
//! `Translation` reads the engine and lets the dialect's `Voice` say it. It makes sure of what every dialect needs: nothing is said
//! after the end, the end is said once, and an answer that the engine did not finish is told as a fault and never looks complete.

use warden_domain::{Problem, ProblemKind};

use super::chat::{
    answer::Finish,
    calls::MadeCall,
    stream::{Ending, Reader, Step},
    usage::Counts,
};

/// How a dialect says things. Each call adds whole events to `out`.
pub(super) trait Voice: Send + std::fmt::Debug {
    /// The model says something, or began a call.
    fn say(&mut self, step: Step<'_>, counts: &Counts, out: &mut Vec<u8>);
    /// All is said: what was open is closed, calls are told, and the end.
    fn end(&mut self, calls: &[MadeCall], finish: &Finish, counts: &Counts, out: &mut Vec<u8>);
    /// The answer will not be complete.
    fn fail(&mut self, problem: &Problem, counts: &Counts, out: &mut Vec<u8>);
    /// Something to keep the connection alive.
    fn keep_alive(&mut self, out: &mut Vec<u8>);
}

/// How a translated stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It goes on.
    Open,
    /// It was ended as it should be; the connection may be closed properly.
    Whole,
    /// It was ended with a fault; the connection must be cut, not closed.
    Failed,
}

/// See the module.
#[derive(Debug)]
pub struct Translation {
    reader: Reader,
    voice: Box<dyn Voice>,
    seed: String,
    standing: Standing,
    said: bool,
    fault: Option<Problem>,
}

impl Translation {
    pub(super) fn new(voice: Box<dyn Voice>, seed: &str) -> Self {
        Self { reader: Reader::default(), voice, seed: seed.to_owned(), standing: Standing::Open, said: false, fault: None }
    }

    /// Takes bytes of the engine; events for the client are added to `out`.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if self.standing != Standing::Open {
            return;
        }
        let Self { reader, voice, said, .. } = self;
        reader.feed(bytes, |step, counts| {
            *said = true;
            voice.say(step, counts, out);
        });
        self.settle(out);
    }

    /// The engine closed its stream. What it left open is ended as a fault.
    pub fn close(&mut self, out: &mut Vec<u8>) -> Standing {
        if self.standing == Standing::Open {
            let Self { reader, voice, said, .. } = self;
            reader.close(|step, counts| {
                *said = true;
                voice.say(step, counts, out);
            });
            self.settle(out);
        }
        self.standing
    }

    /// Ends the answer here, as if it had come to its limit of tokens.
    pub fn stop_short(&mut self, out: &mut Vec<u8>) {
        if self.standing == Standing::Open {
            self.reader.stop_short();
            self.settle(out);
        }
    }

    /// Ends the answer with a problem that was met here: the engine is gone or silent, the agent stops.
    pub fn fail(&mut self, problem: &Problem, out: &mut Vec<u8>) {
        if self.standing == Standing::Open {
            self.voice.fail(problem, self.reader.counts(), out);
            self.standing = Standing::Failed;
        }
    }

    /// What the engine failed with, when it did.
    #[must_use]
    pub const fn fault(&self) -> Option<&Problem> {
        self.fault.as_ref()
    }

    /// Whether a stream that ends now is cut.
    #[must_use]
    pub const fn is_unfinished(&self) -> bool {
        matches!(self.standing, Standing::Open) && !self.reader.has_finish()
    }

    /// Whether the client was told something of the answer itself.
    #[must_use]
    pub const fn has_said(&self) -> bool {
        self.said
    }

    /// Adds what keeps a silent connection alive: call it every 10 to 15 seconds without an event. Costs nothing after the end.
    pub fn keep_alive(&mut self, out: &mut Vec<u8>) {
        if self.standing == Standing::Open {
            self.voice.keep_alive(out);
        }
    }

    /// Begins with another engine, because the first one was lost.
    ///
    /// Returns false, and changes nothing, when the client has seen something of the answer already.
    pub fn restart(&mut self) -> bool {
        let fresh = !self.said && self.standing == Standing::Open;
        if fresh {
            self.reader = Reader::default();
        }
        fresh
    }

    /// How it stands.
    #[must_use]
    pub const fn standing(&self) -> Standing {
        self.standing
    }

    /// What the answer used, as far as the engine said.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        self.reader.counts()
    }

    fn settle(&mut self, out: &mut Vec<u8>) {
        let Some(ending) = self.reader.ending(&self.seed) else { return };
        let counts = *self.reader.counts();
        match ending {
            Ending::Whole { calls, finish } => {
                self.voice.end(&calls, &finish, &counts, out);
                self.standing = Standing::Whole;
            }
            Ending::Failed(problem) => self.give_up(problem, out),
            Ending::Cut => self.give_up(broke_off(), out),
        }
    }

    fn give_up(&mut self, problem: Problem, out: &mut Vec<u8>) {
        self.voice.fail(&problem, self.reader.counts(), out);
        self.standing = Standing::Failed;
        self.fault = Some(problem);
    }
}

fn broke_off() -> Problem {
    Problem::new(ProblemKind::Upstream, "The engine broke off; this answer is not complete.")
        .hint("Try again. If it happens again, the model's log in the console says why.")
}

/// Writes one event with its name.
pub(super) fn event(out: &mut Vec<u8>, name: &str, fill: impl FnOnce(&mut super::json::Object<'_>)) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\ndata: ");
    super::json::object(out, |o| {
        o.string("type", name);
        fill(o);
    });
    out.extend_from_slice(b"\n\n");
}
