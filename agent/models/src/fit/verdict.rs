//! The verdict over the rows, and the longest window that would fit. Both use the same reckoning, so they cannot disagree.

use warden_domain::{
    engine::EngineKind,
    fit::{FitRow, FitTable, KvType, Verdict},
    hub::USUAL_CONTEXT,
    share,
    units::{Bytes, Tokens},
};

use super::{
    amount::Amount,
    llama::{self, Load},
    place::{Card, Place},
    shape::{Missing, Shape, Weights},
    spread, vllm,
};

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The shape, or what of it is not known.
    pub shape: Result<&'a Shape, &'a Missing>,
    /// The bytes.
    pub weights: Weights,
    /// Where.
    pub place: &'a Place,
    /// Which engine.
    pub engine: EngineKind,
    /// Context window per request; `None` = what the model was trained for, at most 4096.
    pub context: Option<Tokens>,
    /// Requests at the same time.
    pub slots: u16,
    /// Format of the token memory.
    pub kv: KvType,
    /// vLLM: the share of a card it may take.
    pub utilisation: f64,
    /// True when the whole header was read.
    pub whole_header: bool,
    /// Further things that are not known.
    pub missing: Missing,
}

const STEP: u64 = 256;

/// What a window of so many tokens comes to.
struct Reckoning {
    rows: Vec<FitRow>,
    sum: Bytes,
    most: Bytes,
    verdict: Verdict,
    /// About cards that do not hold their own part.
    notes: Vec<String>,
}

/// Answers.
#[must_use]
pub fn judge(question: &Question<'_>) -> FitTable {
    let shape = question.shape.ok();
    let trained = shape.and_then(|shape| shape.trained_context);
    let (context, mut notes) = window(question.context, trained);
    let mut missing = question.missing.clone();
    missing.extend(question.shape.err().into_iter().flatten().cloned());
    if shape.is_some() && context.is_none() {
        missing.push("context_length".to_owned());
    }
    let (available, total) = memory(question, &mut missing);
    let known = shape.filter(|_| missing.is_empty()).zip(context).zip(available);
    let reckoned = known.map(|((shape, context), available)| reckon(question, shape, context, Bytes(available)));
    let reckoned = reckoned.and_then(|reckoned| reckoned.map_err(|beyond| missing.extend(beyond)).ok());
    missing.dedup();
    let refusals = match (question.engine, question.place) {
        (EngineKind::Vllm, Place::Cards(cards)) => vllm::refusals(shape, cards, question.utilisation),
        _ => Vec::new(),
    };
    let mut verdict = reckoned.as_ref().map_or(Verdict::Unknown, |reckoned| reckoned.verdict);
    if !refusals.is_empty() {
        verdict = Verdict::WontFit;
    }
    let recommended = match (known, verdict) {
        (Some(((shape, context), available)), Verdict::Tight | Verdict::WontFit) if refusals.is_empty() => {
            longest_that_fits(question, shape, context, Bytes(available))
        }
        _ => None,
    };
    notes.extend(refusals);
    let (rows, sum, most) = match reckoned {
        Some(reckoned) => {
            notes.extend(reckoned.notes);
            (reckoned.rows, Some(reckoned.sum), Some(reckoned.most))
        }
        None => (vec![weights(question)], None, None),
    };
    FitTable {
        verdict,
        missing,
        notes,
        rows,
        sum,
        most,
        available: available.map(Bytes),
        total: total.map(Bytes),
        place: place_in_words(question.place),
        engine: question.engine,
        context: context.map(Tokens),
        slots: question.slots,
        kv: question.kv,
        cards: match question.place {
            Place::Host { .. } => 0,
            Place::Cards(cards) => cards.len(),
        },
        recommended_context: recommended.map(Tokens),
        whole_header: question.whole_header,
        trained_context: trained.map(Tokens),
    }
}

/// The window to reckon with: the one that was asked for, but no longer than the model was trained for, as no load takes a longer one.
fn window(asked: Option<Tokens>, trained: Option<u64>) -> (Option<u64>, Vec<String>) {
    match (asked, trained) {
        (Some(Tokens(asked)), Some(trained)) if asked > trained => {
            let sentence =
                format!("The model was trained for {trained} tokens of context; {asked} were asked for and are not loaded, so {trained} count here.");
            (Some(trained), vec![sentence])
        }
        (Some(Tokens(asked)), _) => (Some(asked), Vec::new()),
        (None, trained) => (trained.map(|trained| trained.min(USUAL_CONTEXT.0)), Vec::new()),
    }
}

fn word(sum: Bytes, most: Bytes, available: Bytes) -> Verdict {
    if most <= available {
        Verdict::Fits
    } else if sum <= available {
        Verdict::Tight
    } else {
        Verdict::WontFit
    }
}

/// The worse of two verdicts about memory.
const fn worse(a: Verdict, b: Verdict) -> Verdict {
    match (a, b) {
        (Verdict::WontFit, _) | (_, Verdict::WontFit) => Verdict::WontFit,
        (Verdict::Tight, _) | (_, Verdict::Tight) => Verdict::Tight,
        _ => Verdict::Fits,
    }
}

fn weights(question: &Question<'_>) -> FitRow {
    match question.engine {
        EngineKind::LlamaCpp => llama::weights(&question.weights, question.place),
        EngineKind::Vllm => vllm::weights(&question.weights),
    }
}

/// Rows, their sums, and the verdict over the whole place and over each card.
fn reckon(question: &Question<'_>, shape: &Shape, context: u64, available: Bytes) -> Result<Reckoning, Missing> {
    let mut rows = vec![weights(question)];
    let mut parts = Vec::new();
    let mut close = false;
    match (question.engine, question.place) {
        (EngineKind::LlamaCpp, place) => {
            let load = Load { context, slots: u64::from(question.slots), kv: question.kv };
            rows.extend(llama::projector(&question.weights)?);
            rows.extend(llama::rest(shape, &question.weights, place, load)?);
            if let Place::Cards(cards) = place
                && cards.len() > 1
            {
                parts = spread::parts(shape, &question.weights, cards, load)?;
            }
        }
        (EngineKind::Vllm, Place::Cards(cards)) => {
            rows.extend(vllm::rest(shape, cards, context, question.kv)?);
            close = vllm::is_close(cards, question.utilisation);
        }
        (EngineKind::Vllm, Place::Host { .. }) => {}
    }
    let added = |of: fn(&FitRow) -> Bytes| rows.iter().map(|row| Amount::from(of(row).0)).sum::<Amount>().known("sum").map(Bytes);
    let (sum, most) = (added(|row| row.bytes)?, added(|row| row.most)?);
    let whole = worse(word(sum, most, available), if close { Verdict::Tight } else { Verdict::Fits });
    let verdict = parts.iter().map(spread::Part::verdict).fold(whole, worse);
    let notes = parts.iter().filter_map(spread::Part::sentence).collect();
    Ok(Reckoning { rows, sum, most, verdict, notes })
}

/// What is there for the model, and all of it.
fn memory(question: &Question<'_>, missing: &mut Missing) -> (Option<u64>, Option<u64>) {
    match (question.engine, question.place) {
        (EngineKind::Vllm, Place::Host { .. }) => {
            missing.push("a card: vLLM runs on cards here".to_owned());
            (None, None)
        }
        (EngineKind::LlamaCpp, Place::Host { total, available }) => {
            if available.is_none() {
                missing.push("free host memory".to_owned());
            }
            (available.map(|b| b.0), total.map(|b| b.0))
        }
        (engine, Place::Cards(cards)) => {
            let untold = cards.iter().filter(|card| card.free().is_none());
            missing.extend(untold.map(|card| format!("memory of card {}", card.index)));
            let amount = |card: &Card| {
                let free = card.free()?;
                Some(if engine == EngineKind::Vllm { free.min(share::wanted_of_card(card.total?, question.utilisation).0) } else { free })
            };
            let amounts: Option<Vec<u64>> = cards.iter().map(amount).collect();
            let available = amounts.map(|amounts| match engine {
                // vLLM gives each card the same, so the fullest one decides.
                EngineKind::Vllm => Amount::from(amounts.iter().copied().min().unwrap_or(0)) * amounts.len() as u64,
                EngineKind::LlamaCpp => amounts.into_iter().map(Amount::from).sum(),
            });
            let total = cards.iter().map(|card| card.total.map(|b| Amount::from(b.0))).sum::<Option<Amount>>();
            let mut told =
                |amount: Option<Amount>| amount.and_then(|amount| amount.known("memory of the cards").map_err(|gone| missing.extend(gone)).ok());
            (told(available), told(total))
        }
    }
}

fn longest_that_fits(question: &Question<'_>, shape: &Shape, context: u64, available: Bytes) -> Option<u64> {
    let fits = |steps: u64| reckon(question, shape, steps * STEP, available).is_ok_and(|reckoned| reckoned.verdict == Verdict::Fits);
    let (mut low, mut high) = (0, context.min(shape.trained_context.unwrap_or(context)) / STEP);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    (low > 0 && fits(low)).then_some(low * STEP)
}

fn place_in_words(place: &Place) -> String {
    let shown = |bytes: Option<Bytes>| bytes.map_or_else(|| "–".to_owned(), |b| b.to_string());
    match place {
        Place::Host { total, available } => format!("{} / {}", shown(*available), shown(*total)),
        Place::Cards(cards) => {
            let card = |card: &super::place::Card| format!("#{}: {} / {}", card.index, shown(card.free().map(Bytes)), shown(card.total));
            cards.iter().map(card).collect::<Vec<_>>().join(", ")
        }
    }
}

#[cfg(test)]
mod tests;
