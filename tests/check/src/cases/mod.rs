//! The table of cases. One row per id of the acceptance list; the order groups what shares a boot, cheap things first.
//!
//! A case gets the stage (what is shared), its task (id, deliberate break, log) and a result to fill. An expectation that does not
//! hold is noted in the result; an `Err` is a cause outside the expectations. A case cleans up after itself.

use crate::result::CaseResult;
use crate::stage::{Stage, Task};

mod bad_host;
mod bad_models;
mod bad_requests;
mod browser;
mod dialects;
mod engine_isolated;
mod engine_life;
mod first_day;
mod named;
mod packs;
mod privilege;
mod run_cold;
mod run_warm;
mod sdk;
mod serving;
mod static_root;
mod updates;
mod verbs;
mod vllm;

/// What a case needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Tier {
    /// This machine.
    Host,
    /// A container with the image's root.
    Nspawn,
    /// A virtual machine.
    Vm,
    /// A clean Debian root.
    Chroot,
}

/// How a case is run.
pub type Run = fn(&mut Stage, &Task, &mut CaseResult) -> Result<(), String>;

/// One row.
#[derive(Clone, Copy)]
pub struct Case {
    /// The id of the acceptance list.
    pub id: &'static str,
    /// What it needs.
    pub tier: Tier,
    /// How it is run.
    pub run: Run,
}

pub(crate) const fn case(id: &'static str, tier: Tier, run: Run) -> Case {
    Case { id, tier, run }
}

/// The cases of a list, in the order in which they run; `None` when no list of that name has cases.
#[must_use]
pub fn table(check: &str) -> Option<Vec<Case>> {
    match check {
        "slice" => Some(SLICE.to_vec()),
        "box" => Some(verbs::table()),
        "dialects" => Some(dialects::table()),
        "serving" => Some(serving::table()),
        "updates" => Some(updates::CASES.to_vec()),
        "vllm" => Some(vllm::CASES.to_vec()),
        _ => None,
    }
}

/// True when a case of that list may run beside a virtual machine. Those of the slice take figures of a few seconds, which a guest would
/// spoil; a container of the update list would need the root of an image that is being built meanwhile.
#[must_use]
pub fn may_run_beside(check: &str, case: &Case) -> bool {
    match check {
        "box" => case.tier != Tier::Vm,
        "updates" => case.tier == Tier::Host,
        _ => false,
    }
}

/// The cases of the first slice.
pub const SLICE: &[Case] = &[
    case("bad-requests", Tier::Host, bad_requests::run),
    case("bad-models", Tier::Host, bad_models::run),
    case("bad-host", Tier::Host, bad_host::run),
    case("run-warm", Tier::Host, run_warm::run),
    case("sdk-openai", Tier::Host, sdk::run),
    case("browser-first-run", Tier::Host, browser::run),
    case("boot-to-healthz", Tier::Vm, first_day::boot_to_healthz),
    case("claim-once", Tier::Vm, first_day::claim_once),
    case("load-tiny", Tier::Vm, first_day::load_tiny),
    case("chat-stream", Tier::Vm, first_day::chat_stream),
    case("poweroff-clean", Tier::Vm, first_day::poweroff_clean),
    case("no-shell-no-setuid", Tier::Vm, static_root::run),
    case("pack-unsigned", Tier::Vm, packs::unsigned),
    case("pack-flipped", Tier::Vm, packs::flipped),
    case("agent-restart-adopts", Tier::Vm, engine_life::agent_restart_adopts),
    case("engine-isolated", Tier::Vm, engine_isolated::run),
    case("engine-killed", Tier::Vm, engine_life::engine_killed),
    case("polkit-start-engine", Tier::Nspawn, privilege::run),
    case("polkit-other-unit", Tier::Nspawn, privilege::run),
    case("polkit-transient-service", Tier::Nspawn, privilege::run),
    case("polkit-transient-timer-aux", Tier::Nspawn, privilege::run),
    case("polkit-bind-mount", Tier::Nspawn, privilege::run),
    case("polkit-set-properties", Tier::Nspawn, privilege::run),
    case("launch-symlink", Tier::Nspawn, privilege::run),
    case("run-cold", Tier::Chroot, run_cold::run),
];

/// Ends what cases of a run shared by themselves.
pub fn strike() {
    privilege::strike();
    verbs::strike();
    updates::strike();
}
