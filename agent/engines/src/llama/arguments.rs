//! The command line of llama-server for one replica.
//!
//! Every argument is said outright, also where it is the default of the present version, so that another version behaves the same.

use std::{collections::BTreeMap, path::Path};

use warden_domain::engine::ReplicaPlan;

use crate::{adapter::Ground, cards, extra::placed};

/// Host memory for prompts of past conversations, in MiB. The engine's own default of 8 GiB would push a model out of a small box.
const PROMPT_CACHE_MIB: u32 = 512;
/// Saved states per slot, for models with a sliding window.
const CHECKPOINTS: u32 = 8;

/// Arguments without the program: what the admin may say otherwise, what the admin said, what is the box's own.
pub(crate) fn arguments(plan: &ReplicaPlan, ground: Ground<'_>) -> Vec<String> {
    let mut list = wishes(plan, ground);
    list.extend(placed(plan.engine, &plan.extra_args, plan.model_path.parent().unwrap_or_else(|| Path::new("/"))));
    list.extend(own(plan, ground));
    list
}

fn wishes(plan: &ReplicaPlan, ground: Ground<'_>) -> Vec<String> {
    let threads = ground.machine.threads().to_string();
    let mut list: Vec<String> = Vec::new();
    let mut say = |name: &str, value: &str| list.extend([name.to_owned(), value.to_owned()]);
    say("--threads", &threads);
    say("--threads-batch", &threads);
    // Fitting loads the model twice and may shrink the window that was promised. Whether it fits is said before the load.
    say("--fit", "off");
    if let Some(cards) = std::num::NonZeroUsize::new(plan.gpus.len()) {
        say("--n-gpu-layers", "all");
        say("--split-mode", if cards.get() == 1 { "none" } else { "layer" });
    }
    say("--cache-ram", &PROMPT_CACHE_MIB.to_string());
    say("--ctx-checkpoints", &CHECKPOINTS.to_string());
    list
}

fn own(plan: &ReplicaPlan, ground: Ground<'_>) -> Vec<String> {
    // The engine is told the window of all slots together.
    let whole_context = plan.context.0.saturating_mul(u64::from(plan.slots));
    let mut list: Vec<String> = Vec::new();
    let mut say = |name: &str, value: Option<String>| {
        list.push(name.to_owned());
        list.extend(value);
    };
    say("--model", Some(plan.model_path.display().to_string()));
    say("--alias", Some(plan.served_name.clone()));
    say("--host", Some(ground.socket.display().to_string()));
    say("--ctx-size", Some(whole_context.to_string()));
    say("--parallel", Some(plan.slots.to_string()));
    say("--no-kv-unified", None);
    // The phases of the start are only told from this level on.
    say("--log-verbosity", Some("4".to_owned()));
    say("--log-colors", Some("off".to_owned()));
    say("--metrics", None);
    say("--offline", None);
    say("--no-ui", None);
    list
}

/// The whole environment, apart from what a launcher adds for itself. Waiting threads sleep: with several engines on one machine,
/// spinning ones cost up to twenty times the speed.
pub(crate) fn environment(plan: &ReplicaPlan) -> BTreeMap<String, String> {
    let mut list = cards::environment(&plan.gpus);
    list.insert("OMP_WAIT_POLICY".to_owned(), "passive".to_owned());
    list
}
