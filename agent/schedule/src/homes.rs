//! Where conversations are at home. Bounded: the ones that were silent longest go first.

use std::{collections::HashMap, time::Duration};

use crate::event::{ConversationId, Moment};

/// One home.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    /// The launch it is on, as numbered by the replicas.
    pub(crate) run: u64,
    /// Last use.
    pub(crate) used: Moment,
    /// Requests of it that run.
    pub(crate) busy: u32,
}

/// All homes of one model.
#[derive(Debug, Default)]
pub(crate) struct Homes(HashMap<ConversationId, Home>);

impl Homes {
    pub(crate) fn of(&self, conversation: ConversationId) -> Option<Home> {
        self.0.get(&conversation).copied()
    }

    /// Notes a request of it on its way to `run`; what was its home before is no more.
    pub(crate) fn settle(&mut self, conversation: ConversationId, run: u64, now: Moment, most: usize) {
        if self.0.len() >= most && !self.0.contains_key(&conversation) {
            self.make_room(most);
        }
        let home = self.0.entry(conversation).or_insert(Home { run, used: now, busy: 0 });
        (home.run, home.used) = (run, now);
        home.busy += 1;
    }

    /// Notes that a request of it ended.
    pub(crate) fn rest(&mut self, conversation: ConversationId, now: Moment) {
        if let Some(home) = self.0.get_mut(&conversation) {
            home.used = now;
            home.busy = home.busy.saturating_sub(1);
        }
    }

    /// Takes a request back that never ran; a home it had just been given is none.
    pub(crate) fn unsettle(&mut self, conversation: ConversationId) {
        if let Some(home) = self.0.get_mut(&conversation) {
            home.busy = home.busy.saturating_sub(1);
        }
    }

    pub(crate) fn forget(&mut self, conversation: ConversationId) {
        self.0.remove(&conversation);
    }

    /// Conversations that count for the balance, by launch.
    pub(crate) fn live(&self, run: u64, now: Moment, live: Duration) -> u64 {
        self.0.values().filter(|h| h.run == run && (h.busy > 0 || now.saturating_sub(h.used) < live)).count() as u64
    }

    /// All homes on a launch.
    pub(crate) fn on(&self, run: u64) -> u64 {
        self.0.values().filter(|h| h.run == run).count() as u64
    }

    pub(crate) fn forget_idle(&mut self, now: Moment, idle: Duration) {
        self.0.retain(|_, h| h.busy > 0 || now.saturating_sub(h.used) < idle);
    }

    fn make_room(&mut self, most: usize) {
        let mut idle: Vec<(Moment, ConversationId)> = self.0.iter().filter(|(_, h)| h.busy == 0).map(|(c, h)| (h.used, *c)).collect();
        idle.sort_unstable();
        for (_, conversation) in idle.into_iter().take((most / 4).max(1)) {
            self.0.remove(&conversation);
        }
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(homes.live(1, Duration::from_secs(100), Duration::from_secs(3)), 2);
    }
}
