//! Registering, listing and forgetting models, against a real store and real files.

#![allow(clippy::unwrap_used, reason = "helpers of tests: what they need and do not get fails the test")]

use std::{fs, os::unix::fs::symlink, path::Path, sync::Arc};

use warden_domain::{
    Problem, ProblemKind,
    change::{Changes, Topic},
    engine::EngineKind,
    ids::GpuId,
    model::{FileLook, Layout, ModelChange, NewModel, Registry},
    units::Tokens,
};
use warden_fixtures::{TinyModel, broken};
use warden_models::{Models, ModelsConfig};
use warden_store::Store;

struct Room {
    dir: tempfile::TempDir,
    changes: Changes,
    models: Arc<Models>,
}

fn room() -> Room {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("models")).unwrap();
    let changes = Changes::new();
    let store = Store::open(&dir.path().join("state")).unwrap();
    let config = ModelsConfig { models_dir: dir.path().join("models"), allowed_roots: vec![] };
    let models = Models::new(store, config, changes.clone());
    Room { dir, changes, models }
}

impl Room {
    fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.dir.path().join("models").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    async fn refused(&self, new: NewModel) -> Problem {
        let problem = self.models.register(new).await.unwrap_err();
        assert!(problem.hint.is_some(), "no way out in {problem:?}");
        assert!(self.models.list().await.unwrap().is_empty(), "a refused model was written");
        problem
    }
}

fn named(path: &str) -> NewModel {
    NewModel { path: Path::new(path).into(), ..NewModel::default() }
}

#[tokio::test]
async fn a_model_is_registered_with_what_its_file_says() {
    let room = room();
    let mut news = room.changes.subscribe();
    room.put("Tiny Random.gguf", &TinyModel::default().bytes());
    let model = room.models.register(named("Tiny Random.gguf")).await.unwrap();
    assert_eq!(model.config.served_name, "Tiny-Random");
    assert_eq!(model.config.slots, 4);
    assert_eq!(model.facts.trained_context, Some(Tokens(4096)));
    assert_eq!(model.facts.size.0, TinyModel::default().bytes().len() as u64);
    assert!(model.config.path.is_absolute());
    assert_eq!(news.try_recv().unwrap(), Topic::Models);
    assert_eq!(room.models.list().await.unwrap(), std::slice::from_ref(&model));
    assert_eq!(room.models.get(&model.id).await.unwrap(), model);
    room.models.verify(&model.id).await.unwrap();
}

#[tokio::test]
async fn files_that_are_no_models_are_each_told_apart() {
    let room = room();
    let tiny = TinyModel::default();
    room.put("text.gguf", &broken::not_a_gguf());
    room.put("header.gguf", &broken::cut_in_header(&tiny));
    room.put("data.gguf", &broken::cut_in_data(&tiny));
    room.put("empty.gguf", b"");
    for (path, word) in [
        ("text.gguf", "not a GGUF"),
        ("header.gguf", "inside its own header"),
        ("data.gguf", " of "),
        ("empty.gguf", "not a GGUF"),
        ("gone.gguf", "does not exist"),
    ] {
        let problem = room.refused(named(path)).await;
        assert_eq!(problem.kind, ProblemKind::BadModelFile, "{path}");
        assert!(problem.message.contains(word) && problem.message.contains(path), "{path}: {}", problem.message);
    }
}

#[tokio::test]
async fn a_pipe_in_the_models_folder_does_not_hang_the_agent() {
    let room = room();
    let pipe = room.dir.path().join("models/pipe.gguf");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    let work = room.refused(named("pipe.gguf"));
    let problem = tokio::time::timeout(std::time::Duration::from_secs(5), work).await.unwrap();
    assert!(problem.message.contains("not a plain file"), "{problem}");
}

#[tokio::test]
async fn paths_out_of_the_models_folder_are_refused() {
    let room = room();
    fs::write(room.dir.path().join("outside.gguf"), TinyModel::default().bytes()).unwrap();
    symlink(room.dir.path().join("outside.gguf"), room.dir.path().join("models/link.gguf")).unwrap();
    for path in ["/etc/passwd", "../outside.gguf", "link.gguf"] {
        assert_eq!(room.refused(named(path)).await.kind, ProblemKind::Invalid, "{path}");
    }
    assert!(room.models.candidates().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_folder_must_hold_exactly_one_model() {
    let room = room();
    fs::create_dir(room.dir.path().join("models/none")).unwrap();
    assert!(room.refused(named("none")).await.message.contains("holds no model file"));
    room.put("two/a.gguf", &TinyModel::default().bytes());
    room.put("two/b.gguf", &TinyModel::default().bytes());
    let problem = room.refused(named("two")).await;
    assert!(problem.message.contains("a.gguf, b.gguf"), "{problem}");
    room.put("one/a.gguf", &TinyModel::default().bytes());
    room.put("one/mmproj-a.gguf", b"x");
    room.put("one/readme.txt", b"x");
    assert!(room.models.register(named("one")).await.unwrap().config.path.ends_with("one/a.gguf"));
}

#[tokio::test]
async fn a_split_model_needs_all_its_parts() {
    let room = room();
    let bytes = TinyModel::default().bytes();
    room.put("big-00001-of-00002.gguf", &bytes);
    let problem = room.refused(named("big-00001-of-00002.gguf")).await;
    assert!(problem.message.contains("big-00002-of-00002.gguf is not beside it"), "{problem}");
    room.put("big-00002-of-00002.gguf", &bytes[..bytes.len() / 2]);
    assert!(room.refused(named("big-00001-of-00002.gguf")).await.message.contains("big-00002-of-00002.gguf"));
    room.put("big-00002-of-00002.gguf", &bytes);
    assert_eq!(room.models.candidates().await.unwrap().len(), 1);
    let model = room.models.register(named("big-00002-of-00002.gguf")).await.unwrap();
    assert!(model.config.path.ends_with("big-00001-of-00002.gguf"));
    assert_eq!(model.config.served_name, "big");
    assert_eq!(model.facts.size.0, 2 * bytes.len() as u64);
}

#[tokio::test]
async fn wrong_settings_are_refused_by_field() {
    let room = room();
    room.put("tiny.gguf", &TinyModel::default().bytes());
    let with = |context: Option<u64>, slots: Option<u16>, name: Option<&str>| NewModel {
        context: context.map(Tokens),
        slots,
        served_name: name.map(str::to_owned),
        ..named("tiny.gguf")
    };
    for (new, field) in [
        (with(Some(0), None, None), "context"),
        (with(Some(100_000), None, None), "context"),
        (with(None, Some(0), None), "slots"),
        (with(None, Some(65), None), "slots"),
        (with(None, None, Some("a b")), "served_model_name"),
    ] {
        let problem = room.refused(new).await;
        assert_eq!((problem.kind, problem.param.as_deref()), (ProblemKind::Invalid, Some(field)));
    }
}

#[tokio::test]
async fn a_name_is_given_once_and_free_again_after_removal() {
    let room = room();
    room.put("tiny.gguf", &TinyModel::default().bytes());
    assert_eq!(room.models.candidates().await.unwrap()[0].suggested_name, "tiny");
    let model = room.models.register(named("tiny.gguf")).await.unwrap();
    assert!(room.models.candidates().await.unwrap().is_empty());
    assert_eq!(room.models.register(named("tiny.gguf")).await.unwrap_err().kind, ProblemKind::Conflict);
    room.models.remove(&model.id).await.unwrap();
    assert_eq!(room.models.remove(&model.id).await.unwrap_err().kind, ProblemKind::NotFound);
    assert!(room.dir.path().join("models/tiny.gguf").exists(), "removing a model must not remove its file");
    room.models.register(named("tiny.gguf")).await.unwrap();
}

#[tokio::test]
async fn a_loaded_model_is_not_forgotten() {
    let room = room();
    room.put("tiny.gguf", &TinyModel::default().bytes());
    let model = room.models.register(named("tiny.gguf")).await.unwrap();
    room.models.set_in_use(|_| true);
    assert_eq!(room.models.remove(&model.id).await.unwrap_err().kind, ProblemKind::Conflict);
}

#[tokio::test]
async fn a_file_that_was_damaged_later_is_noticed_before_a_load() {
    let room = room();
    room.put("tiny.gguf", &TinyModel::default().bytes());
    let model = room.models.register(named("tiny.gguf")).await.unwrap();
    room.put("tiny.gguf", &broken::cut_in_data(&TinyModel::default()));
    assert_eq!(room.models.verify(&model.id).await.unwrap_err().kind, ProblemKind::BadModelFile);
    fs::remove_file(room.dir.path().join("models/tiny.gguf")).unwrap();
    assert!(room.models.verify(&model.id).await.unwrap_err().message.contains("does not exist"));
}

#[tokio::test]
async fn folders_of_safetensors_are_offered_until_they_are_registered() {
    let room = room();
    TinyModel::default().write_folder(&room.dir.path().join("models/deep/er/tiny")).unwrap();
    TinyModel::default().write_folder(&room.dir.path().join("models/parts")).unwrap();
    fs::rename(room.dir.path().join("models/parts/model.safetensors"), room.dir.path().join("models/parts/model-00001-of-00002.safetensors"))
        .unwrap();
    TinyModel::default().write_folder(&room.dir.path().join("outside")).unwrap();
    symlink(room.dir.path().join("outside"), room.dir.path().join("models/link")).unwrap();
    let found = room.models.candidates().await.unwrap();
    assert_eq!(found.len(), 1, "half a model and one outside are not offered: {found:?}");
    assert!(found[0].path.ends_with("deep/er/tiny") && found[0].suggested_name == "tiny" && found[0].size.0 > 1000, "{found:?}");
    room.models.register(named(found[0].path.to_str().unwrap())).await.unwrap();
    assert!(room.models.candidates().await.unwrap().is_empty());
}

#[tokio::test]
async fn cards_among_which_the_heads_cannot_be_shared_out_are_refused_before_any_load() {
    let room = room();
    let folder = room.dir.path().join("models/tiny");
    TinyModel::default().write_folder(&folder).unwrap();
    let on = |cards: &[&str]| Layout { gpus: cards.iter().map(|id| GpuId::from_stored(*id)).collect(), ..Layout::default() };
    // The tiny model has 4 heads, 2 of keys and values.
    let problem = room.refused(NewModel { layout: on(&["a", "b", "c"]), ..named("tiny") }).await;
    assert_eq!((problem.kind, problem.param.as_deref()), (ProblemKind::Invalid, Some("gpus")));
    assert!(problem.message.contains("4 attention heads") && problem.message.contains("3 cards"), "{problem}");
    let model = room.models.register(NewModel { layout: on(&["a", "b"]), ..named("tiny") }).await.unwrap();
    room.models.verify(&model.id).await.unwrap();
    let three = ModelChange { gpus: Some(on(&["a", "b", "c"]).gpus), ..ModelChange::default() };
    assert_eq!(room.models.change(&model.id, three.clone()).await.unwrap_err().kind, ProblemKind::Invalid);
    room.models.change(&model.id, ModelChange { replicas: Some(3), ..three }).await.unwrap();
    // The description changed since: the load looks again.
    let config = fs::read_to_string(folder.join("config.json")).unwrap();
    assert!(config.contains("num_attention_heads"), "{config}");
    room.models.change(&model.id, ModelChange { replicas: Some(1), gpus: Some(on(&["a", "b"]).gpus), ..ModelChange::default() }).await.unwrap();
    fs::write(folder.join("config.json"), config.replace("num_attention_heads", "num_attention_heads\": 3, \"x")).unwrap();
    assert!(room.models.verify(&model.id).await.unwrap_err().message.contains("3 attention heads"));
}

#[tokio::test]
async fn a_folder_of_safetensors_is_a_model_for_vllm() {
    let room = room();
    let folder = room.dir.path().join("models/tiny");
    TinyModel::default().write_folder(&folder).unwrap();
    let model = room.models.register(named("tiny")).await.unwrap();
    assert_eq!((model.config.engine, model.config.path.clone()), (EngineKind::Vllm, folder.canonicalize().unwrap()));
    assert_eq!((model.config.served_name.as_str(), model.facts.trained_context), ("tiny", Some(Tokens(4096))));
    assert_eq!(model.facts.has_chat_template, Some(true));
    room.models.verify(&model.id).await.unwrap();
    let look = || async { room.models.file_looks().await.unwrap().pop().unwrap().1 };
    assert_eq!(look().await, FileLook::Whole);
    fs::write(folder.join("model.safetensors"), b"short").unwrap();
    assert!(matches!(look().await, FileLook::Changed { .. }));
    assert!(room.models.verify(&model.id).await.unwrap_err().message.contains("model.safetensors"));
}
