//! What was measured, as a table for people and a document for evidence, and what follows from it. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    load::Left,
    stats::{Spread, spread},
};

/// Name of our arm.
pub const OURS: &str = "ours";
/// Ours, before an engine that is asked for a stream whatever the client wants, because it works on for nobody otherwise.
pub const COLLECTED: &str = "ours-collected";
/// Name of the arm that has only the engine.
pub const DIRECT: &str = "direct";
/// Name of the bare proxy.
pub const BARE: &str = "bare";
/// Beyond this 99th percentile without any gateway, latencies say something about the machine only.
const QUIET_P99_MS: f64 = 2.0;

/// All values of one figure by arm, in the order of the rounds. A round without a value has none here.
pub type Series = BTreeMap<String, BTreeMap<String, Vec<f64>>>;

/// Latencies of one round by arm: p50 and p99 in milliseconds.
pub type Round = BTreeMap<String, (f64, f64)>;

/// The document.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Processors.
    pub machine: String,
    /// Milliseconds of one processor for a fixed sum: less is faster.
    pub machine_speed_ms: f64,
    /// SHA-256 of the agent's program.
    pub agent_sha256: String,
    /// Versions of the other gateways, by name.
    pub peers: BTreeMap<String, String>,
    /// How often all arms were measured.
    pub repetitions: usize,
    /// Median, least and most by figure and arm.
    pub figures: BTreeMap<String, BTreeMap<String, Spread>>,
    /// Our median over that of each other arm.
    pub ratios: BTreeMap<String, BTreeMap<String, f64>>,
    /// The figures that the list has limits for.
    pub thresholds: BTreeMap<String, f64>,
    /// Share of all processors' time in use during each round, 0 to 1. Processor time per request grows when others want the machine too.
    pub busy: Vec<f64>,
    /// Rounds whose latencies do not count, and why.
    pub void: Vec<String>,
    /// Memory of the agent in MB: idle, with streams, after the load.
    pub memory_mb: BTreeMap<String, f64>,
    /// Clients that left.
    pub left: Left,
    /// What must hold besides the limits.
    pub expectations: Vec<Expectation>,
}

/// Something that must hold.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Expectation {
    /// Whether it does.
    pub holds: bool,
    /// What it is.
    pub says: String,
}

/// Medians of everything.
pub fn spreads(series: &Series) -> BTreeMap<String, BTreeMap<String, Spread>> {
    let of = |arms: &BTreeMap<String, Vec<f64>>| arms.iter().filter_map(|(arm, values)| Some((arm.clone(), spread(values)?))).collect();
    series.iter().map(|(figure, arms)| (figure.clone(), of(arms))).collect()
}

/// Ours over each other arm.
pub fn ratios(figures: &BTreeMap<String, BTreeMap<String, Spread>>) -> BTreeMap<String, BTreeMap<String, f64>> {
    let of = |arms: &BTreeMap<String, Spread>| {
        let ours = arms.get(OURS)?.median;
        Some(arms.iter().filter(|(arm, _)| *arm != OURS).map(|(arm, other)| (arm.clone(), ours / other.median)).collect())
    };
    figures.iter().filter_map(|(figure, arms)| Some((figure.clone(), of(arms)?))).collect()
}

/// Cost figures must be below every peer's.
pub fn below_peers(figures: &BTreeMap<String, BTreeMap<String, Spread>>, peers: &[&str]) -> Vec<Expectation> {
    let mut all = Vec::new();
    for figure in ["chat_1k_us", "chat_180k_us", "messages_180k_us"] {
        let Some(arms) = figures.get(figure) else { continue };
        let Some(ours) = arms.get(OURS) else { continue };
        for (peer, theirs) in peers.iter().filter_map(|peer| Some((*peer, arms.get(*peer)?))) {
            all.push(Expectation {
                holds: ours.median < theirs.median,
                says: format!("{figure}: {:.1} is below {peer}'s {:.1}", ours.median, theirs.median),
            });
        }
    }
    all
}

/// What the gateway adds to the bare proxy in the rounds that count, and which do not.
pub fn added(rounds: &[Round]) -> (Vec<(f64, f64)>, Vec<String>) {
    let (mut added, mut void) = (Vec::new(), Vec::new());
    for (n, round) in rounds.iter().enumerate() {
        match (round.get(DIRECT), round.get(BARE), round.get(OURS)) {
            (Some((_, p99)), ..) if *p99 > QUIET_P99_MS => {
                void.push(format!("round {}: without any gateway p99 is {p99:.2} ms, so the machine was not quiet", n + 1));
            }
            (Some(_), Some(bare), Some(ours)) => added.push((ours.0 - bare.0, ours.1 - bare.1)),
            _ => {}
        }
    }
    (added, void)
}

/// The table: a line per figure, a column per arm, medians with least and most.
pub fn table(figures: &BTreeMap<String, BTreeMap<String, Spread>>, arms: &[String]) -> String {
    let mut text = format!("{:<20}", "median (least-most)");
    for arm in arms {
        text.push_str(&format!(" {arm:>22}"));
    }
    for (figure, values) in figures {
        text.push_str(&format!("\n{figure:<20}"));
        for arm in arms {
            let cell = values.get(arm).map_or("-".to_owned(), |s| format!("{} ({}-{})", short(s.median), short(s.min), short(s.max)));
            text.push_str(&format!(" {cell:>22}"));
        }
    }
    text
}

fn short(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(direct: f64, bare: (f64, f64), ours: (f64, f64)) -> Round {
        BTreeMap::from([(DIRECT.to_owned(), (0.1, direct)), (BARE.to_owned(), bare), (OURS.to_owned(), ours)])
    }

    #[test]
    fn a_round_on_a_busy_machine_counts_neither_for_nor_against() {
        let (added, void) = added(&[round(0.5, (0.2, 0.6), (0.25, 0.9)), round(2.5, (0.2, 0.6), (0.2, 0.6))]);
        assert_eq!(added.len(), 1);
        assert!((added[0].0 - 0.05).abs() < 1e-9 && (added[0].1 - 0.3).abs() < 1e-9);
        assert!(void.len() == 1 && void[0].starts_with("round 2"), "{void:?}");
    }

    #[test]
    fn being_as_cheap_as_a_peer_is_not_below_it() {
        let series = Series::from([(
            "chat_1k_us".to_owned(),
            BTreeMap::from([(OURS.to_owned(), vec![50.0]), ("smg".to_owned(), vec![50.0]), ("vllm-router".to_owned(), vec![60.0])]),
        )]);
        let holds: Vec<bool> = below_peers(&spreads(&series), &["smg", "vllm-router", "litellm"]).iter().map(|e| e.holds).collect();
        assert_eq!(holds, [false, true]);
    }
}
