//! The replica id of a model: readable, allowed everywhere, and the same after every restart.

use warden_domain::{ids::ReplicaId, model::Model};

/// Longest part taken from the served name, so that everything fits into 64 characters.
const LONGEST: usize = 48;

/// The id of a model's only replica: the served name in `[a-z0-9-]` and `-0`. A name that had to be changed for that also gets a piece
/// of the model's id, since two names could become the same.
#[must_use]
pub fn replica_id(model: &Model) -> ReplicaId {
    let name = &model.config.served_name;
    let mut slug: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    slug.truncate(LONGEST);
    if slug != *name {
        let own: String = model.id.as_str().chars().rev().filter(char::is_ascii_hexdigit).take(6).collect();
        slug = format!("{slug}-{}", own.to_ascii_lowercase());
    }
    // Cannot be refused: only allowed characters, and 48 + 1 + 6 + 2 of them. An id made of nothing still names a unit.
    ReplicaId::new(format!("{slug}-0")).or_else(|_| ReplicaId::new("model-0")).unwrap_or_else(|_| unreachable!("a constant replica id"))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use warden_domain::{
        engine::EngineKind,
        ids::ModelId,
        model::{Layout, ModelConfig, ModelFacts},
    };

    use super::*;

    fn id_of(name: &str, id: &str) -> String {
        let config = ModelConfig {
            served_name: name.to_owned(),
            path: "/m".into(),
            engine: EngineKind::LlamaCpp,
            context: None,
            slots: 1,
            layout: Layout::default(),
        };
        let model = Model { id: ModelId::from_stored(id), created_at: Timestamp::UNIX_EPOCH, config, facts: ModelFacts::default() };
        replica_id(&model).as_str().to_owned()
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
}
