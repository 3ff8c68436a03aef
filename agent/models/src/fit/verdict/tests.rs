use super::*;
use crate::fit::LayerShape;

const GIB: u64 = 1 << 30;

fn shape() -> Shape {
    Shape {
        architecture: "llama".to_owned(),
        heads: 32,
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
        utilisation: share::CARD_SHARE,
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
    assert_eq!(table.available.unwrap().0, 16 * share::wanted_of_card(Bytes(24 * GIB), share::CARD_SHARE).0);
}

fn on_vllm<'a>(shape: &'a Shape, place: &'a Place, utilisation: f64) -> FitTable {
    judge(&Question { engine: EngineKind::Vllm, utilisation, ..asked(Ok(shape), place, 4096) })
}

#[test]
fn a_card_that_vllm_would_not_start_on_is_told_with_its_sentence() {
    let shape = shape();
    let wanted = share::wanted_of_card(Bytes(80 * GIB), share::CARD_SHARE).0;
    let at = |free: u64| on_vllm(&shape, &Place::Cards(vec![card(0, 80 * GIB, 0), card(1, 80 * GIB, 80 * GIB - free)]), share::CARD_SHARE);
    let full = at(wanted - 1);
    assert_eq!((full.verdict, full.recommended_context), (Verdict::WontFit, None));
    assert_eq!(full.notes.len(), 1, "{:?}", full.notes);
    assert!(full.notes[0].contains("does not start on card 1") && full.notes[0].contains("0.92"), "{:?}", full.notes);
    // Enough by the driver's figures, but not once the engine's own driver memory is gone from them.
    assert_eq!((at(wanted).verdict, at(wanted).notes.len()), (Verdict::Tight, 0));
    assert_eq!(at(80 * GIB).verdict, Verdict::Fits);
    let half = Place::Cards(vec![card(0, 80 * GIB, 40 * GIB)]);
    assert_eq!(on_vllm(&shape, &half, 0.45).verdict, Verdict::Fits, "a smaller share starts on what is free");
    let unknown = vec!["kv_lora_rank".to_owned()];
    let table = judge(&Question { engine: EngineKind::Vllm, ..asked(Err(&unknown), &half, 4096) });
    assert_eq!(table.verdict, Verdict::WontFit, "whatever the model is");
}

#[test]
fn heads_that_vllm_cannot_share_out_are_told_and_llama_has_no_such_rule() {
    let shape = shape();
    let cards = |count| Place::Cards((0..count).map(|index| card(index, 80 * GIB, 0)).collect());
    for (count, fits) in [(1, true), (2, true), (3, false), (4, true), (6, false), (8, true), (16, true)] {
        let table = on_vllm(&shape, &cards(count), share::CARD_SHARE);
        assert_eq!((table.verdict == Verdict::Fits, table.notes.is_empty()), (fits, fits), "{count}: {:?}", table.notes);
        assert_eq!(judge(&asked(Ok(&shape), &cards(count), 4096)).verdict, Verdict::Fits);
    }
    assert!(on_vllm(&shape, &cards(3), share::CARD_SHARE).notes[0].contains("32 attention heads"));
}

#[test]
fn a_card_too_small_for_its_part_is_told_although_the_sum_is_enough() {
    let shape = shape();
    // Half a GiB of the second card is free: fewer layers go there, but a driver and a buffer for computing do.
    let place = Place::Cards(vec![card(0, 24 * GIB, 0), card(1, 24 * GIB, 24 * GIB - GIB / 2)]);
    let table = judge(&asked(Ok(&shape), &place, 4096));
    assert!(table.most.unwrap() <= table.available.unwrap(), "the sum alone would fit");
    assert_eq!(table.verdict, Verdict::WontFit);
    assert!(table.notes.len() == 1 && table.notes[0].contains("Card 1"), "{:?}", table.notes);
    let fine = Place::Cards(vec![card(0, 24 * GIB, 0), card(1, 12 * GIB, 0)]);
    assert_eq!(judge(&asked(Ok(&shape), &fine, 4096)).verdict, Verdict::Fits, "unequal cards are no fault by themselves");
}

#[test]
fn a_window_beyond_the_training_is_reckoned_as_the_one_that_can_be_loaded() {
    let shape = shape();
    let place = Place::Cards(vec![card(0, 80 * GIB, 0)]);
    let at = |context: u64| judge(&asked(Ok(&shape), &place, context));
    let beyond = at(u64::MAX);
    assert_eq!((beyond.context, beyond.sum), (Some(Tokens(131_072)), at(131_072).sum));
    assert!(beyond.notes.iter().any(|note| note.contains("trained for 131072 tokens")), "{:?}", beyond.notes);
    assert!(at(131_072).notes.is_empty());
}

#[test]
fn an_image_part_is_counted_and_lies_on_the_first_card() {
    let shape = shape();
    let place = Place::Cards(vec![card(0, 24 * GIB, 0)]);
    let plain = asked(Ok(&shape), &place, 4096);
    let seeing = Question { weights: Weights { projector: Some(GIB), ..plain.weights }, ..plain.clone() };
    let (plain, seeing) = (judge(&plain), judge(&seeing));
    assert_eq!((seeing.sum.unwrap().0 - plain.sum.unwrap().0, seeing.most.unwrap().0 - plain.most.unwrap().0), (GIB, 2 * GIB));
    assert!(seeing.rows.iter().any(|row| row.key == "mmproj"));
}

#[test]
fn figures_beyond_all_memory_are_unknown_and_named() {
    let place = Place::Cards(vec![card(0, 24 * GIB, 0), card(1, 24 * GIB, 0)]);
    let layer = LayerShape { kv_heads: u64::MAX, key: 2, value: 2, windowed: false };
    let hostile = Shape { layers: vec![layer; 2], ..shape() };
    for engine in [EngineKind::LlamaCpp, EngineKind::Vllm] {
        let table = judge(&Question { engine, ..asked(Ok(&hostile), &place, 4096) });
        assert_eq!((table.sum, table.recommended_context), (None, None));
        assert!(table.missing.iter().any(|missing| missing.starts_with("kv:")), "{engine:?}: {:?}", table.missing);
    }
    let weights = Weights { all: u64::MAX, ..Weights::default() };
    let table = judge(&Question { weights, ..asked(Ok(&shape()), &place, 4096) });
    assert_eq!(table.verdict, Verdict::Unknown, "{:?}", table.missing);
}

mod hostile {
    use proptest::{prelude::*, sample::select};

    use super::*;

    /// Numbers that break sums: small, at the edges of 32 and 64 bits, and anything.
    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![0u64..5, Just(u64::MAX), Just(u64::MAX - 1), Just(1 << 63), Just(1 << 32), 0u64..1 << 24, any::<u64>()]
    }

    fn maybe() -> impl Strategy<Value = Option<u64>> {
        proptest::option::of(number())
    }

    fn layers() -> impl Strategy<Value = Vec<LayerShape>> {
        let layer = (number(), number(), number(), any::<bool>());
        proptest::collection::vec(layer.prop_map(|(kv_heads, key, value, windowed)| LayerShape { kv_heads, key, value, windowed }), 0..6)
    }

    fn shapes() -> impl Strategy<Value = Shape> {
        (layers(), number(), maybe(), number(), number(), number(), maybe()).prop_map(
            |(layers, heads, window, embedding, feed_forward, vocabulary, trained_context)| Shape {
                architecture: "x".to_owned(),
                heads,
                layers,
                window,
                embedding,
                feed_forward,
                vocabulary,
                trained_context,
            },
        )
    }

    fn weights() -> impl Strategy<Value = Weights> {
        (number(), number(), maybe(), maybe(), proptest::option::of(any::<bool>()), maybe(), maybe(), maybe()).prop_map(
            |(all, header, embedding, output, tied, repacked, largest_layer, projector)| Weights {
                all,
                header,
                embedding,
                output,
                tied,
                repacked,
                largest_layer,
                projector,
            },
        )
    }

    fn places() -> impl Strategy<Value = Place> {
        let bytes = || proptest::option::of(number().prop_map(Bytes));
        let card = (any::<u32>(), bytes(), bytes()).prop_map(|(index, total, used)| Card { index, total, used });
        prop_oneof![
            (bytes(), bytes()).prop_map(|(total, available)| Place::Host { total, available }),
            proptest::collection::vec(card, 0..5).prop_map(Place::Cards),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn no_shape_makes_a_sum_wrap_or_the_verdict_break(
            shape in shapes(),
            weights in weights(),
            place in places(),
            engine in select(vec![EngineKind::LlamaCpp, EngineKind::Vllm]),
            context in proptest::option::of(number().prop_map(Tokens)),
            slots in any::<u16>(),
            kv in select(vec![KvType::F16, KvType::Q8_0, KvType::Q4_0, KvType::Fp8]),
            utilisation in any::<f64>(),
        ) {
            let question =
                Question { shape: Ok(&shape), weights, place: &place, engine, context, slots, kv, utilisation, whole_header: true, missing: Vec::new() };
            let table = judge(&question);
            let added = |of: fn(&FitRow) -> Bytes| table.rows.iter().map(|row| u128::from(of(row).0)).sum::<u128>();
            if let (Some(sum), Some(most)) = (table.sum, table.most) {
                prop_assert_eq!(u128::from(sum.0), added(|row| row.bytes));
                prop_assert_eq!(u128::from(most.0), added(|row| row.most));
                prop_assert!(table.missing.is_empty());
                let available = table.available.unwrap();
                prop_assert!(table.verdict != Verdict::Unknown && (table.verdict != Verdict::Fits || most <= available));
                // The token memory by hand, wide enough for anything.
                let tokens = u128::from(table.context.unwrap().0);
                let values: u128 = shape.layers.iter().filter(|layer| !layer.windowed || shape.window.is_none())
                    .map(|layer| u128::from(layer.kv_heads).saturating_mul(u128::from(layer.key) + u128::from(layer.value))).fold(0, u128::saturating_add);
                let least = tokens.saturating_mul(values) / 2;
                let said = table.rows.iter().find(|row| row.key == "kv").map(|row| u128::from(row.bytes.0)).unwrap();
                prop_assert!(slots == 0 || said >= least, "{} < {}", said, least);
            } else {
                prop_assert!(!table.missing.is_empty());
                prop_assert!(matches!(table.verdict, Verdict::Unknown | Verdict::WontFit));
            }
        }
    }
}
