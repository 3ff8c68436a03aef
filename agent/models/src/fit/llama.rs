//! The rows of llama.cpp, as this box starts it: the window of each request is kept apart, batches of 512 tokens, flash attention.
//!
//! Sizes of weights, token memory and output buffer are exact. The buffer for computing is a formula fitted to what the engine of the pack
//! (b11434) reports on processors; on cards it is not measured, and its band is wide.

use warden_domain::{
    fit::{FitRow, KvType},
    units::Bytes,
};

use super::{
    place::Place,
    shape::{Shape, Weights},
};

/// Tokens computed at once.
const BATCH: u64 = 512;
/// Cells of a window come in steps.
const STEP: u64 = 256;
/// The engine's program with its threads.
const PROGRAM: (u64, u64, u64) = (64 << 20, 24 << 20, 192 << 20);
/// Prompts of past conversations, as the box starts the engine.
const PROMPT_CACHE: u64 = 512 << 20;
/// Saved states per request of models with a window, as the box starts the engine.
const CHECKPOINTS: u64 = 8;
/// What a driver takes of each card for a process.
const PER_CARD: (u64, u64, u64) = (512 << 20, 256 << 20, 768 << 20);

/// What is asked of the engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) context: u64,
    pub(super) slots: u64,
    pub(super) kv: KvType,
}

impl Load {
    /// Cells of a request's whole window.
    const fn cells(self) -> u64 {
        self.context.next_multiple_of(STEP)
    }

    /// Cells of layers that look back only so far.
    fn window_cells(self, window: u64) -> u64 {
        self.cells().min(window.saturating_add(self.batch())).next_multiple_of(STEP)
    }

    fn batch(self) -> u64 {
        BATCH.min(self.cells().saturating_mul(self.slots))
    }
}

fn exact(key: &'static str, bytes: u64, words: &'static str, figures: String) -> FitRow {
    FitRow { key, bytes: Bytes(bytes), least: Bytes(bytes), most: Bytes(bytes), words, figures }
}

fn between(key: &'static str, (bytes, least, most): (u64, u64, u64), words: &'static str, figures: String) -> FitRow {
    FitRow { key, bytes: Bytes(bytes), least: Bytes(least), most: Bytes(most), words, figures }
}

/// The rows that need no shape.
pub(super) fn weights(weights: &Weights, place: &Place) -> FitRow {
    let whole = weights.all;
    let least = whole.saturating_sub(weights.header);
    match place {
        Place::Host { .. } => FitRow {
            key: "weights",
            bytes: Bytes(whole),
            least: Bytes(least),
            most: Bytes(whole),
            words: "All tensors of the files: the files without their headers.",
            figures: format!("{whole} B"),
        },
        Place::Cards(_) => {
            // The embeddings are looked up in host memory; where they are the output matrix too, cards get a copy.
            let (bytes, least, figures) = match (weights.embedding, weights.tied) {
                (Some(embedding), Some(false)) => {
                    let bytes = whole.saturating_sub(embedding);
                    (bytes, bytes, format!("{whole} B - {embedding} B"))
                }
                (Some(_), Some(true)) => (whole, least, format!("{whole} B")),
                _ => (whole, least.saturating_sub(whole / 4), format!("{whole} B")),
            };
            FitRow {
                key: "weights",
                bytes: Bytes(bytes),
                least: Bytes(least),
                most: Bytes(bytes),
                words: "All tensors of the files, less the token embeddings where the model has an output matrix of its own.",
                figures,
            }
        }
    }
}

/// The rows that need the shape.
pub(super) fn rest(shape: &Shape, files: &Weights, place: &Place, load: Load) -> Vec<FitRow> {
    let mut rows = vec![kv(shape, load), compute(shape, place, load)];
    match place {
        Place::Host { .. } => {
            rows.push(output(shape, load));
            if let Some(repacked) = files.repacked.filter(|bytes| *bytes > 0) {
                let words = "Weights that the engine copies into another order for its processors.";
                rows.push(between("repack", (repacked, 0, repacked), words, format!("{repacked} B")));
            }
            rows.push(between("overhead", PROGRAM, "The engine's program and its threads.", String::new()));
            let words = "Prompts of past conversations, up to the limit the engine is started with.";
            rows.push(between("prompt_cache", (PROMPT_CACHE, 0, PROMPT_CACHE), words, String::new()));
            rows.extend(checkpoints(shape, load));
        }
        Place::Cards(cards) => {
            let count = cards.len() as u64;
            let each = |bytes: u64| bytes.saturating_mul(count);
            let figures = format!("{count} x {}", Bytes(PER_CARD.0));
            let amounts = (each(PER_CARD.0), each(PER_CARD.1), each(PER_CARD.2));
            rows.push(between("overhead", amounts, "What the driver takes of each card for a process.", figures));
            if count > 1 {
                let layer = files.largest_layer.unwrap_or(files.all / shape.layers.len().max(1) as u64);
                let most = layer.saturating_mul(count - 1);
                let words = "Cards are filled by whole layers, so up to one layer per further card stays unused.";
                rows.push(between("split", (0, 0, most), words, format!("{} x {layer} B", count - 1)));
            }
        }
    }
    rows
}

/// Values of one cell of all layers that keep a window, or all that do not.
fn cell(shape: &Shape, windowed: bool, kv: KvType) -> u64 {
    let layers = shape.layers.iter().filter(|layer| layer.windowed == windowed);
    layers.map(|layer| kv.bytes(layer.kv_heads.saturating_mul(layer.key)).saturating_add(kv.bytes(layer.kv_heads.saturating_mul(layer.value)))).sum()
}

fn kv(shape: &Shape, load: Load) -> FitRow {
    let (full, windowed) = (cell(shape, false, load.kv), cell(shape, true, load.kv));
    let mut bytes = load.slots.saturating_mul(load.cells()).saturating_mul(full);
    let mut figures = format!("{} x {} x {full} B", load.slots, load.cells());
    if let Some(window) = shape.window.filter(|_| windowed > 0) {
        let cells = load.window_cells(window);
        bytes = bytes.saturating_add(load.slots.saturating_mul(cells).saturating_mul(windowed));
        figures = format!("{figures} + {} x {cells} x {windowed} B", load.slots);
    }
    let words =
        "Requests at once x tokens of the window x keys and values of all layers; layers that look back only so far keep only so many tokens.";
    exact("kv", bytes, words, figures)
}

fn compute(shape: &Shape, place: &Place, load: Load) -> FitRow {
    let batch = load.batch();
    let widths = shape.feed_forward.saturating_mul(3).saturating_add(shape.embedding.saturating_mul(5));
    let (_, windowed) = shape.layer_counts();
    let masked = load.cells() + shape.window.filter(|_| windowed > 0).map_or(0, |window| load.window_cells(window));
    let mask = batch.saturating_mul(masked).saturating_mul(2);
    let layers = batch.saturating_mul(widths).saturating_mul(4).saturating_add(mask);
    let logits = load.slots.saturating_mul(shape.vocabulary).saturating_mul(4);
    let one = layers.max(logits);
    let figures = format!("{batch} x (3 x {} + 5 x {}) x 4 B + {batch} x {masked} x 2 B", shape.feed_forward, shape.embedding);
    let words = "Tokens at once x widths of one layer, and the mask over the window; once per card.";
    match place {
        Place::Host { .. } => between("compute", (one, one / 10 * 7, one / 10 * 13), words, figures),
        Place::Cards(cards) => {
            let all = one.saturating_mul(cards.len() as u64);
            between("compute", (all, all / 2, all.saturating_mul(2)), words, format!("{} x ({figures})", cards.len()))
        }
    }
}

fn output(shape: &Shape, load: Load) -> FitRow {
    let bytes = load.slots.saturating_mul(shape.vocabulary).saturating_mul(4);
    exact("output", bytes, "Requests at once x tokens of the vocabulary.", format!("{} x {} x 4 B", load.slots, shape.vocabulary))
}

fn checkpoints(shape: &Shape, load: Load) -> Option<FitRow> {
    let windowed = cell(shape, true, load.kv);
    let window = shape.window.filter(|_| windowed > 0)?.min(load.context);
    let most = load.slots.saturating_mul(CHECKPOINTS).saturating_mul(window).saturating_mul(windowed);
    let words = "Saved states of layers that look back only so far, up to the limit the engine is started with.";
    Some(between("checkpoints", (most, 0, most), words, format!("{} x {CHECKPOINTS} x {window} x {windowed} B", load.slots)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::shape::LayerShape;

    const MIB: u64 = 1 << 20;
    const HOST: Place = Place::Host { total: None, available: None };

    fn within(row: &FitRow, mib: f64, share: f64) {
        #[allow(clippy::cast_precision_loss, reason = "a comparison of a few digits")]
        let found = row.bytes.0 as f64 / MIB as f64;
        assert!((found - mib).abs() <= mib * share, "{} is {found} MiB, the engine says {mib}", row.key);
    }

    fn row<'a>(rows: &'a [FitRow], key: &str) -> &'a FitRow {
        rows.iter().find(|row| row.key == key).unwrap()
    }

    /// Gemma 3 270M as its header tells it: 18 layers, each sixth of them whole.
    fn gemma_270m() -> Shape {
        let layer = |n: u64| LayerShape { kv_heads: 1, key: 256, value: 256, windowed: n % 6 < 5 };
        Shape {
            architecture: "gemma3".to_owned(),
            layers: (0..18).map(layer).collect(),
            window: Some(512),
            embedding: 640,
            feed_forward: 2048,
            vocabulary: 262_144,
            trained_context: Some(32768),
        }
    }

    fn smollm2_135m() -> Shape {
        Shape {
            architecture: "llama".to_owned(),
            layers: vec![LayerShape { kv_heads: 3, key: 64, value: 64, windowed: false }; 30],
            window: None,
            embedding: 576,
            feed_forward: 1536,
            vocabulary: 49152,
            trained_context: Some(8192),
        }
    }

    const fn load(context: u64, slots: u64, kv: KvType) -> Load {
        Load { context, slots, kv }
    }

    #[test]
    fn the_recorded_figures_of_gemma_270m_come_out_component_by_component() {
        let shape = gemma_270m();
        let rows = rest(&shape, &Weights::default(), &HOST, load(2048, 4, KvType::F16));
        assert_eq!(row(&rows, "kv").bytes.0, (24 + 60) * MIB);
        assert_eq!(row(&rows, "output").bytes.0, 4 * MIB);
        within(row(&rows, "compute"), 21.28, 0.05);
        let two = rest(&shape, &Weights::default(), &HOST, load(2048, 2, KvType::F16));
        assert_eq!(row(&two, "kv").bytes.0, (12 + 30) * MIB);
        assert_eq!(row(&two, "output").bytes.0, 2 * MIB);
    }

    #[test]
    fn the_recorded_figures_of_smollm2_come_out_component_by_component() {
        for (context, slots, kv, keys, compute) in [
            (2048, 4, KvType::F16, 180.0, 16.64),
            (1024, 1, KvType::F16, 22.5, 15.64),
            (8192, 1, KvType::F16, 180.0, 22.64),
            (4096, 4, KvType::Q8_0, 191.25, 18.67),
            // 300 tokens become 512.
            (300, 16, KvType::F16, 180.0, 15.14),
        ] {
            let rows = rest(&smollm2_135m(), &Weights::default(), &HOST, load(context, slots, kv));
            within(row(&rows, "kv"), keys, 0.0001);
            within(row(&rows, "compute"), compute, 0.05);
        }
    }

    #[test]
    fn more_cards_cost_a_driver_each_and_the_last_layer_may_not_fit_beside_another() {
        let card = |index| super::super::place::Card { index, total: Some(Bytes(16 << 30)), used: Some(Bytes(0)) };
        let two = Place::Cards(vec![card(0), card(1)]);
        let files = Weights { all: 100 * MIB, embedding: Some(30 * MIB), tied: Some(false), largest_layer: Some(2 * MIB), ..Weights::default() };
        let rows = rest(&smollm2_135m(), &files, &two, load(2048, 4, KvType::F16));
        assert_eq!(row(&rows, "overhead").bytes.0, 1024 * MIB);
        assert_eq!((row(&rows, "split").bytes.0, row(&rows, "split").most.0), (0, 2 * MIB));
        assert_eq!(weights(&files, &two).bytes.0, 70 * MIB);
        assert_eq!(weights(&Weights { tied: Some(true), ..files }, &two).bytes.0, 100 * MIB);
    }
}
