//! How many requests are in flight, per model and replica. One short lock, never held across a wait.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use warden_domain::{
    ids::{ModelId, ReplicaId},
    replica::InFlight,
};

/// The in-flight table; serving reads it to drain, placement reads it to balance.
#[derive(Debug, Default)]
pub struct FlightTable {
    counts: Mutex<HashMap<(ModelId, ReplicaId), usize>>,
}

impl FlightTable {
    /// An empty table.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Requests in flight on one replica.
    #[must_use]
    pub fn of_replica(&self, model: &ModelId, replica: &ReplicaId) -> usize {
        self.lock().get(&(model.clone(), replica.clone())).copied().unwrap_or(0)
    }

    /// All requests in flight.
    #[must_use]
    pub fn all(&self) -> usize {
        self.lock().values().sum()
    }

    /// Counts one request until the seat is dropped.
    pub(crate) fn board(self: &Arc<Self>, model: &ModelId, replica: &ReplicaId) -> Seat {
        let at = (model.clone(), replica.clone());
        *self.lock().entry(at.clone()).or_insert(0) += 1;
        Seat { table: Arc::clone(self), at }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(ModelId, ReplicaId), usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InFlight for FlightTable {
    fn of_model(&self, id: &ModelId) -> usize {
        self.lock().iter().filter(|((model, _), _)| model == id).map(|(_, n)| n).sum()
    }

    fn of_replica(&self, id: &ModelId, replica: &ReplicaId) -> usize {
        Self::of_replica(self, id, replica)
    }
}

/// One request's place in the table.
pub(crate) struct Seat {
    table: Arc<FlightTable>,
    at: (ModelId, ReplicaId),
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut counts = self.table.lock();
        if let Some(n) = counts.get_mut(&self.at) {
            *n -= 1;
            if *n == 0 {
                counts.remove(&self.at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_drained_once_every_seat_is_left_and_the_table_does_not_grow() {
        let (table, model) = (FlightTable::new(), ModelId::from_stored("mdl_a"));
        let (a, b) = (ReplicaId::new("a-0").unwrap(), ReplicaId::new("a-1").unwrap());
        let seats = (table.board(&model, &a), table.board(&model, &a), table.board(&model, &b));
        assert_eq!((table.of_model(&model), table.of_replica(&model, &a), table.all()), (3, 2, 3));
        assert_eq!(table.of_model(&ModelId::from_stored("mdl_b")), 0);
        drop(seats);
        assert_eq!(table.of_model(&model), 0);
        assert!(table.lock().is_empty());
    }
}
