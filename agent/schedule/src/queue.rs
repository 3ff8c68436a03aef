//! Who waits: by class, and inside a class by arrival.

use std::{collections::BTreeMap, time::Duration};

use crate::event::{Arrival, Class, Moment, Ticket};

/// One who waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    /// As it arrived.
    pub(crate) arrival: Arrival,
    /// When.
    pub(crate) since: Moment,
    /// When it gives up.
    pub(crate) until: Moment,
    /// A launch that failed it: `(replica, launch)` as numbered by the replicas.
    pub(crate) avoid: Option<u64>,
}

/// The queue of one model.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    // Keyed by (class, ticket's turn): iteration is the order of service.
    order: BTreeMap<(Class, u64), Waiting>,
}

impl Queue {
    /// Puts one in; `turn` grows with arrivals and is kept when it comes back.
    pub(crate) fn put(&mut self, turn: u64, waiting: Waiting) {
        self.order.insert((waiting.arrival.class, turn), waiting);
    }

    /// Takes one out.
    pub(crate) fn take(&mut self, class: Class, turn: u64) -> Option<Waiting> {
        self.order.remove(&(class, turn))
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// In the order of service.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Waiting)> {
        self.order.iter().map(|((_, turn), waiting)| (*turn, waiting))
    }

    /// Those before this one.
    pub(crate) fn ahead_of(&self, class: Class, turn: u64) -> impl Iterator<Item = &Waiting> {
        self.order.range(..(class, turn)).map(|(_, waiting)| waiting)
    }

    /// The one that would be served last.
    pub(crate) fn last(&self) -> Option<(u64, &Waiting)> {
        self.order.last_key_value().map(|((_, turn), waiting)| (*turn, waiting))
    }

    /// Those whose patience is over.
    pub(crate) fn over(&self, now: Moment) -> Vec<(u64, Ticket, Class)> {
        self.iter().filter(|(_, w)| w.until <= now).map(|(turn, w)| (turn, w.arrival.ticket, w.arrival.class)).collect()
    }

    /// How long the one who waits longest has waited.
    pub(crate) fn longest(&self, now: Moment) -> Option<Duration> {
        self.order.values().map(|w| now.saturating_sub(w.since)).max()
    }
}
