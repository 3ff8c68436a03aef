//! The scheduler as api, pages and the reader of engines' figures see it.

use warden_domain::{
    engine::ReplicaSample,
    ids::{ModelId, ReplicaId},
    routing::{Routing, RoutingView},
};
use warden_schedule::Event;

use crate::Gateway;

impl Routing for Gateway {
    fn routing(&self, id: &ModelId) -> Option<RoutingView> {
        let place = self.places.shown(id)?;
        let inner = place.up_to_date(&self.places);
        Some(RoutingView { since: inner.since, ..inner.state.view(self.places.now()) })
    }

    fn sampled(&self, id: &ModelId, replica: &ReplicaId, launch: &str, sample: &ReplicaSample) {
        let (Some(place), Some(running)) = (self.places.of(id), sample.running) else { return };
        let at_work = running.saturating_add(sample.waiting.unwrap_or(0));
        place.tell(&self.places, Event::Sample { replica: replica.clone(), launch: launch.to_owned(), at_work });
    }
}
