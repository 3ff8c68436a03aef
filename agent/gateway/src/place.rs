//! Which replica a request goes to. For now: the live one with the fewest requests in flight. The scheduler takes this function's
//! place, and nothing else.

use warden_domain::{
    Problem, ProblemKind,
    ids::ReplicaId,
    replica::{Replica, ReplicaTable, ServedModel},
};

/// Chooses a replica; `avoid` is one that just failed and is taken only if there is no other.
pub(crate) fn choose<'a>(model: &'a ServedModel, avoid: Option<&ReplicaId>, in_flight: impl Fn(&ReplicaId) -> usize) -> Option<&'a Replica> {
    model.replicas.iter().min_by_key(|r| (avoid == Some(&r.id), in_flight(&r.id)))
}

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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use warden_domain::{ids::ModelId, replica::Endpoint};

    use super::*;

    fn model(names: &[&str]) -> ServedModel {
        let replica = |n: &&str| Replica {
            id: ReplicaId::new(*n).unwrap(),
            launch: String::new(),
            endpoint: Endpoint::Unix(PathBuf::new()),
            capacity: warden_domain::engine::Capacity::Unknown,
        };
        ServedModel {
            id: ModelId::from_stored("m"),
            served_name: "m".to_owned(),
            context: None,
            created: 0,
            replicas: names.iter().map(replica).collect(),
        }
    }

    #[test]
    fn the_replica_with_the_least_to_do_gets_the_request() {
        let m = model(&["a", "b", "c"]);
        let load = |id: &ReplicaId| match id.as_str() {
            "a" => 3,
            "b" => 1,
            _ => 2,
        };
        assert_eq!(choose(&m, None, load).unwrap().id.as_str(), "b");
        let failed = ReplicaId::new("b").unwrap();
        assert_eq!(choose(&m, Some(&failed), load).unwrap().id.as_str(), "c");
        assert_eq!(choose(&model(&["b"]), Some(&failed), load).unwrap().id.as_str(), "b");
    }

    #[test]
    fn a_wrong_model_name_is_answered_with_the_right_ones() {
        let mut table = ReplicaTable::default();
        assert!(not_loaded("x", &table).full_text().contains("load one in the console"));
        table.models.insert("tiny".to_owned(), model(&["a"]));
        let text = not_loaded("x", &table).full_text();
        assert!(text.contains("\"x\"") && text.contains("tiny"), "{text}");
    }
}
