//! The command line of llama-server for one replica.
//!
//! Every argument is said outright, also where it is the default of the present version, so that another version behaves the same.

use std::{collections::BTreeMap, path::Path};

use warden_domain::engine::ReplicaPlan;

/// Facts of the machine that the command line depends on.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Processors the engine may use.
    pub cpus: usize,
}

impl Machine {
    /// This machine, as far as this process may use it.
    #[must_use]
    pub fn present() -> Self {
        Self { cpus: std::thread::available_parallelism().map_or(1, usize::from) }
    }

    /// Half of the processors: the other half are mostly second threads of the same cores, and the agent needs some too. More than 16
    /// make a small batch slower, not faster.
    fn threads(self) -> usize {
        self.cpus.div_ceil(2).clamp(1, 16)
    }
}

/// Host memory for prompts of past conversations, in MiB. The engine's own default of 8 GiB would push a model out of a small box.
const PROMPT_CACHE_MIB: u32 = 512;
/// Saved states per slot, for models with a sliding window.
const CHECKPOINTS: u32 = 8;

/// Arguments without the program, for an engine that listens on `socket` (its name must end in `.sock`).
#[must_use]
pub fn arguments(plan: &ReplicaPlan, socket: &Path, machine: Machine) -> Vec<String> {
    // The engine is told the window of all slots together.
    let whole_context = plan.context.0.saturating_mul(u64::from(plan.slots));
    let threads = machine.threads().to_string();
    let mut list: Vec<String> = Vec::new();
    let mut say = |name: &str, value: Option<String>| {
        list.push(name.to_owned());
        list.extend(value);
    };
    say("--model", Some(plan.model_path.display().to_string()));
    say("--alias", Some(plan.served_name.clone()));
    say("--host", Some(socket.display().to_string()));
    say("--ctx-size", Some(whole_context.to_string()));
    say("--parallel", Some(plan.slots.to_string()));
    say("--no-kv-unified", None);
    say("--threads", Some(threads.clone()));
    say("--threads-batch", Some(threads));
    // Fitting loads the model twice and may shrink the window that was promised; without a GPU there is nothing to fit.
    say("--fit", Some("off".to_owned()));
    say("--cache-ram", Some(PROMPT_CACHE_MIB.to_string()));
    say("--ctx-checkpoints", Some(CHECKPOINTS.to_string()));
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
#[must_use]
pub fn environment() -> BTreeMap<String, String> {
    BTreeMap::from([("OMP_WAIT_POLICY".to_owned(), "passive".to_owned())])
}

#[cfg(test)]
mod tests {
    use warden_domain::{
        engine::EngineKind,
        ids::{GenerationId, ReplicaId},
        units::Tokens,
    };

    use super::*;

    fn plan(slots: u16) -> ReplicaPlan {
        ReplicaPlan {
            replica: ReplicaId::new("tiny-0").unwrap(),
            generation: GenerationId::random(),
            engine: EngineKind::LlamaCpp,
            served_name: "tiny".to_owned(),
            model_path: "/data/models/tiny.gguf".into(),
            context: Tokens(4096),
            slots,
            gpus: Vec::new(),
            extra_args: Vec::new(),
        }
    }

    fn on(cpus: usize, slots: u16) -> String {
        arguments(&plan(slots), Path::new("/run/warden-engine/tiny-0/engine.sock"), Machine { cpus }).join("\n") + "\n"
    }

    #[test]
    fn the_command_line_changes_only_on_purpose() {
        assert_eq!(on(2, 4), include_str!("../../tests/golden/llama-2-cpus-4-slots.args"));
        assert_eq!(on(96, 1), include_str!("../../tests/golden/llama-96-cpus-1-slot.args"));
    }

    #[test]
    fn each_slot_gets_the_whole_window_that_was_promised() {
        assert!(on(2, 4).contains("--ctx-size\n16384\n"));
        assert!(on(2, 1).contains("--ctx-size\n4096\n"));
    }

    #[test]
    fn there_is_at_least_one_thread() {
        assert_eq!(Machine { cpus: 0 }.threads(), 1);
        assert_eq!(Machine { cpus: 1 }.threads(), 1);
    }
}
