//! The rows of llama.cpp, as this box starts it: the window of each request is kept apart, batches of 512 tokens, flash attention.
//!
//! Sizes of weights, token memory and output buffer are exact. The buffer for computing is a formula fitted to what the engine of the pack
//! (b11434) reports on processors; on cards it is not measured, and its band is wide.

use warden_domain::{
    fit::{FitRow, KvType},
    units::Bytes,
};

use super::{
    amount::Amount,
    place::Place,
    shape::{LayerShape, Missing, Shape, Weights},
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
/// What an image part computes with, where its file is smaller than this.
const PROJECTOR: u64 = 512 << 20;
/// What a driver takes of each card for a process: as reckoned, at least, at most.
pub(super) const PER_CARD: (u64, u64, u64) = (512 << 20, 256 << 20, 768 << 20);

/// What is asked of the engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) context: u64,
    pub(super) slots: u64,
    pub(super) kv: KvType,
}

impl Load {
    /// Cells of a request's whole window.
    pub(super) fn cells(self) -> Amount {
        Amount::from(self.context).in_steps(STEP)
    }

    /// Cells of layers that look back only so far.
    pub(super) fn window_cells(self, window: u64) -> Amount {
        self.cells().at_most(Amount::from(window) + self.batch()).in_steps(STEP)
    }

    fn batch(self) -> Amount {
        Amount::from(BATCH).at_most(self.cells() * self.slots)
    }

    /// Token memory of one layer, for all requests.
    pub(super) fn layer(self, shape: &Shape, layer: &LayerShape) -> Amount {
        let cells = shape.window.filter(|_| layer.windowed).map_or_else(|| self.cells(), |window| self.window_cells(window));
        cells * self.slots * cell(layer, self.kv)
    }
}

fn exact(key: &'static str, bytes: u64, words: &'static str, figures: String) -> FitRow {
    FitRow { key, bytes: Bytes(bytes), least: Bytes(bytes), most: Bytes(bytes), words, figures }
}

fn between(key: &'static str, (bytes, least, most): (u64, u64, u64), words: &'static str, figures: String) -> FitRow {
    FitRow { key, bytes: Bytes(bytes), least: Bytes(least), most: Bytes(most), words, figures }
}

/// What of the weights goes where the model runs: as reckoned, and at least.
pub(super) fn weight_bytes(weights: &Weights, place: &Place) -> (u64, u64) {
    let whole = weights.all;
    let least = whole.saturating_sub(weights.header);
    match (place, weights.embedding, weights.tied) {
        (Place::Host { .. }, ..) => (whole, least),
        // The embeddings are looked up in host memory; where they are the output matrix too, cards get a copy.
        (Place::Cards(_), Some(embedding), Some(false)) => {
            let bytes = whole.saturating_sub(embedding);
            (bytes, bytes)
        }
        (Place::Cards(_), Some(_), Some(true)) => (whole, least),
        _ => (whole, least.saturating_sub(whole / 4)),
    }
}

/// The rows that need no shape.
pub(super) fn weights(weights: &Weights, place: &Place) -> FitRow {
    let (whole, (bytes, least)) = (weights.all, weight_bytes(weights, place));
    let (words, figures) = match (place, weights.embedding, weights.tied) {
        (Place::Host { .. }, ..) => ("All tensors of the files: the files without their headers.", format!("{whole} B")),
        (Place::Cards(_), embedding, tied) => (
            "All tensors of the files, less the token embeddings where the model has an output matrix of its own.",
            embedding.filter(|_| tied == Some(false)).map_or_else(|| format!("{whole} B"), |embedding| format!("{whole} B - {embedding} B")),
        ),
    };
    FitRow { key: "weights", bytes: Bytes(bytes), least: Bytes(least), most: Bytes(bytes), words, figures }
}

/// The image part of a model: its file, and what it computes with.
pub(super) fn projector(weights: &Weights) -> Result<Option<FitRow>, Missing> {
    let Some(file) = weights.projector else { return Ok(None) };
    let most = projector_most(file).known("mmproj")?;
    let words = "The image part (mmproj) with what it computes with, which follows the size of images; on cards all of it is on the first.";
    Ok(Some(between("mmproj", (file, file, most), words, format!("{file} B"))))
}

/// The most that an image part takes.
pub(super) fn projector_most(file: u64) -> Amount {
    Amount::from(file) + Amount::from(file).at_least(PROJECTOR)
}

/// The rows that need the shape.
///
/// # Errors
/// Names of figures that are beyond all memory.
pub(super) fn rest(shape: &Shape, files: &Weights, place: &Place, load: Load) -> Result<Vec<FitRow>, Missing> {
    let mut rows = vec![kv(shape, load)?, compute(shape, place, load)?];
    match place {
        Place::Host { .. } => {
            rows.push(output(shape, load)?);
            if let Some(repacked) = files.repacked.filter(|bytes| *bytes > 0) {
                let words = "Weights that the engine copies into another order for its processors.";
                rows.push(between("repack", (repacked, 0, repacked), words, format!("{repacked} B")));
            }
            rows.push(between("overhead", PROGRAM, "The engine's program and its threads.", String::new()));
            let words = "Prompts of past conversations, up to the limit the engine is started with.";
            rows.push(between("prompt_cache", (PROMPT_CACHE, 0, PROMPT_CACHE), words, String::new()));
            rows.extend(checkpoints(shape, load)?);
        }
        Place::Cards(cards) => {
            let count = cards.len() as u64;
            let each = |bytes: u64| (Amount::from(bytes) * count).known("overhead");
            let figures = format!("{count} x {}", Bytes(PER_CARD.0));
            let amounts = (each(PER_CARD.0)?, each(PER_CARD.1)?, each(PER_CARD.2)?);
            rows.push(between("overhead", amounts, "What the driver takes of each card for a process.", figures));
            if count > 1 {
                let layer = files.largest_layer.unwrap_or(files.all / shape.layers.len().max(1) as u64);
                let most = (Amount::from(layer) * (count - 1)).known("split")?;
                let words = "Cards are filled by whole layers, so up to one layer per further card stays unused.";
                rows.push(between("split", (0, 0, most), words, format!("{} x {layer} B", count - 1)));
            }
        }
    }
    Ok(rows)
}

/// Bytes of one cell of a layer.
fn cell(layer: &LayerShape, kv: KvType) -> Amount {
    let values = |size: u64| (Amount::from(layer.kv_heads) * size).as_kv(kv);
    values(layer.key) + values(layer.value)
}

/// Bytes of one cell of all layers that keep a window, or all that do not.
fn cells_of(shape: &Shape, windowed: bool, kv: KvType) -> Amount {
    shape.layers.iter().filter(|layer| layer.windowed == windowed).map(|layer| cell(layer, kv)).sum()
}

fn kv(shape: &Shape, load: Load) -> Result<FitRow, Missing> {
    let bytes = shape.layers.iter().map(|layer| load.layer(shape, layer)).sum::<Amount>().known("kv")?;
    let (full, windowed) = (cells_of(shape, false, load.kv).known("kv")?, cells_of(shape, true, load.kv).known("kv")?);
    let cells = load.cells().known("kv")?;
    let mut figures = format!("{} x {cells} x {full} B", load.slots);
    if let Some(window) = shape.window.filter(|_| windowed > 0) {
        let cells = load.window_cells(window).known("kv")?;
        figures = format!("{figures} + {} x {cells} x {windowed} B", load.slots);
    }
    let words =
        "Requests at once x tokens of the window x keys and values of all layers; layers that look back only so far keep only so many tokens.";
    Ok(exact("kv", bytes, words, figures))
}

/// The buffer for computing of one card, or of the processors.
pub(super) fn compute_once(shape: &Shape, load: Load) -> Amount {
    let widths = Amount::from(shape.feed_forward) * 3 + Amount::from(shape.embedding) * 5;
    let mask = load.batch() * masked(shape, load) * 2;
    let layers = load.batch() * widths * 4 + mask;
    layers.at_least(Amount::from(load.slots) * shape.vocabulary * 4)
}

fn masked(shape: &Shape, load: Load) -> Amount {
    let (_, windowed) = shape.layer_counts();
    load.cells() + shape.window.filter(|_| windowed > 0).map_or_else(|| Amount::from(0), |window| load.window_cells(window))
}

fn compute(shape: &Shape, place: &Place, load: Load) -> Result<FitRow, Missing> {
    let one = compute_once(shape, load).known("compute")?;
    let (batch, masked) = (load.batch().known("compute")?, masked(shape, load).known("compute")?);
    let figures = format!("{batch} x (3 x {} + 5 x {}) x 4 B + {batch} x {masked} x 2 B", shape.feed_forward, shape.embedding);
    let words = "Tokens at once x widths of one layer, and the mask over the window; once per card.";
    Ok(match place {
        Place::Host { .. } => {
            let most = (Amount::from(one / 10) * 13).known("compute")?;
            between("compute", (one, one / 10 * 7, most), words, figures)
        }
        Place::Cards(cards) => {
            let all = (Amount::from(one) * cards.len() as u64).known("compute")?;
            let most = (Amount::from(all) * 2).known("compute")?;
            between("compute", (all, all / 2, most), words, format!("{} x ({figures})", cards.len()))
        }
    })
}

fn output(shape: &Shape, load: Load) -> Result<FitRow, Missing> {
    let bytes = (Amount::from(load.slots) * shape.vocabulary * 4).known("output")?;
    Ok(exact("output", bytes, "Requests at once x tokens of the vocabulary.", format!("{} x {} x 4 B", load.slots, shape.vocabulary)))
}

fn checkpoints(shape: &Shape, load: Load) -> Result<Option<FitRow>, Missing> {
    let windowed = cells_of(shape, true, load.kv).known("checkpoints")?;
    let Some(window) = shape.window.filter(|_| windowed > 0).map(|window| window.min(load.context)) else { return Ok(None) };
    let most = (Amount::from(load.slots) * CHECKPOINTS * window * windowed).known("checkpoints")?;
    let words = "Saved states of layers that look back only so far, up to the limit the engine is started with.";
    Ok(Some(between("checkpoints", (most, 0, most), words, format!("{} x {CHECKPOINTS} x {window} x {windowed} B", load.slots))))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            heads: 4,
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
            heads: 9,
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
        let rows = rest(&shape, &Weights::default(), &HOST, load(2048, 4, KvType::F16)).unwrap();
        assert_eq!(row(&rows, "kv").bytes.0, (24 + 60) * MIB);
        assert_eq!(row(&rows, "output").bytes.0, 4 * MIB);
        within(row(&rows, "compute"), 21.28, 0.05);
        let two = rest(&shape, &Weights::default(), &HOST, load(2048, 2, KvType::F16)).unwrap();
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
            let rows = rest(&smollm2_135m(), &Weights::default(), &HOST, load(context, slots, kv)).unwrap();
            within(row(&rows, "kv"), keys, 0.0001);
            within(row(&rows, "compute"), compute, 0.05);
        }
    }

    #[test]
    fn more_cards_cost_a_driver_each_and_the_last_layer_may_not_fit_beside_another() {
        let card = |index| super::super::place::Card { index, total: Some(Bytes(16 << 30)), used: Some(Bytes(0)) };
        let two = Place::Cards(vec![card(0), card(1)]);
        let files = Weights { all: 100 * MIB, embedding: Some(30 * MIB), tied: Some(false), largest_layer: Some(2 * MIB), ..Weights::default() };
        let rows = rest(&smollm2_135m(), &files, &two, load(2048, 4, KvType::F16)).unwrap();
        assert_eq!(row(&rows, "overhead").bytes.0, 1024 * MIB);
        assert_eq!((row(&rows, "split").bytes.0, row(&rows, "split").most.0), (0, 2 * MIB));
        assert_eq!(weights(&files, &two).bytes.0, 70 * MIB);
        assert_eq!(weights(&Weights { tied: Some(true), ..files }, &two).bytes.0, 100 * MIB);
    }
}
