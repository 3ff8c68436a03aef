//! What of a model decides about its memory.

use warden_domain::share::Heads;

use crate::gguf::TensorSums;

/// Names of fields or facts that are not known.
pub type Missing = Vec<String>;

/// One layer's share of the token memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerShape {
    /// Heads of keys and values.
    pub kv_heads: u64,
    /// Values of a key, per head.
    pub key: u64,
    /// Values of a value, per head.
    pub value: u64,
    /// Keeps only the last tokens (`Shape::window`).
    pub windowed: bool,
}

/// The shape of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// As the file names it.
    pub architecture: String,
    /// Attention heads, of the layer with the most.
    pub heads: u64,
    /// Its layers.
    pub layers: Vec<LayerShape>,
    /// How many tokens windowed layers look back.
    pub window: Option<u64>,
    /// Width of the hidden state.
    pub embedding: u64,
    /// Width of the feed-forward part that one token goes through.
    pub feed_forward: u64,
    /// Tokens of the vocabulary.
    pub vocabulary: u64,
    /// Context it was trained for.
    pub trained_context: Option<u64>,
}

impl Shape {
    /// Layers that keep everything, and layers that keep a window.
    #[must_use]
    pub fn layer_counts(&self) -> (u64, u64) {
        let windowed = self.layers.iter().filter(|layer| layer.windowed).count() as u64;
        (self.layers.len() as u64 - windowed, windowed)
    }

    /// Its heads, as they are shared out among cards.
    #[must_use]
    pub fn shared_heads(&self) -> Heads {
        Heads { all: self.heads, kv: self.layers.iter().map(|layer| layer.kv_heads).max() }
    }
}

/// The bytes of the weights. What only the whole header tells is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weights {
    /// All tensors, or the files as they are.
    pub all: u64,
    /// Bytes by which `all` may be too high: headers that were not taken off.
    pub header: u64,
    /// The table of token embeddings, which stays in host memory.
    pub embedding: Option<u64>,
    /// The output matrix, where it is one of its own.
    pub output: Option<u64>,
    /// Whether that table is the output matrix too, so that cards get a copy.
    pub tied: Option<bool>,
    /// Copied into another order when processors compute.
    pub repacked: Option<u64>,
    /// The largest layer; cards are filled by whole layers.
    pub largest_layer: Option<u64>,
    /// The file of the image part, when the model has one.
    pub projector: Option<u64>,
}

impl Weights {
    /// Of a GGUF file, or of all parts of one that is split; `sums` are those of the first part, when its whole header was read.
    #[must_use]
    pub fn of_gguf(files: u64, parts: usize, sums: Option<&TensorSums>) -> Self {
        let Some(sums) = sums else { return Self { all: files, header: files.min(HEADER_AT_MOST), ..Self::default() } };
        let all = files.saturating_sub(sums.data_start);
        if parts > 1 {
            // The table of the first part tells nothing of the others.
            return Self { all, header: 1 << 20, ..Self::default() };
        }
        Self {
            all,
            header: 0,
            embedding: Some(sums.embedding),
            output: sums.output,
            tied: Some(sums.output.is_none()),
            repacked: Some(sums.repacked),
            largest_layer: Some(sums.largest_layer),
            projector: None,
        }
    }
}

/// Larger than any real size of a layer, a vocabulary or a window: what a file says beyond it is no figure.
pub(super) const LARGEST_FIGURE: u64 = 1 << 32;

/// A figure with its name as it is listed among what is not known, because nothing real is that large.
pub(super) fn absurd(name: &str, number: u64) -> String {
    format!("{name} = {number}")
}

/// The largest headers known hold a vocabulary of 256 thousand tokens with merges.
const HEADER_AT_MOST: u64 = 16 << 20;
