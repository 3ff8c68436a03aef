//! Where conversations are at home. Bounded: the ones that were silent longest go first.

use std::{
    collections::{BTreeSet, HashMap, hash_map::Entry},
    time::Duration,
};

use crate::event::{ConversationId, Moment};

/// One home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    /// The launch it is on, as numbered by the replicas.
    pub(crate) run: u64,
    /// Last use.
    pub(crate) used: Moment,
    /// Requests of it that run.
    pub(crate) busy: u32,
}

/// How many homes a launch has.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    all: u64,
    /// Those that count for the balance.
    live: u64,
}

/// All homes of one model. What is asked for with every request is counted with every change, never by going over all of them.
#[derive(Debug, Default)]
pub(crate) struct Homes {
    all: HashMap<ConversationId, Home>,
    runs: HashMap<u64, Tally>,
    /// Those without a request that still count for the balance, by their last use.
    resting: BTreeSet<(Moment, ConversationId)>,
}

impl Homes {
    pub(crate) fn of(&self, conversation: ConversationId) -> Option<Home> {
        self.all.get(&conversation).copied()
    }

    /// Time goes on: homes that were silent for `live` count for the balance no more.
    pub(crate) fn advance(&mut self, now: Moment, live: Duration) {
        while let Some((used, conversation)) = self.resting.first().copied()
            && now.saturating_sub(used) >= live
        {
            self.resting.pop_first();
            if let Some(tally) = self.all.get(&conversation).and_then(|home| self.runs.get_mut(&home.run)) {
                tally.live -= 1;
            }
        }
    }

    /// Notes a request of it on its way to `run`; what was its home before is no more.
    pub(crate) fn settle(&mut self, conversation: ConversationId, run: u64, now: Moment, most: usize) {
        if self.all.len() >= most && !self.all.contains_key(&conversation) {
            self.make_room(most);
        }
        let busy = self.take(conversation).map_or(0, |home| home.busy);
        self.put(conversation, Home { run, used: now, busy: busy + 1 });
    }

    /// Notes that a request of it ended.
    pub(crate) fn rest(&mut self, conversation: ConversationId, now: Moment) {
        if let Some(home) = self.take(conversation) {
            self.put(conversation, Home { used: now, busy: home.busy.saturating_sub(1), ..home });
        }
    }

    /// Takes a request back that got no byte. `stayed`: its conversation was at home there before; a home that it had just been given is
    /// none, since nothing is held there, and would count for the balance.
    pub(crate) fn unsettle(&mut self, conversation: ConversationId, stayed: bool) {
        if let Some(home) = self.take(conversation).filter(|home| stayed || home.busy > 1) {
            self.put(conversation, Home { busy: home.busy.saturating_sub(1), ..home });
        }
    }

    pub(crate) fn forget(&mut self, conversation: ConversationId) {
        self.take(conversation);
    }

    /// Conversations that count for the balance, by launch.
    pub(crate) fn live(&self, run: u64) -> u64 {
        self.runs.get(&run).map_or(0, |tally| tally.live)
    }

    /// All homes on a launch.
    pub(crate) fn on(&self, run: u64) -> u64 {
        self.runs.get(&run).map_or(0, |tally| tally.all)
    }

    pub(crate) fn forget_idle(&mut self, now: Moment, idle: Duration) {
        let gone = |home: &Home| home.busy == 0 && now.saturating_sub(home.used) >= idle;
        let gone: Vec<ConversationId> = self.all.iter().filter(|(_, home)| gone(home)).map(|(id, _)| *id).collect();
        for conversation in gone {
            self.take(conversation);
        }
    }

    fn make_room(&mut self, most: usize) {
        let mut idle: Vec<(Moment, ConversationId)> = self.all.iter().filter(|(_, h)| h.busy == 0).map(|(c, h)| (h.used, *c)).collect();
        idle.sort_unstable();
        for (_, conversation) in idle.into_iter().take((most / 4).max(1)) {
            self.take(conversation);
        }
    }

    fn take(&mut self, conversation: ConversationId) -> Option<Home> {
        let home = self.all.remove(&conversation)?;
        let live = home.busy > 0 || self.resting.remove(&(home.used, conversation));
        if let Entry::Occupied(mut tally) = self.runs.entry(home.run) {
            tally.get_mut().all -= 1;
            tally.get_mut().live -= u64::from(live);
            if tally.get().all == 0 {
                tally.remove();
            }
        }
        Some(home)
    }

    /// Puts one in that was just used.
    fn put(&mut self, conversation: ConversationId, home: Home) {
        self.all.insert(conversation, home);
        if home.busy == 0 {
            self.resting.insert((home.used, conversation));
        }
        let tally = self.runs.entry(home.run).or_default();
        (tally.all, tally.live) = (tally.all + 1, tally.live + 1);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn homes_are_bounded_and_the_silent_ones_go_first() {
        let mut homes = Homes::default();
        for n in 0..100 {
            homes.settle(ConversationId(n), 1, Duration::from_secs(n), 16);
            homes.rest(ConversationId(n), Duration::from_secs(n));
            assert!(homes.on(1) <= 16);
        }
        assert!(homes.of(ConversationId(99)).is_some() && homes.of(ConversationId(0)).is_none());
        homes.advance(Duration::from_secs(100), Duration::from_secs(3));
        assert_eq!(homes.live(1), 2);
    }

    proptest! {
        #[test]
        fn what_is_counted_is_what_is_there(changes in prop::collection::vec((0u8..7, 0u64..5, 0u64..3, 0u64..4), 0..200)) {
            let (live, mut now, mut homes) = (Duration::from_secs(10), Duration::ZERO, Homes::default());
            for (what, conversation, run, later) in changes {
                let conversation = ConversationId(conversation);
                now += Duration::from_secs(later);
                homes.advance(now, live);
                match what {
                    0 | 1 => homes.settle(conversation, run, now, 4),
                    2 => homes.rest(conversation, now),
                    3 | 4 => homes.unsettle(conversation, what == 3),
                    5 => homes.forget(conversation),
                    _ => homes.forget_idle(now, Duration::from_secs(30)),
                }
                homes.advance(now, live);
                for run in 0..3 {
                    let on: Vec<&Home> = homes.all.values().filter(|home| home.run == run).collect();
                    prop_assert_eq!(homes.on(run), on.len() as u64);
                    let counts = |home: &&&Home| home.busy > 0 || now.saturating_sub(home.used) < live;
                    prop_assert_eq!(homes.live(run), on.iter().filter(counts).count() as u64);
                }
            }
            prop_assert!(homes.all.len() <= 5 && homes.runs.values().all(|tally| tally.all > 0));
        }
    }
}
