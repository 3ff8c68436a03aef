//! The rows of vLLM: it must start, which takes weights, room for computing, and token memory for one request of the whole window on each
//! card; and the reasons for which it does not start whatever the model takes. Not measured here, so the bands are wide.

use warden_domain::{
    fit::{FitRow, KvType},
    share,
    units::Bytes,
};

use super::{
    amount::Amount,
    place::Card,
    shape::{Missing, Shape, Weights},
};

/// Tokens of a block of token memory.
const BLOCK: u64 = 16;
/// What computing and the recorded graphs take of each card, besides a share of its memory.
const COMPUTE: u64 = 2 << 30;
/// What driver and links between cards take of each card: as reckoned, at least, at most.
const PER_CARD: (u64, u64, u64) = (640 << 20, 300 << 20, 1300 << 20);

pub(super) fn weights(weights: &Weights) -> FitRow {
    let all = weights.all;
    FitRow {
        key: "weights",
        bytes: Bytes(all),
        least: Bytes(all),
        most: Bytes(all.saturating_add(all / 50)),
        words: "All safetensors files that the engine loads, divided over the cards.",
        figures: format!("{all} B"),
    }
}

/// Sentences for which the engine does not start on these cards.
pub(super) fn refusals(shape: Option<&Shape>, cards: &[Card], utilisation: f64) -> Vec<String> {
    let full = cards.iter().filter_map(|card| share::too_full(card.index, Bytes(card.free()?), card.total?, utilisation));
    let heads = shape.and_then(|shape| share::cannot_share_out(shape.shared_heads(), cards.len()));
    full.chain(heads).collect()
}

/// Whether what the driver takes for the engine itself may be what is missing of a card's share when it looks.
pub(super) fn is_close(cards: &[Card], utilisation: f64) -> bool {
    let after = |card: &Card| Some((card.free()?.saturating_sub(PER_CARD.2), share::wanted_of_card(card.total?, utilisation).0));
    cards.iter().filter_map(after).any(|(free, wanted)| free < wanted)
}

pub(super) fn rest(shape: &Shape, cards: &[Card], context: u64, kv: KvType) -> Result<Vec<FitRow>, Missing> {
    let count = cards.len().max(1) as u64;
    let tokens = Amount::from(context).in_steps(BLOCK);
    // Heads that cannot be divided any further are kept on each card.
    let heads = |kv_heads: u64| Amount::from(kv_heads.div_ceil(count).max(1)) * count;
    let values: Amount = shape.layers.iter().map(|layer| heads(layer.kv_heads) * (Amount::from(layer.key) + layer.value)).sum();
    let bytes = (tokens * values).as_kv(kv).known("kv")?;
    let (tokens, values) = (tokens.known("kv")?, values.known("kv")?);
    let words = "One request: tokens of the window x keys and values of all layers; heads are divided over the cards, at least one on each.";
    let each = |card: &Card| Amount::from(card.total.map_or(COMPUTE, |total| COMPUTE.max(total.0 / 100 * 6)));
    let compute = cards.iter().map(each).sum::<Amount>();
    let overhead = |bytes: u64| (Amount::from(bytes) * count).known("overhead");
    Ok(vec![
        FitRow {
            key: "kv",
            bytes: Bytes(bytes),
            least: Bytes(bytes),
            most: Bytes(bytes),
            words,
            figures: format!("{tokens} x {values} x {}", kv.as_str()),
        },
        FitRow {
            key: "compute",
            bytes: Bytes(compute.known("compute")?),
            least: Bytes(compute.known("compute")? / 4),
            most: Bytes((compute * 2).known("compute")?),
            words: "Computing and recorded graphs: 2 GiB or 6 % of each card.",
            figures: format!("{count} cards"),
        },
        FitRow {
            key: "overhead",
            bytes: Bytes(overhead(PER_CARD.0)?),
            least: Bytes(overhead(PER_CARD.1)?),
            most: Bytes(overhead(PER_CARD.2)?),
            words: "What driver and links between cards take of each card.",
            figures: format!("{count} x {}", Bytes(PER_CARD.0)),
        },
    ])
}
