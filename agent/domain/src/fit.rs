//! Whether a model fits into memory: the question, and the answer as a table of rows that can be added up by hand.

use serde::{Deserialize, Serialize};

use crate::{
    engine::EngineKind,
    units::{Bytes, Tokens},
};

/// Number format of the token memory (KV cache).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KvType {
    /// 2 bytes a value: the engines' own default.
    #[default]
    F16,
    /// 34 bytes for 32 values (llama.cpp).
    Q8_0,
    /// 18 bytes for 32 values (llama.cpp).
    Q4_0,
    /// 1 byte a value (vLLM).
    Fp8,
}

impl KvType {
    /// The word in API and pages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
            Self::Fp8 => "fp8",
        }
    }

    /// Reads the word back.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::F16, Self::Q8_0, Self::Q4_0, Self::Fp8].into_iter().find(|kind| kind.as_str() == word)
    }

    /// Bytes of so many values.
    #[must_use]
    pub const fn bytes(self, values: u64) -> u64 {
        match self {
            Self::F16 => values.saturating_mul(2),
            Self::Q8_0 => values.div_ceil(32).saturating_mul(34),
            Self::Q4_0 => values.div_ceil(32).saturating_mul(18),
            Self::Fp8 => values,
        }
    }
}

/// Where the model is to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FitWhere {
    /// On the processors, in host memory.
    #[default]
    Host,
    /// On cards, by their place in the list.
    Indices(Vec<u32>),
    /// On cards, by identity.
    Cards(Vec<crate::ids::GpuId>),
}

/// The question.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FitAsk {
    /// `owner/name`.
    pub repo: String,
    /// Branch, tag or commit.
    pub revision: String,
    /// One choice, by any of its files; `None` = all, or the only one.
    pub filename: Option<String>,
    /// Where it is to run.
    pub at: FitWhere,
    /// Context window per request.
    pub context: Option<Tokens>,
    /// Requests at the same time.
    pub slots: Option<u16>,
    /// Format of the token memory.
    pub kv: KvType,
    /// Which engine; `None` = the one that the files are for.
    pub engine: Option<EngineKind>,
    /// vLLM: the share of a card's memory it may take, 0..1; `None` = `share::CARD_SHARE`.
    pub utilisation: Option<f64>,
}

/// The answer in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It fits, also when every estimate was too low by its whole error band.
    Fits,
    /// It fits as estimated, but not with the whole error band.
    Tight,
    /// It does not fit.
    WontFit,
    /// It cannot be told; the table says what is missing.
    Unknown,
}

impl Verdict {
    /// The word in API and pages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fits => "fits",
            Self::Tight => "tight",
            Self::WontFit => "wont_fit",
            Self::Unknown => "unknown",
        }
    }
}

/// One row of the arithmetic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FitRow {
    /// Stable name: `weights`, `repack`, `kv`, `compute`, `output`, `overhead`, `prompt_cache`, `checkpoints`, `mmproj`, `split`.
    pub key: &'static str,
    /// As estimated.
    pub bytes: Bytes,
    /// At least.
    pub least: Bytes,
    /// At most.
    pub most: Bytes,
    /// The formula in words.
    pub words: &'static str,
    /// The same formula with the numbers of this model.
    pub figures: String,
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct FitTable {
    /// In one word.
    pub verdict: Verdict,
    /// For `Unknown`: what is not known, as names of fields or facts.
    pub missing: Vec<String>,
    /// Sentences about what the sum does not tell: that an engine refuses these cards, that one of them is too small for its share, that a
    /// shorter window was reckoned with.
    pub notes: Vec<String>,
    /// The rows; those that can be told also when the verdict is `Unknown`.
    pub rows: Vec<FitRow>,
    /// Their sum as estimated; `None` when a row is missing.
    pub sum: Option<Bytes>,
    /// Their sum at most.
    pub most: Option<Bytes>,
    /// What is there for it.
    pub available: Option<Bytes>,
    /// All memory of that place.
    pub total: Option<Bytes>,
    /// What is there, in figures.
    pub place: String,
    /// Which engine was reckoned with.
    pub engine: EngineKind,
    /// Context window per request that was reckoned with.
    pub context: Option<Tokens>,
    /// Requests at the same time that were reckoned with.
    pub slots: u16,
    /// Format of the token memory.
    pub kv: KvType,
    /// Cards that were reckoned with; 0: host memory.
    pub cards: usize,
    /// The longest context with which the verdict is `Fits`, for `Tight` and `WontFit`; `None`: none does, or it is not needed.
    pub recommended_context: Option<Tokens>,
    /// Whether the whole header was read, or only its first keys.
    pub whole_header: bool,
    /// What the model was trained for.
    pub trained_context: Option<Tokens>,
}
