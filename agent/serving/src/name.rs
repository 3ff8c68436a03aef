//! The ids of a model's replicas: readable, allowed everywhere, and the same after every restart.

use warden_domain::{ids::ReplicaId, model::Model};

/// Longest part taken from the served name, so that everything fits into 64 characters.
const LONGEST: usize = 48;

/// The id of a model's replica, counted from 0: the served name in `[a-z0-9-]` and the number. A name that had to be changed for that also
/// gets a piece of the model's id, since two names could become the same.
#[must_use]
pub fn replica_id(model: &Model, number: u16) -> ReplicaId {
    let name = &model.config.served_name;
    let mut slug: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    slug.truncate(LONGEST);
    // A name that ends like a replica's id could be taken for one of another model.
    let ambiguous = slug.rsplit_once('-').is_some_and(|(_, end)| !end.is_empty() && end.bytes().all(|b| b.is_ascii_digit()));
    if slug != *name || ambiguous {
        let own: String = model.id.as_str().chars().rev().filter(char::is_ascii_hexdigit).take(6).collect();
        slug = format!("{slug}-{}", own.to_ascii_lowercase());
    }
    // Cannot be refused: only allowed characters, and 48 + 1 + 6 + 6 of them. An id made of nothing still names a unit.
    ReplicaId::new(format!("{slug}-{number}"))
        .or_else(|_| ReplicaId::new(format!("model-{number}")))
        .unwrap_or_else(|_| unreachable!("a constant replica id"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::model_named;

    fn id_of(name: &str, id: &str) -> String {
        replica_id(&model_named(name, id), 0).as_str().to_owned()
    }

    #[test]
    fn two_models_never_share_an_engine() {
        assert_eq!(id_of("tiny", "mdl_1"), "tiny-0");
        assert_ne!(id_of("Tiny", "mdl_abcdef012345"), id_of("tiny", "mdl_1"));
        assert_ne!(id_of("a.b", "mdl_aaaaaa111111"), id_of("a_b", "mdl_bbbbbb222222"));
        let long = "x".repeat(100);
        assert!(id_of(&long, "mdl_0123456789ab").len() <= 64);
        assert_eq!(id_of("Qwen3.Q4", "mdl_0123456789ab"), "qwen3-q4-ba9876-0");
    }

    #[test]
    fn replicas_are_numbered_and_a_number_in_a_name_is_not_mistaken_for_one() {
        assert_eq!(replica_id(&model_named("tiny", "mdl_1"), 11).as_str(), "tiny-11");
        assert_eq!(id_of("tiny-0", "mdl_0123456789ab"), "tiny-0-ba9876-0");
    }
}
