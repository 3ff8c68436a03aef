//! Why an engine is gone: what its log says, and how its process ended.
//!
//! Pure: an end and the lines of the run in, one reason out. Never guesses: an end nobody saw is told as that.

use warden_domain::{
    Problem, ProblemKind,
    engine::{EngineKind, EnginePack, Launch, PackState},
    model::StateReason,
};

use crate::adapter;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It exited with this code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// The agent did not see the end: it happened while the agent was down, or to a process it had adopted.
    Unseen,
}

/// The reason to show.
pub(crate) fn reason<'a>(engine: EngineKind, end: End, lines: impl IntoIterator<Item = &'a str>) -> StateReason {
    // A killed engine has no cause of its own in the log; what stands there is older.
    if let End::Signal(9) = end {
        return told(
            "engine_killed",
            "The engine was killed (signal 9).",
            "Something outside ended it, most often the system because memory ran out. Load the model again.",
        );
    }
    if let Some(found) = adapter::cause(engine, lines) {
        return found;
    }
    match end {
        End::Signal(number) => told(
            "engine_crashed",
            &format!("The engine crashed (signal {number}{}).", signal_name(number)),
            "Load the model again. If it stays so, report the last lines of its log.",
        ),
        End::Code(0) => told("engine_stopped", "The engine stopped by itself or was asked to by something else.", "Load the model again."),
        End::Code(code) => {
            told("engine_failed", &format!("The engine ended with exit code {code}."), "The last lines of its log say more. Load the model again.")
        }
        End::Unseen => told("engine_gone", "The engine's process is gone.", "Load the model again. The last lines of its log may say more."),
    }
}

/// The refusal to start on an engine that is not ready.
pub(crate) fn not_ready(pack: &EnginePack) -> Problem {
    let message = match &pack.state {
        PackState::Ready => format!("The engine {} changed while it was to be started.", pack.engine.as_str()),
        PackState::Building { message, .. } => format!("The engine {} is not ready yet: {message}.", pack.engine.as_str()),
        PackState::Broken { message } => message.clone(),
    };
    Problem::new(ProblemKind::EngineUnavailable, message)
}

/// A running engine that did not answer a question in time.
pub(crate) fn no_answer(launch: &Launch) -> Problem {
    Problem::new(ProblemKind::Upstream, format!("The engine {} did not answer in time, or not in a form that is known.", launch.replica))
        .hint("It may be busy or still loading. Try again in a moment.")
}

fn told(code: &str, message: &str, hint: &str) -> StateReason {
    StateReason { code: code.to_owned(), message: message.to_owned(), hint: Some(hint.to_owned()) }
}

const fn signal_name(number: i32) -> &'static str {
    match number {
        4 => ", illegal instruction",
        6 => ", abort",
        7 => ", bus error",
        8 => ", arithmetic error",
        11 => ", segmentation fault",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_engine_is_told_as_killed_whatever_its_log_holds() {
        assert_eq!(reason(EngineKind::LlamaCpp, End::Signal(9), ["0.00.000.001 E x: out of memory"]).code, "engine_killed");
    }

    #[test]
    fn the_log_explains_an_exit_better_than_its_code() {
        assert_eq!(reason(EngineKind::LlamaCpp, End::Code(1), ["0.00.000.001 E x: std::bad_alloc"]).code, "out_of_memory");
        assert!(reason(EngineKind::LlamaCpp, End::Code(3), []).message.contains("exit code 3"));
        assert!(reason(EngineKind::LlamaCpp, End::Signal(11), []).message.contains("segmentation fault"));
        assert_eq!(reason(EngineKind::LlamaCpp, End::Unseen, []).code, "engine_gone");
    }

    #[test]
    fn a_server_that_ends_well_because_its_engine_died_is_no_stop() {
        let log = include_str!("../../../tests/fixtures/engine-logs/vllm/core-killed.log");
        assert_eq!(reason(EngineKind::Vllm, End::Code(0), log.lines()).code, "engine_core_died");
        let stopped = include_str!("../../../tests/fixtures/engine-logs/vllm/stopped.log");
        assert_eq!(reason(EngineKind::Vllm, End::Code(0), stopped.lines()).code, "engine_stopped");
    }
}
