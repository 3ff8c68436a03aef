//! What is asked of the reconciler: load, unload, reload; and what it finds when it wakes up.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::timeout_at;
use warden_domain::{Problem, ProblemKind, clock, ids::ModelId, model::Model, replica::Reload};
use warden_store::{
    desired,
    loads::{self, Phases},
};

use crate::{
    adopt::FIRST_FINDING,
    bounded::blocking,
    claims, demand,
    entry::Entry,
    evidence,
    reconciler::{Reconciler, clash},
    seat::{NO_CARDS, Seat, Stage},
};

/// How long the start of the agent waits for the first look at adopted engines.
/// Short, because new clients wait as long: an engine that hangs is told apart later.
const FIRST_LOOK: Duration = Duration::from_millis(1200);
/// How long it waits for what was kept of engines that were given up.
const EVIDENCE_LOOK: Duration = Duration::from_secs(2);

impl Reconciler {
    /// Reads what is wanted, adopts what runs, and waits a moment for the first looks.
    pub(crate) async fn wake_up(&mut self) -> Result<(), Problem> {
        let models = self.tools.registry.list().await?;
        self.boards.names.store(Arc::new(demand::names(&models)));
        let (wanted, loaded) = self.store.read(|db| Ok((desired::wanted(db)?, desired::remembered(db)?))).await?;
        let folder = self.tools.evidence_dir.clone();
        // On the disk of the store, but not worth a start that waits for it.
        let incidents = blocking(EVIDENCE_LOOK, move || evidence::known(&folder)).await.unwrap_or_default();
        let now = clock::now();
        for model in models.into_iter().filter(|model| wanted.contains(&model.id)) {
            self.registered.insert(model.id.clone(), model.clone());
            // What runs, runs with the settings it was loaded with; a name is never changed.
            let as_loaded = loaded.get(&model.id).filter(|config| config.served_name == model.config.served_name).cloned();
            let mut config = as_loaded.unwrap_or_else(|| model.config.clone());
            config.take_at_once(&model.config);
            let model = Model { config, ..model };
            let earlier = self.earlier_loads(&model).await;
            let mut entry = Entry::new(model, true, earlier, now);
            for (id, incident) in incidents.iter().rev() {
                if *id == entry.model.id {
                    entry.note(incident.clone());
                }
            }
            self.entries.insert(entry.model.id.clone(), entry);
        }
        self.adopt(FIRST_FINDING).await;
        self.look_at_all();
        let deadline = Instant::now() + FIRST_LOOK;
        while self.entries.values().flat_map(|entry| &entry.seats).any(|seat| seat.observed) {
            match timeout_at(deadline.into(), self.reports.recv()).await {
                Ok(Some(event)) => self.take(event),
                _ => break,
            }
        }
        self.act().await;
        self.show();
        Ok(())
    }

    pub(crate) async fn load(&mut self, model: Model) -> Result<(), Problem> {
        let (name, id) = (model.config.served_name.clone(), model.id.clone());
        let entry = self.entries.get(&id);
        if let Some(entry) = entry.filter(|entry| entry.wanted && !entry.seats.iter().any(|seat| is_down(seat) || seat.parked)) {
            let what = if entry.answers() { "is running already" } else { "is being loaded already" };
            return Err(clash(format!("The model {name} {what}."), "Unload it first to load it anew, or reload it."));
        }
        let runs = entry.is_some_and(|entry| entry.wanted && entry.is_under_way());
        if !runs {
            claims::decide(&model.config, &self.held_by_others(&id, true), &self.gpus.snapshot())?;
        }
        self.record(&model, !runs).await?;
        let earlier = self.earlier_loads(&model).await;
        let now = clock::now();
        let entry = self.entries.entry(id).or_insert_with(|| Entry::new(model.clone(), true, Vec::new(), now));
        entry.earlier = earlier;
        // With a replica still running only those that failed are tried again, as they were.
        if !runs {
            entry.take(model, now);
        }
        (entry.wanted, entry.notice) = (true, None);
        for seat in &mut entry.seats {
            (seat.tries, seat.not_before, seat.parked) = (0, None, false);
            if is_down(seat) {
                seat.stage = Stage::Idle;
            }
            if seat.launch().is_none() {
                (seat.served, seat.by_hand) = (false, true);
            }
        }
        Ok(())
    }

    pub(crate) async fn unload(&mut self, id: &ModelId) -> Result<(), Problem> {
        let wanted = id.clone();
        self.store.write(move |tx| desired::set(tx, &wanted, false, clock::now())).await?;
        if let Some(entry) = self.entries.get_mut(id) {
            entry.wanted = false;
            entry.seats.iter_mut().for_each(|seat| (seat.not_before, seat.stop_again) = (None, Instant::now()));
        }
        Ok(())
    }

    pub(crate) async fn reload(&mut self, model: Model) -> Result<Reload, Problem> {
        let (name, id) = (&model.config.served_name, model.id.clone());
        match self.entries.get(&id) {
            Some(entry) if entry.wanted && entry.is_reloading() => {
                return Err(clash(format!("A reload of the model {name} is under way."), "Wait until it is through."));
            }
            Some(entry) if entry.wanted && entry.answers() => {}
            _ => return Err(clash(format!("The model {name} is not running."), "Load it; it takes the settings of now.")),
        }
        claims::decide(&model.config, &self.held_by_others(&id, true), &self.gpus.snapshot())?;
        self.record(&model, true).await?;
        let Some(entry) = self.entries.get_mut(&id) else { return Ok(Reload::Rolling) };
        let way = entry.way_to(&model.config);
        tracing::info!(model = %id, ?way, "reload");
        entry.take(model, clock::now());
        entry.begin_reload(&way);
        Ok(way)
    }

    /// Takes one replica out of service until the model is loaded or reloaded.
    pub(crate) fn drain(&mut self, model: &Model, number: u16) -> Result<(), Problem> {
        let name = &model.config.served_name;
        let none = || {
            Problem::new(ProblemKind::NotFound, format!("The model {name} has no replica {number}."))
                .hint("Replicas are counted from 0; its state lists them.")
        };
        let entry = self.entries.get_mut(&model.id).ok_or_else(none)?;
        if entry.is_reloading() {
            return Err(clash(format!("A reload of the model {name} is under way."), "Wait until it is through."));
        }
        let others = entry.seats.iter().zip(0u16..).any(|(seat, other)| other != number && seat.answers());
        let seat = entry.seats.get_mut(usize::from(number)).ok_or_else(none)?;
        if seat.launch().is_none() {
            return Err(clash(format!("The replica {} does not run.", seat.id), "There is nothing to drain."));
        }
        if !others {
            return Err(clash(format!("No other replica of {name} answers, so {} stays.", seat.id), "Unload the model to stop all of it."));
        }
        tracing::info!(replica = %seat.id, "drained by hand");
        seat.parked = true;
        Ok(())
    }

    /// Records that a model is wanted, and with which settings it is loaded.
    async fn record(&self, model: &Model, settings: bool) -> Result<(), Problem> {
        let (id, config) = (model.id.clone(), settings.then(|| model.config.clone()));
        let written = self.store.write(move |tx| {
            desired::set(tx, &id, true, clock::now())?;
            config.map_or(Ok(()), |config| desired::remember(tx, &id, &config))
        });
        Ok(written.await?)
    }

    /// Times of earlier loads; none when they cannot be read, because a load must not fail for that.
    async fn earlier_loads(&self, model: &Model) -> Vec<Phases> {
        let (id, engine) = (model.id.clone(), model.config.engine);
        self.store.read(move |db| loads::recent(db, &id, engine)).await.unwrap_or_default()
    }

    /// Forgets models that are not registered any more, an engine of one is stopped first; and takes of the others what counts at once.
    pub(crate) async fn follow_the_registry(&mut self) {
        let Ok(models) = self.tools.registry.list().await else { return };
        self.boards.names.store(Arc::new(demand::names(&models)));
        self.entries.retain(|id, entry| {
            let known = models.iter().find(|model| model.id == *id);
            if let Some(model) = known {
                entry.model.config.take_at_once(&model.config);
            }
            entry.wanted &= known.is_some();
            known.is_some() || entry.may_run()
        });
    }

    /// A wanted model that failed because its disk was missing is tried again when disks changed; while it is still missing, it fails again
    /// with the same reason.
    pub(crate) fn try_again_where_the_disk_was_missing(&mut self) {
        self.try_again_where(ProblemKind::DiskMissing.code());
    }

    /// The same for cards, when what is known of them changed.
    pub(crate) fn try_again_where_cards_were_missing(&mut self) {
        self.try_again_where(NO_CARDS);
    }

    fn try_again_where(&mut self, code: &str) {
        for seat in self.entries.values_mut().filter(|entry| entry.wanted).flat_map(|entry| &mut entry.seats) {
            if matches!(&seat.stage, Stage::Failed(reason) | Stage::Waiting(reason) if reason.code == code) {
                (seat.stage, seat.not_before) = (Stage::Idle, None);
            }
        }
    }
}

const fn is_down(seat: &Seat) -> bool {
    matches!(seat.stage, Stage::Failed(_) | Stage::Down(_))
}
