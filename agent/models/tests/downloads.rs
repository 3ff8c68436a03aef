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
    model::{Layout, NewModel, Registry},
    units::Tokens,
};
use warden_fixtures::{
    TinyModel,
    gguf::{Gguf, Value},
};

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

#[tokio::test]
async fn settings_that_no_model_can_have_are_refused_before_the_hub_is_asked() {
    let room = room().await;
    let layout = Layout { replicas: 0, ..Layout::default() };
    for (wish, field) in [
        (NewDownload { slots: Some(0), ..wish("lab/tiny") }, "slots"),
        (NewDownload { slots: Some(65), ..wish("lab/tiny") }, "slots"),
        (NewDownload { context: Some(Tokens(1)), ..wish("lab/tiny") }, "context"),
        (NewDownload { layout, ..wish("lab/tiny") }, "replicas"),
        (NewDownload { served_name: Some("a b".into()), ..wish("lab/tiny") }, "served_model_name"),
    ] {
        let problem = room.downloads.begin(&AccountId::random(), wish).await.unwrap_err();
        assert_eq!((problem.kind, problem.param.as_deref()), (ProblemKind::Invalid, Some(field)));
    }
    assert_eq!(room.hub.asked(), 0);
}

#[tokio::test]
async fn what_a_header_forbids_is_refused_before_the_download() {
    let room = room().await;
    let kind = |kind: &str| {
        let mut file = Gguf::default();
        file.key("general.type", Value::Text(kind.into()));
        file.key("general.architecture", Value::Text("llama".into()));
        file.bytes().0
    };
    room.hub.add("lab/adapter", "a.gguf", kind("adapter"));
    room.hub.add("lab/image", "b.gguf", kind("mmproj"));
    room.hub.add("lab/text", "c.gguf", b"no model at all".to_vec());
    room.hub.add("lab/one", "d.gguf", TinyModel::default().bytes());
    add_folder(&room, "lab/tiny");
    let long = |repo| NewDownload { context: Some(Tokens(5000)), ..wish(repo) };
    for (wish, expected, word) in [
        (wish("lab/adapter"), ProblemKind::BadModelFile, "adapter"),
        (wish("lab/image"), ProblemKind::BadModelFile, "mmproj"),
        (wish("lab/text"), ProblemKind::BadModelFile, "not a GGUF"),
        (long("lab/one"), ProblemKind::Invalid, "4096"),
        (long("lab/tiny"), ProblemKind::Invalid, "4096"),
    ] {
        // Twice: what is known of a header from before counts as well.
        for _ in 0..2 {
            let problem = room.downloads.begin(&AccountId::random(), wish.clone()).await.unwrap_err();
            assert!(problem.kind == expected && problem.message.contains(word) && problem.hint.is_some(), "{problem:?}");
        }
    }
    assert!(room.downloads.list().await.unwrap().is_empty());
    let fits = room.begin(NewDownload { context: Some(Tokens(4096)), ..wish("lab/one") }).await;
    assert_eq!(room.over(&fits.id).await.state, DownloadState::Done);
}

/// Changes the record of a download, as a kill at the wrong moment leaves it.
fn rewrite(room: &Room, id: &DownloadId, keys: &[(&str, serde_json::Value)]) {
    let path = room.path(&format!(".downloads/{id}.json"));
    let read = || serde_json::from_slice::<serde_json::Value>(&fs::read(&path).unwrap()).unwrap();
    // The end is seen a moment before it is written down, and would be written over this.
    let mut record = read();
    for _ in 0..500 {
        if record["state"] != "running" {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
        record = read();
    }
    for (key, value) in keys {
        record[*key] = value.clone();
    }
    fs::write(path, record.to_string()).unwrap();
}

#[tokio::test]
async fn a_kill_between_registration_and_its_note_does_not_end_in_a_conflict() {
    let mut room = room().await;
    room.hub.add("lab/one", "sub/one-Q4_0.gguf", TinyModel::default().bytes());
    let done = room.begin(wish("lab/one")).await;
    let model = room.over(&done.id).await.model.unwrap();
    rewrite(&room, &done.id, &[("state", "failed".into()), ("model", serde_json::Value::Null)]);
    room.next_run().await;
    room.downloads.resume(&done.id).await.unwrap();
    let over = room.over(&done.id).await;
    assert_eq!((over.state, over.model, over.reason), (DownloadState::Done, Some(model.clone()), None));
    assert_eq!(room.models.list().await.unwrap().len(), 1);

    // Another model of that name stays another model.
    room.models.remove(&model).await.unwrap();
    fs::write(room.path("other.gguf"), TinyModel::default().bytes()).unwrap();
    let new = NewModel { path: "other.gguf".into(), served_name: Some(over.served_name), ..NewModel::default() };
    room.models.register(new).await.unwrap();
    rewrite(&room, &done.id, &[("state", "failed".into()), ("model", serde_json::Value::Null)]);
    room.next_run().await;
    room.downloads.resume(&done.id).await.unwrap();
    let over = room.over(&done.id).await;
    assert_eq!(over.state, DownloadState::Failed);
    assert!(over.reason.unwrap().message.contains("registered already"));
}

#[tokio::test]
async fn what_came_damaged_is_gone_once_it_is_fetched_again() {
    let room = room().await;
    room.hub.add("lab/one", "one-Q4_0.gguf", TinyModel::default().bytes());
    room.hub.garble("one-Q4_0.gguf");
    let id = room.begin(wish("lab/one")).await.id;
    assert!(room.over(&id).await.reason.unwrap().message.contains("checksum"));
    let damaged = room.path("lab--one-00112233/.one-Q4_0.gguf.damaged");
    assert!(damaged.exists());
    room.hub.mend();
    room.downloads.resume(&id).await.unwrap();
    assert_eq!(room.over(&id).await.state, DownloadState::Done);
    assert!(!damaged.exists(), "the damaged copy takes room for ever");
}

#[tokio::test]
async fn two_resumes_at_once_start_one_run() {
    let room = room().await;
    add_folder(&room, "lab/tiny");
    let id = half(&room).await;
    room.hub.mend();
    let (one, other) = tokio::join!(room.downloads.resume(&id), room.downloads.resume(&id));
    assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
    let refused = one.err().or(other.err()).unwrap();
    assert_eq!(refused.kind, ProblemKind::Conflict);
    let over = room.over(&id).await;
    assert_eq!((over.state, over.reason), (DownloadState::Done, None));
}

#[tokio::test]
async fn an_image_part_comes_with_its_model_and_is_given_to_the_engine() {
    let room = room().await;
    room.hub.add("lab/sees", "sees-Q4_0.gguf", TinyModel::default().bytes());
    room.hub.add("lab/sees", "sees-Q8_0.gguf", TinyModel::default().bytes());
    room.hub.add("lab/sees", "mmproj-F16.gguf", vec![7; 900]);
    room.hub.add("lab/sees", "tokenizer.py", b"import os".to_vec());
    let small = room.begin(NewDownload { filename: Some("sees-Q4_0.gguf".into()), ..wish("lab/sees") }).await;
    // The second one shares the image part with the first, under way or done.
    let large = room.begin(NewDownload { filename: Some("sees-Q8_0.gguf".into()), ..wish("lab/sees") }).await;
    let image = room.path("lab--sees-00112233/mmproj-F16.gguf");
    for (begun, file) in [(&small, "sees-Q4_0.gguf"), (&large, "sees-Q8_0.gguf")] {
        let done = room.over(&begun.id).await;
        assert_eq!((done.state, done.reason), (DownloadState::Done, None));
        assert_eq!(done.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), [file, "mmproj-F16.gguf"]);
        let model = room.models.get(&done.model.unwrap()).await.unwrap();
        assert!(model.config.path.ends_with(file));
        assert_eq!(model.config.layout.extra_args, ["--mmproj", "mmproj-F16.gguf"]);
        assert!(image.exists());
    }
    assert!(!room.path("lab--sees-00112233/tokenizer.py").exists());
}

#[tokio::test]
async fn a_folder_that_is_still_being_fetched_is_not_offered_as_a_model() {
    let room = room().await;
    add_folder(&room, "lab/tiny");
    let id = half(&room).await;
    assert!(room.models.candidates().await.unwrap().is_empty());
    room.hub.mend();
    room.downloads.resume(&id).await.unwrap();
    assert_eq!(room.over(&id).await.state, DownloadState::Done);
}
