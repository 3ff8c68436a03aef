//! What can go wrong between the gateway and an engine, in words. Pure.

use std::time::Duration;

use warden_domain::{Problem, ProblemKind};

/// The engine stopped saying anything.
pub(crate) fn silent(pause: Duration) -> Problem {
    Problem::new(ProblemKind::UpstreamTimeout, format!("The engine sent nothing for {} s.", pause.as_secs()))
        .hint("The model may be stuck; unload and load it in the console.")
}

/// The engine did not begin to answer.
pub(crate) fn no_answer(limit: Duration) -> Problem {
    Problem::new(ProblemKind::UpstreamTimeout, format!("The engine gave no answer within {} s.", limit.as_secs()))
        .hint("Ask for a streamed answer, or unload and load the model in the console.")
}

/// The engine is gone in the middle of an answer.
pub(crate) fn broke_off() -> Problem {
    Problem::new(ProblemKind::Upstream, "The engine broke off; this answer is not complete.")
        .hint("Try again. If it happens again, the model's log in the console says why.")
}

/// No engine took the request.
pub(crate) fn unreachable(model: &str) -> Problem {
    Problem::new(ProblemKind::Upstream, format!("The engine of the model {model:?} cannot be reached; it may just have stopped."))
        .hint("Try again; if it stays so, look at the model in the console.")
}

/// The engine has no such call.
pub(crate) fn not_offered(model: &str, path: &str) -> Problem {
    Problem::new(ProblemKind::NotFound, format!("The engine of the model {model:?} does not offer {path}."))
        .hint("Ask a model whose engine has it: what vLLM and llama.cpp offer depends on the kind of model.")
}

/// The engine sent something else than was asked for.
pub(crate) fn unusable() -> Problem {
    Problem::new(ProblemKind::Upstream, "The engine sent an answer that cannot be read.")
        .hint("Try again. If it happens again, the model's log in the console says more.")
}

/// The engine said 503 in these words: it is loading, or full.
pub(crate) fn busy(model: &str, words: &[u8]) -> Problem {
    let loading = String::from_utf8_lossy(words).contains("Loading model");
    let message = if loading {
        format!("The model {model:?} is still loading.")
    } else {
        format!("The model {model:?} has no room for another request at this moment.")
    };
    Problem::new(ProblemKind::Overloaded, message).hint("Try again in a few seconds.").retry_after(Duration::from_secs(if loading { 5 } else { 2 }))
}

/// The request could not be charged.
pub(crate) fn no_ledger() -> Problem {
    Problem::new(ProblemKind::Overloaded, "Usage cannot be recorded at this moment, so no request is taken.")
        .hint("The disk may be full or broken; the console says more.")
        .retry_after(Duration::from_secs(10))
}
