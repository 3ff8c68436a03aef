//! What the reconciler makes of the reports of its tasks, and of engines that do not get on.

use std::time::{Duration, Instant};

use warden_domain::{
    Problem, clock,
    engine::{Answering, Launch, Observation},
    ids::GenerationId,
    model::StateReason,
};
use warden_store::loads;

use crate::{
    budget::{Left, USED_UP},
    journal::Started,
    loading::LoadClock,
    plan::Key,
    reconciler::Reconciler,
    seat::{Stage, Turn, again, reason_of},
    watch::Watch,
    work::Event,
};

impl Reconciler {
    /// Takes a report in.
    pub(crate) fn take(&mut self, event: Event) {
        match event {
            Event::Started { key, generation, result } => self.started(&key, &generation, result),
            Event::Drained { key, launch } => {
                if let Some(Stage::Stopping { launch: current, draining }) = self.seat(&key).map(|seat| &mut seat.stage)
                    && current.launch == launch
                {
                    *draining = false;
                }
            }
            Event::Stopped { key, launch, result } => self.stopped(&key, &launch, result),
            Event::StoppedAgain { key, result } => self.stopped_again(&key, result),
            Event::Observed { key, launch, observation } => {
                let Some(seat) = self.seat(&key) else { return };
                seat.observed = false;
                if let Some(current) = seat.launch().filter(|current| current.launch == launch).cloned() {
                    self.saw(&key, current, observation);
                }
            }
            Event::Read { key, launch, sampled, activity } => {
                let flights = self.tools.flights.clone();
                let Some(seat) = self.seat(&key) else { return };
                seat.sampled = false;
                if let Stage::Running { launch: current, watch, .. } = &mut seat.stage
                    && current.launch == launch
                {
                    let in_flight = flights.of_replica(&key.model, &current.replica);
                    watch.read(Instant::now(), in_flight, sampled.as_ref().map(|s| &s.sample), activity);
                    seat.sample = sampled.or_else(|| seat.sample.take());
                }
            }
            Event::Kept { model, incident } => {
                if let Some(entry) = self.entries.get_mut(&model) {
                    entry.note(incident);
                }
            }
        }
    }

    fn started(&mut self, key: &Key, generation: &GenerationId, result: Result<Launch, Problem>) {
        let tools = self.tools.clone();
        let seat = self.seat(key).filter(|seat| matches!(&seat.stage, Stage::Starting(current) if current == generation));
        match (seat, result) {
            (Some(seat), Ok(launch)) => {
                tools.look(key.clone(), &launch);
                (seat.observed, seat.lingers, seat.sample) = (true, false, None);
                seat.tries = 0;
                seat.stage = Stage::Loading { launch, clock: LoadClock::start(clock::now(), Instant::now(), false) };
            }
            (Some(seat), Err(problem)) => {
                tracing::warn!(replica = %seat.id, %problem, "an engine could not be started");
                match again(&problem, seat.tries) {
                    Some(pause) => {
                        seat.tries += 1;
                        seat.not_before = Some(Instant::now() + pause);
                        seat.stage = Stage::Waiting(reason_of(problem));
                    }
                    None => seat.stage = Stage::Failed(reason_of(problem)),
                }
            }
            (None, Ok(launch)) => tools.stop_stray(&launch),
            (None, Err(_)) => {}
        }
    }

    fn stopped(&mut self, key: &Key, launch: &str, result: Result<(), Problem>) {
        let Some(entry) = self.entries.get_mut(&key.model) else { return };
        let Some(seat) = entry.seats.get_mut(usize::from(key.seat)) else { return };
        let given_up = match &seat.stage {
            Stage::Stopping { launch: current, .. } if current.launch == launch => None,
            Stage::Ending { launch: current, reason } if current.launch == launch => Some(reason.clone()),
            _ => return,
        };
        match (result, given_up) {
            (Ok(()), None) => seat.stage = Stage::Idle,
            (Ok(()), Some(reason)) => self.died(key, reason),
            (Err(problem), _) => {
                tracing::warn!(replica = %seat.id, %problem, "an engine could not be stopped");
                // Wanted or not: the page shows that something still runs, and its cards are not free, until a further stop succeeds.
                (seat.lingers, seat.stop_again) = (true, Instant::now() + self.rules.stop_again);
                seat.stage = Stage::Failed(reason_of(problem));
            }
        }
    }

    /// Engines that could not be stopped are stopped again from time to time.
    pub(crate) fn stop_what_lingers(&mut self) {
        let now = Instant::now();
        for (id, entry) in &mut self.entries {
            for (seat, number) in entry.seats.iter_mut().zip(0u16..) {
                if seat.lingers && !seat.is_under_way() && seat.stop_again <= now {
                    seat.stopping_again = true;
                    self.tools.stop_again(Key { model: id.clone(), seat: number }, seat.id.clone());
                }
            }
        }
    }

    fn stopped_again(&mut self, key: &Key, result: Result<(), Problem>) {
        let pause = self.rules.stop_again;
        let Some(seat) = self.seat(key) else { return };
        seat.stopping_again = false;
        match (result, &seat.stage) {
            (Ok(()), stage) => {
                tracing::info!(replica = %seat.id, "an engine that could not be stopped is gone");
                seat.lingers = false;
                if let Stage::Failed(reason) = stage {
                    let reason = reason.clone();
                    self.died(key, reason);
                }
            }
            (Err(problem), _) => {
                tracing::warn!(replica = %seat.id, %problem, "an engine could not be stopped again");
                seat.stop_again = Instant::now() + pause;
            }
        }
    }

    /// What a look means for a replica whose launch is still the one that was looked at.
    fn saw(&mut self, key: &Key, launch: Launch, observation: Observation) {
        let (now, at) = (Instant::now(), clock::now());
        let rules = self.rules.clone();
        let tools = self.tools.clone();
        let Some(seat) = self.seat(key) else { return };
        match &observation {
            Observation::Ready(_) => {
                (seat.adopted, seat.mute) = (false, None);
                seat.budget.answers(now, &rules);
            }
            _ => seat.budget.breaks(),
        }
        let stage = std::mem::replace(&mut seat.stage, Stage::Idle);
        match (observation, stage) {
            (Observation::Ready(answering), Stage::Running { watch, answering: before, .. }) => {
                let answering = Answering { context: answering.context.or(before.context), images: answering.images.or(before.images), ..answering };
                seat.stage = Stage::Running { launch, answering, silent: None, watch };
            }
            (Observation::Ready(answering), stage) => {
                tracing::info!(replica = %seat.id, launch = %launch.launch, "engine runs");
                if let Some((generation, config)) = seat.generation.clone().zip(seat.runs.clone()) {
                    tools.answered(Started::new(generation, launch.replica.clone(), key.model.clone(), key.seat, config));
                }
                seat.stage = Stage::Running { launch, answering, silent: None, watch: Watch::new(now) };
                seat.served = true;
                if std::mem::take(&mut seat.by_hand) {
                    seat.budget.reset();
                }
                if let Stage::Loading { mut clock, .. } = stage {
                    self.learn(key, clock.finish(now));
                }
            }
            // An adopted engine that answered before, or says in its log that it would, is no load: the rules for silence count.
            (Observation::Starting(view), stage) if seat.adopted && (seat.mute.is_some() || view.phase.as_deref() == Some("ready")) => {
                let silent = Some(now.saturating_duration_since(*seat.mute.get_or_insert(now)));
                let (answering, watch) = match stage {
                    Stage::Running { answering, watch, .. } => (answering, watch),
                    _ => (Answering::default(), Watch::new(now)),
                };
                seat.stage = Stage::Running { launch, answering, silent, watch };
            }
            (Observation::Starting(view), Stage::Loading { mut clock, .. }) => {
                clock.look(view, at, now);
                seat.stage = Stage::Loading { launch, clock };
            }
            (Observation::Starting(view), _) => {
                let mut clock = LoadClock::start(at, now, true);
                clock.look(view, at, now);
                seat.stage = Stage::Loading { launch, clock };
            }
            (Observation::Silent { since }, Stage::Running { watch, answering, .. }) => {
                seat.stage = Stage::Running { launch, answering, silent: Some(since), watch };
            }
            (Observation::Silent { since }, _) => {
                seat.stage = Stage::Running { launch, answering: Answering::default(), silent: Some(since), watch: Watch::new(now) };
            }
            (Observation::Gone { reason }, _) => {
                tracing::warn!(replica = %seat.id, launch = %launch.launch, code = %reason.code, reason = %reason.message, "the engine is gone");
                let (served, sample) = (seat.served, seat.sample.take());
                if served {
                    self.tools.keep(&key.model, &launch, reason.clone(), sample);
                }
                self.died(key, reason);
            }
        }
    }

    /// Keeps the times of a load that succeeded.
    fn learn(&mut self, key: &Key, load: Option<loads::Phases>) {
        let (Some(load), Some(entry)) = (load, self.entries.get_mut(&key.model)) else { return };
        entry.learn(load.clone());
        let (store, id, engine) = (self.store.clone(), key.model.clone(), entry.model.config.engine);
        tokio::spawn(async move {
            if let Err(error) = store.write(move |tx| loads::record(tx, &id, engine, clock::now(), &load)).await {
                tracing::warn!(%error, "the times of a load could not be kept");
            }
        });
    }

    /// An engine is gone that nobody asked to go. One that served before is started again, within its budget; one that never came up would
    /// fail the same way again.
    fn died(&mut self, key: &Key, reason: StateReason) {
        let rules = self.rules.clone();
        let Some(entry) = self.entries.get_mut(&key.model) else { return };
        let Some(seat) = entry.seats.get_mut(usize::from(key.seat)) else { return };
        let may = entry.wanted && seat.served && !seat.extra && matches!(seat.turn, Turn::Settled | Turn::Due) && rules.restarts > 0;
        if !may {
            seat.stage = Stage::Failed(reason);
            return;
        }
        match seat.budget.take(&rules) {
            Left::Again { pause, number, of } => {
                tracing::warn!(replica = %seat.id, number, of, pause_s = pause.as_secs_f64(), "the engine is started again by itself");
                seat.not_before = Some(Instant::now() + pause);
                let hint = format!("It is started again by itself after {} s (restart {number} of {of}).", pause.as_secs().max(1));
                seat.stage = Stage::Down(StateReason { hint: Some(hint), ..reason });
            }
            Left::Nothing => {
                tracing::error!(replica = %seat.id, "the engine died too often and stays stopped");
                let (times, window) = (rules.restarts, rules.restart_window.as_secs());
                seat.stage = Stage::Failed(StateReason {
                    code: USED_UP.to_owned(),
                    message: format!(
                        "{} It was restarted {times} times before and never answered for {window} s on end, so it stays stopped.",
                        reason.message
                    ),
                    hint: Some("Look at its log and at what was kept of it, then load the model again.".to_owned()),
                });
            }
        }
    }

    /// Gives up loads that do not advance and engines that hang.
    pub(crate) fn give_up_what_hangs(&mut self) {
        let rules = self.rules.clone();
        for (id, entry) in &mut self.entries {
            for (seat, number) in entry.seats.iter_mut().zip(0u16..) {
                let found = match &seat.stage {
                    Stage::Loading { launch, clock } => clock.stuck(rules.stuck_after, &entry.earlier).map(|rest| (launch, stuck(clock, rest))),
                    Stage::Running { launch, silent, watch, .. } => watch.fault(*silent, &rules).map(|reason| (launch, reason)),
                    _ => None,
                };
                let Some((launch, reason)) = found.map(|(launch, reason)| (launch.clone(), reason)) else { continue };
                tracing::warn!(replica = %seat.id, launch = %launch.launch, code = %reason.code, reason = %reason.message, "the engine is given up");
                self.tools.give_up(Key { model: id.clone(), seat: number }, &launch, reason.clone(), seat.sample.take());
                seat.stage = Stage::Ending { launch, reason };
            }
        }
    }
}

fn stuck(clock: &LoadClock, rest: Duration) -> StateReason {
    let last = clock.last_line().map(|line| format!(" Its last line: {}", line.chars().take(240).collect::<String>())).unwrap_or_default();
    StateReason {
        code: "load_stuck".to_owned(),
        message: format!(
            "The load did not advance for {} s in the phase {}, so it was stopped.{last}",
            rest.as_secs(),
            clock.phase().unwrap_or("start"),
        ),
        hint: Some("Check the disk that the model lies on and the cards, then load it again.".to_owned()),
    }
}
