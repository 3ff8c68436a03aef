//! The life of a model on the genuine engine: load, answer, die, load again, unload, outlive the agent.

#![allow(clippy::panic, reason = "these tests say what they saw instead")]

mod bench;

use std::{sync::atomic::Ordering, time::Duration};

use bench::{Bench, LOAD, chat, running, wait_for, wait_until};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use warden_domain::{
    ProblemKind,
    change::Topic,
    engine::EngineKind,
    model::{ModelChange, ModelState, Registry, StateWord},
    replica::Serving,
    units::Tokens,
};

const SOON: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn a_model_loads_answers_dies_is_told_as_dead_and_loads_again() {
    let bench = Bench::new();
    let room = bench.room().await;
    let model = bench.register("tiny").await;
    room.load(&model.id).await.unwrap();
    assert_eq!(room.load(&model.id).await.unwrap_err().kind, ProblemKind::Conflict);
    let state = wait_for(&room, &model.id, StateWord::Running, LOAD).await;
    assert_eq!(state.context, Some(Tokens(4096)));
    assert_eq!(state.replicas[0].id.as_str(), "tiny-0");
    assert_ne!(chat(&room, "tiny").await, "null");

    let [pid] = bench.engine_pids()[..] else { panic!("not exactly one engine: {:?}", bench.engine_pids()) };
    let begin = std::time::Instant::now();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    let failed = wait_for(&room, &model.id, StateWord::Failed, SOON).await;
    assert!(begin.elapsed() < Duration::from_secs(3), "told only after {:?}", begin.elapsed());
    let reason = failed.reason.unwrap();
    assert_eq!(reason.code, "engine_killed");
    assert!(reason.hint.unwrap().contains("restart 1 of 3"));
    assert!(room.table().models.is_empty(), "the gateway would still send to a dead engine");

    let again = wait_for(&room, &model.id, StateWord::Running, LOAD).await;
    assert_ne!(again.replicas[0].launch, state.replicas[0].launch);
    let kept = again.incidents[0].clone();
    assert_eq!(kept.reason.code, "engine_killed");
    let folder = bench.path("state").join(kept.evidence.unwrap());
    assert!(folder.join("engine.log").is_file() && folder.join("report.json").is_file());
    // Written beside the path of the load, so a moment later.
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let id = model.id.clone();
        let seen = bench.store.read(move |db| warden_store::loads::recent(db, &id, EngineKind::LlamaCpp)).await.unwrap();
        if seen.len() == 2 {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "both loads are not remembered: {seen:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    chat(&room, "tiny").await;

    room.unload(&model.id).await.unwrap();
    wait_for(&room, &model.id, StateWord::Stopped, LOAD).await;
    assert!(bench.engine_pids().is_empty());
    assert!(running(&bench).await.is_empty());
    assert!(room.log_tail(&model.id, 5).await.unwrap().len() <= 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_outlives_the_agent_and_is_adopted_with_the_same_identity() {
    let mut bench = Bench::new();
    let model = bench.register("tiny").await;
    let room = bench.room().await;
    room.load(&model.id).await.unwrap();
    let before = wait_for(&room, &model.id, StateWord::Running, LOAD).await;
    drop(room);
    bench.restart_runner();
    let room = bench.room().await;
    // Without waiting: the next request after a restart must find its model.
    assert!(room.table().models.contains_key("tiny"), "{:?}", room.states());
    let after = room.states()[&model.id].clone();
    assert_eq!(after.replicas[0].launch, before.replicas[0].launch);
    assert_eq!(after.context, Some(Tokens(4096)));
    chat(&room, "tiny").await;

    // An adopted engine that dies is noticed as well, although nobody collects its exit status.
    kill(Pid::from_raw(bench.engine_pids()[0]), Signal::SIGKILL).unwrap();
    wait_for(&room, &model.id, StateWord::Failed, SOON).await;

    // What was wanted before a restart is wanted again.
    drop(room);
    bench.restart_runner();
    let room = bench.room().await;
    wait_for(&room, &model.id, StateWord::Running, LOAD).await;
    room.shutdown(true).await;
    assert!(bench.engine_pids().is_empty());

    // Stopping with the agent does not change what is wanted.
    bench.restart_runner();
    let room = bench.room().await;
    wait_for(&room, &model.id, StateWord::Running, LOAD).await;
    room.unload(&model.id).await.unwrap();
    wait_for(&room, &model.id, StateWord::Stopped, LOAD).await;
    drop(room);
    bench.restart_runner();
    let room = bench.room().await;
    assert!(room.states().is_empty(), "an unloaded model came back: {:?}", room.states());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_whose_agent_is_killed_is_finished_on_real_engines() {
    let mut bench = Bench::new();
    let model = bench.register("tiny").await;
    bench.models.change(&model.id, ModelChange { replicas: Some(2), slots: Some(1), ..ModelChange::default() }).await.unwrap();
    let room = bench.room().await;
    room.load(&model.id).await.unwrap();
    let both = |state: &ModelState| state.replicas.len() == 2 && state.replicas.iter().all(|r| r.state == StateWord::Running && !r.outdated);
    let before = wait_until(&room, &model.id, "both", both).await;
    bench.models.change(&model.id, ModelChange { slots: Some(3), ..ModelChange::default() }).await.unwrap();
    room.reload(&model.id).await.unwrap();
    // The first is up anew or on its way, the second still runs as it was.
    wait_until(&room, &model.id, "half", |s| {
        s.replicas.len() == 2 && s.replicas[0].launch.as_ref().is_some_and(|l| Some(l) != before.replicas[0].launch.as_ref())
    })
    .await;
    drop(room);
    bench.restart_runner();
    let room = bench.room().await;
    let after = wait_until(&room, &model.id, "finished", both).await;
    assert_ne!(after.replicas[1].launch, before.replicas[1].launch, "it keeps the settings of before");
    assert_eq!(after.loaded.unwrap().slots, 3);
    for pid in bench.engine_pids() {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        let words: Vec<&[u8]> = line.split(|&b| b == 0).collect();
        assert!(words.windows(2).any(|pair| pair == [b"--parallel".as_slice(), b"3".as_slice()]), "{}", String::from_utf8_lossy(&line));
    }
    assert_eq!(bench.engine_pids().len(), 2);
    room.shutdown(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_flight_are_finished_before_an_unload() {
    let bench = Bench::new();
    let model = bench.register("tiny").await;
    let room = bench.room().await;
    room.load(&model.id).await.unwrap();
    wait_for(&room, &model.id, StateWord::Running, LOAD).await;
    bench.flights.0.store(1, Ordering::SeqCst);
    room.unload(&model.id).await.unwrap();
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(room.table().models.is_empty(), "new requests would still be sent");
    assert_eq!(bench.engine_pids().len(), 1, "the engine was stopped under a running request");
    assert_eq!(room.states()[&model.id].phase.as_deref(), Some("draining"));
    bench.flights.0.store(0, Ordering::SeqCst);
    wait_for(&room, &model.id, StateWord::Stopped, LOAD).await;
    assert!(bench.engine_pids().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_wanted_while_the_engine_is_built_goes_on_by_itself() {
    let bench = Bench::without_engine();
    let program = warden_fixtures::engine::genuine_llama_server().unwrap();
    let model = bench.register("tiny").await;
    let room = bench.room().await;
    let problem = room.load(&model.id).await.unwrap_err();
    assert_eq!(problem.kind, ProblemKind::EngineUnavailable);
    assert!(problem.full_text().contains("make engine"), "{problem:?}");

    bench.engine_is(r#"{"engine":"llama.cpp","version":"b0","state":"building","step":7,"of":208,"message":"compiling x.cpp"}"#);
    room.load(&model.id).await.unwrap();
    let state = wait_for(&room, &model.id, StateWord::Waiting, SOON).await;
    assert!(state.reason.unwrap().message.contains("step 7 of 208"));
    let mut news = bench.changes.subscribe();
    bench.engine_is(&format!(r#"{{"engine":"llama.cpp","version":"b0","state":"ready","program":"{}"}}"#, program.display()));
    wait_for(&room, &model.id, StateWord::Running, LOAD).await;
    let told = async { while news.recv().await.unwrap() != Topic::Engines {} };
    tokio::time::timeout(SOON, told).await.unwrap_or_else(|_| panic!("the page was not told that the engine is ready"));
    room.shutdown(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_model_leaves_no_trace_and_a_loaded_one_cannot_be_removed() {
    let bench = Bench::new();
    let model = bench.register("tiny").await;
    let room = bench.room().await;
    let watch = room.clone();
    bench.models.set_in_use(move |id| {
        watch.states().get(id).is_some_and(|s| matches!(s.state, StateWord::Waiting | StateWord::Loading | StateWord::Running))
    });
    room.load(&model.id).await.unwrap();
    assert_eq!(bench.models.remove(&model.id).await.unwrap_err().kind, ProblemKind::Conflict);
    // Unloading while it loads cancels the load.
    room.unload(&model.id).await.unwrap();
    wait_for(&room, &model.id, StateWord::Stopped, LOAD).await;
    bench.models.remove(&model.id).await.unwrap();
    let deadline = tokio::time::Instant::now() + SOON;
    while room.states().contains_key(&model.id) {
        assert!(tokio::time::Instant::now() < deadline, "{:?}", room.states());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(bench.engine_pids().is_empty());
}
