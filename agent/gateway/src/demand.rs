//! A request for a model that is stopped and may be loaded by one: tells serving, and waits for it as long as the request can wait.

use std::time::{Duration, Instant};

use warden_domain::{Problem, ProblemKind, model::StateReason, replica::Wanted};

use crate::Gateway;

/// How often the table of replicas is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// What a client is told to wait for a load that took longer than its patience.
const AGAIN: Duration = Duration::from_secs(30);
/// The same where its next try waits for the model.
const SOON: Duration = Duration::from_secs(1);

/// Returns once the model answers, or at once when nothing loads it: whoever places the request then says so.
pub(crate) async fn answered(gateway: &Gateway, name: &str, patience: Duration) -> Result<(), Problem> {
    let begun = Instant::now();
    while !gateway.parts.serving.table().models.contains_key(name) {
        match gateway.parts.demand.wanted(name) {
            Wanted::Not => return Ok(()),
            Wanted::Failed(reason) => return Err(failed(name, reason)),
            Wanted::Coming => {}
        }
        if begun.elapsed() >= patience {
            return Err(slow(name));
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = gateway.stop.cancelled() => return Err(Gateway::stopping()),
        }
        gateway.refuse_when_stopping()?;
    }
    Ok(())
}

/// What who waited for a model is told that went away: one that comes back by itself is no model that is not there, and clients ask again.
pub(crate) fn gone(gateway: &Gateway, name: &str, refusal: Problem) -> Problem {
    if refusal.kind != ProblemKind::ModelNotFound || !matches!(gateway.parts.demand.wanted(name), Wanted::Coming) {
        return refusal;
    }
    Problem::new(ProblemKind::Overloaded, format!("The model {name:?} is being loaded again.")).hint("Try again in a moment.").retry_after(SOON)
}

fn failed(name: &str, reason: StateReason) -> Problem {
    let problem =
        Problem::new(ProblemKind::Overloaded, format!("The model {name:?} was to be loaded by this request and did not come up. {}", reason.message));
    match reason.hint {
        Some(hint) => problem.hint(hint),
        None => problem.hint("Look at the model in the console."),
    }
    .retry_after(AGAIN)
}

fn slow(name: &str) -> Problem {
    Problem::new(ProblemKind::Overloaded, format!("The model {name:?} is being loaded, which takes longer than this request can wait."))
        .hint("Try again in a moment; the load goes on.")
        .retry_after(AGAIN)
}
