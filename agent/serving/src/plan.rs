//! The plan: what to do next for each replica of each model. Pure.
//!
//! Which replicas are wanted, at which stage each is, and which engines are there go in; at most one action per replica comes out. A
//! replica at a stage that is under way gets none; it is planned again when that stage ends.

use warden_domain::{
    engine::{EngineKind, EnginePack, PackState},
    ids::ModelId,
    model::StateReason,
};

/// Where a replica is, as far as planning cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing runs.
    Idle,
    /// Wanted, but something must happen first.
    Waiting,
    /// It did not come up, or died too often. Stays so until somebody asks again.
    Failed,
    /// A start or a stop is under way.
    Busy,
    /// An engine process runs, answering or not yet.
    Up,
}

/// One replica of a model, by its number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) model: ModelId,
    pub(crate) seat: u16,
}

/// One replica to plan for.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) key: Key,
    pub(crate) engine: EngineKind,
    pub(crate) wanted: bool,
    /// It has to stop to be started anew.
    pub(crate) leaving: bool,
    /// It may not start yet.
    pub(crate) held: bool,
    pub(crate) standing: Standing,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Start its engine.
    Start(Key),
    /// Let requests finish, then stop its engine.
    Stop(Key),
    /// Wait, for this reason.
    Wait(Key, StateReason),
    /// It is not wanted and nothing runs: it is stopped.
    Rest(Key),
}

/// The plan for all replicas, in their order.
pub(crate) fn plan(subjects: &[Subject], packs: &[EnginePack]) -> Vec<Action> {
    subjects.iter().filter_map(|subject| next(subject, packs)).collect()
}

fn next(subject: &Subject, packs: &[EnginePack]) -> Option<Action> {
    let key = subject.key.clone();
    match (subject.wanted, subject.standing) {
        (_, Standing::Busy) | (true, Standing::Failed) | (false, Standing::Idle) => None,
        (true, Standing::Up) => subject.leaving.then_some(Action::Stop(key)),
        (false, Standing::Up) => Some(Action::Stop(key)),
        (false, Standing::Waiting | Standing::Failed) => Some(Action::Rest(key)),
        (true, Standing::Idle | Standing::Waiting) if subject.held => None,
        (true, Standing::Idle | Standing::Waiting) => Some(match obstacle(subject.engine, packs) {
            None => Action::Start(key),
            Some(reason) => Action::Wait(key, reason),
        }),
    }
}

/// Why no engine of this kind can run a model now; `None` when one can.
pub(crate) fn obstacle(engine: EngineKind, packs: &[EnginePack]) -> Option<StateReason> {
    let reason = |code: &str, message: String| Some(StateReason { code: code.to_owned(), message, hint: None });
    let mut fitting = packs.iter().filter(|pack| pack.engine == engine);
    if fitting.clone().any(|pack| pack.state == PackState::Ready) {
        return None;
    }
    let building = fitting.clone().find_map(|pack| match &pack.state {
        PackState::Building { step, of, message } => Some((*step, *of, message.clone())),
        _ => None,
    });
    if let Some((step, of, message)) = building {
        let progress = match (step, of) {
            (Some(step), Some(of)) => format!(", step {step} of {of}"),
            _ => String::new(),
        };
        return reason(
            "engine_building",
            format!("The engine {} is being prepared{progress}: {message}. The model loads by itself then.", engine.as_str()),
        );
    }
    match fitting.next().map(|pack| &pack.state) {
        Some(PackState::Broken { message }) => reason("engine_unavailable", message.clone()),
        _ => reason("engine_unavailable", format!("No engine of the kind {} is installed.", engine.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(state: PackState) -> EnginePack {
        EnginePack { engine: EngineKind::LlamaCpp, version: None, digest: None, state }
    }

    fn building() -> EnginePack {
        pack(PackState::Building { step: Some(3), of: Some(9), message: "compiling".to_owned() })
    }

    fn broken() -> EnginePack {
        pack(PackState::Broken { message: "no compiler".to_owned() })
    }

    fn one(wanted: bool, standing: Standing, packs: &[EnginePack]) -> Option<Action> {
        plan(&[subject(wanted, standing)], packs).pop()
    }

    fn subject(wanted: bool, standing: Standing) -> Subject {
        Subject { key: key(), engine: EngineKind::LlamaCpp, wanted, leaving: false, held: false, standing }
    }

    fn key() -> Key {
        Key { model: ModelId::from_stored("m"), seat: 0 }
    }

    #[test]
    fn a_replica_whose_turn_it_is_stops_and_one_that_must_wait_for_cards_does_not_start() {
        let ready = [pack(PackState::Ready)];
        let leaving = Subject { leaving: true, ..subject(true, Standing::Up) };
        assert_eq!(plan(&[leaving], &ready), [Action::Stop(key())]);
        let held = Subject { held: true, ..subject(true, Standing::Idle) };
        assert!(plan(&[held], &ready).is_empty());
    }

    #[test]
    fn what_is_wanted_starts_and_what_is_not_stops() {
        let ready = [pack(PackState::Ready)];
        let id = key();
        assert_eq!(one(true, Standing::Idle, &ready), Some(Action::Start(id.clone())));
        assert_eq!(one(true, Standing::Waiting, &ready), Some(Action::Start(id.clone())));
        assert_eq!(one(false, Standing::Up, &ready), Some(Action::Stop(id.clone())));
        assert_eq!(one(false, Standing::Waiting, &ready), Some(Action::Rest(id.clone())));
        assert_eq!(one(false, Standing::Failed, &ready), Some(Action::Rest(id)));
        assert_eq!(one(true, Standing::Up, &ready), None);
        assert_eq!(one(false, Standing::Idle, &ready), None);
    }

    #[test]
    fn a_failed_model_is_not_started_again_and_again() {
        assert_eq!(one(true, Standing::Failed, &[pack(PackState::Ready)]), None);
    }

    #[test]
    fn nothing_is_planned_while_a_start_or_stop_is_under_way() {
        for wanted in [true, false] {
            assert_eq!(one(wanted, Standing::Busy, &[pack(PackState::Ready)]), None);
        }
    }

    #[test]
    fn a_load_waits_for_the_engine_and_says_how_far_that_is() {
        let Some(Action::Wait(_, reason)) = one(true, Standing::Idle, &[building(), broken()]) else { panic!("it does not wait") };
        assert_eq!(reason.code, "engine_building");
        assert!(reason.message.contains("step 3 of 9"), "{}", reason.message);
        assert_eq!(one(true, Standing::Waiting, &[broken(), pack(PackState::Ready)]), Some(Action::Start(key())));
        for packs in [vec![broken()], vec![]] {
            assert!(matches!(one(true, Standing::Idle, &packs), Some(Action::Wait(_, reason)) if reason.code == "engine_unavailable"));
        }
    }
}
