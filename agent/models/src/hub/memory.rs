//! The memory of this machine as the fit asks for it: the host's from the kernel, the cards' from their last snapshot.

use warden_domain::{
    Problem, ProblemKind,
    fit::FitWhere,
    gpu::{GpuCard, Gpus},
    units::Bytes,
};

use crate::fit::{Card, Place};

const MEMINFO: &str = "/proc/meminfo";

/// The place that was asked for. `Invalid` names a card that is not there.
pub(crate) fn place(at: &FitWhere, gpus: &dyn Gpus) -> Result<Place, Problem> {
    let snapshot = gpus.snapshot();
    let shown = |card: &GpuCard| Card { index: card.index, total: card.memory_total, used: card.memory_used };
    let absent = |which: String| {
        let there: Vec<String> = snapshot.cards.iter().map(|card| card.index.to_string()).collect();
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        Problem::new(ProblemKind::Invalid, format!("There is no card {which} in this machine; there is {there}."))
            .hint("Leave the cards out to reckon with host memory.")
            .param("gpu_indices")
    };
    let cards: Vec<Card> = match at {
        FitWhere::Host => return Ok(host()),
        FitWhere::Indices(list) => {
            let by_index = |index: &u32| snapshot.cards.iter().find(|card| card.index == *index).map(shown).ok_or_else(|| absent(index.to_string()));
            list.iter().map(by_index).collect::<Result<_, _>>()?
        }
        FitWhere::Cards(list) => {
            let name = |id: &warden_domain::ids::GpuId| id.as_str().chars().filter(|c| !c.is_control()).take(60).collect::<String>();
            list.iter().map(|id| snapshot.card(id).map(shown).ok_or_else(|| absent(name(id)))).collect::<Result<_, _>>()?
        }
    };
    if let Some(twice) = cards.iter().enumerate().find(|(at, card)| cards[..*at].iter().any(|other| other.index == card.index)).map(|(_, card)| card)
    {
        return Err(Problem::new(ProblemKind::Invalid, format!("The card {} is named twice.", twice.index))
            .hint("Name every card once.")
            .param("gpu_indices"));
    }
    if cards.is_empty() { Ok(host()) } else { Ok(Place::Cards(cards)) }
}

fn host() -> Place {
    let text = std::fs::read_to_string(MEMINFO).unwrap_or_default();
    Place::Host { total: field(&text, "MemTotal:"), available: field(&text, "MemAvailable:") }
}

fn field(text: &str, name: &str) -> Option<Bytes> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(Bytes(kib.saturating_mul(1024)))
}

#[cfg(test)]
mod tests {
    use warden_domain::gpu::NoGpus;

    use super::*;

    #[test]
    fn the_kernels_figures_are_kibibytes() {
        let text = "MemTotal:       16384 kB\nMemFree:  1 kB\nMemAvailable:    2048 kB\n";
        assert_eq!((field(text, "MemTotal:"), field(text, "MemAvailable:")), (Some(Bytes(16 << 20)), Some(Bytes(2 << 20))));
        assert_eq!(field(text, "Gone:"), None);
    }

    #[test]
    fn a_card_that_is_not_there_is_named_and_none_means_host_memory() {
        let problem = place(&FitWhere::Indices(vec![3]), &NoGpus).unwrap_err();
        assert!(problem.message.contains("no card 3"), "{problem:?}");
        assert!(matches!(place(&FitWhere::Indices(Vec::new()), &NoGpus), Ok(Place::Host { .. })));
    }
}
