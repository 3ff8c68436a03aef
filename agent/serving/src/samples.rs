//! Values that the tests of this room share.

use std::time::Duration;

use jiff::Timestamp;
use warden_domain::{
    engine::{EngineKind, Launch},
    ids::{ModelId, ReplicaId},
    model::{Layout, Model, ModelConfig, ModelFacts},
    replica::Endpoint,
};

pub(crate) fn model_named(name: &str, id: &str) -> Model {
    let config = ModelConfig {
        served_name: name.to_owned(),
        path: "/m".into(),
        engine: EngineKind::LlamaCpp,
        context: None,
        slots: 1,
        layout: Layout::default(),
    };
    Model { id: ModelId::from_stored(id), created_at: Timestamp::UNIX_EPOCH, config, facts: ModelFacts::default() }
}

pub(crate) fn launch(name: &str) -> Launch {
    Launch { replica: ReplicaId::new("tiny-0").unwrap(), launch: name.to_owned(), endpoint: Endpoint::Unix("/s".into()) }
}

pub(crate) const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
