//! The scheduler of each model, driven: events in, verdicts out to those who wait.
//!
//! One short lock per model, never held across a wait. Before every event the replicas' table and the engines' figures are compared with
//! the last ones seen, so that no decision is made on older ones. Knows neither bodies nor engines.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use jiff::Timestamp;
use tokio::sync::oneshot;
use warden_domain::{
    Problem, clock,
    ids::{ModelId, ReplicaId},
    replica::{Replica, ReplicaTable, Sampled, Serving},
};
use warden_schedule::{
    Action, Event, Moment, Refusal, State, Ticket,
    identity::{Book, Shelf},
    steps,
};

use crate::{FlightTable, GatewayLimits, refusal};

/// What one who waits is told.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Go there.
    Go(Arc<Replica>),
    /// No.
    No(Refusal),
}

/// All models' schedulers.
pub(crate) struct Places {
    pub(crate) serving: Arc<dyn Serving>,
    pub(crate) flights: Arc<FlightTable>,
    limits: GatewayLimits,
    start: Instant,
    tickets: AtomicU64,
    models: Mutex<HashMap<ModelId, Arc<Place>>>,
}

/// One model's scheduler.
pub(crate) struct Place {
    pub(crate) id: ModelId,
    /// Answers that ran away.
    pub(crate) runaways: AtomicU64,
    inner: Mutex<Inner>,
}

/// What lies behind the lock.
pub(crate) struct Inner {
    pub(crate) state: State,
    pub(crate) book: Book,
    pub(crate) waiters: HashMap<Ticket, oneshot::Sender<Verdict>>,
    /// When the first request was placed.
    pub(crate) since: Option<Timestamp>,
    seen: Option<Arc<ReplicaTable>>,
    figures: Option<Arc<BTreeMap<ReplicaId, Sampled>>>,
    offered: HashMap<ReplicaId, Arc<Replica>>,
}

impl Places {
    pub(crate) fn new(serving: Arc<dyn Serving>, flights: Arc<FlightTable>, limits: GatewayLimits) -> Arc<Self> {
        Arc::new(Self { serving, flights, limits, start: Instant::now(), tickets: AtomicU64::new(0), models: Mutex::default() })
    }

    /// The time, as the scheduler counts it.
    pub(crate) fn now(&self) -> Moment {
        self.start.elapsed()
    }

    pub(crate) fn ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))
    }

    /// The scheduler of a model that is in the table under this name.
    pub(crate) fn find(&self, name: &str) -> Result<Arc<Place>, Problem> {
        let table = self.serving.table();
        let Some(model) = table.models.get(name) else { return Err(refusal::not_loaded(name, &table)) };
        let mut models = self.models();
        if let Some(place) = models.get(&model.id) {
            return Ok(Arc::clone(place));
        }
        // Models that are gone leave nothing behind but what still runs.
        models.retain(|id, place| table.models.values().any(|m| m.id == *id) || place.lock().state.open() > 0);
        let place = Arc::new(Place::new(model.id.clone(), &self.limits));
        models.insert(model.id.clone(), Arc::clone(&place));
        Ok(place)
    }

    /// The scheduler of a model that is known.
    pub(crate) fn of(&self, id: &ModelId) -> Option<Arc<Place>> {
        self.models().get(id).cloned()
    }

    /// The same, or a fresh one when the model answers and nobody asked it yet.
    pub(crate) fn shown(&self, id: &ModelId) -> Option<Arc<Place>> {
        let fresh = || {
            let name = self.serving.table().models.values().find(|m| m.id == *id).map(|m| m.served_name.clone())?;
            self.find(&name).ok()
        };
        self.of(id).or_else(fresh)
    }

    /// Requests that wait, of all models.
    pub(crate) fn waiting(&self) -> usize {
        let places: Vec<Arc<Place>> = self.models().values().cloned().collect();
        places.iter().map(|place| place.lock().state.waiting()).sum()
    }

    fn models(&self) -> MutexGuard<'_, HashMap<ModelId, Arc<Place>>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    fn new(id: ModelId, limits: &GatewayLimits) -> Self {
        let inner = Inner {
            state: State::new(limits.policy, limits.bounds),
            book: Book::new(Shelf::default()),
            waiters: HashMap::new(),
            since: None,
            seen: None,
            figures: None,
            offered: HashMap::new(),
        };
        Self { id, runaways: AtomicU64::new(0), inner: Mutex::new(inner) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock with the present table and figures taken in.
    pub(crate) fn up_to_date(&self, places: &Places) -> MutexGuard<'_, Inner> {
        let mut inner = self.lock();
        let table = places.serving.table();
        if !inner.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &table)) {
            inner.compare(&self.id, &table, places.now());
            inner.seen = Some(table);
        }
        let figures = places.serving.samples();
        if !inner.figures.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &figures)) {
            inner.learn(&figures, places.now());
            inner.figures = Some(figures);
        }
        inner
    }

    /// Tells the scheduler of one event.
    pub(crate) fn tell(&self, places: &Places, event: Event) {
        self.up_to_date(places).tell(event, places.now());
    }
}

impl Inner {
    /// One event, and the verdicts that follow from it.
    pub(crate) fn tell(&mut self, event: Event, now: Moment) {
        self.tell_all([event], now);
    }

    /// Events that happened together, and the verdicts that follow from all of them.
    fn tell_all(&mut self, events: impl IntoIterator<Item = Event>, now: Moment) {
        for action in steps(&mut self.state, events, now) {
            match action {
                Action::Dispatch { ticket, replica, launch } => {
                    self.since.get_or_insert_with(clock::now);
                    let replica = self.offered.get(&replica).filter(|r| r.launch == launch).cloned();
                    if let Some((waiter, replica)) = self.waiters.remove(&ticket).zip(replica) {
                        // One who is gone in this moment gives the place back by its own end.
                        let _gone = waiter.send(Verdict::Go(replica));
                    }
                }
                Action::Refuse { ticket, why } => {
                    if let Some(waiter) = self.waiters.remove(&ticket) {
                        let _gone = waiter.send(Verdict::No(why));
                    }
                }
                Action::Requeue { .. } => {}
            }
        }
    }

    /// What the engines say they work on.
    fn learn(&mut self, figures: &BTreeMap<ReplicaId, Sampled>, now: Moment) {
        let told = figures.iter().filter(|(id, told)| self.offered.get(*id).is_some_and(|r| r.launch == told.launch));
        let told: Vec<Event> = told
            .filter_map(|(id, told)| {
                let at_work = told.sample.running?.saturating_add(told.sample.waiting.unwrap_or(0));
                Some(Event::Sample { replica: id.clone(), launch: told.launch.clone(), at_work })
            })
            .collect();
        self.tell_all(told, now);
    }

    /// Turns the difference between two tables into events. Who is not in the table any more drains: what runs on it may finish.
    fn compare(&mut self, id: &ModelId, table: &ReplicaTable, now: Moment) {
        let present: &[Replica] = table.models.values().find(|m| m.id == *id).map_or(&[], |m| &m.replicas);
        let before = std::mem::take(&mut self.offered);
        self.offered = present.iter().map(|r| (r.id.clone(), Arc::new(r.clone()))).collect();
        let came = present.iter().filter(|r| before.get(&r.id).is_none_or(|known| **known != **r));
        let came = came.map(|r| Event::ReplicaUp { replica: r.id.clone(), launch: r.launch.clone(), capacity: r.capacity });
        let went = before.iter().filter(|(id, _)| !present.iter().any(|r| r.id == **id));
        let went = went.map(|(id, r)| Event::Drain { replica: id.clone(), launch: r.launch.clone() });
        // All at once: nobody is refused for want of a replica that came, or sent to one that went.
        self.tell_all(came.chain(went), now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use warden_domain::{
        engine::{Capacity, EngineKind},
        model::RunawayGuard,
        replica::{Endpoint, ServedModel},
    };
    use warden_schedule::{Arrival, Class, ConversationId};

    use super::*;

    /// A table in which a model has these replicas, with one slot each.
    fn table(names: &[&str]) -> ReplicaTable {
        let replica = |name: &&str| Replica {
            id: ReplicaId::new(*name).unwrap(),
            launch: "1".to_owned(),
            endpoint: Endpoint::Unix(format!("/run/{name}.sock").into()),
            capacity: Capacity::Slots(1),
        };
        let model = ServedModel {
            id: ModelId::from_stored("mdl_tiny"),
            served_name: "tiny".to_owned(),
            engine: EngineKind::Vllm,
            context: None,
            images: None,
            runaway: RunawayGuard::Log,
            created: 0,
            replicas: names.iter().map(replica).collect(),
        };
        ReplicaTable { models: BTreeMap::from([("tiny".to_owned(), model)]) }
    }

    /// One whose home is busy waits, and after `waited` another table is there: what it is told.
    fn told(before: &[&str], after: &[&str], waited: Duration) -> Option<Verdict> {
        let place = Place::new(ModelId::from_stored("mdl_tiny"), &GatewayLimits::default());
        let mut inner = place.lock();
        inner.compare(&place.id, &table(before), Duration::ZERO);
        let mut arrive = |ticket: u64| {
            let (waiter, news) = oneshot::channel();
            inner.waiters.insert(Ticket(ticket), waiter);
            let conversation = Some(ConversationId(1));
            let arrival = Arrival { ticket: Ticket(ticket), class: Class::USUAL, conversation, streamed: true, patience: Duration::from_secs(100) };
            inner.tell(Event::Arrive(arrival), Duration::ZERO);
            news
        };
        let (_first, mut second) = (arrive(1), arrive(2));
        assert!(matches!(second.try_recv(), Err(oneshot::error::TryRecvError::Empty)), "it waits for its home");
        inner.compare(&place.id, &table(after), waited);
        second.try_recv().ok()
    }

    #[test]
    fn who_waits_is_sent_to_no_replica_that_goes_in_the_same_moment() {
        // Its home goes, and so do others that have room; whichever is told first.
        for _ in 0..8 {
            let told = told(&["a", "b", "c", "d"], &["e"], Duration::from_secs(1));
            assert!(matches!(&told, Some(Verdict::Go(to)) if to.id.as_str() == "e"), "{told:?}");
        }
        // It may leave its home by now when another one comes, and those with room go.
        let told = told(&["a", "b", "c"], &["a", "e"], Duration::from_secs(60));
        assert!(matches!(&told, Some(Verdict::Go(to)) if to.id.as_str() == "e"), "{told:?}");
    }

    #[test]
    fn who_waits_is_refused_when_all_go_and_not_when_all_are_replaced() {
        assert!(matches!(told(&["a", "b"], &[], Duration::from_secs(1)), Some(Verdict::No(Refusal::NoReplica))));
        assert!(matches!(told(&["a", "b"], &["c", "d"], Duration::from_secs(1)), Some(Verdict::Go(_))));
    }
}
