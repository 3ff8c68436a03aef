//! The work of one request: waits for a place, asks an engine (twice at most), and carries the answer to the client.
//!
//! It owns everything the request holds, so that its end, however it comes, lets go of all of it. Three things end it early: the client
//! is gone, the agent stops, a fault. A fault is a plain status as long as nothing was sent; afterwards it is the last event of a stream,
//! and the connection is cut.

use std::{collections::VecDeque, sync::Arc};

use axum::http::HeaderValue;
use bytes::Bytes;
use warden_domain::{Problem, ProblemKind, ids::RequestId, key::Caller, units::Tokens, usage::Outcome};

use crate::{
    Gateway,
    body::HeldBody,
    demand,
    dialects::errors,
    faults,
    flight::Flight,
    line::{Gone, Head, Line},
    pass::{Ask, Pass},
    refusal,
    routes::Call,
    runaway::Guard,
    tap::Tap,
    wish::Wish,
};

/// What is to be done.
pub(crate) struct Job {
    /// The model named.
    pub model: String,
    /// What the request brings to the scheduler.
    pub ask: Ask,
    /// The body: the engine's, or still the client's.
    pub held: HeldBody,
}

/// See the module.
pub(crate) struct Errand {
    pub(super) gateway: Arc<Gateway>,
    pub(super) request: RequestId,
    pub(super) caller: Caller,
    pub(super) call: &'static Call,
    /// The kind of its body, where that is no JSON.
    pub(super) kind: Option<HeaderValue>,
    pub(super) line: Line,
    pub(super) tap: Tap,
    /// The engine's body, as long as one may be asked.
    pub(super) held: Option<HeldBody>,
    /// Once it is admitted.
    pub(super) flight: Option<Flight>,
    /// The engine gave all of its answer.
    pub(super) complete: bool,
    /// Looks whether a streamed answer runs away.
    pub(super) watch: Option<Watch>,
}

/// See `Errand::watch`.
pub(crate) struct Watch {
    /// Who looks.
    pub guard: Guard,
    /// Whether such an answer is ended.
    pub enforce: bool,
}

/// Why an errand ended before the answer was complete.
pub(crate) enum Stop {
    ClientGone,
    ShutDown,
    Failed(Problem, Outcome),
    /// The answer ran away and was ended; this is left to be said.
    RanAway(Box<(Option<Head>, VecDeque<Bytes>)>),
}

impl From<Gone> for Stop {
    fn from(_: Gone) -> Self {
        Self::ClientGone
    }
}

impl Stop {
    /// The fault of an engine, or of the way to it.
    pub(super) const fn engine(problem: Problem) -> Self {
        Self::Failed(problem, Outcome::EngineFailed)
    }
}

impl Errand {
    /// Does the job, until the end.
    pub(crate) async fn run(mut self, job: Job) {
        let result = {
            let (gone, stop) = (self.line.gone(), self.gateway.stop.clone());
            tokio::select! {
                biased;
                () = gone => Err(Stop::ClientGone),
                () = stop.cancelled() => Err(Stop::ShutDown),
                result = self.work(job) => result,
            }
        };
        // The engine is let go by now: whatever the client does next must not keep it busy.
        self.end(result).await;
    }

    async fn work(&mut self, job: Job) -> Result<Outcome, Stop> {
        let held = self.admitted(job).await?;
        self.held = Some(held);
        self.deliver().await
    }

    /// Brings the request to the scheduler, once its model answers.
    async fn admitted(&mut self, job: Job) -> Result<HeldBody, Stop> {
        let Job { model, mut ask, mut held } = job;
        let refused = |problem| Stop::Failed(problem, Outcome::Refused);
        if held.for_engine.is_none() {
            let answered = demand::answered(&self.gateway, &model, ask.patience);
            self.line.while_waiting(&mut self.tap, Head::stream, answered).await?.map_err(refused)?;
            let table = self.gateway.parts.serving.table();
            // Who has nothing for an engine must not reach the scheduler: the model may come up in just this moment.
            let served = table.models.get(&model).ok_or_else(|| refused(refusal::not_loaded(&model, &table)))?;
            let wish = Wish::read(self.call, self.kind.as_ref(), &held.bytes).map_err(refused)?;
            ask.streamed = wish.engine_streams(self.call, served.engine);
            if !wish.streams() {
                self.tap = wish.tap(self.call, &self.request, Some(served.engine)).map_err(refused)?;
            }
            let for_engine = wish.for_engine(self.call, &held.bytes, served).map_err(refused)?;
            drop(wish);
            held.readdress(for_engine);
        }
        let pass = Pass::enter(&self.gateway.places, &model, ask).map_err(|problem| refused(demand::gone(&self.gateway, &model, problem)))?;
        let entry = self.gateway.parts.ledger.open().ok_or_else(|| refused(faults::no_ledger()))?;
        self.flight = Some(Flight::new(entry, pass, self.request.clone(), &self.caller));
        Ok(held)
    }

    async fn end(mut self, result: Result<Outcome, Stop>) {
        match result {
            Ok(outcome) => {
                // Charged before the client sees the end: what it then reads about its usage is complete.
                self.land(outcome);
                self.line.end().await;
            }
            Err(Stop::ClientGone) => {}
            Err(Stop::ShutDown) if self.line.is_committed() => {
                let message = "The server is stopping; this answer is not complete.";
                let problem = Problem::new(ProblemKind::ShuttingDown, message).hint("Try again in a moment.");
                self.fail(&problem, Outcome::ShutDown).await;
            }
            Err(Stop::ShutDown) => self.fail(&Gateway::stopping(), Outcome::ShutDown).await,
            Err(Stop::RanAway(last)) => {
                let (mut head, mut out) = *last;
                if let Some(flight) = &mut self.flight {
                    flight.sent(200);
                }
                self.land(Outcome::CutShort);
                if self.pass_on(&mut head, &mut out).await.is_ok() {
                    self.line.end().await;
                }
            }
            Err(Stop::Failed(problem, outcome)) => self.fail(&problem, outcome).await,
        }
    }

    async fn fail(&mut self, problem: &Problem, outcome: Outcome) {
        if !self.line.is_committed() {
            if let Some(flight) = &mut self.flight {
                flight.sent(errors::status(self.call.dialect, problem.kind));
            }
            self.land(outcome);
            return self.line.refuse(problem.clone()).await;
        }
        self.land(outcome);
        let mut last = VecDeque::new();
        self.tap.fail(problem, &mut last);
        self.line.cut(last).await;
    }

    /// Ends the flight, if there is one.
    fn land(&mut self, outcome: Outcome) {
        if let Some(mut flight) = self.flight.take() {
            let mut usage = self.tap.usage();
            // A call that makes no answer tokens (embeddings): their number is known to be 0.
            if !self.call.streams && usage.prompt.is_some() && usage.completion.is_none() {
                usage.completion = Some(Tokens(0));
            }
            flight.used(usage);
            if self.line.is_committed() {
                flight.sent_if_unknown(200);
            }
            flight.end(outcome);
        }
    }

    /// Sends what there is, behind the head if that is still to come.
    pub(super) async fn pass_on(&mut self, head: &mut Option<Head>, out: &mut VecDeque<Bytes>) -> Result<(), Stop> {
        if out.is_empty() {
            return Ok(());
        }
        self.commit(head).await?;
        Ok(self.line.give(out).await?)
    }

    /// Sends the head if that is still to come.
    pub(super) async fn commit(&mut self, head: &mut Option<Head>) -> Result<(), Stop> {
        if self.line.is_committed() {
            return Ok(());
        }
        let head = head.take().unwrap_or_else(Head::stream);
        if let Some(flight) = &mut self.flight {
            flight.sent(head.status.as_u16());
        }
        Ok(self.line.commit(head).await?)
    }
}

/// The client is gone, whether the errand was told so or goes with the client's connection.
impl Drop for Errand {
    fn drop(&mut self) {
        // Clients hang up at the end mark; the engine had finished then.
        let whole = self.complete || self.tap.reached_end();
        self.land(if whole && !std::thread::panicking() { Outcome::Completed } else { Outcome::ClientGone });
    }
}
