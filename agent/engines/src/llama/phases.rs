//! Phases of the engine's start, read from its log.
//!
//! Lines in, the name of the latest phase out. The percentage within a phase is not in the log and is not guessed.

use super::line::{Level, parse};

/// What a line must hold, and the phase that begins with it. In the order in which a start goes through them.
const PHASES: &[(&str, &str)] = &[
    ("llama_server: initializing", "start"),
    ("fitting params to device memory", "fit"),
    ("llama_model_loader: loaded meta data", "metadata"),
    ("load_tensors: loading model tensors", "weights"),
    ("llama_context: constructing llama_context", "kv_cache"),
    ("warming up the model", "warmup"),
    ("llama_server: listening on", "ready"),
];

/// The latest phase these lines tell of; `None` when they tell of none.
#[must_use]
pub fn latest<'a>(lines: impl IntoIterator<Item = &'a str>) -> Option<&'static str> {
    let mut phase = None;
    for line in lines {
        let line = parse(line);
        if line.level == Level::Info
            && let Some((_, name)) = PHASES.iter().find(|(begin, _)| line.text.contains(begin))
        {
            phase = Some(*name);
        }
    }
    phase
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str = include_str!("../../tests/golden/llama-start.txt");

    fn seen(log: &str) -> Vec<&'static str> {
        let mut seen = Vec::new();
        let lines: Vec<&str> = log.lines().collect();
        for end in 0..=lines.len() {
            if let Some(phase) = latest(lines[..end].iter().copied())
                && seen.last() != Some(&phase)
            {
                seen.push(phase);
            }
        }
        seen
    }

    #[test]
    fn a_recorded_start_goes_through_the_phases_in_order() {
        assert_eq!(seen(START), ["start", "metadata", "weights", "kv_cache", "warmup", "ready"]);
    }

    #[test]
    fn a_start_that_fits_itself_first_tells_of_it() {
        let log = include_str!("../../../../tests/fixtures/engine-logs/llama.cpp/start-fit.log");
        assert_eq!(seen(log), ["start", "fit", "metadata", "weights", "kv_cache", "warmup", "ready"]);
        // On its own level of talk the engine says little.
        assert_eq!(seen(include_str!("../../../../tests/fixtures/engine-logs/llama.cpp/start-quiet.log")), ["start", "ready"]);
    }

    #[test]
    fn recorded_failures_stop_in_the_phase_in_which_they_failed() {
        let last = |log: &str| latest(log.lines());
        assert_eq!(last(include_str!("../../../../tests/fixtures/engine-logs/llama.cpp/failed-port-busy.log")), Some("start"));
        for unknown in [
            include_str!("../../../../tests/fixtures/engine-logs/llama.cpp/failed-file-missing.log"),
            include_str!("../../../../tests/fixtures/engine-logs/llama.cpp/failed-argument-unknown.log"),
            include_str!("../../tests/golden/failed/memory.txt"),
        ] {
            assert_eq!(last(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn a_chat_template_that_quotes_the_log_changes_nothing() {
        assert_eq!(latest(["srv  llama_server: listening on http://x"]), None);
    }
}
