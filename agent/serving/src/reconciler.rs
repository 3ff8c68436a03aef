//! The one task that owns what is wanted and what is seen, and moves one towards the other.
//!
//! It wakes on wishes, on reports of its own tasks, on news of other rooms and on a tick. Everything slow happens in `work`. Reports of
//! an attempt that is not the present one any more are thrown away, so that a late answer about an old launch cannot touch a new one.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::{
        broadcast::{self, error::RecvError},
        mpsc, oneshot,
    },
    time::{sleep_until, timeout_at},
};
use warden_domain::{
    Problem, ProblemKind,
    change::{Changes, Topic},
    clock,
    engine::EnginePack,
    gpu::Gpus,
    ids::{GenerationId, ModelId},
    model::Model,
    replica::{Reload, ReplicaTable, Sampled},
};
use warden_store::Store;

use crate::{
    adopt::{Finding, LATER_FINDING},
    bounded::{Slow, engines_unknown},
    claims::{self, Claim},
    entry::Entry,
    plan::{Action, Key, Standing, Subject, plan},
    room::Boards,
    rules::ServingRules,
    seat::{Seat, Stage, Turn, again, reason_of, without_cards},
    work::{Event, Tools},
};

/// A wish, with where to answer.
pub(crate) enum Command {
    Load { model: Model, reply: oneshot::Sender<Result<(), Problem>> },
    Unload { id: ModelId, reply: oneshot::Sender<Result<(), Problem>> },
    Reload { model: Model, reply: oneshot::Sender<Result<Reload, Problem>> },
    Drain { model: Model, number: u16, reply: oneshot::Sender<Result<(), Problem>> },
    Follow { reply: oneshot::Sender<Result<(), Problem>> },
    Shutdown { stop_engines: bool, done: oneshot::Sender<()> },
}

const TICK_LOADING: Duration = Duration::from_millis(150);
const TICK_RUNNING: Duration = Duration::from_secs(1);
const TICK_IDLE: Duration = Duration::from_secs(5);
/// A load is looked at often while it is young, so that short phases are seen as well.
const YOUNG: Duration = Duration::from_secs(10);
const LOOK_LATER: Duration = Duration::from_millis(500);
/// How long everything waits for the list of installed engines; when it is late, only what is to start waits for it.
const PACKS_LOOK: Duration = Duration::from_millis(500);
/// Requests in flight get this long when an engine is stopped, and this long when the agent stops its engines (it drained before).
const PATIENCE: Duration = Duration::from_secs(30);
const LAST_PATIENCE: Duration = Duration::from_secs(2);
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(40);

pub(crate) struct Reconciler {
    pub(crate) store: Store,
    pub(crate) tools: Tools,
    pub(crate) gpus: Arc<dyn Gpus>,
    pub(crate) rules: ServingRules,
    changes: Changes,
    news: broadcast::Receiver<Topic>,
    pub(crate) boards: Arc<Boards>,
    pub(crate) reports: mpsc::UnboundedReceiver<Event>,
    pub(crate) entries: BTreeMap<ModelId, Entry>,
    /// Engines that run were found and taken over. Until then nothing is started, or there could be two of one.
    pub(crate) adopted: bool,
    /// Wanted models with their settings of now, until engines are adopted.
    pub(crate) registered: BTreeMap<ModelId, Model>,
    /// What runs, while that is asked.
    pub(crate) finding: Slow<Finding>,
    /// Which engines are installed, while that is asked.
    packs: Slow<Vec<EnginePack>>,
    patience: Duration,
}

/// Who answers which wish, once the snapshots show what it changed.
enum Answer {
    Plain(oneshot::Sender<Result<(), Problem>>, Result<(), Problem>),
    Reload(oneshot::Sender<Result<Reload, Problem>>, Result<Reload, Problem>),
}

impl Reconciler {
    pub(crate) fn new(
        store: Store,
        tools: Tools,
        (gpus, rules): (Arc<dyn Gpus>, ServingRules),
        changes: Changes,
        boards: Arc<Boards>,
        reports: mpsc::UnboundedReceiver<Event>,
    ) -> Self {
        let news = changes.subscribe();
        let (entries, registered, finding, packs) = (BTreeMap::new(), BTreeMap::new(), Slow::default(), Slow::default());
        Self { store, tools, gpus, rules, changes, news, boards, reports, entries, adopted: false, registered, finding, packs, patience: PATIENCE }
    }

    /// Until the room is dropped or shut down.
    pub(crate) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut next_tick = Instant::now() + self.tick();
        loop {
            // Whoever asked is answered after the snapshots were swapped, so that the next read shows what the wish changed.
            let mut answer = None;
            tokio::select! {
                command = commands.recv() => match command {
                    None => return,
                    Some(Command::Load { model, reply }) => answer = Some(Answer::Plain(reply, self.load(model).await)),
                    Some(Command::Unload { id, reply }) => answer = Some(Answer::Plain(reply, self.unload(&id).await)),
                    Some(Command::Reload { model, reply }) => answer = Some(Answer::Reload(reply, self.reload(model).await)),
                    Some(Command::Drain { model, number, reply }) => answer = Some(Answer::Plain(reply, self.drain(&model, number))),
                    Some(Command::Follow { reply }) => {
                        self.follow_the_registry().await;
                        answer = Some(Answer::Plain(reply, Ok(())));
                    }
                    Some(Command::Shutdown { stop_engines, done }) => {
                        if stop_engines {
                            self.stop_all().await;
                        }
                        let _ = done.send(());
                        return;
                    }
                },
                Some(event) = self.reports.recv() => self.take(event),
                news = self.news.recv() => match news {
                    Ok(Topic::Models) => self.follow_the_registry().await,
                    Ok(Topic::Storage) => self.try_again_where_the_disk_was_missing(),
                    Ok(Topic::Gpus) => self.try_again_where_cards_were_missing(),
                    Err(RecvError::Lagged(_)) => {
                        self.follow_the_registry().await;
                        self.try_again_where_the_disk_was_missing();
                        self.try_again_where_cards_were_missing();
                    }
                    Ok(_) => {}
                    Err(RecvError::Closed) => return,
                },
                () = sleep_until(next_tick.into()) => {
                    if !self.adopted {
                        self.adopt(LATER_FINDING).await;
                    }
                    self.give_up_what_hangs();
                    self.look_at_all();
                    next_tick = Instant::now() + self.tick();
                }
            }
            self.act().await;
            self.show();
            match answer {
                Some(Answer::Plain(reply, result)) => drop(reply.send(result)),
                Some(Answer::Reload(reply, result)) => drop(reply.send(result)),
                None => {}
            }
            next_tick = next_tick.min(Instant::now() + self.tick());
        }
    }

    pub(crate) fn seat(&mut self, key: &Key) -> Option<&mut Seat> {
        self.entries.get_mut(&key.model)?.seats.get_mut(usize::from(key.seat))
    }

    /// What other models hold; with `to_come` also what is wanted and not started yet.
    pub(crate) fn held_by_others(&self, model: &ModelId, to_come: bool) -> Vec<Claim> {
        self.entries.values().filter(|entry| entry.model.id != *model).filter_map(|entry| entry.claim(to_come)).collect()
    }

    /// Makes the plan and carries it out as far as that is quick.
    pub(crate) async fn act(&mut self) {
        if !self.adopted {
            return;
        }
        self.stop_what_lingers();
        let now = Instant::now();
        let mut subjects = Vec::new();
        for entry in self.entries.values_mut() {
            entry.advance();
            entry.drop_extras();
            let held = entry.holds_starts();
            for (seat, number) in entry.seats.iter().zip(0u16..) {
                let wanted = entry.wants(seat);
                // What could not be stopped is shown as failed until it is gone, also when nobody wants it.
                if !wanted && seat.lingers && matches!(seat.stage, Stage::Failed(_)) {
                    continue;
                }
                if seat.not_before.is_some_and(|moment| moment > now) && wanted {
                    continue;
                }
                subjects.push(Subject {
                    key: Key { model: entry.model.id.clone(), seat: number },
                    engine: entry.model.config.engine,
                    wanted,
                    leaving: seat.turn == Turn::Leaving,
                    // One beyond the number is left as it is, and not started.
                    held: held || seat.extra,
                    standing: seat.standing(),
                });
            }
        }
        let undecided = |s: &Subject| s.wanted && matches!(s.standing, Standing::Idle | Standing::Waiting);
        let packs = if subjects.iter().any(undecided) {
            let engines = self.tools.engines.clone();
            self.packs.ask(PACKS_LOOK, || async move { engines.packs().await }).await
        } else {
            Some(Vec::new())
        };
        let actions = match packs {
            Some(packs) => plan(&subjects, &packs),
            // What starts nothing goes on, and what is to start says what it waits for.
            None => {
                let (waiting, others): (Vec<Subject>, Vec<Subject>) = subjects.into_iter().partition(undecided);
                let waits = waiting.into_iter().filter(|s| !s.held).map(|s| Action::Wait(s.key, engines_unknown()));
                plan(&others, &[]).into_iter().chain(waits).collect()
            }
        };
        for action in actions {
            self.apply(action);
        }
    }

    fn apply(&mut self, action: Action) {
        match action {
            Action::Start(key) => self.start(&key),
            Action::Stop(key) => {
                let patience = self.patience;
                let tools = self.tools.clone();
                if let Some(seat) = self.seat(&key)
                    && let Some(launch) = seat.launch().cloned()
                {
                    tools.stop(key, &launch, patience);
                    seat.stage = Stage::Stopping { launch, draining: true };
                }
            }
            Action::Wait(key, reason) => {
                if let Some(seat) = self.seat(&key) {
                    seat.stage = Stage::Waiting(reason);
                }
            }
            Action::Rest(key) => {
                if let Some(seat) = self.seat(&key) {
                    seat.stage = Stage::Idle;
                }
            }
        }
    }

    /// Starts a replica if its cards are there and free; they were when it was asked for, but not for what is wanted since before the agent
    /// started. After a reboot the reader may need a while, and a card may come back later: what nobody asked for just now waits for that.
    fn start(&mut self, key: &Key) {
        let held = self.held_by_others(&key.model, false);
        let gpus = self.gpus.snapshot();
        let Some(entry) = self.entries.get_mut(&key.model) else { return };
        let Some(seat) = entry.seats.get_mut(usize::from(key.seat)) else { return };
        seat.not_before = None;
        let config = &entry.model.config;
        if let Err(problem) = claims::free(config, &held, &gpus) {
            seat.stage = Stage::Failed(reason_of(problem));
            return;
        }
        if let Err(problem) = claims::there(config, &gpus) {
            if !seat.by_hand {
                seat.stage = Stage::Waiting(without_cards(problem, true));
                return;
            }
            match again(&problem, seat.tries) {
                Some(pause) => {
                    (seat.tries, seat.not_before) = (seat.tries + 1, Some(Instant::now() + pause));
                    seat.stage = Stage::Waiting(without_cards(problem, false));
                }
                None => seat.stage = Stage::Failed(without_cards(problem, false)),
            }
            return;
        }
        let generation = GenerationId::random();
        seat.cards = entry.model.config.layout.cards_of(key.seat).to_vec();
        (seat.runs, seat.generation) = (Some(entry.model.config.clone()), Some(generation.clone()));
        (seat.adopted, seat.mute) = (false, None);
        let minors = seat.cards.iter().filter_map(|card| gpus.card(card)?.minor).collect();
        self.tools.start(key.clone(), &entry.model, generation.clone(), minors);
        seat.stage = Stage::Starting(generation);
    }

    pub(crate) fn look_at_all(&mut self) {
        let now = Instant::now();
        for (id, entry) in &mut self.entries {
            for (seat, number) in entry.seats.iter_mut().zip(0u16..) {
                let Some(launch) = seat.launch().cloned() else { continue };
                let key = Key { model: id.clone(), seat: number };
                if !seat.observed && seat.next_look <= now {
                    self.tools.look(key.clone(), &launch);
                    seat.observed = true;
                    seat.next_look = now
                        + match &seat.stage {
                            Stage::Loading { clock, .. } if clock.age(now) < YOUNG => Duration::ZERO,
                            Stage::Loading { .. } => LOOK_LATER,
                            _ => TICK_RUNNING,
                        };
                }
                let due = seat.next_read <= now && !seat.sampled && matches!(seat.stage, Stage::Running { .. });
                if due {
                    self.tools.read(key, &launch);
                    (seat.sampled, seat.next_read) = (true, now + TICK_RUNNING);
                }
            }
        }
    }

    /// Stops every engine without changing what is wanted after the next start.
    async fn stop_all(&mut self) {
        self.patience = LAST_PATIENCE;
        for entry in self.entries.values_mut() {
            entry.wanted = false;
            entry.seats.iter_mut().for_each(|seat| seat.stop_again = Instant::now());
        }
        let deadline = Instant::now() + SHUTDOWN_LIMIT;
        loop {
            self.act().await;
            self.show();
            if !self.entries.values().any(Entry::is_under_way) {
                return;
            }
            match timeout_at(deadline.into(), self.reports.recv()).await {
                Ok(Some(event)) => self.take(event),
                _ => return,
            }
        }
    }

    fn tick(&self) -> Duration {
        let seats = || self.entries.values().flat_map(|entry| &entry.seats);
        let now = Instant::now();
        if let Some(soon) = seats().filter_map(|seat| seat.not_before).filter(|moment| *moment > now).min() {
            return (soon - now).clamp(Duration::from_millis(10), TICK_LOADING);
        }
        let loading = seats().any(|seat| matches!(seat.stage, Stage::Loading { .. }));
        let waiting = !self.adopted || seats().any(|seat| seat.launch().is_some() || matches!(seat.stage, Stage::Waiting(_)));
        match (loading, waiting) {
            (true, _) => TICK_LOADING,
            (false, true) => TICK_RUNNING,
            (false, false) => TICK_IDLE,
        }
    }

    /// Swaps the snapshots when they changed, and tells.
    pub(crate) fn show(&mut self) {
        let now = clock::now();
        let states: BTreeMap<_, _> = self.entries.iter_mut().map(|(id, entry)| (id.clone(), entry.document(now))).collect();
        let models = self.entries.values().filter_map(Entry::served).map(|served| (served.served_name.clone(), served)).collect();
        let table = ReplicaTable { models };
        let mut changed = false;
        if self.boards.table.load().models != table.models {
            self.boards.table.store(Arc::new(table));
            changed = true;
        }
        if **self.boards.states.load() != states {
            self.boards.states.store(Arc::new(states));
            changed = true;
        }
        let samples: BTreeMap<_, Sampled> = self
            .entries
            .values()
            .flat_map(|entry| &entry.seats)
            .filter(|seat| matches!(seat.stage, Stage::Running { .. }))
            .filter_map(|seat| Some((seat.id.clone(), seat.sample.clone()?)))
            .collect();
        if **self.boards.samples.load() != samples {
            self.boards.samples.store(Arc::new(samples));
        }
        if changed {
            self.changes.publish(Topic::Models);
        }
    }
}

/// The refusal of a wish that clashes with what is under way.
pub(crate) fn clash(message: String, hint: &str) -> Problem {
    Problem::new(ProblemKind::Conflict, message).hint(hint)
}
