//! Engines that run when an agent starts: which replica of which model each is, and with which settings it was started.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use warden_domain::{Problem, clock, engine::Found, ids::GenerationId, model::MOST_REPLICAS};
use warden_store::desired;

use crate::{
    bounded::running_unknown,
    journal::{self, Started},
    loading::LoadClock,
    name::replica_id,
    plan::Key,
    reconciler::Reconciler,
    seat::{Stage, reason_of},
};

/// What was found.
pub(crate) type Finding = Result<(Vec<Found>, BTreeMap<GenerationId, Started>), Problem>;

/// The start of the agent waits so long for what runs; later it is asked beside everything else.
pub(crate) const FIRST_FINDING: Duration = Duration::from_secs(5);
/// The same for later.
pub(crate) const LATER_FINDING: Duration = Duration::from_millis(300);

impl Reconciler {
    /// Takes over the engines that run: those of wanted models are watched from now on, others are stopped. A reload that was cut goes on.
    pub(crate) async fn adopt(&mut self, patience: Duration) {
        let (engines, folder) = (self.tools.engines.clone(), self.tools.launches_dir.clone());
        let asked = self.finding.ask(patience, || async move {
            let running = engines.running().await?;
            let read = move || {
                journal::clear_unfinished(&folder);
                journal::read(&folder)
            };
            let started = tokio::task::spawn_blocking(read).await.unwrap_or_default();
            Ok((running, started))
        });
        let (running, started) = match asked.await {
            Some(Ok(found)) => found,
            other => {
                let reason = other.and_then(Result::err).map_or_else(running_unknown, reason_of);
                for entry in self.entries.values_mut().filter(|entry| entry.wanted) {
                    entry.seats.iter_mut().for_each(|seat| seat.stage = Stage::Waiting(reason.clone()));
                }
                return;
            }
        };
        self.adopted = true;
        for seat in self.entries.values_mut().flat_map(|entry| &mut entry.seats) {
            if matches!(seat.stage, Stage::Waiting(_)) {
                seat.stage = Stage::Idle;
            }
        }
        let kept: Vec<GenerationId> = running.iter().filter_map(|found| found.generation.clone()).collect();
        for found in running {
            let record = found.generation.as_ref().and_then(|generation| started.get(generation));
            self.take_over(found, record);
        }
        self.tools.forget_launches(move |started| kept.contains(&started.generation));
        self.take_settings_of_now().await;
        for entry in self.entries.values_mut() {
            if entry.resume() {
                tracing::info!(model = %entry.model.id, all_at_once = entry.all_at_once, "a reload that was cut goes on");
            }
        }
    }

    fn take_over(&mut self, found: Found, record: Option<&Started>) {
        let launch = found.launch;
        let Some(key) = self.place_of(&launch.replica, record) else {
            self.tools.stop_stray(&launch);
            return;
        };
        let Some(entry) = self.entries.get_mut(&key.model) else { return };
        entry.make_room(key.seat, clock::now());
        let settings = record.map_or_else(|| entry.model.config.clone(), |record| record.config.clone());
        let Some(seat) = entry.seats.get_mut(usize::from(key.seat)) else { return };
        tracing::info!(replica = %launch.replica, launch = %launch.launch, extra = seat.extra, "engine adopted");
        let now = Instant::now();
        (seat.cards, seat.served, seat.adopted) = (settings.layout.cards_of(key.seat).to_vec(), true, true);
        seat.mute = record.is_some_and(|record| record.answered).then_some(now);
        (seat.runs, seat.generation) = (Some(settings), found.generation);
        seat.stage = Stage::Loading { launch, clock: LoadClock::start(clock::now(), now, true) };
    }

    /// The replica of a wanted model that an engine is: by what was written down, or else by its name.
    fn place_of(&self, replica: &warden_domain::ids::ReplicaId, record: Option<&Started>) -> Option<Key> {
        let mut wanted = self.entries.values().filter(|entry| entry.wanted);
        if let Some(record) = record.filter(|record| record.seat < MOST_REPLICAS && record.replica == *replica) {
            let entry = wanted.find(|entry| entry.model.id == record.model)?;
            return (replica_id(&entry.model, record.seat) == *replica).then(|| Key { model: record.model.clone(), seat: record.seat });
        }
        wanted.find_map(|entry| {
            let number = entry.seats.iter().zip(0u16..).find(|(seat, _)| seat.id == *replica)?.1;
            Some(Key { model: entry.model.id.clone(), seat: number })
        })
    }

    /// A model of which nothing runs any more is loaded anew, with the settings of now.
    async fn take_settings_of_now(&mut self) {
        for (id, model) in std::mem::take(&mut self.registered) {
            if let Some(entry) = self.entries.get_mut(&id).filter(|entry| !entry.may_run() && entry.model.config != model.config) {
                entry.take(model, clock::now());
                let (id, config) = (entry.model.id.clone(), entry.model.config.clone());
                if let Err(error) = self.store.write(move |tx| desired::remember(tx, &id, &config)).await {
                    tracing::warn!(%error, "the settings of a model that is loaded anew could not be recorded");
                }
            }
        }
    }
}
