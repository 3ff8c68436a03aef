//! Models that are loaded by a request for them. The gateway asks as often as it likes; one load is begun, and one that failed is not begun
//! again by the next request at once.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use warden_domain::{
    Problem,
    ids::ModelId,
    model::{Model, ModelState, StateReason, StateWord},
    replica::{Demand, Serving, Wanted},
};

use crate::{budget::USED_UP, room::ServingRoom, seat::reason_of};

/// A load that was refused or went wrong is tried again by a request after this time.
const REST: Duration = Duration::from_secs(30);

/// Loads that requests began.
#[derive(Default)]
pub(crate) struct Loads(Mutex<BTreeMap<ModelId, Load>>);

enum Load {
    /// Serving is being asked.
    Asked,
    /// It was wanted at this moment; what became of it stands in the model's state.
    Begun(Instant),
    /// It was refused.
    Refused(Instant, StateReason),
}

impl Demand for ServingRoom {
    fn wanted(&self, served_name: &str) -> Wanted {
        let names = self.boards.names.load();
        let Some((id, on_request)) = names.get(served_name) else { return Wanted::Not };
        let states = self.boards.states.load();
        if !on_request {
            // One that comes up by somebody's wish, or again after its engine died, is waited for by everybody.
            return if states.get(id).is_some_and(comes) { Wanted::Coming } else { Wanted::Not };
        }
        let mut loads = self.loads.0.lock().unwrap_or_else(PoisonError::into_inner);
        match decide(states.get(id), loads.get(id), Instant::now()) {
            Decision::Wait => Wanted::Coming,
            Decision::Tell(reason) => Wanted::Failed(reason),
            Decision::Load => {
                loads.insert(id.clone(), Load::Asked);
                drop(loads);
                self.begin(id.clone());
                Wanted::Coming
            }
        }
    }
}

impl ServingRoom {
    fn begin(&self, id: ModelId) {
        let Some(this) = self.this.upgrade() else { return };
        tokio::spawn(async move {
            let asked = this.load(&id).await;
            match &asked {
                Ok(()) => tracing::info!(model = %id, "a request loads a model"),
                Err(problem) => tracing::warn!(model = %id, %problem, "a request was to load a model"),
            }
            let now = Instant::now();
            let load = asked.map_or_else(|problem| refused(&problem, now), |()| Load::Begun(now));
            this.loads.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id, load);
        });
    }
}

fn refused(problem: &Problem, now: Instant) -> Load {
    Load::Refused(now, reason_of(problem.clone()))
}

enum Decision {
    Wait,
    Load,
    Tell(StateReason),
}

/// Whether a model that does not answer will do so without anybody's doing.
const fn comes(state: &ModelState) -> bool {
    state.comes || matches!(state.state, StateWord::Running)
}

/// Pure: what a request for a model that does not answer leads to.
fn decide(state: Option<&ModelState>, load: Option<&Load>, now: Instant) -> Decision {
    let rests = |since: &Instant| now.saturating_duration_since(*since) < REST;
    if state.is_some_and(comes) {
        return Decision::Wait;
    }
    match (load, state.map(|state| (state.state, state.reason.clone()))) {
        (Some(Load::Asked), _) | (_, Some((StateWord::Loading | StateWord::Waiting, _))) => Decision::Wait,
        // Its engine died too often: only a person gives it another chance.
        (_, Some((StateWord::Failed, Some(reason)))) if reason.code == USED_UP => Decision::Tell(reason),
        (Some(Load::Refused(since, reason)), _) if rests(since) => Decision::Tell(reason.clone()),
        (Some(Load::Begun(since)), Some((StateWord::Failed, Some(reason)))) if rests(since) => Decision::Tell(reason),
        _ => Decision::Load,
    }
}

/// The names under which requests ask for models, and whether a request loads them.
pub(crate) fn names(models: &[Model]) -> BTreeMap<String, (ModelId, bool)> {
    models.iter().map(|model| (model.config.served_name.clone(), (model.id.clone(), model.config.layout.on_request))).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn state(word: StateWord, reason: Option<&str>) -> ModelState {
        let reason = reason.map(|code| StateReason { code: code.to_owned(), message: String::new(), hint: None });
        ModelState { state: word, reason, ..ModelState::stopped(Timestamp::UNIX_EPOCH) }
    }

    #[test]
    fn one_load_is_begun_and_the_others_wait_for_it() {
        let now = Instant::now();
        assert!(matches!(decide(None, None, now), Decision::Load));
        assert!(matches!(decide(None, Some(&Load::Asked), now), Decision::Wait));
        for word in [StateWord::Loading, StateWord::Waiting, StateWord::Running] {
            assert!(matches!(decide(Some(&state(word, None)), None, now), Decision::Wait), "{word:?}");
        }
        assert!(matches!(decide(Some(&state(StateWord::Stopped, None)), Some(&Load::Begun(now)), now), Decision::Load), "it was unloaded since");
    }

    #[test]
    fn a_model_whose_engine_died_too_often_is_not_loaded_by_requests_again() {
        let begun = Instant::now();
        let failed = state(StateWord::Failed, Some(USED_UP));
        for load in [None, Some(&Load::Begun(begun))] {
            let told = decide(Some(&failed), load, begun + REST * 10);
            assert!(matches!(told, Decision::Tell(reason) if reason.code == USED_UP));
        }
    }

    #[test]
    fn a_model_that_comes_up_again_by_itself_is_waited_for_and_one_that_failed_is_not() {
        let dead = state(StateWord::Failed, Some("engine_killed"));
        let again = ModelState { comes: true, ..dead.clone() };
        assert!(comes(&again) && !comes(&dead) && !comes(&state(StateWord::Stopped, None)));
        assert!(matches!(decide(Some(&again), None, Instant::now()), Decision::Wait), "its pause is not cut short by a request");
    }

    #[test]
    fn a_load_that_failed_is_told_for_a_while_and_then_tried_again() {
        let begun = Instant::now();
        let (soon, later) = (begun + Duration::from_secs(5), begun + REST);
        let failed = state(StateWord::Failed, Some("engine_failed"));
        assert!(matches!(decide(Some(&failed), Some(&Load::Begun(begun)), soon), Decision::Tell(reason) if reason.code == "engine_failed"));
        assert!(matches!(decide(Some(&failed), Some(&Load::Begun(begun)), later), Decision::Load));
        assert!(matches!(decide(Some(&failed), None, soon), Decision::Load), "it failed without having been asked for by a request");
        let no = Load::Refused(begun, StateReason { code: "conflict".to_owned(), message: String::new(), hint: None });
        assert!(matches!(decide(None, Some(&no), soon), Decision::Tell(reason) if reason.code == "conflict"));
        assert!(matches!(decide(None, Some(&no), later), Decision::Load));
    }
}
