//! Loads that cannot work: each is a sentence with a way out, and leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "helpers of tests: what they need and do not get fails the test")]

mod bench;

use std::{fs, os::unix::fs::PermissionsExt, os::unix::net::UnixListener, time::Duration};

use bench::{Bench, LOAD, wait_for};
use warden_domain::{
    ProblemKind,
    engine::{EngineKind, Engines, ReplicaPlan},
    ids::{GenerationId, ReplicaId},
    model::{Registry, StateWord},
    replica::Serving,
    units::Tokens,
};
use warden_fixtures::{TinyModel, broken};

const SOON: Duration = Duration::from_secs(20);

fn plan(bench: &Bench, file: &str) -> ReplicaPlan {
    ReplicaPlan {
        replica: ReplicaId::new("tiny-0").unwrap(),
        generation: GenerationId::random(),
        engine: EngineKind::LlamaCpp,
        served_name: "tiny".to_owned(),
        model_path: bench.path("models").join(file),
        context: Tokens(4096),
        slots: 1,
        gpus: Vec::new(),
        extra_args: Vec::new(),
        device_minors: Vec::new(),
        trust_remote_code: false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_broke_since_registration_is_not_loaded() {
    let bench = Bench::new();
    let model = bench.register("tiny").await;
    let room = bench.room().await;
    fs::write(bench.path("models/tiny.gguf"), broken::cut_in_data(&TinyModel::default())).unwrap();
    let problem = room.load(&model.id).await.unwrap_err();
    assert_eq!(problem.kind, ProblemKind::BadModelFile);
    assert!(problem.message.contains("holds"), "{problem}");
    fs::remove_file(bench.path("models/tiny.gguf")).unwrap();
    assert!(room.load(&model.id).await.unwrap_err().message.contains("does not exist"));
    assert!(room.states().is_empty());
    assert!(bench.engine_pids().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engine_itself_says_what_is_wrong_with_a_file() {
    let bench = Bench::new();
    let tiny = TinyModel::default();
    fs::write(bench.path("models/text.gguf"), broken::not_a_gguf()).unwrap();
    fs::write(bench.path("models/cut.gguf"), broken::cut_in_data(&tiny)).unwrap();
    for (file, code) in [("text.gguf", "model_file_damaged"), ("cut.gguf", "model_file_damaged"), ("gone.gguf", "file_missing")] {
        let launch = bench.engines.start(&plan(&bench, file)).await.unwrap();
        let deadline = tokio::time::Instant::now() + SOON;
        let reason = loop {
            match bench.engines.observe(&launch).await {
                warden_domain::engine::Observation::Gone { reason } => break reason,
                other => assert!(tokio::time::Instant::now() < deadline, "{file}: {other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert_eq!(reason.code, code, "{file}: {reason:?}");
        assert!(reason.hint.is_some());
    }
    assert!(bench.engine_pids().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_file_or_program_in_place_of_the_socket_is_named_and_left_alone() {
    let bench = Bench::new();
    let model = bench.register("tiny").await;
    let room = bench.room().await;
    let socket = bench.path("run/tiny-0.sock");
    fs::write(&socket, b"not yours").unwrap();
    room.load(&model.id).await.unwrap();
    let state = wait_for(&room, &model.id, StateWord::Failed, SOON).await;
    let reason = state.reason.unwrap();
    assert!(reason.message.contains("tiny-0.sock") && reason.hint.is_some(), "{reason:?}");
    assert_eq!(fs::read(&socket).unwrap(), b"not yours");

    fs::remove_file(&socket).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    room.load(&model.id).await.unwrap();
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let reason = room.states()[&model.id].reason.clone();
        if reason.as_ref().is_some_and(|r| r.message.contains("not ours")) {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{reason:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    // A socket nobody listens on is a leftover and no obstacle.
    drop(listener);
    room.load(&model.id).await.unwrap();
    wait_for(&room, &model.id, StateWord::Running, LOAD).await;
    room.shutdown(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_or_closed_runtime_folder_is_told_and_nothing_runs() {
    let bench = Bench::new();
    let model = bench.register("tiny").await;
    let room = bench.room().await;
    if nix::unistd::Uid::effective().is_root() {
        // Root may write everywhere, so the folder itself is taken away.
        fs::remove_dir_all(bench.path("run")).unwrap();
        fs::write(bench.path("run"), b"").unwrap();
    } else {
        fs::set_permissions(bench.path("run"), fs::Permissions::from_mode(0o500)).unwrap();
    }
    room.load(&model.id).await.unwrap();
    let reason = wait_for(&room, &model.id, StateWord::Failed, SOON).await.reason.unwrap();
    assert!(reason.message.contains("run") && reason.hint.is_some(), "{reason:?}");
    assert!(bench.engine_pids().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_state_disk_refuses_the_load_before_anything_runs() {
    let bench = Bench::new();
    let model = bench.register("tiny").await;
    let room = bench.room().await;
    bench.store.close().await;
    assert!(room.load(&model.id).await.is_err());
    assert!(room.states().is_empty());
    assert!(bench.engine_pids().is_empty());
    assert!(bench.models.get(&model.id).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_people_who_press_load_at_once_get_one_engine() {
    let bench = Bench::new();
    let model = bench.register("tiny").await;
    let room = bench.room().await;
    let (one, other) = tokio::join!(room.load(&model.id), room.load(&model.id));
    assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
    wait_for(&room, &model.id, StateWord::Running, LOAD).await;
    assert_eq!(bench.engine_pids().len(), 1);
    room.shutdown(true).await;
    assert!(bench.engine_pids().is_empty());
}
