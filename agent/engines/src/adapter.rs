//! What differs between the engines, in one place, for both runners.
//!
//! In: a plan, lines of a log, an engine that listens. Out: arguments and environment, how far a load is, why an engine is gone, what it
//! says of itself. Everything but the questions to a running engine is pure.

use std::{collections::BTreeMap, path::Path};

use warden_domain::{
    Problem,
    engine::{Answering, EngineKind, LoadView, ReplicaPlan, ReplicaSample},
    model::StateReason,
    replica::Endpoint,
    units::Tokens,
};

use crate::{check_extra_args, llama, machine::Machine, probe, vllm};

/// Where an engine is started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ground<'a> {
    /// The socket it shall listen on; its name must end in `.sock`.
    pub(crate) socket: &'a Path,
    /// A folder in which it may keep what it compiled.
    pub(crate) cache: &'a Path,
    /// The machine.
    pub(crate) machine: Machine,
}

/// A command line without its program, and the whole environment apart from what a launcher adds for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    /// Arguments.
    pub(crate) arguments: Vec<String>,
    /// Environment.
    pub(crate) environment: BTreeMap<String, String>,
}

/// How to start a replica. The admin's own arguments come before the box's: where an engine takes the last of two, it is the box's.
///
/// # Errors
/// `Invalid` when the plan holds arguments that are the box's own.
pub(crate) fn command(plan: &ReplicaPlan, ground: Ground<'_>) -> Result<Command, Problem> {
    check_extra_args(plan.engine, &plan.extra_args)?;
    Ok(match plan.engine {
        EngineKind::LlamaCpp => Command { arguments: llama::arguments::arguments(plan, ground), environment: llama::arguments::environment(plan) },
        EngineKind::Vllm => Command { arguments: vllm::arguments::arguments(plan, ground), environment: vllm::arguments::environment(plan, ground) },
    })
}

/// The program's name inside an engine pack.
pub(crate) const fn program(engine: EngineKind) -> &'static str {
    match engine {
        EngineKind::LlamaCpp => "llama-server",
        EngineKind::Vllm => "vllm",
    }
}

/// How far a load is by the lines of its log, oldest first.
pub(crate) fn load_view(engine: EngineKind, lines: &[String]) -> LoadView {
    let all = lines.iter().map(String::as_str);
    let (phase, part) = match engine {
        EngineKind::LlamaCpp => (llama::phases::latest(all), None),
        EngineKind::Vllm => vllm::phases::furthest(all),
    };
    LoadView { phase: phase.map(str::to_owned), part, last_line: lines.last().cloned(), ..LoadView::default() }
}

/// The root cause that the lines of one run tell of; `None` when they tell of none.
pub(crate) fn cause<'a>(engine: EngineKind, lines: impl IntoIterator<Item = &'a str>) -> Option<StateReason> {
    match engine {
        EngineKind::LlamaCpp => llama::causes::find(lines),
        EngineKind::Vllm => vllm::causes::find(lines),
    }
}

/// What an engine that answers says of itself. Unknown stays unknown.
pub(crate) async fn answering(engine: EngineKind, endpoint: &Endpoint) -> Answering {
    match engine {
        EngineKind::LlamaCpp => llama::figures::answering(probe::get(endpoint, "/props").await.as_deref()),
        EngineKind::Vllm => {
            let (models, page) = tokio::join!(probe::get(endpoint, "/v1/models"), probe::get(endpoint, "/metrics"));
            vllm::figures::answering(models.as_deref(), page.as_deref())
        }
    }
}

/// One reading of its figures; `None` when it does not answer in time.
pub(crate) async fn sample(engine: EngineKind, endpoint: &Endpoint) -> Option<ReplicaSample> {
    let page = probe::get(endpoint, "/metrics").await?;
    Some(match engine {
        EngineKind::LlamaCpp => llama::figures::sample(&page),
        EngineKind::Vllm => vllm::figures::sample(&page),
    })
}

/// How many tokens a text has for its model; `None` when it does not answer in time or cannot tell.
pub(crate) async fn count_tokens(engine: EngineKind, endpoint: &Endpoint, text: &str) -> Option<Tokens> {
    let question = match engine {
        EngineKind::LlamaCpp => serde_json::json!({ "content": text }),
        EngineKind::Vllm => serde_json::json!({ "prompt": text }),
    };
    let answer = probe::post(endpoint, "/tokenize", question.to_string()).await?;
    match engine {
        EngineKind::LlamaCpp => llama::figures::tokens(&answer),
        EngineKind::Vllm => vllm::figures::tokens(&answer),
    }
}

#[cfg(test)]
pub(crate) mod tests;
