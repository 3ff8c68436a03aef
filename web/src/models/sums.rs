//! A verdict with its arithmetic, as the pages show it.

use warden_domain::fit::{FitTable, Verdict};

use crate::{
    catalogue::Text,
    wording::{self, StateView},
};

/// The table of one choice.
pub(crate) struct Sums {
    pub(crate) verdict: StateView,
    /// Need and what is there, in a few words.
    pub(crate) line: String,
    /// Name, amount with its band, formula in words, formula in numbers.
    pub(crate) rows: Vec<SumRow>,
    /// Names and values below the rows.
    pub(crate) totals: Vec<(&'static str, String)>,
    /// Sentences about what the sum does not tell, such as a card that is too small.
    pub(crate) notes: Vec<String>,
    /// What is not known; empty when everything is.
    pub(crate) missing: String,
    /// Advice, for tight and too large ones.
    pub(crate) advice: String,
}

/// One row.
pub(crate) struct SumRow {
    pub(crate) name: &'static str,
    pub(crate) amount: String,
    pub(crate) band: String,
    pub(crate) words: &'static str,
    pub(crate) figures: String,
}

impl Sums {
    pub(crate) fn of(table: &FitTable, t: &'static Text) -> Self {
        let (word, label) = match table.verdict {
            Verdict::Fits => ("running", t.hub_fits),
            Verdict::Tight => ("waiting", t.hub_tight),
            Verdict::WontFit => ("failed", t.hub_wont_fit),
            Verdict::Unknown => ("stopped", t.hub_unknown),
        };
        let line = match (table.sum, table.available) {
            (Some(sum), Some(available)) => t.hub_of(sum, available),
            _ => String::new(),
        };
        let mut totals = Vec::new();
        if let (Some(sum), Some(most)) = (table.sum, table.most) {
            totals.push((t.hub_sum, t.hub_up_to(sum, most)));
        }
        if let Some(available) = table.available {
            totals.push((t.hub_available, format!("{available} ({})", table.place)));
        }
        totals.push((t.new_context, wording::tokens(table.context)));
        totals.push((t.new_slots, table.slots.to_string()));
        let advice = match (table.verdict, table.recommended_context) {
            (Verdict::Tight | Verdict::WontFit, Some(context)) => t.hub_recommend(wording::grouped(context.0)),
            (Verdict::WontFit, None) => t.hub_smaller.to_owned(),
            _ => String::new(),
        };
        Self {
            verdict: StateView { word, label },
            line,
            rows: table
                .rows
                .iter()
                .map(|row| SumRow {
                    name: name(row.key, t),
                    amount: row.bytes.to_string(),
                    band: if row.least == row.most { String::new() } else { t.hub_band(row.least, row.most) },
                    words: words(row.key, table.cards > 0, t),
                    figures: row.figures.clone(),
                })
                .collect(),
            totals,
            notes: table.notes.clone(),
            missing: table.missing.join(", "),
            advice,
        }
    }
}

fn name(key: &str, t: &'static Text) -> &'static str {
    match key {
        "weights" => t.hub_row_weights,
        "kv" => t.hub_row_kv,
        "compute" => t.hub_row_compute,
        "output" => t.hub_row_output,
        "repack" => t.hub_row_repack,
        "prompt_cache" => t.hub_row_prompt_cache,
        "checkpoints" => t.hub_row_checkpoints,
        "mmproj" => t.hub_row_mmproj,
        "split" => t.hub_row_split,
        _ => t.hub_row_overhead,
    }
}

fn words(key: &str, cards: bool, t: &'static Text) -> &'static str {
    match key {
        "weights" => t.hub_words_weights,
        "kv" => t.hub_words_kv,
        "compute" => t.hub_words_compute,
        "output" => t.hub_words_output,
        "repack" => t.hub_words_repack,
        "prompt_cache" => t.hub_words_prompt_cache,
        "checkpoints" => t.hub_words_checkpoints,
        "mmproj" => t.hub_words_mmproj,
        "split" => t.hub_words_split,
        _ if cards => t.hub_words_overhead_cards,
        _ => t.hub_words_overhead,
    }
}
