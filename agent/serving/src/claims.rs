//! Who has which cards: decided before anything is started. Pure.
//!
//! What is wanted, what others hold and the last known cards in; nothing or a refusal that names the cause out. A reader of cards that
//! does not answer changes nothing about what is known.

use std::time::Duration;

use warden_domain::{
    Problem, ProblemKind,
    engine::EngineKind,
    gpu::{GpuCard, GpuReading, GpuSnapshot},
    ids::GpuId,
    model::ModelConfig,
    share,
    units::Bytes,
};

/// Cards that a model holds, or is about to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The name of the model, for the refusal.
    pub(crate) name: String,
    pub(crate) cards: Vec<GpuId>,
}

/// The reader needs about that long for its first answer.
const FIRST_ANSWER: Duration = Duration::from_secs(2);

/// Whether a model with these settings may have its cards, given what other models hold. A model on processors needs none.
pub(crate) fn decide(config: &ModelConfig, held: &[Claim], gpus: &GpuSnapshot) -> Result<(), Problem> {
    free(config, held, gpus)?;
    there(config, gpus)
}

/// Whether no other model holds its cards.
pub(crate) fn free(config: &ModelConfig, held: &[Claim], gpus: &GpuSnapshot) -> Result<(), Problem> {
    let (name, layout) = (&config.served_name, &config.layout);
    layout.check()?;
    for card in &layout.gpus {
        if let Some(other) = held.iter().find(|claim| claim.cards.contains(card)) {
            return Err(Problem::new(ProblemKind::Conflict, format!("The card {} is in use by the model {}.", called(card, gpus), other.name))
                .hint(format!("Unload {} first, or choose other cards for {name}.", other.name))
                .param("gpus"));
        }
    }
    Ok(())
}

/// Whether its cards are known to be in this machine.
pub(crate) fn there(config: &ModelConfig, gpus: &GpuSnapshot) -> Result<(), Problem> {
    let (name, layout) = (&config.served_name, &config.layout);
    if layout.gpus.is_empty() {
        return Ok(());
    }
    if gpus.cards.is_empty() {
        return Err(nothing_known(name, gpus));
    }
    match layout.gpus.iter().find(|card| gpus.card(card).is_none()) {
        None => Ok(()),
        Some(card) => Err(Problem::new(ProblemKind::Invalid, format!("The card {card}, which {name} is to run on, is not in this machine."))
            .hint("Choose cards that are there; /api/system/gpus lists them.")
            .param("gpus")),
    }
}

/// Whether the engine will start on its cards, as far as their free memory decides that before anything else. Only what is known of them now
/// counts; what is not told is left to the engine.
pub(crate) fn room(config: &ModelConfig, gpus: &GpuSnapshot) -> Result<(), Problem> {
    if config.engine != EngineKind::Vllm || gpus.reading != GpuReading::Live {
        return Ok(());
    }
    let part = share::share_of(&config.layout.extra_args);
    let full = |card: &GpuCard| {
        let (total, used) = (card.memory_total?, card.memory_used?);
        share::too_full(card.index, Bytes(total.0.saturating_sub(used.0)), total, part)
    };
    match config.layout.gpus.iter().filter_map(|id| gpus.card(id)).find_map(full) {
        None => Ok(()),
        Some(sentence) => Err(Problem::new(ProblemKind::Conflict, sentence).hint(share::TOO_FULL_HINT).param("gpus").retry_after(FIRST_ANSWER)),
    }
}

fn nothing_known(name: &str, gpus: &GpuSnapshot) -> Problem {
    let refuse = |why: &str| {
        Problem::new(ProblemKind::Invalid, format!("{name} is to run on cards, and {why}."))
            .hint("Take the cards out of its settings to run it on processors.")
            .param("gpus")
    };
    let later = |why: &str| {
        Problem::new(ProblemKind::SystemService, format!("{name} is to run on cards, and {why}."))
            .hint("Try again in a moment. If it stays so, restart the machine.")
            .retry_after(FIRST_ANSWER)
    };
    match &gpus.reading {
        GpuReading::NoLibrary { detail } => refuse(&format!("this machine has no driver for any ({detail})")),
        GpuReading::Failed { cause } => refuse(&format!("the driver does not tell of any ({cause})")),
        GpuReading::Live => refuse("there is no card in this machine"),
        GpuReading::Starting => later("it is not known yet which there are"),
        GpuReading::Stale { cause, .. } => later(&format!("the reader of cards never told of any and does not answer ({cause})")),
    }
}

/// A card as people know it: number and product, with its identity.
fn called(card: &GpuId, gpus: &GpuSnapshot) -> String {
    match gpus.card(card) {
        Some(known) => format!("{} ({}, {card})", known.index, known.name.as_deref().unwrap_or("unknown product")),
        None => card.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use warden_domain::{gpu::PcieLink, model::Layout};

    use super::*;
    use crate::samples::model_named;

    fn card(id: &str, index: u32) -> GpuCard {
        GpuCard {
            index,
            id: GpuId::from_stored(id),
            minor: None,
            name: Some("RTX 5090".to_owned()),
            pci: None,
            memory_total: None,
            memory_used: None,
            utilisation_ratio: None,
            temperature: None,
            temperature_limit: None,
            power: None,
            power_cap: None,
            link: PcieLink::default(),
            holders: None,
        }
    }

    fn seen(reading: GpuReading, cards: &[&str]) -> GpuSnapshot {
        let cards = cards.iter().zip(0..).map(|(id, index)| card(id, index)).collect();
        GpuSnapshot { reading, driver: None, simulated: false, cards }
    }

    fn on(replicas: u16, cards: &[&str]) -> ModelConfig {
        let gpus = cards.iter().map(|id| GpuId::from_stored(*id)).collect();
        ModelConfig { layout: Layout { replicas, gpus, ..Layout::default() }, ..model_named("small", "mdl_1").config }
    }

    fn held(cards: &[&str]) -> Vec<Claim> {
        vec![Claim { name: "big".to_owned(), cards: cards.iter().map(|id| GpuId::from_stored(*id)).collect() }]
    }

    #[test]
    fn a_card_in_use_is_refused_with_the_name_of_who_uses_it() {
        let problem = decide(&on(1, &["b"]), &held(&["a", "b"]), &seen(GpuReading::Live, &["a", "b"])).unwrap_err();
        assert_eq!(problem.kind, ProblemKind::Conflict);
        assert!(problem.message.contains("the model big") && problem.message.contains("1 (RTX 5090"), "{problem}");
        decide(&on(1, &["c"]), &held(&["a", "b"]), &seen(GpuReading::Live, &["a", "b", "c"])).unwrap();
    }

    #[test]
    fn a_card_on_which_vllm_would_not_start_is_refused_before_the_load() {
        let mut seen = seen(GpuReading::Live, &["a", "b"]);
        for card in &mut seen.cards {
            (card.memory_total, card.memory_used) = (Some(Bytes(24 << 30)), Some(Bytes(0)));
        }
        let vllm = |extra: &[&str]| {
            let mut config = on(1, &["a", "b"]);
            config.engine = EngineKind::Vllm;
            config.layout.extra_args = extra.iter().map(|&word| word.to_owned()).collect();
            config
        };
        room(&vllm(&[]), &seen).unwrap();
        seen.cards[1].memory_used = Some(Bytes(2 << 30));
        let problem = room(&vllm(&[]), &seen).unwrap_err();
        assert_eq!((problem.kind, problem.param.as_deref()), (ProblemKind::Conflict, Some("gpus")));
        assert!(problem.message.contains("card 1") && problem.hint.is_some(), "{problem}");
        room(&vllm(&["--gpu-memory-utilization", "0.9"]), &seen).unwrap();
        room(&on(1, &["a", "b"]), &seen).unwrap();
        seen.cards[1].memory_used = None;
        room(&vllm(&[]), &seen).unwrap();
        seen.cards[1].memory_used = Some(Bytes(20 << 30));
        seen.reading = GpuReading::Stale { since_s: 9.0, cause: "x".to_owned() };
        room(&vllm(&[]), &seen).unwrap();
    }

    #[test]
    fn processors_are_never_claimed() {
        let none = seen(GpuReading::NoLibrary { detail: "libnvidia-ml.so.1".to_owned() }, &[]);
        decide(&on(4, &[]), &held(&["a"]), &none).unwrap();
    }

    #[test]
    fn a_reader_that_hangs_changes_nothing_about_what_is_known() {
        let stale = |cards: &[&str]| seen(GpuReading::Stale { since_s: 90.0, cause: "reading power".to_owned() }, cards);
        decide(&on(1, &["a"]), &[], &stale(&["a"])).unwrap();
        assert_eq!(decide(&on(1, &["a"]), &held(&["a"]), &stale(&["a"])).unwrap_err().kind, ProblemKind::Conflict);
        assert_eq!(decide(&on(1, &["x"]), &[], &stale(&["a"])).unwrap_err().kind, ProblemKind::Invalid);
        assert!(decide(&on(1, &["a"]), &[], &stale(&[])).unwrap_err().retry_after.is_some());
        decide(&on(1, &["a"]), &[], &seen(GpuReading::Failed { cause: "lost".to_owned() }, &["a"])).unwrap();
    }

    #[test]
    fn cards_without_a_driver_and_cards_that_are_not_there_are_told_apart() {
        let none = decide(&on(1, &["a"]), &[], &seen(GpuReading::NoLibrary { detail: "no libnvidia-ml".to_owned() }, &[])).unwrap_err();
        assert!(none.message.contains("no libnvidia-ml") && none.hint.is_some() && none.retry_after.is_none());
        let gone = decide(&on(1, &["x"]), &[], &seen(GpuReading::Live, &["a"])).unwrap_err();
        assert!(gone.message.contains("The card x") && gone.param.as_deref() == Some("gpus"));
        assert!(decide(&on(1, &["a"]), &[], &GpuSnapshot::starting()).unwrap_err().retry_after.is_some());
        assert_eq!(decide(&on(2, &["a"]), &[], &seen(GpuReading::Live, &["a"])).unwrap_err().kind, ProblemKind::Invalid);
    }
}
