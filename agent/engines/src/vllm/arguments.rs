//! The command line of `vllm serve` for one replica.

use std::collections::BTreeMap;

use warden_domain::{engine::ReplicaPlan, share};

use crate::{adapter::Ground, cards, extra::placed};

/// Memory for the tokens of all conversations on a machine without cards, in GiB (whole ones only). With cards the engine takes what its
/// weights leave free.
const CPU_TOKEN_MEMORY_GIB: u32 = 2;

/// Arguments without the program: what the admin may say otherwise, what the admin said, what is the box's own.
pub(crate) fn arguments(plan: &ReplicaPlan, ground: Ground<'_>) -> Vec<String> {
    let mut list = vec!["serve".to_owned(), plan.model_path.display().to_string()];
    if plan.gpus.is_empty() {
        // Compiling for a processor takes minutes and a C++ compiler.
        list.push("--enforce-eager".to_owned());
    } else if share::said(&plan.extra_args).is_none() {
        // Said outright, also where it is the engine's own default: whether the cards have room for it was decided with this figure.
        list.extend([share::SHARE_FLAGS[0].to_owned(), share::CARD_SHARE.to_string()]);
    }
    if plan.trust_remote_code {
        list.push("--trust-remote-code".to_owned());
    }
    list.extend(placed(plan.engine, &plan.extra_args, &plan.model_path));
    let mut say = |name: &str, value: String| list.extend([name.to_owned(), value]);
    say("--served-model-name", plan.served_name.clone());
    say("--uds", ground.socket.display().to_string());
    say("--max-model-len", plan.context.0.to_string());
    say("--max-num-seqs", plan.slots.to_string());
    say("--tensor-parallel-size", plan.gpus.len().max(1).to_string());
    for flag in [
        // How much of a prompt came from the cache is part of every answer's figures.
        "--enable-prompt-tokens-details",
        "--enable-request-id-headers",
        // A line per request would fill the log within days, and the box has its own.
        "--disable-uvicorn-access-log",
        "--disable-fastapi-docs",
    ] {
        list.push(flag.to_owned());
    }
    list
}

/// The whole environment, apart from what a launcher adds for itself. Nothing is fetched and nothing is reported.
pub(crate) fn environment(plan: &ReplicaPlan, ground: Ground<'_>) -> BTreeMap<String, String> {
    let mut list = cards::environment(&plan.gpus);
    let mut say = |name: &str, value: &str| list.insert(name.to_owned(), value.to_owned());
    say("HF_HUB_OFFLINE", "1");
    say("TRANSFORMERS_OFFLINE", "1");
    say("PYTHONUNBUFFERED", "1");
    say("VLLM_NO_USAGE_STATS", "1");
    // What it compiled is there again at the next start.
    say("VLLM_CACHE_ROOT", &ground.cache.display().to_string());
    // Otherwise it looks for an address by which others could reach it.
    say("VLLM_HOST_IP", "127.0.0.1");
    if plan.gpus.is_empty() {
        say("VLLM_CPU_KVCACHE_SPACE", &CPU_TOKEN_MEMORY_GIB.to_string());
    }
    list
}
