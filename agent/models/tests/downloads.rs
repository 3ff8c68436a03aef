//! Downloads from their wish to a registered model, against a hub on loopback, a real store and real files.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests: what they need and do not get fails the test")]

mod hub;

use std::fs;

use hub::{Room, room, wish};
use warden_domain::{
    ProblemKind,
    download::{DownloadState, Downloads, NewDownload},
    engine::EngineKind,
    ids::{AccountId, DownloadId},
    model::{NewModel, Registry},
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

/// Begins a download of the folder whose last file the hub does not hand out, and waits until it failed.
async fn half(room: &Room) -> DownloadId {
    room.hub.refuse("tokenizer_config.json");
    let id = room.begin(wish("lab/tiny")).await.id;
    let over = room.over(&id).await;
    assert_eq!(over.state, DownloadState::Failed);
    assert!(room.path(WEIGHTS).exists(), "the weights come first");
    id
}

const WEIGHTS: &str = "lab--tiny-00112233-hf/model.safetensors";

#[tokio::test]
async fn giving_up_removes_what_the_download_brought_and_nothing_else() {
    let room = room().await;
    add_folder(&room, "lab/tiny");
    let id = half(&room).await;
    room.downloads.cancel(&id).await.unwrap();
    assert!(!room.path("lab--tiny-00112233-hf").exists(), "files of half a model stay");

    fs::create_dir(room.path("lab--tiny-00112233-hf")).unwrap();
    fs::copy(room.dir.path().join("at-the-hub/model.safetensors"), room.path(WEIGHTS)).unwrap();
    let id = half(&room).await;
    room.downloads.cancel(&id).await.unwrap();
    assert!(room.path(WEIGHTS).exists(), "weights that lay there before are gone");
    assert!(!room.path("lab--tiny-00112233-hf/config.json").exists());
}

#[tokio::test]
async fn giving_up_never_takes_the_files_of_a_registered_model() {
    let room = room().await;
    add_folder(&room, "lab/tiny");
    let id = half(&room).await;
    let path = room.path("lab--tiny-00112233-hf");
    let model = room.models.register(NewModel { path, served_name: Some("by-hand".into()), ..NewModel::default() }).await.unwrap();
    room.downloads.cancel(&id).await.unwrap();
    room.models.verify(&model.id).await.unwrap();
}

#[tokio::test]
async fn a_file_of_a_registered_model_is_not_downloaded_again() {
    let room = room().await;
    room.hub.add("lab/one", "sub/one-Q4_0.gguf", TinyModel::default().bytes());
    add_folder(&room, "lab/tiny");
    for (repo, name) in [("lab/one", "one-Q4_0"), ("lab/tiny", "tiny")] {
        let done = room.begin(wish(repo)).await;
        let done = room.over(&done.id).await;
        assert_eq!((done.state, done.reason, done.served_name.as_str()), (DownloadState::Done, None, name));
        let again = NewDownload { served_name: Some("another".into()), ..wish(repo) };
        let problem = room.downloads.begin(&AccountId::random(), again).await.unwrap_err();
        assert!(problem.kind == ProblemKind::Conflict && problem.message.contains(name), "{problem:?}");
        room.downloads.cancel(&done.id).await.unwrap();
        room.models.verify(&done.model.unwrap()).await.unwrap();
    }
}
