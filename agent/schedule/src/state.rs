//! What is known of one model's requests, and the choice of a replica.

use std::{collections::HashMap, time::Duration};

use crate::{
    event::{Action, Arrival, Class, Moment, Refusal, Ticket},
    homes::Homes,
    pace::Pace,
    policy::{Bounds, Policy},
    queue::{Queue, Waiting},
    replicas::{Replica, Replicas},
};

/// When to try again while nothing is known about how long requests take.
const SOME_TIME: Duration = Duration::from_secs(5);

/// Where a ticket is.
#[derive(Clone, Debug)]
pub(crate) enum Stand {
    /// In the queue.
    Waits {
        /// Its class.
        class: Class,
    },
    /// On a replica.
    Runs {
        /// As it arrived.
        arrival: Arrival,
        /// The launch.
        run: u64,
        /// Since when.
        since: Moment,
        /// Its conversation was at home there before.
        stayed: bool,
    },
}

/// A ticket that is not over.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    /// Its turn in its class.
    pub(crate) turn: u64,
    /// Where it is.
    pub(crate) stand: Stand,
}

/// The scheduler's state for one model.
#[derive(Debug)]
pub struct State {
    pub(crate) policy: Policy,
    pub(crate) bounds: Bounds,
    pub(crate) replicas: Replicas,
    pub(crate) homes: Homes,
    pub(crate) queue: Queue,
    pub(crate) open: HashMap<Ticket, Open>,
    pub(crate) service: Pace,
    pub(crate) turns: u64,
    pub(crate) refused: u64,
    pub(crate) swept: Moment,
}

impl State {
    /// An empty state: no replica, nobody waits.
    #[must_use]
    pub fn new(policy: Policy, bounds: Bounds) -> Self {
        Self {
            policy,
            bounds,
            replicas: Replicas::default(),
            homes: Homes::default(),
            queue: Queue::default(),
            open: HashMap::new(),
            service: Pace::default(),
            turns: 0,
            refused: 0,
            swept: Moment::ZERO,
        }
    }

    /// Requests that are not over: those that wait and those that run.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// How many are served before this one, and when it is expected to start; `None` when it does not wait or nothing is known yet.
    #[must_use]
    pub fn position(&self, ticket: Ticket, now: Moment) -> Option<(usize, Option<Duration>)> {
        let open = self.open.get(&ticket)?;
        let Stand::Waits { class } = open.stand else { return None };
        let ahead = self.queue.ahead_of(class, open.turn).count();
        let waiting = self.queue.iter().find(|(turn, w)| *turn == open.turn && w.arrival.class == class).map(|(_, w)| w)?;
        Some((ahead, self.expected(waiting, open.turn, now)))
    }

    /// When one in the queue is expected to start.
    pub(crate) fn expected(&self, waiting: &Waiting, turn: u64, now: Moment) -> Option<Duration> {
        let ahead = self.queue.ahead_of(waiting.arrival.class, turn);
        // Only those before it that want the same home stand in its way.
        if let Some(home) = self.home(waiting, now) {
            let same = |w: &&Waiting| w.arrival.conversation.and_then(|c| self.homes.of(c)).is_none_or(|h| h.run == home.run);
            let at_home = self.service.start_behind(ahead.filter(same).count(), u64::from(home.places(&self.bounds)))?;
            let elsewhere = self.permitted(waiting, now).any(|r| r.has_room(&self.bounds));
            return Some(if elsewhere { at_home.min(self.stays(waiting).saturating_sub(now.saturating_sub(waiting.since))) } else { at_home });
        }
        self.service.start_behind(ahead.count(), self.places())
    }

    /// How long it waits for its home while another replica has room. Never so long that its patience ends over it.
    fn stays(&self, waiting: &Waiting) -> Duration {
        self.bounds.move_after.min(waiting.arrival.patience / 2)
    }

    /// The replicas it may run on now.
    fn permitted(&self, waiting: &Waiting, now: Moment) -> impl Iterator<Item = &Replica> {
        // A replica that nobody could reach a moment ago is better than one that just failed this very request, and that one than none.
        let avoid = waiting.avoid;
        let against = move |r: &Replica| (avoid == Some(r.run), r.is_suspect(now));
        let best = self.replicas.offered().map(against).min();
        self.replicas.offered().filter(move |r| Some(against(r)) == best)
    }

    /// The replica where its conversation is at home, if it may run there now.
    fn home(&self, waiting: &Waiting, now: Moment) -> Option<&Replica> {
        let home = waiting.arrival.conversation.and_then(|c| self.homes.of(c))?;
        self.permitted(waiting, now).find(|r| r.run == home.run)
    }

    /// Requests that may run at a time, on all replicas together.
    pub(crate) fn places(&self) -> u64 {
        self.replicas.offered().map(|r| u64::from(r.places(&self.bounds))).sum()
    }

    /// When somebody who is turned away may try again.
    pub(crate) fn retry_after(&self) -> Duration {
        self.service.start_behind(0, self.places()).unwrap_or(SOME_TIME).clamp(Duration::from_secs(1), Duration::from_secs(60))
    }

    pub(crate) fn refuse(&mut self, ticket: Ticket, why: Refusal, actions: &mut Vec<Action>) {
        self.open.remove(&ticket);
        self.refused += 1;
        actions.push(Action::Refuse { ticket, why });
    }

    /// The launch that this one is to run on now; `None`: it waits.
    pub(crate) fn choose(&self, waiting: &Waiting, now: Moment) -> Option<u64> {
        if let Some(home) = self.home(waiting, now) {
            if home.has_room(&self.bounds) {
                return Some(home.run);
            }
            if now.saturating_sub(waiting.since) < self.stays(waiting) {
                return None;
            }
        }
        let with_room = self.permitted(waiting, now).filter(|r| r.has_room(&self.bounds));
        match self.policy {
            Policy::Sticky => with_room.min_by_key(|r| self.burden(r, waiting.arrival.conversation.is_some())).map(|r| r.run),
        }
    }

    /// What speaks against a replica: for a conversation its homes first, for anything else what it has to do now.
    fn burden(&self, replica: &Replica, conversation: bool) -> (u64, u64) {
        let (homes, load) = (self.homes.live(replica.run), u64::from(replica.load()));
        if conversation { (homes, load) } else { (load, homes) }
    }
}
