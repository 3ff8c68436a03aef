//! One model as this room sees it: wanted or not, at which stage, and how that reads outside.
//!
//! Pure: stages in, documents out.

use jiff::Timestamp;
use tokio::time::{Duration, Instant};
use warden_domain::{
    Problem, ProblemKind,
    engine::{Capacity, Launch},
    ids::GenerationId,
    model::{Model, ModelState, ReplicaState, StateReason, StateWord},
    replica::{Replica, ServedModel},
    units::Tokens,
};

use crate::{name::replica_id, plan::Standing};

/// Where a model is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing runs.
    Idle,
    /// Something must happen first.
    Waiting(StateReason),
    /// It did not come up, or died.
    Failed(StateReason),
    /// Its engine is being launched, in this attempt.
    Starting(GenerationId),
    /// Its engine's process is up and never answered yet.
    Loading { launch: Launch, phase: Option<String>, last_line: Option<String> },
    /// Its engine answers; or did, and is silent for the moment.
    Running { launch: Launch, context: Option<Tokens>, silent: bool },
    /// Its engine is being stopped, after its requests are finished.
    Stopping { launch: Launch, draining: bool },
}

/// A model that was asked for, or found running.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) model: Model,
    pub(crate) wanted: bool,
    pub(crate) stage: Stage,
    /// A look is under way.
    pub(crate) observed: bool,
    /// Starts that the system did not carry out, since it was asked for.
    pub(crate) tries: u32,
    /// No further start before this moment.
    pub(crate) not_before: Option<Instant>,
    shown: StateWord,
    since: Timestamp,
}

impl Entry {
    pub(crate) const fn new(model: Model, wanted: bool, stage: Stage, now: Timestamp) -> Self {
        Self { model, wanted, stage, observed: false, tries: 0, not_before: None, shown: StateWord::Stopped, since: now }
    }

    pub(crate) const fn standing(&self) -> Standing {
        match self.stage {
            Stage::Idle => Standing::Idle,
            Stage::Waiting(_) => Standing::Waiting,
            Stage::Failed(_) => Standing::Failed,
            Stage::Starting(_) | Stage::Stopping { .. } => Standing::Busy,
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

    /// Whether an engine of it may run.
    pub(crate) const fn may_run(&self) -> bool {
        matches!(self.standing(), Standing::Busy | Standing::Up)
    }

    const fn word(&self) -> StateWord {
        match self.stage {
            Stage::Idle => StateWord::Stopped,
            Stage::Waiting(_) => StateWord::Waiting,
            Stage::Failed(_) => StateWord::Failed,
            Stage::Starting(_) | Stage::Loading { .. } => StateWord::Loading,
            Stage::Running { .. } | Stage::Stopping { .. } => StateWord::Running,
        }
    }

    /// The document for pages and api. The moment a state began is kept until its word changes.
    pub(crate) fn document(&mut self, now: Timestamp) -> ModelState {
        let word = self.word();
        if word != self.shown {
            self.shown = word;
            self.since = now;
        }
        let mut state = ModelState { state: word, ..ModelState::stopped(self.since) };
        let mut launched = None;
        match &self.stage {
            Stage::Idle => {}
            Stage::Waiting(reason) | Stage::Failed(reason) => state.reason = Some(reason.clone()),
            Stage::Starting(_) => state.phase = Some("start".to_owned()),
            Stage::Loading { launch, phase, last_line } => {
                state.phase = phase.clone().or_else(|| Some("start".to_owned()));
                state.last_log_line.clone_from(last_line);
                launched = Some(launch);
            }
            Stage::Running { launch, context, silent } => {
                state.context = *context;
                state.phase = silent.then(|| "not answering".to_owned());
                launched = Some(launch);
            }
            Stage::Stopping { launch, draining } => {
                state.phase = Some(if *draining { "draining" } else { "stopping" }.to_owned());
                launched = Some(launch);
            }
        }
        if word != StateWord::Stopped {
            state.replicas = vec![ReplicaState { id: replica_id(&self.model), launch: launched.map(|l| l.launch.clone()), state: word }];
        }
        state
    }

    /// What the gateway may send to; `None` unless the engine answered.
    pub(crate) fn served(&self) -> Option<ServedModel> {
        let Stage::Running { launch, context, .. } = &self.stage else { return None };
        Some(ServedModel {
            id: self.model.id.clone(),
            served_name: self.model.config.served_name.clone(),
            context: *context,
            created: self.model.created_at.as_second(),
            replicas: vec![Replica {
                id: launch.replica.clone(),
                launch: launch.launch.clone(),
                endpoint: launch.endpoint.clone(),
                capacity: Capacity::Unknown,
            }],
        })
    }
}

/// Starts of one model that the system may fail to carry out before it counts as failed.
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

#[cfg(test)]
mod tests {
    use warden_domain::{
        engine::EngineKind,
        ids::{ModelId, ReplicaId},
        model::{Layout, ModelConfig, ModelFacts},
        replica::Endpoint,
    };

    use super::*;

    fn entry(stage: Stage) -> Entry {
        let config = ModelConfig {
            served_name: "tiny".to_owned(),
            path: "/m".into(),
            engine: EngineKind::LlamaCpp,
            context: None,
            slots: 1,
            layout: Layout::default(),
        };
        let model = Model { id: ModelId::random(), created_at: Timestamp::UNIX_EPOCH, config, facts: ModelFacts::default() };
        Entry::new(model, true, stage, Timestamp::UNIX_EPOCH)
    }

    fn launch() -> Launch {
        Launch { replica: ReplicaId::new("tiny-0").unwrap(), launch: "L".to_owned(), endpoint: Endpoint::Unix("/s".into()) }
    }

    #[test]
    fn clients_are_only_sent_to_an_engine_that_answered_and_is_not_stopping() {
        let loading = Stage::Loading { launch: launch(), phase: None, last_line: None };
        let stopping = Stage::Stopping { launch: launch(), draining: true };
        for stage in [Stage::Idle, Stage::Starting(GenerationId::random()), loading, stopping] {
            assert!(entry(stage).served().is_none());
        }
        assert!(entry(Stage::Running { launch: launch(), context: None, silent: true }).served().is_some());
    }

    #[test]
    fn the_page_shows_since_when_a_model_runs_and_not_since_the_last_look() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut entry = entry(Stage::Loading { launch: launch(), phase: Some("weights".to_owned()), last_line: None });
        assert_eq!(entry.document(at(5)).since, at(5));
        assert_eq!(entry.document(at(6)).since, at(5));
        entry.stage = Stage::Running { launch: launch(), context: Some(Tokens(9)), silent: false };
        let state = entry.document(at(7));
        assert_eq!((state.since, state.context, state.replicas[0].launch.as_deref()), (at(7), Some(Tokens(9)), Some("L")));
    }

    #[test]
    fn a_system_that_does_not_answer_is_asked_again_and_not_for_ever() {
        let wait = Duration::from_secs(10);
        let silent = Problem::new(ProblemKind::SystemService, "The system refused to start the engine: timed out.").retry_after(wait);
        assert_eq!(again(&silent, 0), Some(wait));
        assert_eq!(again(&silent, TRIES), None);
        assert_eq!(again(&Problem::new(ProblemKind::BadModelFile, "It is cut.").retry_after(wait), 0), None);
        assert_eq!(again(&Problem::new(ProblemKind::SystemService, "It said no."), 0), None);
    }
}
