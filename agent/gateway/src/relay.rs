//! Carries an engine's answer to the client, piece by piece, and ends the flight in the right way.
//!
//! One task per answer reads the engine and fills a short channel; the answer's body drains it. So the engine is let go the moment
//! the client is gone, a client that stops reading is noticed, and an answer that ends badly never looks complete: a stream gets an
//! error event, and then the connection is cut instead of closed.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use warden_domain::{Problem, ProblemKind, units::Tokens, usage::Outcome};

use crate::{
    errors,
    flight::Flight,
    runaway::{Guard, Runaway},
    tap::{End, Tap},
};

/// Pieces that may wait for the client.
const AHEAD: usize = 8;
/// Time for the last event to leave before the connection is cut behind it.
const LAST_WORDS: Duration = Duration::from_millis(50);

enum Piece {
    Data(Bytes),
    End,
}

/// The body of an answer. It ends cleanly only after the relay said so.
pub(crate) struct RelayBody {
    pieces: mpsc::Receiver<Piece>,
    length: Option<u64>,
    ended: bool,
}

impl http_body::Body for RelayBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        match ready!(self.pieces.poll_recv(cx)) {
            Some(Piece::Data(bytes)) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Some(Piece::End) => {
                self.ended = true;
                Poll::Ready(None)
            }
            None => {
                self.ended = true;
                Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the answer broke off"))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.length.map_or_else(http_body::SizeHint::default, http_body::SizeHint::with_exact)
    }
}

/// What the relay needs besides the answer itself.
pub(crate) struct RelayTerms {
    /// Longest pause of the engine.
    pub engine_pause: Duration,
    /// Longest pause of the client.
    pub client_pause: Duration,
    /// Fires when the agent ends what is still running.
    pub stop: CancellationToken,
    /// How the request ends when the engine's answer is whole.
    pub outcome: Outcome,
    /// The call makes no answer tokens (embeddings), so their number is known to be 0.
    pub no_completion: bool,
    /// Exact length of the answer, if it is known.
    pub length: Option<u64>,
    /// Looks whether the answer runs away.
    pub guard: Option<Guard>,
    /// One that does is ended.
    pub enforce: bool,
}

/// An engine's answer whose first bytes were waited for.
pub(crate) struct Upstream {
    /// They; `None`: there are none.
    pub first: Option<Bytes>,
    /// What follows.
    pub rest: Incoming,
}

impl Upstream {
    /// How long the whole body is, when it was announced.
    pub(crate) fn length(&self) -> Option<u64> {
        let rest = http_body::Body::size_hint(&self.rest).exact()?;
        Some(rest + self.first.as_ref().map_or(0, |first| first.len() as u64))
    }
}

/// Waits for the first bytes of a body; `None`: it has none.
pub(crate) async fn first_bytes(body: &mut Incoming) -> Result<Option<Bytes>, hyper::Error> {
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame?.into_data().ok().filter(|data| !data.is_empty()) {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// The engine stopped saying anything.
pub(crate) fn silent(pause: Duration) -> Problem {
    Problem::new(ProblemKind::UpstreamTimeout, format!("The engine sent nothing for {} s.", pause.as_secs()))
        .hint("The model may be stuck; unload and load it in the console.")
}

/// Starts carrying; the body is what the client gets.
pub(crate) fn start(flight: Flight, upstream: Upstream, tap: Tap, terms: RelayTerms) -> RelayBody {
    let (to_client, pieces) = mpsc::channel(AHEAD);
    let length = terms.length;
    tokio::spawn(Relay { flight, upstream, tap, terms, to_client }.run());
    RelayBody { pieces, length, ended: false }
}

struct Relay {
    flight: Flight,
    upstream: Upstream,
    tap: Tap,
    terms: RelayTerms,
    to_client: mpsc::Sender<Piece>,
}

/// Why carrying stopped before the engine was done.
enum Stop {
    ClientGone,
    ShutDown,
    Engine(Problem),
    /// The answer ran away; this is left to be said.
    RanAway(Runaway, VecDeque<Bytes>),
}

impl Relay {
    async fn run(mut self) {
        let result = self.carry().await;
        let mut usage = self.tap.usage();
        if self.terms.no_completion && usage.prompt.is_some() && usage.completion.is_none() {
            usage.completion = Some(Tokens(0));
        }
        self.flight.used(usage);
        let (outcome, last) = match result {
            Ok(outcome) => {
                // Charged before the client sees the end: what it then reads about its usage is complete.
                self.flight.end(outcome);
                let _ = tokio::time::timeout(self.terms.client_pause, self.to_client.send(Piece::End)).await;
                return;
            }
            // Clients hang up at the end mark; the engine had finished then.
            Err(Stop::ClientGone) if self.tap.reached_end() => (self.terms.outcome, None),
            Err(Stop::ClientGone) => (Outcome::ClientGone, None),
            Err(Stop::ShutDown) => {
                let problem =
                    Problem::new(ProblemKind::ShuttingDown, "The server is stopping; this answer is not complete.").hint("Try again in a moment.");
                (Outcome::ShutDown, Some(problem))
            }
            Err(Stop::Engine(problem)) => (Outcome::EngineFailed, Some(problem)),
            Err(Stop::RanAway(how, mut out)) => {
                drop(self.upstream);
                self.tap.cut_short(how, &mut out);
                self.flight.end(Outcome::CutShort);
                for piece in out.into_iter().map(Piece::Data).chain([Piece::End]) {
                    if !matches!(tokio::time::timeout(self.terms.client_pause, self.to_client.send(piece)).await, Ok(Ok(()))) {
                        return;
                    }
                }
                return;
            }
        };
        // The engine is let go first: whatever the client does now must not keep it busy.
        drop(self.upstream);
        self.flight.end(outcome);
        if let Some(problem) = last.filter(|_| self.tap.is_stream()) {
            let sent = tokio::time::timeout(self.terms.client_pause, self.to_client.send(Piece::Data(errors::event(&problem)))).await;
            if matches!(sent, Ok(Ok(()))) {
                tokio::time::sleep(LAST_WORDS).await;
            }
        }
    }

    /// Carries until the engine is done, and says how the request ended then.
    async fn carry(&mut self) -> Result<Outcome, Stop> {
        let (mut out, mut carried) = (VecDeque::new(), 0u64);
        // A body whose length was announced is complete with its last byte: the server then drops it without asking for its end.
        while self.terms.length != Some(carried) {
            if let Some(data) = self.upstream.first.take() {
                self.take(data, &mut carried, &mut out).await?;
                continue;
            }
            let frame = tokio::select! {
                biased;
                () = self.to_client.closed() => return Err(Stop::ClientGone),
                () = self.terms.stop.cancelled() => return Err(Stop::ShutDown),
                frame = tokio::time::timeout(self.terms.engine_pause, self.upstream.rest.frame()) => frame,
            };
            match frame {
                Err(_) => {
                    return Err(Stop::Engine(silent(self.terms.engine_pause)));
                }
                Ok(Some(Ok(frame))) => {
                    let Ok(data) = frame.into_data() else { continue };
                    self.take(data, &mut carried, &mut out).await?;
                }
                Ok(Some(Err(cause))) => {
                    tracing::warn!(request = %self.flight.request(), %cause, "an engine broke off in the middle of an answer");
                    return Err(Stop::Engine(broke_off()));
                }
                Ok(None) => break,
            }
        }
        self.complete(&mut out).await
    }

    /// One piece of the answer.
    async fn take(&mut self, data: Bytes, carried: &mut u64, out: &mut VecDeque<Bytes>) -> Result<(), Stop> {
        if data.is_empty() {
            return Ok(());
        }
        self.flight.byte();
        *carried += data.len() as u64;
        let ran_away = self.terms.guard.as_mut().and_then(|guard| guard.watch(&data));
        self.tap.feed(data, out);
        if let Some(how) = ran_away {
            // An answer that says that it is over, or is in one piece, has nothing left to be ended.
            let ended = self.terms.enforce && self.tap.is_stream() && !self.tap.reached_end();
            self.flight.ran_away(how, ended);
            if ended {
                return Err(Stop::RanAway(how, std::mem::take(out)));
            }
        }
        // Told before the client has the end: its next turn may come before this task runs again.
        if self.tap.reached_end() || self.terms.length == Some(*carried) {
            self.flight.answered(self.tap.usage());
        }
        self.pass_on(out).await
    }

    /// The engine closed its answer properly.
    async fn complete(&mut self, out: &mut VecDeque<Bytes>) -> Result<Outcome, Stop> {
        let end = self.tap.finish(out);
        self.pass_on(out).await?;
        match end {
            End::Whole => Ok(self.terms.outcome),
            End::Failed => Ok(Outcome::EngineFailed),
            End::Cut => Err(Stop::Engine(broke_off())),
        }
    }

    async fn pass_on(&mut self, out: &mut VecDeque<Bytes>) -> Result<(), Stop> {
        for bytes in out.drain(..) {
            tokio::select! {
                biased;
                sent = tokio::time::timeout(self.terms.client_pause, self.to_client.send(Piece::Data(bytes))) => match sent {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return Err(Stop::ClientGone),
                    Err(_) => {
                        tracing::info!(request = %self.flight.request(), "a client stopped reading its answer and was given up");
                        return Err(Stop::ClientGone);
                    }
                },
                () = self.terms.stop.cancelled() => return Err(Stop::ShutDown),
            }
        }
        Ok(())
    }
}

fn broke_off() -> Problem {
    Problem::new(ProblemKind::Upstream, "The engine broke off; this answer is not complete.")
        .hint("Try again. If it happens again, the model's log in the console says why.")
}
