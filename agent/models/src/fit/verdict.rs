//! The verdict over the rows, and the longest window that would fit. Both use the same reckoning, so they cannot disagree.

use warden_domain::{
    engine::EngineKind,
    fit::{FitRow, FitTable, KvType, Verdict},
    hub::USUAL_CONTEXT,
    units::{Bytes, Tokens},
};

use super::{
    llama::{self, Load},
    place::Place,
    shape::{Missing, Shape, Weights},
    vllm,
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

/// Answers.
#[must_use]
pub fn judge(question: &Question<'_>) -> FitTable {
    let shape = question.shape.ok();
    let trained = shape.and_then(|shape| shape.trained_context);
    let context = question.context.map_or_else(|| trained.map(|trained| trained.min(USUAL_CONTEXT.0)), |asked| Some(asked.0));
    let mut missing = question.missing.clone();
    missing.extend(question.shape.err().into_iter().flatten().cloned());
    if shape.is_some() && context.is_none() {
        missing.push("context_length".to_owned());
    }
    let (available, total) = memory(question, &mut missing);
    missing.dedup();
    let rows = rows(question, shape.filter(|_| missing.is_empty()).zip(context));
    let known = missing.is_empty();
    let mut table = FitTable {
        verdict: Verdict::Unknown,
        sum: known.then(|| rows.iter().map(|row| row.bytes).sum()),
        most: known.then(|| rows.iter().map(|row| row.most).sum()),
        rows,
        missing,
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
        recommended_context: None,
        whole_header: question.whole_header,
        trained_context: trained.map(Tokens),
    };
    if let (Some(sum), Some(most), Some(available)) = (table.sum, table.most, table.available) {
        table.verdict = word(sum, most, available);
        if table.verdict != Verdict::Fits
            && let (Some(shape), Some(context)) = (shape, context)
        {
            table.recommended_context = longest_that_fits(question, shape, context, available).map(Tokens);
        }
    }
    table
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

fn rows(question: &Question<'_>, known: Option<(&Shape, u64)>) -> Vec<FitRow> {
    let mut rows = vec![match question.engine {
        EngineKind::LlamaCpp => llama::weights(&question.weights, question.place),
        EngineKind::Vllm => vllm::weights(&question.weights),
    }];
    let Some((shape, context)) = known else { return rows };
    match (question.engine, question.place) {
        (EngineKind::LlamaCpp, place) => {
            let load = Load { context, slots: u64::from(question.slots), kv: question.kv };
            rows.extend(llama::rest(shape, &question.weights, place, load));
        }
        (EngineKind::Vllm, Place::Cards(cards)) => rows.extend(vllm::rest(shape, cards, context, question.kv)),
        (EngineKind::Vllm, Place::Host { .. }) => {}
    }
    rows
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
            let per_card = cards.iter().map(|card| {
                let free = card.free()?;
                Some(if engine == EngineKind::Vllm { free.min(share(card.total?.0, question.utilisation)) } else { free })
            });
            let mut amounts: Vec<u64> = Vec::new();
            for amount in per_card {
                let Some(amount) = amount else { return (None, None) };
                amounts.push(amount);
            }
            // vLLM gives each card the same, so the fullest one decides.
            let available = match engine {
                EngineKind::Vllm => amounts.iter().copied().min().unwrap_or(0).saturating_mul(amounts.len() as u64),
                EngineKind::LlamaCpp => amounts.iter().copied().fold(0, u64::saturating_add),
            };
            (Some(available), cards.iter().map(|card| card.total.map(|b| b.0)).sum())
        }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a share of memory, not of pennies")]
fn share(total: u64, utilisation: f64) -> u64 {
    (total as f64 * utilisation.clamp(0.0, 1.0)) as u64
}

fn longest_that_fits(question: &Question<'_>, shape: &Shape, context: u64, available: Bytes) -> Option<u64> {
    let fits = |steps: u64| {
        let rows = rows(question, Some((shape, steps * STEP)));
        rows.iter().map(|row| row.most).sum::<Bytes>() <= available
    };
    let (mut low, mut high) = (0, context.min(shape.trained_context.unwrap_or(context)) / STEP);
    while low < high {
        let middle = (low + high).div_ceil(2);
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
mod tests {
    use super::*;
    use crate::fit::{LayerShape, place::Card};

    const GIB: u64 = 1 << 30;

    fn shape() -> Shape {
        Shape {
            architecture: "llama".to_owned(),
            layers: vec![LayerShape { kv_heads: 8, key: 128, value: 128, windowed: false }; 32],
            window: None,
            embedding: 4096,
            feed_forward: 14336,
            vocabulary: 128_256,
            trained_context: Some(131_072),
        }
    }

    fn card(index: u32, total: u64, used: u64) -> Card {
        Card { index, total: Some(Bytes(total)), used: Some(Bytes(used)) }
    }

    fn asked<'a>(shape: Result<&'a Shape, &'a Missing>, place: &'a Place, context: u64) -> Question<'a> {
        Question {
            shape,
            weights: Weights { all: 5 * GIB, ..Weights::default() },
            place,
            engine: EngineKind::LlamaCpp,
            context: Some(Tokens(context)),
            slots: 1,
            kv: KvType::F16,
            utilisation: 0.9,
            whole_header: true,
            missing: Vec::new(),
        }
    }

    #[test]
    fn a_model_fits_is_tight_or_does_not_by_its_error_band() {
        let shape = shape();
        let at = |total: u64, context: u64| judge(&asked(Ok(&shape), &Place::Cards(vec![card(0, total, 0)]), context));
        assert_eq!(at(24 * GIB, 8192).verdict, Verdict::Fits);
        let needs = at(24 * GIB, 8192);
        let between = needs.sum.unwrap().0.midpoint(needs.most.unwrap().0);
        assert_eq!(at(between, 8192).verdict, Verdict::Tight);
        assert_eq!(at(6 * GIB, 8192).verdict, Verdict::WontFit);
        assert_eq!(needs.rows.iter().map(|row| row.bytes).sum::<Bytes>(), needs.sum.unwrap());
    }

    #[test]
    fn the_longest_window_that_is_recommended_does_fit() {
        let shape = shape();
        let place = Place::Cards(vec![card(0, 12 * GIB, 0)]);
        let table = judge(&asked(Ok(&shape), &place, 131_072));
        assert_eq!(table.verdict, Verdict::WontFit);
        let recommended = table.recommended_context.unwrap();
        assert_eq!(judge(&asked(Ok(&shape), &place, recommended.0)).verdict, Verdict::Fits);
        assert_ne!(judge(&asked(Ok(&shape), &place, recommended.0 + STEP)).verdict, Verdict::Fits);
    }

    #[test]
    fn more_cards_add_memory_and_what_is_used_is_not_there() {
        let shape = shape();
        let one = Place::Cards(vec![card(0, 7 * GIB, 0)]);
        let two = Place::Cards(vec![card(0, 7 * GIB, 0), card(1, 7 * GIB, 0)]);
        let used = Place::Cards(vec![card(0, 24 * GIB, 20 * GIB)]);
        assert_eq!(judge(&asked(Ok(&shape), &one, 16384)).verdict, Verdict::WontFit);
        assert_eq!(judge(&asked(Ok(&shape), &two, 16384)).verdict, Verdict::Fits);
        assert_eq!(judge(&asked(Ok(&shape), &used, 4096)).verdict, Verdict::WontFit);
    }

    #[test]
    fn nothing_is_judged_while_something_is_not_known() {
        let shape = shape();
        let missing = vec!["x.attention.kv_lora_rank".to_owned()];
        let place = Place::Cards(vec![card(0, 24 * GIB, 0)]);
        let table = judge(&asked(Err(&missing), &place, 4096));
        assert_eq!((table.verdict, table.missing.as_slice(), table.sum), (Verdict::Unknown, missing.as_slice(), None));
        assert_eq!(table.rows.len(), 1, "weights are known without a shape");
        let silent = Place::Cards(vec![Card { index: 3, total: Some(Bytes(24 * GIB)), used: None }]);
        let table = judge(&asked(Ok(&shape), &silent, 4096));
        assert_eq!((table.verdict, table.available), (Verdict::Unknown, None));
        assert_eq!(table.missing, ["memory of card 3"]);
        let vllm = Question { engine: EngineKind::Vllm, ..asked(Ok(&shape), &Place::Host { total: None, available: Some(Bytes(1)) }, 4096) };
        assert_eq!(judge(&vllm).verdict, Verdict::Unknown);
    }

    #[test]
    fn vllm_takes_a_share_of_all_memory_and_keeps_a_head_on_each_card() {
        let shape = shape();
        let place = Place::Cards((0..16).map(|index| card(index, 24 * GIB, 0)).collect());
        let table = judge(&Question { engine: EngineKind::Vllm, ..asked(Ok(&shape), &place, 4096) });
        let kv = table.rows.iter().find(|row| row.key == "kv").unwrap();
        // 8 heads on 16 cards: as if there were 16.
        assert_eq!(kv.bytes.0, 4096 * 32 * 16 * 256 * 2);
        assert!(table.available.unwrap().0 <= 16 * 24 * GIB / 10 * 9);
    }
}
