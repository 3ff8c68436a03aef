//! Looks at a hub: who waits for whom, which questions are refused, and what a verdict says, against a hub on loopback.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests: what they need and do not get fails the test")]

mod hub;

use std::{sync::Arc, time::Duration};

use hub::{Room, room};
use warden_domain::{
    Problem, ProblemKind,
    fit::{FitAsk, FitTable, FitWhere, Verdict},
    gpu::{GpuCard, GpuReading, GpuSnapshot, Gpus, NoGpus, PcieLink},
    hub::{Care, Hub, RepoAsk},
    ids::GpuId,
    units::{Bytes, Tokens},
};
use warden_fixtures::TinyModel;

/// Cards of 24 GiB with so much in use.
struct Cards(Vec<u64>);

impl Gpus for Cards {
    fn snapshot(&self) -> Arc<GpuSnapshot> {
        let card = |(used, index): (&u64, u32)| GpuCard {
            index,
            minor: None,
            id: GpuId::from_stored(format!("GPU-{index}")),
            name: None,
            pci: None,
            memory_total: Some(Bytes(24 << 30)),
            memory_used: Some(Bytes(*used)),
            utilisation_ratio: None,
            temperature: None,
            temperature_limit: None,
            power: None,
            power_cap: None,
            link: PcieLink::default(),
            holders: None,
        };
        let cards = self.0.iter().zip(0..).map(card).collect();
        Arc::new(GpuSnapshot { reading: GpuReading::Live, driver: None, simulated: true, cards })
    }
}

fn ask(repo: &str) -> RepoAsk {
    RepoAsk { repo: repo.to_owned(), revision: String::new() }
}

async fn with_tensors() -> Room {
    let room = room().await;
    let config = r#"{"architectures":["LlamaForCausalLM"],"num_hidden_layers":2,"hidden_size":128,"num_attention_heads":6,"num_key_value_heads":2,
        "vocab_size":1000,"intermediate_size":256,"max_position_embeddings":2048}"#;
    room.hub.add("lab/tensors", "config.json", config.as_bytes().to_vec());
    room.hub.add("lab/tensors", "model.safetensors", vec![7; 5000]);
    room.hub.add("lab/tiny", "tiny-F16.gguf", TinyModel::default().bytes());
    room.hub.add("lab/tiny", "mmproj-F16.gguf", vec![7; 3000]);
    room
}

async fn judged(room: &Room, cards: &[u64], asked: FitAsk) -> Result<FitTable, Problem> {
    let hub = room.looks(Arc::new(Cards(cards.to_vec()))).await;
    Ok(hub.fit(&asked, Care::Whole).await?.remove(0).table)
}

fn on(repo: &str, cards: &[u32]) -> FitAsk {
    FitAsk { repo: repo.to_owned(), at: FitWhere::Indices(cards.to_vec()), ..FitAsk::default() }
}

#[tokio::test]
async fn a_slow_repository_keeps_nobody_waiting_who_asks_for_another() {
    let room = with_tensors().await;
    let hub = room.looks(Arc::new(NoGpus)).await;
    room.hub.hold("lab/tensors");
    let (first, second) = (hub.clone(), hub.clone());
    let slow = [
        tokio::spawn(async move { first.discover(&ask("lab/tensors")).await }),
        tokio::spawn(async move { second.discover(&ask("lab/tensors")).await }),
    ];
    while room.hub.asked_of("lab/tensors") == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let other = tokio::time::timeout(Duration::from_secs(10), hub.discover(&ask("lab/tiny"))).await;
    assert_eq!(other.expect("the other repository waits for nobody").unwrap().choices.len(), 1);
    assert!(slow.iter().all(|look| !look.is_finished()));
    room.hub.let_go();
    for look in slow {
        assert_eq!(look.await.unwrap().unwrap().choices.len(), 1);
    }
    assert_eq!(room.hub.asked_of("lab/tensors"), 3, "revision, list and config.json, once for both");
}

#[tokio::test]
async fn questions_that_make_no_sense_are_refused_by_field() {
    let room = with_tensors().await;
    for (asked, field, words) in [
        (on("lab/tiny", &[0, 1, 0]), "gpu_indices", "named twice"),
        (
            FitAsk { at: FitWhere::Cards(vec![GpuId::from_stored("GPU-1"), GpuId::from_stored("GPU-1")]), ..on("lab/tiny", &[]) },
            "gpu_indices",
            "twice",
        ),
        (on("lab/tiny", &[7]), "gpu_indices", "no card 7"),
        (FitAsk { context: Some(Tokens(u64::MAX)), ..on("lab/tiny", &[]) }, "max_model_len", "cannot be used"),
        (FitAsk { context: Some(Tokens(1)), ..on("lab/tiny", &[]) }, "max_model_len", "cannot be used"),
        (FitAsk { slots: Some(1000), ..on("lab/tiny", &[]) }, "max_batch_size", "1000"),
    ] {
        let problem = judged(&room, &[0, 0], asked).await.unwrap_err();
        assert_eq!((problem.kind, problem.param.as_deref()), (ProblemKind::Invalid, Some(field)), "{problem:?}");
        assert!(problem.message.contains(words) && problem.hint.is_some(), "{problem:?}");
    }
}

#[tokio::test]
async fn what_vllm_refuses_is_told_before_anything_is_fetched() {
    let room = with_tensors().await;
    let fits = judged(&room, &[0, 0], on("lab/tensors", &[0, 1])).await.unwrap();
    assert_eq!((fits.verdict, fits.notes.len()), (Verdict::Fits, 0), "{fits:?}");
    // 24 GiB less 2 GiB are 22 GiB; 0.92 of 24 GiB are 22.08 GiB.
    let full = judged(&room, &[0, 2 << 30], on("lab/tensors", &[0, 1])).await.unwrap();
    assert_eq!(full.verdict, Verdict::WontFit);
    assert!(full.notes[0].contains("card 1") && full.notes[0].contains("0.92"), "{:?}", full.notes);
    let less = FitAsk { utilisation: Some(0.5), ..on("lab/tensors", &[0, 1]) };
    assert_eq!(judged(&room, &[0, 2 << 30], less).await.unwrap().verdict, Verdict::Fits);
    let heads = judged(&room, &[0; 4], on("lab/tensors", &[0, 1, 2, 3])).await.unwrap();
    assert_eq!(heads.verdict, Verdict::WontFit);
    assert!(heads.notes[0].contains("6 attention heads"), "{:?}", heads.notes);
}

#[tokio::test]
async fn the_image_part_counts_and_a_window_is_cut_to_the_training() {
    let room = with_tensors().await;
    let asked = FitAsk { context: Some(Tokens(100_000)), ..on("lab/tiny", &[0]) };
    let table = judged(&room, &[0], asked).await.unwrap();
    let row = table.rows.iter().find(|row| row.key == "mmproj").unwrap();
    assert_eq!((row.bytes, table.context), (Bytes(3000), Some(Tokens(4096))));
    assert!(table.whole_header && table.notes.iter().any(|note| note.contains("4096")), "{table:?}");
}
