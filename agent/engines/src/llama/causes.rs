//! Root causes of a failed start or a death, read from the engine's log.
//!
//! Lines of one run in, a reason with a way out for the page. Only lines the engine marked as errors count, or unmarked ones of a
//! known form: what a prompt or a chat template says is never taken for a cause. Causes stand in the table by weight: memory before
//! everything that follows from it.

use warden_domain::model::StateReason;

use super::line::{Level, parse};
use crate::cause::{Cause, weightiest};

/// Lines that look like a cause and are none: the engine goes on after them.
const HARMLESS: &[&str] = &["retrying without pipeline parallelism"];

const CAUSES: &[Cause] = &[
    Cause {
        signs: &["failed to allocate buffer for kv cache", "failed to initialize the context: std::bad_alloc"],
        code: "out_of_memory",
        message: "The engine ran out of memory when it reserved the model's context.",
        hint: "Choose a shorter context or fewer slots, or unload another model.",
        figure: None,
    },
    Cause {
        signs: &["cudamalloc failed", "hipmalloc failed", "out of device memory", "erroroutofmemory", "vk_error_out_of_device_memory"],
        code: "out_of_memory",
        message: "The memory of the card was used up.",
        hint: "Give the model more cards, a shorter context or fewer slots, unload what else holds the card, or use a smaller model.",
        figure: None,
    },
    Cause {
        signs: &["out of memory", "std::bad_alloc", "insufficient memory", "not enough memory", "failed to allocate", "allocation failed"],
        code: "out_of_memory",
        message: "The engine ran out of memory.",
        hint: "Choose a shorter context or fewer slots, unload another model, or use a smaller model.",
        figure: None,
    },
    Cause {
        signs: &["couldn't bind http server socket"],
        code: "address_in_use",
        message: "The engine could not listen on its socket: something else is in its place.",
        hint: "Load the model again. If it stays so, remove the file that is in the way.",
        figure: None,
    },
    Cause {
        signs: &["no such file or directory)", "cannot open shared object file"],
        code: "file_missing",
        message: "A file the engine needs is not there.",
        hint: "Check that the model's file is still in its place, then load the model again.",
        figure: None,
    },
    Cause {
        signs: &["permission denied"],
        code: "file_not_readable",
        message: "The engine may not read the model's file.",
        hint: "Give the engine's group the right to read the file, then load the model again.",
        figure: None,
    },
    Cause {
        signs: &["invalid magic characters"],
        code: "model_file_damaged",
        message: "The model's file is no GGUF file.",
        hint: "Choose a GGUF file, or copy the model again and compare its size with the original.",
        figure: None,
    },
    Cause {
        signs: &["failed to read key-value pairs", "failed to read tensor info", "gguf version"],
        code: "model_file_damaged",
        message: "The model's file is cut in its header, or of a form this engine does not read.",
        hint: "Copy the model again and compare its size with the original.",
        figure: None,
    },
    Cause {
        signs: &["not within the file bounds", "corrupted or incomplete", "invalid tensor", "wrong number of tensors", "missing tensor"],
        code: "model_file_damaged",
        message: "The model's file is cut or damaged.",
        hint: "Copy the model again and compare its size with the original.",
        figure: None,
    },
    Cause {
        signs: &["unknown model architecture", "unknown pre-tokenizer type", "unknown tokenizer"],
        code: "model_not_supported",
        message: "This version of the engine does not know this kind of model.",
        hint: "Use another model, or an engine pack with a newer version.",
        figure: None,
    },
    Cause {
        signs: &["error: invalid argument", "error while handling argument"],
        code: "engine_arguments",
        message: "The engine did not understand its arguments.",
        hint: "Check the model's additional arguments. Without any, the engine's version does not fit this version of the appliance: install the \
               engine pack that belongs to it.",
        figure: None,
    },
    Cause {
        signs: &["failed to initialize cuda", "no cuda-capable device", "cuda driver version is insufficient", "cuda error"],
        code: "card_failed",
        message: "The engine could not use the card.",
        hint: "Look at the page of the cards for one that is missing or faulty. If it stays so, restart the machine.",
        figure: None,
    },
    Cause {
        signs: &["ggml_assert", "terminate called", "segmentation fault"],
        code: "engine_crashed",
        message: "The engine crashed by a fault of its own.",
        hint: "Load the model again. If it stays so, report the last lines of its log.",
        figure: None,
    },
    Cause {
        signs: &["failed to load model", "failed to create context", "failed to initialize the context", "exiting due to"],
        code: "engine_failed",
        message: "The engine could not load the model.",
        hint: "The last lines of its log say more.",
        figure: None,
    },
];

/// The weightiest cause in these lines of one run; `None` when no line tells of one.
#[must_use]
pub fn find<'a>(lines: impl IntoIterator<Item = &'a str>) -> Option<StateReason> {
    let errors = lines.into_iter().map(parse).filter(|line| {
        let lower = line.text.to_lowercase();
        let counts = match line.level {
            Level::Error => true,
            Level::Unmarked => begins_like_a_failure(&lower),
            Level::Info | Level::Warning => false,
        };
        counts && !HARMLESS.iter().any(|sign| lower.contains(sign))
    });
    weightiest(CAUSES, errors.map(|line| line.text))
}

/// Unmarked lines come from the C library, the loader or the argument parser, and begin in these ways. Anything else unmarked is a
/// part of a longer text, such as a chat template.
fn begins_like_a_failure(lower: &str) -> bool {
    const BEGINNINGS: &[&str] = &["error:", "error while", "terminate called", "ggml_assert", "cuda error", "/"];
    BEGINNINGS.iter().any(|begin| lower.starts_with(begin)) || lower.contains("error while loading shared libraries")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_recorded_failure_is_told_by_its_own_cause() {
        let recorded = [
            (include_str!("../../tests/golden/failed/file-missing.txt"), "file_missing"),
            (include_str!("../../tests/golden/failed/not-a-gguf.txt"), "model_file_damaged"),
            (include_str!("../../tests/golden/failed/header-cut.txt"), "model_file_damaged"),
            (include_str!("../../tests/golden/failed/data-cut.txt"), "model_file_damaged"),
            (include_str!("../../tests/golden/failed/memory.txt"), "out_of_memory"),
            (include_str!("../../tests/golden/failed/socket-taken.txt"), "address_in_use"),
            (include_str!("../../tests/golden/failed/architecture-unknown.txt"), "model_not_supported"),
            (include_str!("../../tests/golden/failed/argument-unknown.txt"), "engine_arguments"),
            (include_str!("../../../../tests/fixtures/engine-logs/llama.cpp/failed-file-missing.log"), "file_missing"),
            (include_str!("../../../../tests/fixtures/engine-logs/llama.cpp/failed-not-a-gguf.log"), "model_file_damaged"),
            (include_str!("../../../../tests/fixtures/engine-logs/llama.cpp/failed-header-cut.log"), "model_file_damaged"),
            (include_str!("../../../../tests/fixtures/engine-logs/llama.cpp/failed-data-cut.log"), "model_file_damaged"),
            (include_str!("../../../../tests/fixtures/engine-logs/llama.cpp/failed-kv-too-large.log"), "out_of_memory"),
            (include_str!("../../../../tests/fixtures/engine-logs/llama.cpp/failed-port-busy.log"), "address_in_use"),
            (include_str!("../../../../tests/fixtures/engine-logs/llama.cpp/failed-argument-unknown.log"), "engine_arguments"),
        ];
        for (log, code) in recorded {
            let reason = find(log.lines()).unwrap();
            assert_eq!(reason.code, code, "{log}");
            assert!(reason.hint.is_some());
        }
    }

    #[test]
    fn which_memory_was_short_is_said() {
        let message = |log: &str| find(log.lines()).unwrap().message;
        assert!(message(include_str!("../../../../tests/fixtures/engine-logs/llama.cpp/failed-kv-too-large.log")).contains("context"));
        let card = "0.00.000.001 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 0: cudaMalloc failed: out of memory";
        assert!(message(card).contains("card"));
        assert!(message("0.00.000.001 E x: insufficient memory").starts_with("The engine ran out of memory."));
    }

    #[test]
    fn memory_outweighs_what_follows_from_it() {
        let log = "0.00.000.001 E x: n_ctx too large, failed to create context\n0.00.000.002 E x: failed to allocate buffer for kv cache";
        assert_eq!(find(log.lines()).unwrap().code, "out_of_memory");
    }

    #[test]
    fn words_of_a_prompt_or_template_are_no_cause() {
        for harmless in [
            "0.00.000.001 I srv  x: out of memory is a song",
            "You ran out of memory, said the template",
            "0.00.000.001 E x: cudaMalloc failed: out of memory, retrying without pipeline parallelism",
            "",
        ] {
            assert_eq!(find([harmless]), None, "{harmless}");
        }
        assert_eq!(find(include_str!("../../tests/golden/llama-start.txt").lines()), None);
    }

    #[test]
    fn terminal_codes_in_a_log_do_not_reach_the_page() {
        let reason = find(["0.00.000.001 E x: out of memory \u{1b}[31m red"]).unwrap();
        assert!(!reason.message.contains('\u{1b}'));
    }
}
