//! The state as the console shows it.

use warden_domain::{
    routing::{RoutedReplica, RoutingView},
    units::Tokens,
};

use crate::{event::Moment, state::State};

impl State {
    /// Everything that is shown. `since` is the caller's to fill in: no wall clock is known here.
    #[must_use]
    pub fn view(&self, now: Moment) -> RoutingView {
        let replicas = self.replicas.iter().map(|(id, r)| RoutedReplica {
            id: id.clone(),
            launch: r.launch.clone(),
            offered: r.offered,
            places: u64::from(r.places(&self.bounds)),
            in_flight: u64::from(r.in_flight),
            lingering: r.lingering.len() as u64,
            homes: self.homes.on(r.run),
            placed: r.counters.placed,
            stayed: r.counters.stayed,
            moved: r.counters.moved,
            one_shots: r.counters.one_shots,
            lost: r.counters.lost,
            prompt: r.counters.prompt.map(Tokens),
            cached: r.counters.cached.map(Tokens),
        });
        let replicas: Vec<RoutedReplica> = replicas.collect();
        let room = self.replicas.offered().any(|r| r.has_room(&self.bounds));
        RoutingView {
            policy: self.policy.as_str(),
            since: None,
            waiting: self.queue.len() as u64,
            longest_wait: self.queue.longest(now),
            expected_start: if room { Some(Moment::ZERO) } else { self.service.start_behind(self.queue.len(), self.places()) },
            runaways: 0,
            refused: self.refused,
            replicas,
        }
    }
}
