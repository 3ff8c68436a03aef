//! The scheduler as api and pages see it.

use std::sync::atomic::Ordering;

use warden_domain::{
    ids::ModelId,
    routing::{Routing, RoutingView},
};

use crate::Gateway;

impl Routing for Gateway {
    fn routing(&self, id: &ModelId) -> Option<RoutingView> {
        let place = self.places.shown(id)?;
        let inner = place.up_to_date(&self.places);
        let runaways = place.runaways.load(Ordering::Relaxed);
        Some(RoutingView { since: inner.since, runaways, ..inner.state.view(self.places.now()) })
    }
}
