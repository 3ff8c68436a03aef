//! The rows of vLLM: it must start, which takes weights, room for computing, and token memory for one request of the whole window on each
//! card. Not measured here, so the bands are wide.

use warden_domain::{
    fit::{FitRow, KvType},
    units::Bytes,
};

use super::{
    place::Card,
    shape::{Shape, Weights},
};

/// Tokens of a block of token memory.
const BLOCK: u64 = 16;
/// What computing and the recorded graphs take of each card, besides a share of its memory.
const COMPUTE: u64 = 2 << 30;
/// What driver and links between cards take of each card.
const PER_CARD: (u64, u64, u64) = (640 << 20, 300 << 20, 1300 << 20);

pub(super) fn weights(weights: &Weights) -> FitRow {
    let all = weights.all;
    FitRow {
        key: "weights",
        bytes: Bytes(all),
        least: Bytes(all),
        most: Bytes(all + all / 50),
        words: "All safetensors files that the engine loads, divided over the cards.",
        figures: format!("{all} B"),
    }
}

pub(super) fn rest(shape: &Shape, cards: &[Card], context: u64, kv: KvType) -> Vec<FitRow> {
    let count = cards.len().max(1) as u64;
    let tokens = context.next_multiple_of(BLOCK);
    // Heads that cannot be divided any further are kept on each card.
    let heads = |kv_heads: u64| kv_heads.div_ceil(count).max(1) * count;
    let values: u64 = shape.layers.iter().map(|layer| heads(layer.kv_heads) * (layer.key + layer.value)).sum();
    let bytes = kv.bytes(tokens.saturating_mul(values));
    let words = "One request: tokens of the window x keys and values of all layers; heads are divided over the cards, at least one on each.";
    let share: u64 = cards.iter().map(|card| card.total.map_or(COMPUTE, |total| COMPUTE.max(total.0 / 100 * 6))).sum();
    vec![
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
            bytes: Bytes(share),
            least: Bytes(share / 4),
            most: Bytes(share.saturating_mul(2)),
            words: "Computing and recorded graphs: 2 GiB or 6 % of each card.",
            figures: format!("{count} cards"),
        },
        FitRow {
            key: "overhead",
            bytes: Bytes(PER_CARD.0 * count),
            least: Bytes(PER_CARD.1 * count),
            most: Bytes(PER_CARD.2 * count),
            words: "What driver and links between cards take of each card.",
            figures: format!("{count} x {}", Bytes(PER_CARD.0)),
        },
    ]
}
