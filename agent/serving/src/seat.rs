//! One replica of a model: at which stage it is, and how that reads outside.
//!
//! Pure: stages in, documents out.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use warden_domain::{
    Problem, ProblemKind,
    engine::{Answering, Capacity, Launch},
    ids::{GenerationId, GpuId, ReplicaId},
    model::{ModelConfig, ReplicaState, StateReason, StateWord},
    replica::{Replica, Sampled},
};
use warden_store::loads::Phases;

use crate::{budget::Budget, loading::LoadClock, plan::Standing, watch::Watch};

/// Where a replica is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stage {
    /// Nothing runs.
    Idle,
    /// Something must happen first.
    Waiting(StateReason),
    /// It did not come up, or died.
    Failed(StateReason),
    /// It died after it had served, and is started again by itself after a pause.
    Down(StateReason),
    /// Its engine is being launched, in this attempt.
    Starting(GenerationId),
    /// Its engine's process is up and never answered yet.
    Loading { launch: Launch, clock: LoadClock },
    /// Its engine answers; or did, and is silent for so long.
    Running { launch: Launch, answering: Answering, silent: Option<Duration>, watch: Watch },
    /// Its engine is being stopped, after its requests are finished.
    Stopping { launch: Launch, draining: bool },
    /// Its engine was given up and is being ended, for this reason.
    Ending { launch: Launch, reason: StateReason },
}

/// Where a replica is in a reload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Turn {
    /// In none, or through.
    #[default]
    Settled,
    /// It is not its turn yet.
    Due,
    /// It has to stop.
    Leaving,
    /// It has to come up again.
    Coming,
}

/// One replica.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) id: ReplicaId,
    pub(crate) stage: Stage,
    pub(crate) turn: Turn,
    /// Beyond the number of replicas that the model has now.
    pub(crate) extra: bool,
    /// It was taken out of service by hand.
    pub(crate) parked: bool,
    /// Cards that its engine was given.
    pub(crate) cards: Vec<GpuId>,
    /// The attempt that its last launch came from, when that is known.
    pub(crate) generation: Option<GenerationId>,
    /// Settings that its last launch was started with; `None` when that is not known.
    pub(crate) runs: Option<ModelConfig>,
    /// It was found running by this agent and did not answer since.
    pub(crate) adopted: bool,
    /// An adopted engine said in its log that it is ready, and did not answer; since then.
    pub(crate) mute: Option<Instant>,
    /// A look is under way.
    pub(crate) observed: bool,
    /// No further look before this moment.
    pub(crate) next_look: Instant,
    /// Its figures are being read.
    pub(crate) sampled: bool,
    /// They are not read before this moment.
    pub(crate) next_read: Instant,
    /// The last figures.
    pub(crate) sample: Option<Sampled>,
    /// Starts that the system did not carry out, since it was asked for.
    pub(crate) tries: u32,
    /// No further start before this moment.
    pub(crate) not_before: Option<Instant>,
    /// It answered since it was asked for, so that its death is a fault of the moment and not of its settings.
    pub(crate) served: bool,
    /// Somebody asked for it by hand; once it answers, it has its restarts back.
    pub(crate) by_hand: bool,
    pub(crate) budget: Budget,
    /// An engine of it could not be ended and may still run.
    pub(crate) lingers: bool,
    /// It is being stopped once more; nothing is started meanwhile, because the stop would hit what was started.
    pub(crate) stopping_again: bool,
    /// It is not stopped once more before this moment.
    pub(crate) stop_again: Instant,
    shown: StateWord,
    since: Timestamp,
}

/// A silent engine stays in the table for so long while others answer: one late answer is no death.
const SILENCE_SERVED: Duration = Duration::from_secs(5);

impl Seat {
    pub(crate) fn new(id: ReplicaId, now: Timestamp) -> Self {
        Self {
            id,
            stage: Stage::Idle,
            turn: Turn::Settled,
            extra: false,
            parked: false,
            cards: Vec::new(),
            generation: None,
            runs: None,
            adopted: false,
            mute: None,
            observed: false,
            next_look: Instant::now(),
            sampled: false,
            next_read: Instant::now(),
            sample: None,
            tries: 0,
            not_before: None,
            served: false,
            by_hand: false,
            budget: Budget::default(),
            lingers: false,
            stopping_again: false,
            stop_again: Instant::now(),
            shown: StateWord::Stopped,
            since: now,
        }
    }

    pub(crate) const fn standing(&self) -> Standing {
        if self.stopping_again {
            return Standing::Busy;
        }
        match self.stage {
            Stage::Idle => Standing::Idle,
            Stage::Waiting(_) | Stage::Down(_) => Standing::Waiting,
            Stage::Failed(_) => Standing::Failed,
            Stage::Starting(_) | Stage::Stopping { .. } | Stage::Ending { .. } => Standing::Busy,
            Stage::Loading { .. } | Stage::Running { .. } => Standing::Up,
        }
    }

    /// Its launch while one is up and not being stopped.
    pub(crate) const fn launch(&self) -> Option<&Launch> {
        match &self.stage {
            Stage::Loading { launch, .. } | Stage::Running { launch, .. } => Some(launch),
            _ => None,
        }
    }

    /// Whether an engine of it runs, or is being started or stopped.
    pub(crate) const fn is_under_way(&self) -> bool {
        matches!(self.standing(), Standing::Busy | Standing::Up)
    }

    /// Whether an engine of it may run.
    pub(crate) const fn may_run(&self) -> bool {
        self.is_under_way() || self.lingers
    }

    /// Whether its engine runs with other settings than these.
    pub(crate) fn is_outdated(&self, settings: &ModelConfig) -> bool {
        self.may_run() && self.runs.as_ref().is_some_and(|runs| !runs.runs_as(settings))
    }

    /// Whether it answers at this moment.
    pub(crate) const fn answers(&self) -> bool {
        matches!(self.stage, Stage::Running { silent: None, .. })
    }

    /// Whether it does not answer yet, and goes on by itself.
    pub(crate) const fn comes(&self) -> bool {
        matches!(self.stage, Stage::Waiting(_) | Stage::Starting(_) | Stage::Loading { .. } | Stage::Down(_) | Stage::Ending { .. })
    }

    pub(crate) const fn word(&self) -> StateWord {
        match self.stage {
            Stage::Idle => StateWord::Stopped,
            Stage::Waiting(_) => StateWord::Waiting,
            Stage::Failed(_) | Stage::Down(_) | Stage::Ending { .. } => StateWord::Failed,
            Stage::Starting(_) | Stage::Loading { .. } => StateWord::Loading,
            Stage::Running { .. } | Stage::Stopping { .. } => StateWord::Running,
        }
    }

    /// The document for pages and api. The moment a state began is kept until its word changes.
    pub(crate) fn document(&mut self, earlier: &[Phases], now: Timestamp) -> ReplicaState {
        let word = self.word();
        if word != self.shown {
            self.shown = word;
            self.since = now;
        }
        let mut state = ReplicaState {
            id: self.id.clone(),
            launch: None,
            state: word,
            phase: None,
            since: self.since,
            reason: None,
            last_log_line: None,
            phases: Vec::new(),
            outdated: false,
        };
        let mut launched = None;
        match &self.stage {
            Stage::Idle => state.reason = self.parked.then(drained),
            Stage::Waiting(reason) | Stage::Failed(reason) | Stage::Down(reason) => state.reason = Some(reason.clone()),
            Stage::Starting(_) => state.phase = Some("start".to_owned()),
            Stage::Loading { launch, clock } => {
                state.phase = clock.phase().map(str::to_owned);
                state.last_log_line = clock.last_line().map(str::to_owned);
                state.phases = clock.shown(earlier);
                launched = Some(launch);
            }
            Stage::Running { launch, silent, .. } => {
                state.phase = silent.map(|_| "not answering".to_owned());
                launched = Some(launch);
            }
            Stage::Stopping { launch, draining } => {
                state.phase = Some(if *draining { "draining" } else { "stopping" }.to_owned());
                launched = Some(launch);
            }
            Stage::Ending { launch, reason } => {
                state.phase = Some("stopping".to_owned());
                state.reason = Some(reason.clone());
                launched = Some(launch);
            }
        }
        state.launch = launched.map(|launch| launch.launch.clone());
        state
    }

    /// What the gateway may send to; `None` unless the engine answered. `others` = another one answers, so that a silent one can wait.
    pub(crate) fn served_as(&self, others: bool) -> Option<Replica> {
        let Stage::Running { launch, answering, silent, .. } = &self.stage else { return None };
        let silent = silent.is_some_and(|silent| others && silent > SILENCE_SERVED);
        (!silent).then(|| Replica {
            id: launch.replica.clone(),
            launch: launch.launch.clone(),
            endpoint: launch.endpoint.clone(),
            capacity: self.bounded(answering.capacity),
        })
    }
}

impl Seat {
    /// An engine that counts tokens does not say how many requests it was told to take.
    fn bounded(&self, capacity: Capacity) -> Capacity {
        match capacity {
            Capacity::Tokens { tokens, slots: None } => Capacity::Tokens { tokens, slots: self.runs.as_ref().map(|runs| runs.slots) },
            other => other,
        }
    }
}

/// Starts of one replica that the system may fail to carry out before it counts as failed.
const TRIES: u32 = 5;

/// How long to wait before a start that failed is tried again by itself; `None` when it is final. A system that does not answer (right after
/// power-on, under load) says nothing about the model; everything else would fail the same way again.
pub(crate) fn again(problem: &Problem, tries: u32) -> Option<Duration> {
    let passes = problem.kind == ProblemKind::SystemService && tries < TRIES;
    passes.then_some(problem.retry_after).flatten()
}

/// A problem as the reason of a state.
pub(crate) fn reason_of(problem: Problem) -> StateReason {
    StateReason { code: problem.kind.code().to_owned(), message: problem.message, hint: problem.hint }
}

fn drained() -> StateReason {
    StateReason {
        code: "drained".to_owned(),
        message: "It was taken out of service by hand.".to_owned(),
        hint: Some("Load or reload the model to start it again.".to_owned()),
    }
}

/// Code of the reason of a replica whose cards are not there, or not known yet.
pub(crate) const NO_CARDS: &str = "gpus_missing";

/// The reason of a replica whose cards are not there. `waits` = it starts by itself when they are.
pub(crate) fn without_cards(problem: Problem, waits: bool) -> StateReason {
    let mut reason = StateReason { code: NO_CARDS.to_owned(), ..reason_of(problem) };
    if waits {
        reason.message.push_str(" The model loads by itself when they are there.");
    }
    reason
}

#[cfg(test)]
mod tests {
    use warden_domain::units::Tokens;

    use super::*;
    use crate::samples::{launch, s};

    pub(crate) fn seat(stage: Stage) -> Seat {
        Seat { stage, ..Seat::new(ReplicaId::new("tiny-0").unwrap(), Timestamp::UNIX_EPOCH) }
    }

    fn running(silent: Option<Duration>) -> Stage {
        Stage::Running { launch: launch("L"), answering: Answering::default(), silent, watch: Watch::new(Instant::now()) }
    }

    #[test]
    fn clients_are_only_sent_to_an_engine_that_answered_and_is_not_stopping() {
        let clock = LoadClock::start(Timestamp::UNIX_EPOCH, Instant::now(), false);
        let reason = StateReason { code: "x".to_owned(), message: "y".to_owned(), hint: None };
        for stage in [
            Stage::Idle,
            Stage::Starting(GenerationId::random()),
            Stage::Loading { launch: launch("L"), clock },
            Stage::Stopping { launch: launch("L"), draining: true },
            Stage::Ending { launch: launch("L"), reason: reason.clone() },
            Stage::Down(reason),
        ] {
            assert!(seat(stage).served_as(false).is_none());
        }
        assert!(seat(running(None)).served_as(true).is_some());
    }

    #[test]
    fn an_engine_that_counts_tokens_gets_no_more_requests_than_it_was_told_to_take() {
        let told = Answering { capacity: Capacity::Tokens { tokens: Tokens(40_000), slots: None }, ..Answering::default() };
        let mut config = crate::samples::model_named("tiny", "mdl_1").config;
        config.slots = 3;
        let stage = Stage::Running { launch: launch("L"), answering: told, silent: None, watch: Watch::new(Instant::now()) };
        let seat = Seat { runs: Some(config), ..seat(stage) };
        assert_eq!(seat.served_as(false).unwrap().capacity, Capacity::Tokens { tokens: Tokens(40_000), slots: Some(3) });
    }

    #[test]
    fn a_silent_engine_is_passed_over_when_another_one_answers() {
        assert!(seat(running(Some(s(9)))).served_as(true).is_none());
        assert!(seat(running(Some(s(9)))).served_as(false).is_some(), "with no other, a late answer is better than none");
        assert!(seat(running(Some(s(2)))).served_as(true).is_some());
    }

    #[test]
    fn the_page_shows_since_when_a_replica_runs_and_not_since_the_last_look() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut seat = seat(Stage::Starting(GenerationId::random()));
        assert_eq!(seat.document(&[], at(5)).since, at(5));
        assert_eq!(seat.document(&[], at(6)).since, at(5));
        seat.stage = running(None);
        let state = seat.document(&[], at(7));
        assert_eq!((state.since, state.launch.as_deref()), (at(7), Some("L")));
    }

    #[test]
    fn a_system_that_does_not_answer_is_asked_again_and_not_for_ever() {
        let wait = s(10);
        let silent = Problem::new(ProblemKind::SystemService, "The system refused to start the engine: timed out.").retry_after(wait);
        assert_eq!(again(&silent, 0), Some(wait));
        assert_eq!(again(&silent, TRIES), None);
        assert_eq!(again(&Problem::new(ProblemKind::BadModelFile, "It is cut.").retry_after(wait), 0), None);
        assert_eq!(again(&Problem::new(ProblemKind::SystemService, "It said no."), 0), None);
    }
}
