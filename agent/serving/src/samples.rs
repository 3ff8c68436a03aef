//! Values that the tests of this room share.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use warden_domain::{
    engine::{Answering, EngineKind, Launch},
    ids::{GpuId, ModelId, ReplicaId},
    model::{Layout, Model, ModelConfig, ModelFacts, StateReason},
    replica::Endpoint,
};

use crate::{
    entry::Entry,
    loading::LoadClock,
    seat::{Seat, Stage},
    watch::Watch,
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

pub(crate) fn with(replicas: u16, cards: &[&str]) -> Model {
    let mut model = model_named("tiny", "mdl_1");
    model.config.layout = Layout { replicas, gpus: cards.iter().map(|id| GpuId::from_stored(*id)).collect(), ..Layout::default() };
    model
}

pub(crate) fn entry(replicas: u16, cards: &[&str]) -> Entry {
    let mut entry = Entry::new(with(replicas, cards), true, Vec::new(), Timestamp::UNIX_EPOCH);
    entry.seats.iter_mut().for_each(|seat| seat.stage = running());
    entry
}

/// A replica whose engine was found, or just started, with these settings.
pub(crate) fn adopted(seat: &mut Seat, config: &ModelConfig, number: u16) {
    (seat.cards, seat.runs) = (config.layout.cards_of(number).to_vec(), Some(config.clone()));
    seat.stage = Stage::Loading { launch: launch("L"), clock: LoadClock::start(Timestamp::UNIX_EPOCH, Instant::now(), true) };
}

pub(crate) fn running() -> Stage {
    Stage::Running { launch: launch("L"), answering: Answering::default(), silent: None, watch: Watch::new(Instant::now()) }
}

pub(crate) fn failed() -> Stage {
    Stage::Failed(StateReason { code: "engine_failed".to_owned(), message: "It broke.".to_owned(), hint: None })
}
