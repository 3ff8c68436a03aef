//! The one owner of a request from admission to its end.
//!
//! It holds the ticket of the scheduler, the seat in the in-flight table, the place in the ledger and what is known about the answer.
//! Dropping it, for whatever reason (the client left, a task was cancelled, a panic), leaves the queue or frees the seat, and charges
//! exactly one `Finished`.

use std::{sync::Arc, time::Instant};

use jiff::Timestamp;
use warden_domain::{
    Problem, clock,
    ids::{KeyId, RequestId},
    key::Caller,
    replica::Replica,
    units::Millis,
    usage::{Finished, LedgerEntry, Outcome},
};

use warden_schedule::Return;

use crate::{flights::Seat, pass::Pass, runaway::Runaway, tap::Usage};

/// The status noted when the client left before one was sent.
const NONE_SENT: u16 = 499;

/// See the module.
pub(crate) struct Flight {
    entry: Option<Box<dyn LedgerEntry>>,
    pass: Pass,
    seat: Option<Seat>,
    request: RequestId,
    key: Option<KeyId>,
    started_at: Timestamp,
    started: Instant,
    first_byte: Option<Millis>,
    usage: Usage,
    status: Option<u16>,
    outcome: Outcome,
}

impl Flight {
    /// Admits a request.
    pub(crate) fn new(entry: Box<dyn LedgerEntry>, pass: Pass, request: RequestId, caller: &Caller) -> Self {
        Self {
            entry: Some(entry),
            pass,
            seat: None,
            request,
            key: caller.key.clone(),
            started_at: clock::now(),
            started: Instant::now(),
            first_byte: None,
            usage: Usage::default(),
            status: None,
            outcome: Outcome::ClientGone,
        }
    }

    /// Waits for a replica, and takes its seat there.
    pub(crate) async fn place(&mut self) -> Result<Arc<Replica>, Problem> {
        let (replica, seat) = self.pass.placed().await?;
        self.seat = Some(seat);
        Ok(replica)
    }

    /// It got no byte where it was: `place` finds it another replica.
    pub(crate) fn back(&mut self, why: Return) {
        self.seat = None;
        self.pass.back(why);
    }

    /// The model's name.
    pub(crate) fn model(&self) -> &str {
        self.pass.name()
    }

    /// Notes the status that is sent.
    pub(crate) const fn sent(&mut self, status: u16) {
        self.status = Some(status);
    }

    /// Notes the status of a head that was sent before anything was known.
    pub(crate) fn sent_if_unknown(&mut self, status: u16) {
        self.status.get_or_insert(status);
    }

    /// Notes the first byte of the answer's body; later ones change nothing.
    pub(crate) fn byte(&mut self) {
        if self.first_byte.is_none() {
            self.first_byte = Some(self.elapsed());
            self.pass.first_token();
        }
    }

    /// The answer is whole, and its last bytes are about to leave.
    pub(crate) fn answered(&mut self, usage: Usage) {
        self.pass.answered(usage);
    }

    /// Notes that the answer ran away.
    pub(crate) fn ran_away(&self, how: Runaway, ended: bool) {
        self.pass.ran_away();
        tracing::warn!(request = %self.request, model = %self.pass.model(), kind = how.as_str(), ended, "an answer ran away");
    }

    /// Notes what the answer used so far.
    pub(crate) const fn used(&mut self, usage: Usage) {
        self.usage = usage;
    }

    /// Ends the request in a known way.
    pub(crate) fn end(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }

    fn elapsed(&self) -> Millis {
        Millis(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let Some(entry) = self.entry.take() else { return };
        // An engine that answers in one piece is done with its first byte; while it streams, or works, it goes on until it is let go.
        let given_up = matches!(self.outcome, Outcome::ClientGone | Outcome::ShutDown | Outcome::CutShort);
        let was_done = self.first_byte.is_some() && !self.pass.streamed();
        if self.seat.is_some() && (!given_up || was_done) {
            self.pass.done(self.usage);
        }
        let finished = Finished {
            request: self.request.clone(),
            key: self.key.take(),
            model: self.pass.model().clone(),
            started_at: self.started_at,
            duration: self.elapsed(),
            first_byte: self.first_byte,
            prompt: self.usage.prompt,
            cached: self.usage.cached,
            completion: self.usage.completion,
            outcome: self.outcome,
            status: self.status.unwrap_or(NONE_SENT),
        };
        tracing::debug!(
            request = %finished.request, model = %finished.model, outcome = finished.outcome.as_str(), status = finished.status, ms = finished.duration.0,
            "request finished"
        );
        entry.finish(finished);
    }
}
