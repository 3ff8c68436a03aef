//! The card of a model's page that shows where its requests go: one row per replica.

use warden_domain::{
    ids::ModelId,
    routing::{RoutedReplica, RoutingView},
};

use crate::{
    Web,
    catalogue::Text,
    wording::{UNKNOWN, grouped},
};

/// One replica.
pub(crate) struct RoutingRow {
    pub(crate) id: String,
    pub(crate) drains: bool,
    pub(crate) in_flight: String,
    pub(crate) homes: String,
    pub(crate) placed: String,
    pub(crate) stayed: String,
    pub(crate) moved: String,
    pub(crate) cached: String,
}

/// The card.
pub(crate) struct RoutingCard {
    /// A request was placed already.
    pub(crate) used: bool,
    pub(crate) waiting: String,
    pub(crate) rows: Vec<RoutingRow>,
}

impl RoutingCard {
    /// The card of a model; none for one that has no replica.
    pub(crate) fn of(web: &Web, id: &ModelId, t: &Text) -> Option<Self> {
        web.routing.routing(id).filter(|view| !view.replicas.is_empty()).map(|view| Self::new(&view, t))
    }

    fn new(view: &RoutingView, t: &Text) -> Self {
        let waiting = if view.waiting == 0 { t.routing_nobody_waits.to_owned() } else { t.routing_waiting(view.waiting) };
        Self { used: view.since.is_some(), waiting, rows: view.replicas.iter().map(row).collect() }
    }
}

fn row(replica: &RoutedReplica) -> RoutingRow {
    let share = replica.prompt.filter(|p| p.0 > 0).zip(replica.cached).map(|(prompt, cached)| 100.0 * cached.0 as f64 / prompt.0 as f64);
    RoutingRow {
        id: replica.id.to_string(),
        drains: !replica.offered,
        in_flight: grouped(replica.in_flight),
        homes: grouped(replica.homes),
        placed: grouped(replica.placed),
        stayed: grouped(replica.stayed),
        moved: grouped(replica.moved),
        cached: share.map_or_else(|| UNKNOWN.to_owned(), |percent| format!("{percent:.0} %")),
    }
}

#[cfg(test)]
mod tests {
    use warden_domain::{ids::ReplicaId, units::Tokens};

    use super::*;

    #[test]
    fn a_share_that_nobody_told_is_a_dash_and_not_nothing() {
        let mut replica = RoutedReplica {
            id: ReplicaId::new("tiny-0").unwrap(),
            launch: String::new(),
            offered: true,
            places: 4,
            in_flight: 0,
            lingering: 0,
            homes: 0,
            placed: 0,
            stayed: 0,
            moved: 0,
            one_shots: 0,
            lost: 0,
            prompt: None,
            cached: None,
        };
        assert_eq!(row(&replica).cached, UNKNOWN);
        (replica.prompt, replica.cached) = (Some(Tokens(400)), Some(Tokens(100)));
        assert_eq!(row(&replica).cached, "25 %");
    }
}
