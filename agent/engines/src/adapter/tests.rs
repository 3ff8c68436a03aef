use std::path::PathBuf;

use warden_domain::{
    ProblemKind,
    ids::{GenerationId, GpuId, ReplicaId},
    share,
};

use super::*;

/// A plan of a tiny model.
pub(crate) fn plan(engine: EngineKind, slots: u16, cards: usize, extra: &[&str]) -> ReplicaPlan {
    let model_path = match engine {
        EngineKind::LlamaCpp => "/data/models/tiny.gguf",
        EngineKind::Vllm => "/data/models/tiny",
    };
    ReplicaPlan {
        replica: ReplicaId::new("tiny-0").unwrap(),
        generation: GenerationId::from_stored("gen_1"),
        engine,
        served_name: "tiny".to_owned(),
        model_path: PathBuf::from(model_path),
        context: Tokens(4096),
        slots,
        gpus: (0..cards).map(|card| GpuId::from_stored(format!("GPU-0000000{card}-1111-2222-3333-444444444444"))).collect(),
        device_minors: (0u32..).take(cards).collect(),
        trust_remote_code: false,
        extra_args: extra.iter().map(|&word| word.to_owned()).collect(),
    }
}

/// The appliance, with so many processors.
pub(crate) fn ground(cpus: usize) -> Ground<'static> {
    Ground {
        socket: Path::new("/run/warden-engine/tiny-0/engine.sock"),
        cache: Path::new("/tmp/engine-cache"),
        machine: Machine { cpus, memory: None },
    }
}

/// The command as a golden file holds it: environment first, then one argument per line.
fn written(plan: &ReplicaPlan, cpus: usize) -> String {
    let command = command(plan, ground(cpus)).unwrap();
    let environment = command.environment.iter().map(|(name, value)| format!("{name}={value}\n"));
    let arguments = command.arguments.iter().map(|argument| format!("{argument}\n"));
    environment.chain(["\n".to_owned()]).chain(arguments).collect()
}

macro_rules! golden {
    ($name:literal, $plan:expr, $cpus:expr) => {
        ($name, include_str!(concat!("../../tests/golden/commands/", $name, ".txt")), $plan, $cpus)
    };
}

#[test]
fn command_lines_and_environments_change_only_on_purpose() {
    use EngineKind::{LlamaCpp, Vllm};
    let table: [(&str, &str, ReplicaPlan, usize); 9] = [
        golden!("llama-2-cpus-4-slots", plan(LlamaCpp, 4, 0, &[]), 2),
        golden!("llama-96-cpus-1-slot", plan(LlamaCpp, 1, 0, &[]), 96),
        golden!("llama-1-card", plan(LlamaCpp, 4, 1, &[]), 32),
        golden!("llama-2-cards", plan(LlamaCpp, 4, 2, &[]), 32),
        golden!("llama-extra", plan(LlamaCpp, 4, 1, &["--n-gpu-layers", "20", "--flash-attn", "on"]), 32),
        golden!("vllm-cpu", plan(Vllm, 8, 0, &[]), 2),
        golden!("vllm-1-card", plan(Vllm, 32, 1, &[]), 32),
        golden!("vllm-2-cards", plan(Vllm, 32, 2, &[]), 32),
        golden!("vllm-extra", plan(Vllm, 32, 1, &["--gpu_memory_utilization=0.8", "--tool-call-parser", "hermes", "--enable-auto-tool-choice"]), 32),
    ];
    let rewrite = std::env::var_os("WARDEN_WRITE_GOLDEN").is_some();
    for (name, golden, plan, cpus) in table {
        let now = written(&plan, cpus);
        if rewrite {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/commands").join(format!("{name}.txt"));
            std::fs::write(file, &now).unwrap();
        } else {
            assert_eq!(now, golden, "{name}: run this test with WARDEN_WRITE_GOLDEN=1 when the change is wanted");
        }
    }
}

#[test]
fn vllm_is_told_its_share_of_cards_once_and_the_admins_word_counts() {
    let said = |cards, extra: &[&str]| {
        let arguments = command(&plan(EngineKind::Vllm, 1, cards, extra), ground(2)).unwrap().arguments;
        let shares = arguments.iter().filter(|word| word.contains("memory-utilization")).count();
        (shares, share::said(&arguments).map(Result::unwrap))
    };
    assert_eq!(said(2, &[]), (1, Some(share::CARD_SHARE)));
    assert_eq!(said(2, &["--gpu-memory-utilization", "0.5"]), (1, Some(0.5)));
    assert_eq!(said(0, &[]), (0, None), "processors have no share of a card");
}

#[test]
fn each_slot_of_llama_gets_the_whole_window_that_was_promised() {
    let whole = |slots| written(&plan(EngineKind::LlamaCpp, slots, 0, &[]), 2);
    assert!(whole(4).contains("--ctx-size\n16384\n"));
    assert!(whole(1).contains("--ctx-size\n4096\n"));
}

#[test]
fn the_boxs_own_flags_come_after_the_admins_and_are_never_the_admins() {
    for engine in [EngineKind::LlamaCpp, EngineKind::Vllm] {
        let arguments = command(&plan(engine, 1, 0, &["--seed", "7"]), ground(2)).unwrap().arguments;
        let place = |word: &str| arguments.iter().position(|argument| argument == word);
        for own in ["--alias", "--host", "--served-model-name", "--uds", "--max-model-len", "--ctx-size"] {
            assert!(place(own).is_none_or(|own| place("--seed").is_some_and(|extra| extra < own)), "{own}");
        }
        let problem = command(&plan(engine, 1, 0, &["--port", "1"]), ground(2)).unwrap_err();
        assert_eq!(problem.kind, ProblemKind::Invalid);
    }
}

#[test]
fn code_of_a_model_runs_only_where_the_one_setting_says_so() {
    let with = |engine, trust_remote_code| {
        let plan = ReplicaPlan { trust_remote_code, ..plan(engine, 1, 0, &[]) };
        command(&plan, ground(2)).unwrap().arguments.iter().any(|argument| argument.contains("trust"))
    };
    assert!(with(EngineKind::Vllm, true));
    assert!(!with(EngineKind::Vllm, false) && !with(EngineKind::LlamaCpp, true));
    let beside = command(&plan(EngineKind::LlamaCpp, 1, 0, &["--mmproj", "p.gguf"]), ground(2)).unwrap().arguments;
    assert!(beside.windows(2).any(|pair| pair == ["--mmproj", "/data/models/p.gguf"]), "{beside:?}");
}

#[test]
fn an_environment_holds_nothing_that_loads_code_or_names_a_secret() {
    for engine in [EngineKind::LlamaCpp, EngineKind::Vllm] {
        for cards in [0, 2] {
            for name in command(&plan(engine, 1, cards, &[]), ground(2)).unwrap().environment.keys() {
                let known = ["CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "PYTHONUNBUFFERED"];
                let family = ["OMP_", "VLLM_"].iter().any(|family| name.starts_with(family));
                // The launcher's own rule: no name with PATH in it, since some of those name a library to load.
                assert!((known.contains(&name.as_str()) || family) && !name.contains("PATH") && !name.contains("TOKEN"), "{name}");
            }
        }
    }
}

#[test]
fn without_cards_an_engine_sees_none() {
    for engine in [EngineKind::LlamaCpp, EngineKind::Vllm] {
        assert_eq!(command(&plan(engine, 1, 0, &[]), ground(2)).unwrap().environment["CUDA_VISIBLE_DEVICES"], "");
        let two = command(&plan(engine, 1, 2, &[]), ground(2)).unwrap().environment["CUDA_VISIBLE_DEVICES"].clone();
        assert_eq!(two, "GPU-00000000-1111-2222-3333-444444444444,GPU-00000001-1111-2222-3333-444444444444");
    }
}
