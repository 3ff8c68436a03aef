//! Invented boxes to look at.

use std::time::Duration;

use warden_domain::{
    engine::{EngineKind, EnginePack, PackState},
    issue::{Fix, IssueCode},
    model::StateWord,
    units::Tokens,
    usage::UsageTotals,
};

use crate::ports::World;

/// The world of a scene; `None` for a name that is not one.
pub fn world(scene: &str) -> Option<World> {
    let world = match scene {
        "fresh" => World::fresh(),
        "empty" | "busy" | "building" => World::claimed(),
        _ => return None,
    };
    world.edit(|m| m.load_takes = Some(Duration::from_secs(4)));
    world.lay_file("smollm2-135m-instruct-q8_0", 144_811_008);
    world.lay_file("qwen3-0.6b-q4_k_m", 484_220_320);
    match scene {
        "busy" => busy(&world),
        "building" => building(&world),
        _ => {}
    }
    Some(world)
}

fn usage(requests: u64, uncounted: u64, prompt: u64, cached: u64, completion: u64) -> UsageTotals {
    UsageTotals { requests, requests_without_counts: uncounted, prompt: Tokens(prompt), cached: Tokens(cached), completion: Tokens(completion) }
}

fn busy(world: &World) {
    let smol = world.add_model("smollm2-135m", Some("SmolLM2 135M Instruct"), Some(StateWord::Running));
    let qwen = world.add_model("qwen3-0.6b", Some("Qwen3 0.6B"), Some(StateWord::Loading));
    let gemma = world.add_model("gemma-3-270m", Some("Gemma 3 270M it"), Some(StateWord::Failed));
    world.add_issue(
        IssueCode::ModelFailed,
        gemma.as_str(),
        "The model gemma-3-270m failed. The engine was killed (signal 9).",
        Some(Fix::LoadModel(gemma.clone())),
    );
    world.add_issue(IssueCode::DataDiskNearlyFull, "data", "The disk with the models is nearly full: 31.0 GiB of 953.9 GiB are free.", None);
    world.add_model("embedder", None, None);
    world.add_model("phi-4-mini-instruct-with-a-long-name", Some("Phi 4 mini instruct"), Some(StateWord::Stopped));
    world.add_key("first-key", usage(1_284, 0, 2_912_400, 2_041_077, 402_118), true, false);
    world.add_key("invoice-bot", usage(96, 3, 88_210, 0, 12_004), true, false);
    world.add_key("claude-code-ada", usage(0, 0, 0, 0, 0), false, false);
    world.add_key("old-laptop", usage(17, 0, 4_511, 0, 2_020), true, true);
    world.edit(|m| {
        m.flights.insert(smol.clone(), 3);
        let log = [
            "build: 11434 with cc for x86_64-linux-gnu",
            "system info: n_threads = 2, n_threads_batch = 2, total_threads = 2",
            "srv    load_model: loading model '/data/models/smollm2-135m.gguf'",
            "llama_model_loader: loaded meta data with 36 key-value pairs and 272 tensors",
            "load_tensors:   CPU_Mapped model buffer size =   136.73 MiB",
            "llama_context: n_ctx = 16384, n_ctx_per_seq = 4096",
            "srv          init: initializing slots, n_slots = 4",
            "main: server is listening on unix socket",
            "srv  update_slots: all slots are idle",
            "slot launch_slot_: id  0 | task 12 | processing task",
            "slot      release: id  0 | task 12 | stop processing: n_tokens = 87, truncated = 0",
        ];
        m.logs.insert(smol, log.map(ToOwned::to_owned).to_vec());
        m.logs.insert(qwen, log[..5].iter().map(|&line| line.to_owned()).collect());
    });
}

fn building(world: &World) {
    world.add_model("smollm2-135m", Some("SmolLM2 135M Instruct"), Some(StateWord::Waiting));
    let state = PackState::Building { step: Some(123), of: Some(208), message: "compiling src/llama-model.cpp".to_owned() };
    world.edit(|m| m.packs = vec![EnginePack { engine: EngineKind::LlamaCpp, version: Some("b11434".to_owned()), digest: None, state }]);
}
