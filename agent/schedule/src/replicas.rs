//! The replicas of one model, each launch with a number of its own: what is known of one launch is never taken for the next.

use std::collections::BTreeMap;

use warden_domain::{engine::Capacity, ids::ReplicaId};

use crate::{
    event::{ConversationId, Moment, Used},
    policy::Bounds,
};

/// So many different requests in a row that a replica failed over are its own fault, and not theirs.
const FAILURES: u32 = 3;
/// Most replicas kept that are gone, for their counters.
const GONE: usize = 64;

/// Counters since the agent's start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// Conversations that got their first home here.
    pub(crate) placed: u64,
    /// Turns that stayed.
    pub(crate) stayed: u64,
    /// Conversations that had another home before.
    pub(crate) moved: u64,
    /// Requests of no conversation.
    pub(crate) one_shots: u64,
    /// Requests it lost before a byte.
    pub(crate) lost: u64,
    /// Prompt tokens of answers that told both sums.
    pub(crate) prompt: Option<u64>,
    /// Of these, cached.
    pub(crate) cached: Option<u64>,
}

/// One launch of one replica.
#[derive(Clone, Debug)]
pub(crate) struct Replica {
    /// Number of the launch.
    pub(crate) run: u64,
    /// Launch identity.
    pub(crate) launch: String,
    /// What it can hold.
    pub(crate) capacity: Capacity,
    /// It takes new requests.
    pub(crate) offered: bool,
    /// Requests that run on this launch.
    pub(crate) in_flight: u32,
    /// Given up by us while the engine cannot notice, each with the moment until which it is believed to go on.
    pub(crate) lingering: Vec<Moment>,
    /// It could not be reached, or fails whatever it is asked; the last choice until then.
    pub(crate) suspect_until: Option<Moment>,
    /// Requests in a row that it failed over.
    pub(crate) failed: u32,
    /// Whose the last of them was.
    pub(crate) failed_over: Option<ConversationId>,
    /// See there.
    pub(crate) counters: Counters,
}

impl Replica {
    /// Requests it may have at a time.
    pub(crate) fn places(&self, bounds: &Bounds) -> u32 {
        match self.capacity {
            Capacity::Slots(n) => u32::from(n.max(1)),
            // What it was not told to work on at the same time would wait inside it, where nobody sees it.
            Capacity::Tokens { slots, .. } => slots.map_or(bounds.with_tokens, |slots| u32::from(slots.max(1)).min(bounds.with_tokens)),
            Capacity::Unknown => bounds.unknown,
        }
    }

    /// Requests it works on, as far as known.
    pub(crate) fn load(&self) -> u32 {
        self.in_flight.saturating_add(u32::try_from(self.lingering.len()).unwrap_or(u32::MAX))
    }

    pub(crate) fn has_room(&self, bounds: &Bounds) -> bool {
        self.offered && self.load() < self.places(bounds)
    }

    pub(crate) fn is_suspect(&self, now: Moment) -> bool {
        self.suspect_until.is_some_and(|until| now < until)
    }

    /// It failed over a request; `over`: its conversation. One request that is sent again and again counts once.
    pub(crate) fn failed(&mut self, over: Option<ConversationId>, until: Moment) {
        if over.is_none() || over != self.failed_over {
            self.failed = self.failed.saturating_add(1);
        }
        self.failed_over = over;
        if self.failed >= FAILURES {
            self.suspect_until = Some(until);
        }
    }

    /// It answers.
    pub(crate) fn works(&mut self) {
        (self.suspect_until, self.failed, self.failed_over) = (None, 0, None);
    }

    pub(crate) fn used(&mut self, used: Used) {
        if let (Some(prompt), Some(cached)) = (used.prompt, used.cached) {
            let add = |sum: &mut Option<u64>, n: u64| *sum = Some(sum.unwrap_or(0).saturating_add(n));
            add(&mut self.counters.prompt, prompt.0);
            add(&mut self.counters.cached, cached.0.min(prompt.0));
        }
    }
}

/// All replicas of one model.
#[derive(Debug, Default)]
pub(crate) struct Replicas {
    by_id: BTreeMap<ReplicaId, Replica>,
    runs: u64,
}

impl Replicas {
    /// A launch that answers. A launch that is known keeps what is known of it.
    pub(crate) fn up(&mut self, id: ReplicaId, launch: String, capacity: Capacity) {
        if let Some(known) = self.by_id.get_mut(&id).filter(|r| r.launch == launch) {
            (known.offered, known.capacity) = (true, capacity);
            return;
        }
        self.runs += 1;
        let counters = self.by_id.get(&id).map(|r| r.counters).unwrap_or_default();
        let cold = Replica {
            run: self.runs,
            launch,
            capacity,
            offered: true,
            in_flight: 0,
            lingering: Vec::new(),
            suspect_until: None,
            failed: 0,
            failed_over: None,
            counters,
        };
        self.by_id.insert(id, cold);
        while self.by_id.len() > GONE {
            let Some(gone) = self.by_id.iter().find(|(_, r)| !r.offered && r.in_flight == 0).map(|(id, _)| id.clone()) else { break };
            self.by_id.remove(&gone);
        }
    }

    /// That launch takes no more requests.
    pub(crate) fn withdraw(&mut self, id: &ReplicaId, launch: &str) {
        if let Some(replica) = self.launch(id, launch) {
            replica.offered = false;
        }
    }

    /// That launch, if it is the present one.
    pub(crate) fn launch(&mut self, id: &ReplicaId, launch: &str) -> Option<&mut Replica> {
        self.by_id.get_mut(id).filter(|r| r.launch == launch)
    }

    /// The launch with that number, if it is still a present one.
    pub(crate) fn run(&self, run: u64) -> Option<(&ReplicaId, &Replica)> {
        self.by_id.iter().find(|(_, r)| r.run == run)
    }

    /// The same, to change it.
    pub(crate) fn run_mut(&mut self, run: u64) -> Option<&mut Replica> {
        self.by_id.values_mut().find(|r| r.run == run)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ReplicaId, &Replica)> {
        self.by_id.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Replica> {
        self.by_id.values_mut()
    }

    pub(crate) fn offered(&self) -> impl Iterator<Item = &Replica> {
        self.by_id.values().filter(|r| r.offered)
    }
}
