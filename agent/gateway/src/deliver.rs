//! The way of an admitted request to an engine and of the answer back: places, tries, refusals, pieces.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::http::{StatusCode, header, response::Parts};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use warden_domain::{Problem, ProblemKind, model::RunawayGuard, replica::Replica, usage::Outcome};
use warden_schedule::Return;

use crate::{
    alarm::{Alarm, Rang},
    demand,
    dialects::{Dialect, refusal},
    engine::{AnswerBody, SendFailure},
    errand::{Errand, Stop, Watch},
    faults,
    flight::Flight,
    headers,
    line::Head,
    runaway::{Guard, Limits, Runaway},
    tap::{End, JsonTap, SseTap, Tap},
};

/// Pause before a second try, in which an engine that just restarted gets its socket up.
const BREATH: Duration = Duration::from_millis(50);
/// Most of a refusal's body that is read to understand it.
const REFUSAL: usize = 64 * 1024;
/// Longest wait for a refusal's body.
const REFUSAL_TIME: Duration = Duration::from_secs(5);

/// How one try went.
enum Tried {
    /// The answer came to its end.
    Ended(Outcome),
    /// It was lost before the client had anything of the answer.
    Lost(SendFailure),
}

impl Errand {
    /// Asks an engine, and another one if the first was lost before the client had anything of the answer.
    pub(super) async fn deliver(&mut self) -> Result<Outcome, Stop> {
        let first = self.place().await?.map_err(|problem| Stop::Failed(demand::gone(&self.gateway, self.model(), problem), Outcome::TurnedAway))?;
        let started = Instant::now();
        let failure = match self.try_at(&first, Some(started)).await? {
            Tried::Ended(outcome) => return Ok(outcome),
            Tried::Lost(failure) => failure,
        };
        tracing::warn!(request = %self.request, replica = %first.id, %failure, "an engine did not take a request");
        let why = match failure {
            // One request may be the reason of a 500; the other two are said of the whole engine.
            SendFailure::Refused(500) => Return::Failed,
            SendFailure::Connect(_) | SendFailure::Refused(_) => Return::Unreachable,
            SendFailure::Closed(_) => Return::BrokeOff,
            SendFailure::Garbled(_) => return Err(Stop::engine(self.unreachable())),
        };
        if started.elapsed() > self.gateway.limits.retry_within || !self.tap.restart() {
            return Err(Stop::engine(self.unreachable()));
        }
        self.flight()?.back(why);
        let again = self.place().await?.map_err(|problem| match problem.kind {
            // For want of room it may come again, and is told when; anything else is the engine that was lost.
            ProblemKind::Overloaded => Stop::Failed(problem, Outcome::TurnedAway),
            _ => Stop::engine(self.unreachable()),
        })?;
        if again.id == first.id {
            tokio::time::sleep(BREATH).await;
        }
        match self.try_at(&again, None).await? {
            Tried::Ended(outcome) => Ok(outcome),
            Tried::Lost(failure) => {
                tracing::warn!(request = %self.request, replica = %again.id, %failure, "an engine did not take a request, for the second time");
                Err(Stop::engine(self.unreachable()))
            }
        }
    }

    /// Waits for a replica.
    async fn place(&mut self) -> Result<Result<Arc<Replica>, Problem>, Stop> {
        let Self { line, tap, flight, .. } = self;
        let Some(flight) = flight else { return Err(lost()) };
        let placed = line.while_waiting(tap, Head::stream, flight.place()).await?;
        // Counted first, asked again then: a drain that began in between either sees this flight or is seen here.
        self.gateway.refuse_when_stopping().map_err(|_| Stop::ShutDown)?;
        Ok(placed)
    }

    /// One try at one replica. `first`: when it began, if another try may follow.
    async fn try_at(&mut self, replica: &Replica, first: Option<Instant>) -> Result<Tried, Stop> {
        let limit = self.gateway.limits.head;
        let Some(body) = self.held.as_ref().and_then(|held| held.for_engine.clone()) else { return Err(lost()) };
        let post = self.gateway.engines.post(&replica.endpoint, self.call.upstream, &self.request, self.kind.as_ref(), body);
        let answer = self.line.while_waiting(&mut self.tap, Head::stream, tokio::time::timeout(limit, post)).await?;
        let (head, rest) = match answer {
            Err(_) => return Err(Stop::engine(faults::no_answer(limit))),
            Ok(Err(failure)) => return Ok(Tried::Lost(failure)),
            Ok(Ok(answer)) => answer.into_parts(),
        };
        // Nothing was forwarded yet. An engine that fails at once would otherwise look like the one with the least to do.
        let retried = first.is_some_and(|began| began.elapsed() <= self.gateway.limits.retry_within);
        if retried && fails(head.status) && self.has_another() {
            return Ok(Tried::Lost(SendFailure::Refused(head.status.as_u16())));
        }
        if head.status.as_u16() >= 400 {
            return self.refused(head, rest).await.map(Tried::Ended);
        }
        self.carry(replica, &head, rest).await
    }

    /// The engine answers with an error.
    async fn refused(&mut self, head: Parts, rest: AnswerBody) -> Result<Outcome, Stop> {
        let status = head.status.as_u16();
        // llama.cpp has the path for every model, and says 501 for one that was not started for it.
        let may_lack = self.call.optional || self.call.path == "/v1/embeddings";
        if may_lack && matches!(status, 404 | 405 | 501) {
            return Err(Stop::Failed(faults::not_offered(self.model(), self.call.path), Outcome::Refused));
        }
        let words = match tokio::time::timeout(REFUSAL_TIME, Limited::new(rest, REFUSAL).collect()).await {
            Ok(Ok(words)) => words.to_bytes(),
            _ => Bytes::new(),
        };
        let outcome = if status < 500 { Outcome::Refused } else { Outcome::EngineFailed };
        if status == 503 {
            return Err(Stop::Failed(faults::busy(self.model(), &words), outcome));
        }
        let problem = refusal::problem(status, &words);
        // Engines speak chat: their own words are what a chat client knows, but for those that only we can put right.
        let ours = matches!(problem.kind, ProblemKind::ContextExceeded | ProblemKind::Overloaded) || matches!(status, 401 | 403 | 422);
        if ours || words.is_empty() || self.call.dialect != Dialect::Chat || self.line.is_committed() {
            return Err(Stop::Failed(problem, outcome));
        }
        let length = words.len() as u64;
        self.complete = true;
        let mut head = Some(Head { status: head.status, headers: headers::onward(&head.headers, true), length: Some(length) });
        self.pass_on(&mut head, &mut VecDeque::from([words])).await?;
        Ok(outcome)
    }

    /// Carries the answer until the engine is done with it.
    async fn carry(&mut self, replica: &Replica, head: &Parts, mut rest: AnswerBody) -> Result<Tried, Stop> {
        let streamed =
            head.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).is_some_and(|v| v.trim_start().starts_with("text/event-stream"));
        let length = http_body::Body::size_hint(&rest).exact().filter(|_| !streamed);
        let mut head = self.begin(head, streamed, length)?;
        let (mut silence, begun) = (Alarm::new(self.gateway.limits.engine_pause), Instant::now());
        let (mut out, mut carried) = (VecDeque::new(), 0u64);
        let passes_through = matches!(self.tap, Tap::Json(_));
        // A body whose length was announced is complete with its last byte: the server then drops it without asking for its end.
        while !(passes_through && length == Some(carried)) {
            let frame = self.line.while_waiting(&mut self.tap, Head::stream, silence.limit(rest.frame())).await?;
            match frame {
                // A long prompt may take any time before its first word. Whether an engine that says it is at work gets on is the watchdog's
                // to judge: one that does not is ended, and its connection with it.
                Err(Rang) if !self.tap.has_begun() && self.is_at_work(replica) && begun.elapsed() < self.gateway.limits.head => {}
                Err(Rang) => return Err(Stop::engine(faults::silent(self.gateway.limits.engine_pause))),
                Ok(Some(Ok(frame))) => {
                    let Ok(data) = frame.into_data() else { continue };
                    carried += data.len() as u64;
                    let ran_away = self.watch.as_mut().and_then(|watch| watch.guard.watch(&data));
                    self.take(data, &mut out, passes_through && length == Some(carried))?;
                    if let Some(how) = ran_away.filter(|how| self.is_to_be_ended(*how)) {
                        return Err(self.cut_short(how, head, out));
                    }
                    self.stop_at_fault(&mut head, &mut out).await?;
                    self.pass_on(&mut head, &mut out).await?;
                }
                Ok(Some(Err(cause))) if self.tap.is_untold() => return Ok(Tried::Lost(SendFailure::Closed(cause.to_string()))),
                Ok(Some(Err(cause))) => {
                    tracing::warn!(request = %self.request, %cause, "an engine broke off in the middle of an answer");
                    return Err(Stop::engine(faults::broke_off()));
                }
                Ok(None) if self.tap.is_untold() && self.tap.is_unfinished() => {
                    return Ok(Tried::Lost(SendFailure::Closed("the answer has no end".to_owned())));
                }
                Ok(None) => break,
            }
        }
        self.complete(head, out).await
    }

    /// Notes that the answer runs away, and says whether it is to be ended. One that is over already is not.
    fn is_to_be_ended(&self, how: Runaway) -> bool {
        let ended = self.watch.as_ref().is_some_and(|watch| watch.enforce) && !self.tap.reached_end() && self.tap.fault().is_none();
        if let Some(flight) = &self.flight {
            flight.ran_away(how, ended);
        }
        ended
    }

    /// Ends the answer as if it had come to its limit of tokens.
    fn cut_short(&mut self, how: Runaway, mut head: Option<Head>, mut out: VecDeque<Bytes>) -> Stop {
        self.tap.cut_short(how, &mut out);
        if let Some(body) = out.front().filter(|_| self.tap.is_collected()) {
            head = Some(Head::document(body.len() as u64));
        }
        Stop::RanAway(Box::new((head, out)))
    }

    /// Readies tap and head for the answer that begins.
    fn begin(&mut self, head: &Parts, streamed: bool, length: Option<u64>) -> Result<Option<Head>, Stop> {
        let rule = self.gateway.parts.serving.table().models.get(self.model()).map_or_else(RunawayGuard::default, |model| model.runaway);
        let watches = streamed && rule != RunawayGuard::Off;
        self.watch = watches.then(|| Watch { guard: Guard::new(Limits::default()), enforce: rule == RunawayGuard::Enforce });
        match &mut self.tap {
            Tap::Whole(whole) => {
                whole.begin(streamed);
                return Ok(None);
            }
            Tap::Pieces(..) if streamed => return Ok(None),
            Tap::Pieces(..) => self.tap = Tap::Json(JsonTap::default()),
            Tap::Told(_) if streamed => return Ok(Some(Head::stream())),
            Tap::Told(_) => return Err(Stop::engine(faults::unusable())),
            Tap::Sse(_) if !streamed && self.line.is_committed() => return Err(Stop::engine(faults::unusable())),
            Tap::Sse(_) if !streamed => self.tap = Tap::Json(JsonTap::default()),
            Tap::Json(_) if streamed => self.tap = Tap::Sse(SseTap::new(false)),
            Tap::Sse(_) | Tap::Json(_) => {}
        }
        let onward = Head { status: head.status, headers: headers::onward(&head.headers, length.is_some()), length };
        Ok(Some(if streamed { onward.never_stored() } else { onward }))
    }

    /// One piece of the answer.
    fn take(&mut self, data: Bytes, out: &mut VecDeque<Bytes>, last: bool) -> Result<(), Stop> {
        if data.is_empty() {
            return Ok(());
        }
        let Self { tap, flight, complete, held, .. } = self;
        let Some(flight) = flight else { return Err(lost()) };
        tap.feed(data, out);
        *complete |= last;
        if tap.has_begun() {
            flight.byte();
        }
        if !tap.is_untold() {
            // Nobody else is asked any more, so a long stream does not hold its request.
            *held = None;
        }
        // Told before the client has the end: its next turn may come before this task runs again.
        if last || tap.reached_end() {
            flight.answered(tap.usage());
        }
        Ok(())
    }

    /// The engine closed its answer properly.
    async fn complete(&mut self, mut head: Option<Head>, mut out: VecDeque<Bytes>) -> Result<Tried, Stop> {
        let end = self.tap.finish(&mut out);
        if let End::Failed(problem) = end {
            self.stop_at_fault(&mut head, &mut out).await?;
            return Err(Stop::engine(problem));
        }
        if let Some(body) = out.front().filter(|_| self.tap.is_collected()) {
            head = Some(Head::document(body.len() as u64));
            let usage = self.tap.usage();
            self.flight()?.answered(usage);
        }
        // What comes now can only be lost on the way to the client.
        self.complete = true;
        self.pass_on(&mut head, &mut out).await?;
        self.commit(&mut head).await?;
        Ok(Tried::Ended(Outcome::Completed))
    }

    /// An engine that fails inside its stream: what it said before goes on, then it ends. A stream that begins with a fault is a plain
    /// status, while that can be.
    async fn stop_at_fault(&mut self, head: &mut Option<Head>, out: &mut VecDeque<Bytes>) -> Result<(), Stop> {
        let Some(problem) = self.tap.fault().cloned() else { return Ok(()) };
        if self.line.is_committed() || self.tap.has_begun() {
            self.pass_on(head, out).await?;
        }
        Err(Stop::engine(problem))
    }

    /// Whether a replica says by its own figures that it has requests.
    fn is_at_work(&self, replica: &Replica) -> bool {
        let figures = self.gateway.parts.serving.samples();
        let told = figures.get(&replica.id).filter(|told| told.launch == replica.launch);
        told.is_some_and(|told| told.sample.running.unwrap_or(0) > 0 || told.sample.waiting.unwrap_or(0) > 0)
    }

    /// Whether another replica of the model answers.
    fn has_another(&self) -> bool {
        self.gateway.parts.serving.table().models.get(self.model()).is_some_and(|model| model.replicas.len() > 1)
    }

    fn flight(&mut self) -> Result<&mut Flight, Stop> {
        self.flight.as_mut().ok_or_else(lost)
    }

    fn model(&self) -> &str {
        self.flight.as_ref().map_or("", Flight::model)
    }

    fn unreachable(&self) -> Problem {
        faults::unreachable(self.model())
    }
}

/// An errand without a flight delivers nothing; it is a fault of ours.
fn lost() -> Stop {
    Stop::engine(Problem::internal("The request was lost on its way.").hint("Try again."))
}

/// Whether it is the engine that fails, and not the request.
const fn fails(status: StatusCode) -> bool {
    matches!(status, StatusCode::INTERNAL_SERVER_ERROR | StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE)
}
