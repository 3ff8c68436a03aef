//! Downloads from their wish to a registered model, against a hub on loopback, a real store and real files.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests: what they need and do not get fails the test")]

mod hub;

use std::fs;

use hub::{Room, room, wish};
use warden_domain::{
    download::{DownloadState, Downloads, NewDownload},
    engine::EngineKind,
    model::Registry,
    units::Tokens,
};
use warden_fixtures::TinyModel;

/// Puts the tiny model into a repository, in the form of Hugging Face.
fn add_folder(room: &Room, repo: &str) {
    let folder = room.dir.path().join("at-the-hub");
    TinyModel::default().write_folder(&folder).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        room.hub.add(repo, entry.file_name().to_str().unwrap(), fs::read(entry.path()).unwrap());
    }
}

#[tokio::test]
async fn weights_for_vllm_are_fetched_into_a_folder_of_their_own_and_registered_as_one() {
    let room = room().await;
    add_folder(&room, "lab/tiny");
    room.hub.add("lab/tiny", "tiny-Q4_0.gguf", TinyModel::default().bytes());
    let gguf = room.begin(NewDownload { filename: Some("tiny-Q4_0.gguf".into()), ..wish("lab/tiny") }).await;
    let whole = room.begin(NewDownload { filename: Some("model.safetensors".into()), ..wish("lab/tiny") }).await;
    let (gguf, whole) = (room.over(&gguf.id).await, room.over(&whole.id).await);
    assert_eq!((gguf.state, gguf.reason), (DownloadState::Done, None));
    assert_eq!((whole.state, whole.reason), (DownloadState::Done, None));
    let model = room.models.get(&whole.model.unwrap()).await.unwrap();
    assert_eq!((model.config.engine, model.config.served_name.as_str()), (EngineKind::Vllm, "tiny"));
    assert_eq!(model.config.path, room.path("lab--tiny-00112233-hf").canonicalize().unwrap());
    assert_eq!((model.facts.trained_context, model.facts.has_chat_template), (Some(Tokens(4096)), Some(true)));
    let model = room.models.get(&gguf.model.unwrap()).await.unwrap();
    assert_eq!(model.config.path, room.path("lab--tiny-00112233/tiny-Q4_0.gguf").canonicalize().unwrap());
}
