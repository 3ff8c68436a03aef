//! Root causes of a failed start or a death of vLLM, read from its log.
//!
//! Lines of one run in, a reason with a way out for the page. A failed start tells its cause in the process that failed and then again, less
//! clearly, in each process that waited for it; the table puts the cause before its echoes. Of the words of libraries only those count
//! that have the form of an error: what a prompt or a template says is never taken for a cause. What comes after the server was asked to
//! stop is no cause: it tells of dead processes then although all is well.

use warden_domain::model::StateReason;

use super::line::{Level, parse};
use crate::cause::{Cause, weightiest};

const ASKED_TO_STOP: &str = "API server: shutdown triggered";

const CAUSES: &[Cause] = &[
    Cause {
        signs: &["kv cache is needed, which is larger than the available kv cache memory"],
        code: "context_too_large",
        message: "The memory left for conversations does not hold one of the length that was asked for.",
        hint: "Choose a shorter context, give the model more cards, or unload what else holds them.",
        figure: Some((
            "estimated maximum model length is",
            "Set the model's context to {n} tokens or less, give the model more cards, or unload what else holds them.",
        )),
    },
    Cause {
        signs: &["is greater than the derived max_model_len"],
        code: "context_too_large",
        message: "The context that was asked for is longer than the model can take.",
        hint: "Choose a shorter context for this model.",
        figure: Some(("max_position_embeddings=", "Set the model's context to {n} tokens or less.")),
    },
    Cause {
        signs: &["no available memory for the cache blocks"],
        code: "out_of_memory",
        message: "The model's weights leave no memory of the card for conversations.",
        hint: "Give the model more cards, use a smaller model, or add --gpu-memory-utilization with a larger share to its arguments.",
        figure: None,
    },
    Cause {
        signs: &["is less than desired gpu memory utilization"],
        code: "card_occupied",
        message: "Something else holds memory of the card, so the engine's share of it is not free.",
        hint: "Unload what else holds the card, choose another one, or add --gpu-memory-utilization with a smaller share to the model's arguments.",
        figure: None,
    },
    Cause {
        signs: &["cuda out of memory", "torch.outofmemoryerror", "not enough gpu memory", "hip out of memory", "outofmemoryerror"],
        code: "out_of_memory",
        message: "The memory of the card was used up.",
        hint: "Give the model more cards, a shorter context or fewer slots, unload what else holds the card, or use a smaller model.",
        figure: None,
    },
    Cause {
        signs: &["bad_alloc", "cannot allocate memory", "memoryerror", "can't allocate memory"],
        code: "out_of_memory",
        message: "The engine ran out of the machine's memory.",
        hint: "Unload another model or use a smaller one.",
        figure: None,
    },
    Cause {
        signs: &["(exit code: -9)", "': -9"],
        code: "engine_killed",
        message: "A process of the engine was killed (signal 9).",
        hint: "Something outside ended it, most often the system because memory ran out. Load the model again.",
        figure: None,
    },
    Cause {
        signs: &["no space left on device"],
        code: "disk_full",
        message: "A disk or memory file system that the engine writes to is full.",
        hint: "Free some space, then load the model again.",
        figure: None,
    },
    Cause {
        signs: &["address already in use"],
        code: "address_in_use",
        message: "The engine could not listen on its socket: something else is in its place.",
        hint: "Load the model again. If it stays so, remove the file that is in the way.",
        figure: None,
    },
    Cause {
        signs: &["permission denied", "permissionerror"],
        code: "file_not_readable",
        message: "The engine may not read the model's files.",
        hint: "Give the engine's group the right to read the folder and its files, then load the model again.",
        figure: None,
    },
    Cause {
        signs: &[
            "repo id must be in the form",
            "is not a valid model identifier",
            "does not appear to have a file named",
            "cannot find any model weights",
            "can't load the configuration of",
            "no such file or directory",
            "localentrynotfounderror",
        ],
        code: "file_missing",
        message: "The model's folder, or a file that must lie in it, is not there.",
        hint: "Check that the folder is still in its place and whole (config.json, tokenizer, *.safetensors), then load the model again.",
        figure: None,
    },
    Cause {
        signs: &["safetensorerror", "error while deserializing header", "incompletemetadata", "metadataincompletebuffer", "headertoolarge"],
        code: "model_file_damaged",
        message: "A file of the model's weights is cut or damaged.",
        hint: "Copy the model again and compare the sizes of its files with the original.",
        figure: None,
    },
    Cause {
        signs: &[
            "are not supported for now",
            "failed to be inspected",
            "does not recognize this architecture",
            "has no vllm implementation",
            "model class not found",
            "unknown quantization method",
            "quantization method specified in the model config",
            "is not supported for the current gpu",
            "trust_remote_code=true",
        ],
        code: "model_not_supported",
        message: "This version of the engine cannot run this kind of model on this machine.",
        hint: "Use another model, or an engine pack with a newer version.",
        figure: None,
    },
    Cause {
        signs: &["unrecognized arguments", "error: argument ", "error: unrecognized", "invalid choice:", "expected one argument", "ambiguous option"],
        code: "engine_arguments",
        message: "The engine did not understand its arguments.",
        hint: "Check the model's additional arguments. Without any, the engine's version does not fit this version of the appliance: install the \
               engine pack that belongs to it.",
        figure: None,
    },
    Cause {
        signs: &["nccl error", "ncclsystemerror", "ncclunhandledcudaerror", "ncclinternalerror", "ncclremoteerror"],
        code: "cards_apart",
        message: "The cards of this model could not talk to each other.",
        hint: "Run the model on one card, or restart the machine. If it stays so, one of the cards is not seated well.",
        figure: None,
    },
    Cause {
        signs: &[
            "found no nvidia driver",
            "no cuda gpus are available",
            "no cuda-capable device",
            "failed to infer device type",
            "cuda driver version is insufficient",
            "cuda error",
            "nvmlerror",
        ],
        code: "card_failed",
        message: "The engine could not use the card.",
        hint: "Look at the page of the cards for one that is missing or faulty. If it stays so, restart the machine.",
        figure: None,
    },
    Cause {
        signs: &["chat template", "chat_template"],
        code: "chat_template_missing",
        message: "The model has no usable chat template.",
        hint: "Use a model made for chat, or name a template with --chat-template in the model's additional arguments.",
        figure: None,
    },
    Cause {
        signs: &["packagenotfounderror", "modulenotfounderror", "importerror", "undefined symbol", "cannot open shared object file"],
        code: "engine_broken",
        message: "A part of the engine is missing.",
        hint: "Install the engine again.",
        figure: None,
    },
    Cause {
        signs: &["engine core exited unexpectedly", "enginedeaderror", "died unexpectedly"],
        code: "engine_core_died",
        message: "The process of the engine that computes died, and its server ended with it.",
        hint: "Load the model again. If it stays so, report the last lines of its log.",
        figure: None,
    },
    Cause {
        signs: &[
            "valueerror:",
            "value error,",
            "runtimeerror:",
            "assertionerror:",
            "keyerror:",
            "typeerror:",
            "notimplementederror:",
            "attributeerror:",
        ],
        code: "engine_failed",
        message: "The engine could not load the model.",
        hint: "The last lines of its log say more.",
        figure: None,
    },
    Cause {
        signs: &["enginecore failed to start", "engine core initialization failed", "failed to start"],
        code: "engine_failed",
        message: "The engine could not load the model.",
        hint: "The last lines of its log say more.",
        figure: None,
    },
];

/// An echo: it tells that another process failed, not why.
const ECHO: &str = "engine core initialization failed";

/// The weightiest cause in these lines of one run; `None` when no line tells of one.
pub(crate) fn find<'a>(lines: impl IntoIterator<Item = &'a str>) -> Option<StateReason> {
    let run = lines.into_iter().map(parse).take_while(|line| !(line.level == Level::Info && line.text.contains(ASKED_TO_STOP)));
    let mut echo = None;
    let errors: Vec<&str> = run
        .filter(|line| match line.level {
            Level::Error => true,
            // The one warning that tells of a death.
            Level::Warning => line.text.contains("engine core exited unexpectedly"),
            Level::Unmarked => begins_like_a_failure(line.text),
            Level::Info => false,
        })
        .map(|line| line.text)
        .filter(|text| {
            // Without a cause before it, and with a process that was killed, the echo is all there is.
            let repeats = text.to_lowercase().contains(ECHO) && !text.contains("': -9");
            echo = echo.or(repeats.then_some(*text));
            !repeats
        })
        .collect();
    weightiest(CAUSES, errors).or_else(|| weightiest(CAUSES, echo))
}

/// `ValueError: …`, `torch.OutOfMemoryError: …`, `  Value error, …`, `vllm serve: error: …`: the last line of a Python traceback, the
/// line of a failed check, and that of the argument parser.
fn begins_like_a_failure(text: &str) -> bool {
    if text.starts_with("  Value error, ") || (text.starts_with("vllm") && text.contains(": error: ")) {
        return true;
    }
    let Some((name, _)) = text.split_once(':') else { return text == "MemoryError" };
    let named = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_'));
    named && (name.ends_with("Error") || name.ends_with("Exception"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recorded run, the code of its cause, words of the sentence and of the way out.
    const RECORDED: &[(&str, &str, &str, &str)] = &[
        (include_str!("../../../../tests/fixtures/engine-logs/vllm/failed-kv-too-small.log"), "context_too_large", "does not hold one", "2097024"),
        (include_str!("../../../../tests/fixtures/engine-logs/vllm/failed-max-model-len.log"), "context_too_large", "longer than the model", "4096"),
        (
            include_str!("../../../../tests/fixtures/engine-logs/vllm/failed-no-such-model.log"),
            "file_missing",
            "/data/models/nonexistent",
            "config.json",
        ),
        (
            include_str!("../../../../tests/fixtures/engine-logs/vllm/core-killed.log"),
            "engine_core_died",
            "that computes died",
            "Load the model again",
        ),
    ];

    /// As the source of vLLM 0.32 writes them; nobody here has such a machine.
    const WRITTEN: &[(&str, &str)] = &[
        ("(Worker pid=1) ERROR 11-29 17:10:41 [a.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "out_of_memory"),
        ("(EngineCore pid=1) ERROR 11-29 17:10:41 [a.py:1] ValueError: No available memory for the cache blocks. Try increasing", "out_of_memory"),
        (
            "(EngineCore pid=1) ERROR 11-29 17:10:41 [a.py:1] ValueError: Free memory on device cuda:0 (3.1/23.5 GiB) on startup is less than \
             desired GPU memory utilization (0.92, 21.6 GiB).",
            "card_occupied",
        ),
        (
            "(EngineCore pid=1) ERROR 11-29 17:10:41 [a.py:1] Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down",
            "engine_killed",
        ),
        ("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': -9}", "engine_killed"),
        ("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}", "engine_failed"),
        ("  Value error, Model architectures ['FooForCausalLM'] are not supported for now. Supported architectures:", "model_not_supported"),
        ("vllm serve: error: unrecognized arguments: --nonsense", "engine_arguments"),
        ("OSError: [Errno 98] Address already in use", "address_in_use"),
        ("importlib.metadata.PackageNotFoundError: No package metadata was found for vllm", "engine_broken"),
        ("safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata", "model_file_damaged"),
        ("RuntimeError: Found no NVIDIA driver on your system.", "card_failed"),
        ("(Worker_TP1 pid=2) ERROR 11-29 17:10:41 [a.py:1] RuntimeError: NCCL error: unhandled system error", "cards_apart"),
        ("ValueError: no chat template was given", "chat_template_missing"),
        ("KeyError: 'model.layers.0.weight'", "engine_failed"),
    ];

    #[test]
    fn each_recorded_failure_is_told_by_its_own_cause() {
        for (log, code, message, hint) in RECORDED {
            let reason = find(log.lines()).unwrap();
            assert_eq!(reason.code, *code, "{log}");
            assert!(reason.message.contains(message), "{}", reason.message);
            assert!(reason.hint.as_ref().is_some_and(|said| said.contains(hint)), "{:?}", reason.hint);
        }
    }

    #[test]
    fn each_failure_of_the_source_is_told_by_its_own_cause() {
        for (line, code) in WRITTEN {
            let reason = find([*line]).unwrap();
            assert_eq!(reason.code, *code, "{line}");
            assert!(reason.hint.is_some() && reason.message.contains("It said: "), "{line}");
        }
    }

    #[test]
    fn an_echo_never_hides_the_cause() {
        let log =
            "RuntimeError: Engine core initialization failed. See root cause above.\n(EngineCore pid=1) ERROR 11-29 17:10:41 [a.py:1] KeyError: 'x'";
        assert!(find(log.lines()).unwrap().message.contains("KeyError"));
    }

    #[test]
    fn a_start_or_a_stop_that_went_well_has_no_cause() {
        for log in [
            include_str!("../../../../tests/fixtures/engine-logs/vllm/start-eager.log"),
            include_str!("../../../../tests/fixtures/engine-logs/vllm/start-compiled.log"),
            include_str!("../../../../tests/fixtures/engine-logs/vllm/start-gemma.log"),
            include_str!("../../../../tests/fixtures/engine-logs/vllm/start-two-engines.log"),
            include_str!("../../../../tests/fixtures/engine-logs/vllm/stopped.log"),
            include_str!("../../../../tests/fixtures/engine-logs/vllm/stopped-at-work.log"),
        ] {
            assert_eq!(find(log.lines()), None);
        }
    }

    #[test]
    fn words_of_a_prompt_or_template_are_no_cause() {
        for harmless in [
            "(APIServer pid=1) INFO 11-29 17:10:41 [a.py:1] CUDA out of memory is a song",
            "You ran out of memory, said the template",
            "He wrote ValueError: nothing",
            "    raise ValueError(",
            "",
        ] {
            assert_eq!(find([harmless]), None, "{harmless}");
        }
    }
}
