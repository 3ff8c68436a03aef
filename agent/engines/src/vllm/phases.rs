//! Phases of vLLM's start, read from its log.
//!
//! Lines in, the furthest phase out and how many of its parts are done, where the engine says so. Several processes write into one log, and
//! a slow one may tell of a phase that the others have left: a start never goes back.

use super::line::{Level, parse};

/// What a marked line must hold, and the phase that begins with it.
const MARKED: &[(&str, usize)] = &[
    ("non-default args:", START),
    ("Initializing a V1 LLM engine", START),
    ("Starting to load model", WEIGHTS),
    ("Loading weights took", WEIGHTS),
    ("Warming up model for the compilation", COMPILE),
    ("Starting torch.compile", COMPILE),
    ("for vLLM's torch.compile", COMPILE),
    ("Compiling a graph for", COMPILE),
    ("Available KV cache memory", CACHE),
    (" GiB for KV cache on node", CACHE),
    ("KV cache size:", CACHE),
    ("Graph capturing finished", WARMUP),
    ("init engine (profile, create kv cache, warmup model) took", WARMUP),
    ("Starting vLLM server on", WARMUP),
];

/// How an unmarked line must begin, and its phase. These are the bars of parts and the words of the web server.
const UNMARKED: &[(&str, usize)] = &[
    ("Loading safetensors checkpoint shards:", WEIGHTS),
    ("Loading pt checkpoint shards:", WEIGHTS),
    ("Capturing CUDA graph", GRAPHS),
    ("INFO:     Application startup complete.", READY),
];

/// In the order in which a start goes through them.
const NAMES: &[&str] = &["start", "weights", "compile", "kv_cache", "graphs", "warmup", "ready"];
const START: usize = 0;
const WEIGHTS: usize = 1;
const COMPILE: usize = 2;
const CACHE: usize = 3;
const GRAPHS: usize = 4;
const WARMUP: usize = 5;
const READY: usize = 6;

/// The furthest phase these lines tell of, and of its parts: done, of how many.
pub(crate) fn furthest<'a>(lines: impl IntoIterator<Item = &'a str>) -> (Option<&'static str>, Option<(u64, u64)>) {
    let mut at: Option<usize> = None;
    let mut part = None;
    for raw in lines {
        let line = parse(raw);
        let phase = match line.level {
            Level::Info => MARKED.iter().find(|(sign, _)| line.text.contains(sign)),
            Level::Unmarked => UNMARKED.iter().find(|(begin, _)| line.text.starts_with(begin)),
            Level::Warning | Level::Error => None,
        };
        let Some((_, phase)) = phase else { continue };
        if at.is_none_or(|before| before < *phase) {
            at = Some(*phase);
            part = None;
        }
        if at == Some(*phase) && line.level == Level::Unmarked {
            part = parts(line.text).or(part);
        }
    }
    (at.and_then(|place| NAMES.get(place).copied()), part)
}

/// `… 33% Completed | 1/3 [00:00<…` and `… 45%|████▌     | 30/67 [00:02<…` -> (1, 3), (30, 67). The last one counts.
fn parts(bar: &str) -> Option<(u64, u64)> {
    bar.rsplit("| ").find_map(|after| {
        let (done, of) = after.split_once(" [")?.0.trim().split_once('/')?;
        let (done, of) = (done.parse().ok()?, of.parse().ok()?);
        (of > 0 && done <= of).then_some((done, of))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Phases with their parts, in the order in which they appear while the log grows.
    fn seen(log: &str) -> Vec<(&'static str, Option<(u64, u64)>)> {
        let lines: Vec<&str> = log.lines().collect();
        let mut seen = Vec::new();
        for end in 1..=lines.len() {
            if let (Some(phase), part) = furthest(lines[..end].iter().copied())
                && seen.last() != Some(&(phase, part))
            {
                seen.push((phase, part));
            }
        }
        seen
    }

    const EAGER: &[(&str, Option<(u64, u64)>)] = &[
        ("start", None),
        ("weights", None),
        ("weights", Some((0, 1))),
        ("weights", Some((1, 1))),
        ("kv_cache", None),
        ("warmup", None),
        ("ready", None),
    ];

    #[test]
    fn recorded_starts_go_through_the_phases_in_order() {
        assert_eq!(seen(include_str!("../../../../tests/fixtures/engine-logs/vllm/start-eager.log")), EAGER);
        assert_eq!(seen(include_str!("../../../../tests/fixtures/engine-logs/vllm/start-gemma.log")), EAGER);
        // Two engines behind one server read their weights one after the other.
        let two = [&EAGER[..4], &EAGER[2..]].concat();
        assert_eq!(seen(include_str!("../../../../tests/fixtures/engine-logs/vllm/start-two-engines.log")), two);
        let compiled = seen(include_str!("../../../../tests/fixtures/engine-logs/vllm/start-compiled.log"));
        let names: Vec<&str> = compiled.iter().filter(|(_, part)| part.is_none()).map(|(name, _)| *name).collect();
        assert_eq!(names, ["start", "weights", "compile", "kv_cache", "warmup", "ready"]);
    }

    #[test]
    fn recorded_failures_stop_in_the_phase_in_which_they_failed() {
        let last = |log: &str| furthest(log.lines()).0;
        assert_eq!(last(include_str!("../../../../tests/fixtures/engine-logs/vllm/failed-kv-too-small.log")), Some("kv_cache"));
        assert_eq!(last(include_str!("../../../../tests/fixtures/engine-logs/vllm/failed-max-model-len.log")), Some("start"));
        assert_eq!(last(include_str!("../../../../tests/fixtures/engine-logs/vllm/failed-no-such-model.log")), Some("start"));
        assert_eq!(last(include_str!("../../../../tests/fixtures/engine-logs/vllm/core-killed.log")), None);
    }

    #[test]
    fn parts_of_shards_and_graphs_are_counted() {
        let shards = "Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:03<00:03,  1.6s/it]";
        let several = "Loading safetensors checkpoint shards:   0% Completed | 0/4 [00:00<?, ?it/s]Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03]";
        let graphs = "(Worker_TP0 pid=7) Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  45%|████▌     | 30/67 [00:02<00:03, 12.1it/s]";
        assert_eq!(furthest([shards]), (Some("weights"), Some((2, 4))));
        assert_eq!(furthest([several]), (Some("weights"), Some((1, 4))));
        assert_eq!(furthest([shards, graphs]), (Some("graphs"), Some((30, 67))));
        // A slow process that is still at its weights takes nothing back.
        assert_eq!(furthest([graphs, shards]), (Some("graphs"), Some((30, 67))));
        assert_eq!(parts("| 9/3 [00:00<"), None);
    }

    #[test]
    fn words_of_a_prompt_or_template_are_no_phase() {
        for text in ["a prompt: Starting vLLM server on", "KV cache size: 5", "He said: INFO:     Application startup complete."] {
            assert_eq!(furthest([text]), (None, None), "{text}");
        }
    }
}
