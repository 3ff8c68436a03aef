//! Phases, outcomes and kinds in the reader's language.

use warden_domain::update::UpdatePhase;

use crate::{catalogue::Text, wording::StateView};

/// A phase as a state.
pub(super) const fn phase(phase: UpdatePhase, t: &Text) -> StateView {
    let (word, label) = match phase {
        UpdatePhase::Idle => ("stopped", t.updates_idle),
        UpdatePhase::Available => ("waiting", t.updates_available),
        UpdatePhase::Downloading => ("loading", t.updates_downloading),
        UpdatePhase::Verified => ("waiting", t.updates_verified),
        UpdatePhase::Installing => ("loading", t.updates_installing),
        UpdatePhase::Staged => ("waiting", t.updates_staged),
        UpdatePhase::Trial => ("loading", t.updates_trial),
        UpdatePhase::Confirmed => ("running", t.updates_confirmed),
        UpdatePhase::RolledBack => ("failed", t.updates_rolled_back),
    };
    StateView { word, label }
}

/// The way of an update with what is done, at work and ahead.
pub(super) fn steps(at: UpdatePhase, t: &Text) -> Vec<(StateView, String)> {
    let way = [
        (UpdatePhase::Downloading, t.updates_step_fetch),
        (UpdatePhase::Verified, t.updates_step_check),
        (UpdatePhase::Installing, t.updates_step_write),
        (UpdatePhase::Staged, t.updates_step_restart),
        (UpdatePhase::Trial, t.updates_step_trial),
    ];
    way.into_iter()
        .map(|(step, label)| {
            // A verified image and a staged slot are ends of a step, the others are steps at work.
            let done = at > step || (at == step && step == UpdatePhase::Verified);
            let word = match (done, at == step) {
                (true, _) => "running",
                (false, true) if step == UpdatePhase::Staged => "waiting",
                (false, true) => "loading",
                (false, false) => "stopped",
            };
            (StateView { word, label }, String::new())
        })
        .collect()
}

/// How an attempt ended.
pub(super) fn outcome(word: &str, t: &Text) -> StateView {
    let (word, label) = match word {
        "confirmed" => ("running", t.updates_confirmed),
        "rolled_back" => ("failed", t.updates_rolled_back),
        "cancelled" => ("stopped", t.updates_cancelled),
        "went_back" => ("waiting", t.updates_chosen_back),
        "added" => ("running", t.updates_added),
        _ => ("failed", t.state_failed),
    };
    StateView { word, label }
}

/// How a check of the new system ended.
pub(super) fn check(word: &str, t: &Text) -> StateView {
    let (word, label) = match word {
        "passed" => ("running", t.updates_check_passed),
        "failed" => ("failed", t.state_failed),
        _ => ("stopped", t.updates_check_not),
    };
    StateView { word, label }
}

/// What a target is.
pub(super) fn kind(word: &str, t: &Text) -> &'static str {
    match word {
        "os" => t.updates_kind_os,
        "engine" => t.updates_kind_engine,
        "model" => t.updates_kind_model,
        _ => t.updates_kind_driver,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::EN;

    fn words(at: UpdatePhase) -> Vec<&'static str> {
        steps(at, &EN).into_iter().map(|(state, _)| state.word).collect()
    }

    #[test]
    fn the_way_shows_one_step_at_work_and_nothing_ahead_as_done() {
        assert_eq!(words(UpdatePhase::Downloading), ["loading", "stopped", "stopped", "stopped", "stopped"]);
        assert_eq!(words(UpdatePhase::Verified), ["running", "running", "stopped", "stopped", "stopped"]);
        assert_eq!(words(UpdatePhase::Staged), ["running", "running", "running", "waiting", "stopped"]);
        assert_eq!(words(UpdatePhase::Trial), ["running", "running", "running", "running", "loading"]);
    }
}
