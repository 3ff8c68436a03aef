//! The one owner of a request from admission to its end.
//!
//! It holds the seat in the in-flight table, the place in the ledger and what is known about the answer. Dropping it, for whatever
//! reason (the client left, a task was cancelled, a panic), frees the seat and charges exactly one `Finished`.

use std::time::Instant;

use jiff::Timestamp;
use warden_domain::{
    clock,
    ids::{KeyId, ModelId, RequestId},
    key::Caller,
    units::Millis,
    usage::{Finished, LedgerEntry, Outcome},
};

use crate::{flights::Seat, tap::Usage};

/// The status noted when the client left before one was sent.
const NONE_SENT: u16 = 499;

/// See the module.
pub(crate) struct Flight {
    entry: Option<Box<dyn LedgerEntry>>,
    _seat: Seat,
    request: RequestId,
    key: Option<KeyId>,
    model: ModelId,
    started_at: Timestamp,
    started: Instant,
    first_byte: Option<Millis>,
    usage: Usage,
    status: Option<u16>,
    outcome: Outcome,
}

impl Flight {
    /// Admits a request.
    pub(crate) fn new(entry: Box<dyn LedgerEntry>, seat: Seat, request: RequestId, caller: &Caller, model: ModelId) -> Self {
        Self {
            entry: Some(entry),
            _seat: seat,
            request,
            key: caller.key.clone(),
            model,
            started_at: clock::now(),
            started: Instant::now(),
            first_byte: None,
            usage: Usage::default(),
            status: None,
            outcome: Outcome::ClientGone,
        }
    }

    /// Moves to another replica, for a second try.
    pub(crate) fn change_seat(&mut self, seat: Seat) {
        self._seat = seat;
    }

    /// The id the answer carries.
    pub(crate) const fn request(&self) -> &RequestId {
        &self.request
    }

    /// Notes the status that is sent.
    pub(crate) const fn sent(&mut self, status: u16) {
        self.status = Some(status);
    }

    /// Notes the first byte of the answer's body; later ones change nothing.
    pub(crate) fn byte(&mut self) {
        if self.first_byte.is_none() {
            self.first_byte = Some(self.elapsed());
        }
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
        let finished = Finished {
            request: self.request.clone(),
            key: self.key.take(),
            model: self.model.clone(),
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
