//! Why a request is not served, in words. Pure.

use std::time::Duration;

use warden_domain::{Problem, ProblemKind, replica::ReplicaTable};
use warden_schedule::Refusal;

/// The refusal of a model that does not answer here, naming those that do.
pub(crate) fn not_loaded(asked: &str, table: &ReplicaTable) -> Problem {
    let asked: String = asked.chars().take(100).collect();
    let problem = Problem::new(ProblemKind::ModelNotFound, format!("The model {asked:?} is not loaded.")).param("model");
    if table.models.is_empty() {
        return problem.hint("No model is loaded at the moment; load one in the console under Models.");
    }
    let loaded: Vec<&str> = table.models.keys().map(String::as_str).collect();
    problem.hint(format!("Loaded now: {}. Others can be loaded in the console under Models.", loaded.join(", ")))
}

/// The scheduler's refusal.
pub(crate) fn of(why: Refusal, model: &str, table: &ReplicaTable) -> Problem {
    let full = |message: String, after: Duration| {
        Problem::new(ProblemKind::Overloaded, message).hint("Try again later, or send fewer requests at a time.").retry_after(after)
    };
    match why {
        Refusal::NoReplica => not_loaded(model, table),
        Refusal::QueueFull { retry_after } => full(format!("So many requests wait for the model {model:?} that no more are taken."), retry_after),
        Refusal::TooLong { expected } => full(
            format!(
                "The model {model:?} is busy: this request would start in about {} s, which is longer than it can wait.",
                expected.as_secs().max(1)
            ),
            expected,
        ),
        Refusal::Expired { retry_after } => full(format!("The model {model:?} was busy for as long as this request could wait."), retry_after),
    }
}

#[cfg(test)]
mod tests {
    use warden_domain::{engine::EngineKind, ids::ModelId, replica::ServedModel};

    use super::*;

    #[test]
    fn a_wrong_model_name_is_answered_with_the_right_ones() {
        let mut table = ReplicaTable::default();
        assert!(not_loaded("x", &table).full_text().contains("load one in the console"));
        let model = ServedModel {
            id: ModelId::from_stored("m"),
            served_name: "tiny".to_owned(),
            engine: EngineKind::Vllm,
            context: None,
            images: None,
            runaway: warden_domain::model::RunawayGuard::Log,
            created: 0,
            replicas: Vec::new(),
        };
        table.models.insert("tiny".to_owned(), model);
        let text = not_loaded("x", &table).full_text();
        assert!(text.contains("\"x\"") && text.contains("tiny"), "{text}");
    }

    #[test]
    fn want_of_room_is_a_503_that_says_when_to_come_again() {
        let second = Duration::from_secs(1);
        for why in [Refusal::QueueFull { retry_after: second }, Refusal::TooLong { expected: second }, Refusal::Expired { retry_after: second }] {
            let problem = of(why, "tiny", &ReplicaTable::default());
            assert_eq!((problem.kind.status(), problem.retry_after), (503, Some(second)));
            assert!(problem.message.contains("tiny"), "{}", problem.message);
        }
    }
}
