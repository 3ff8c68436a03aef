//! Long work as a list of named steps with progress: installing, formatting, importing, updating. Pages, the API, the local screen and
//! the log show the same document. Pure values; who runs the work publishes a new copy at each change.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Problem;

/// Where one step stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepState {
    /// Not begun.
    Pending,
    /// At work.
    Running,
    /// Done.
    Done,
    /// Not needed this time.
    Skipped,
    /// Failed; the work stopped here.
    Failed,
}

/// How far a step is. The unit is in the name: bytes are `"B"`, things are counted in `""`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Done so far.
    pub done: u64,
    /// Of how much; `None` when nobody knows.
    pub total: Option<u64>,
    /// Unit of both.
    pub unit: String,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Stable name, as tests and translations know it: `partition`, `write-root-a`.
    pub key: String,
    /// What it does, in English, for screens without a catalogue.
    pub title: String,
    /// Where it stands.
    pub state: StepState,
    /// How far it is, when it says so.
    pub progress: Option<Progress>,
    /// When it began.
    pub started: Option<Timestamp>,
    /// When it ended, well or not.
    pub ended: Option<Timestamp>,
}

/// A piece of long work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steps {
    /// Which kind: `install`, `adopt-disk`, `import-model`.
    pub kind: String,
    /// The steps in order.
    pub steps: Vec<Step>,
    /// The sentence of the failure, with its way out.
    pub failure: Option<String>,
    /// True once somebody asked to cancel; the work ends at its next safe point.
    pub cancelling: bool,
}

impl Steps {
    /// Work that has not begun. `plan` gives key and title of each step.
    #[must_use]
    pub fn new(kind: &str, plan: &[(&str, &str)]) -> Self {
        let step = |(key, title): &(&str, &str)| Step {
            key: (*key).to_owned(),
            title: (*title).to_owned(),
            state: StepState::Pending,
            progress: None,
            started: None,
            ended: None,
        };
        Self { kind: kind.to_owned(), steps: plan.iter().map(step).collect(), failure: None, cancelling: false }
    }

    /// A step begins. Unknown keys change nothing.
    pub fn begin(&mut self, key: &str, now: Timestamp) {
        self.with(key, |step| {
            step.state = StepState::Running;
            step.started = Some(now);
        });
    }

    /// A running step got further.
    pub fn advance(&mut self, key: &str, progress: Progress) {
        self.with(key, |step| step.progress = Some(progress));
    }

    /// A step is done.
    pub fn finish(&mut self, key: &str, now: Timestamp) {
        self.with(key, |step| {
            step.state = StepState::Done;
            step.ended = Some(now);
        });
    }

    /// A step is not needed.
    pub fn skip(&mut self, key: &str) {
        self.with(key, |step| step.state = StepState::Skipped);
    }

    /// The work stops: the step that runs (or the first that has not begun) has failed.
    pub fn fail(&mut self, problem: &Problem, now: Timestamp) {
        let at =
            self.steps.iter().position(|s| s.state == StepState::Running).or_else(|| self.steps.iter().position(|s| s.state == StepState::Pending));
        if let Some(step) = at.and_then(|at| self.steps.get_mut(at)) {
            step.state = StepState::Failed;
            step.ended = Some(now);
        }
        self.failure = Some(problem.full_text());
    }

    /// True when nothing more will happen.
    #[must_use]
    pub fn over(&self) -> bool {
        self.failure.is_some() || self.steps.iter().all(|s| matches!(s.state, StepState::Done | StepState::Skipped))
    }

    /// The step at work.
    #[must_use]
    pub fn current(&self) -> Option<&Step> {
        self.steps.iter().find(|s| s.state == StepState::Running)
    }

    fn with(&mut self, key: &str, change: impl FnOnce(&mut Step)) {
        if let Some(step) = self.steps.iter_mut().find(|s| s.key == key) {
            change(step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProblemKind;

    const PLAN: &[(&str, &str)] = &[("one", "First"), ("two", "Second")];

    #[test]
    fn work_is_over_when_every_step_is_done_or_skipped() {
        let mut work = Steps::new("x", PLAN);
        work.begin("one", Timestamp::UNIX_EPOCH);
        assert_eq!(work.current().map(|s| s.key.as_str()), Some("one"));
        work.finish("one", Timestamp::UNIX_EPOCH);
        assert!(!work.over());
        work.skip("two");
        assert!(work.over());
    }

    #[test]
    fn a_failure_marks_the_step_that_ran_and_leaves_the_rest_undone() {
        let mut work = Steps::new("x", PLAN);
        work.begin("one", Timestamp::UNIX_EPOCH);
        work.fail(&Problem::new(ProblemKind::Conflict, "The disk is full.").hint("Free some space."), Timestamp::UNIX_EPOCH);
        assert_eq!(work.steps[0].state, StepState::Failed);
        assert_eq!(work.steps[1].state, StepState::Pending);
        assert!(work.over());
        assert!(work.failure.as_deref().is_some_and(|f| f.contains("Free some space")));
    }
}
