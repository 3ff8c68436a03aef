//! Engines that die, go silent or hang while they are wanted; on engines that do what the test says.

mod scripted;

use std::time::Duration;

use scripted::{Bench, Mode, served, until};
use warden_domain::{
    engine::ReplicaSample,
    model::{ModelState, StateWord},
    replica::Serving,
    units::Tokens,
};

fn restarted(after: &str) -> impl Fn(&ModelState) -> bool {
    let before = after.to_owned();
    move |s| s.state == StateWord::Running && s.replicas[0].launch.as_deref().is_some_and(|launch| launch != before)
}

fn reason_is(code: &'static str) -> impl Fn(&ModelState) -> bool {
    move |s| s.reason.as_ref().is_some_and(|reason| reason.code == code)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_dies_is_started_again_until_its_budget_is_used_up_and_a_load_by_hand_gives_it_back() {
    let mut bench = Bench::new();
    bench.rules.restarts = 2;
    let model = bench.register("tiny", 1, &[]).await;
    let room = bench.room().await;
    room.load(&model.id).await.unwrap();
    for round in 1..=2 {
        until(&room, &model.id, "running", restarted(&format!("launch-{}", round - 1))).await;
        bench.script.now("tiny-0", Mode::Gone("It crashed."));
        until(&room, &model.id, "started again", |s| s.replicas[0].launch.as_deref() == Some(&format!("launch-{}", round + 1))).await;
    }
    until(&room, &model.id, "running", |s| s.state == StateWord::Running).await;
    bench.script.now("tiny-0", Mode::Gone("It crashed."));
    let state = until(&room, &model.id, "given up", reason_is("restarts_used_up")).await;
    assert!(state.reason.unwrap().message.contains("2 times"));
    assert!(room.table().models.is_empty());
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(bench.script.started().len(), 3, "it was started once more");
    let state = until(&room, &model.id, "three incidents", |s| s.incidents.len() == 3).await;
    let folder = bench.dir.path().join("state").join(state.incidents[0].evidence.as_ref().unwrap());
    assert_eq!(std::fs::read_to_string(folder.join("engine.log")).unwrap(), "the log of tiny-0");

    room.load(&model.id).await.unwrap();
    until(&room, &model.id, "running by hand", |s| s.state == StateWord::Running).await;
    bench.script.now("tiny-0", Mode::Gone("It crashed."));
    until(&room, &model.id, "started again, with a new budget", restarted("launch-4")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restarts_whose_load_gets_stuck_use_the_budget_up_however_long_each_takes() {
    let mut bench = Bench::new();
    (bench.rules.restarts, bench.rules.restart_window) = (2, Duration::from_millis(100));
    let model = bench.register("tiny", 1, &[]).await;
    let room = bench.room().await;
    room.load(&model.id).await.unwrap();
    until(&room, &model.id, "running", |s| s.state == StateWord::Running).await;
    bench.script.next("tiny-0", Mode::Loads(Default::default()));
    bench.script.now("tiny-0", Mode::Gone("It crashed."));
    until(&room, &model.id, "given up", reason_is("restarts_used_up")).await;
    assert_eq!(bench.script.started().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_never_came_up_is_not_started_again_and_again() {
    let bench = Bench::new();
    let model = bench.register("tiny", 1, &[]).await;
    let room = bench.room().await;
    bench.script.next("tiny-0", Mode::Gone("It does not know this kind of model."));
    room.load(&model.id).await.unwrap();
    until(&room, &model.id, "failed", |s| s.state == StateWord::Failed).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(bench.script.started().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_lives_and_does_not_answer_is_given_up_with_evidence() {
    let bench = Bench::new();
    let model = bench.register("tiny", 2, &[]).await;
    let room = bench.room().await;
    room.load(&model.id).await.unwrap();
    let before = until(&room, &model.id, "both", |s| s.replicas.iter().all(|r| r.state == StateWord::Running)).await;
    bench.script.now("tiny-0", Mode::Silent);
    let state = until(&room, &model.id, "an incident", |s| !s.incidents.is_empty()).await;
    assert_eq!(state.incidents[0].reason.code, "engine_silent");
    assert_eq!(state.state, StateWord::Running, "the other one serves");
    let folder = bench.dir.path().join("state").join(state.incidents[0].evidence.as_ref().unwrap());
    assert!(std::fs::read_to_string(folder.join("processes.txt")).unwrap().contains("State of launch"));
    until(&room, &model.id, "back", |s| s.replicas[0].state == StateWord::Running && s.replicas[0].launch != before.replicas[0].launch).await;
    assert_eq!(served(&room, "tiny"), ["tiny-0", "tiny-1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_tokens_are_a_hang_and_the_figures_of_every_replica_can_be_read() {
    let bench = Bench::new();
    let model = bench.register("tiny", 1, &[]).await;
    let room = bench.room().await;
    let sample = ReplicaSample { running: Some(1), generated_total: Some(Tokens(7)), ..ReplicaSample::default() };
    bench.script.figures("tiny-0", sample);
    room.load(&model.id).await.unwrap();
    bench.script.in_flight("tiny-0", 1);
    let state = until(&room, &model.id, "an incident", |s| !s.incidents.is_empty()).await;
    assert_eq!(state.incidents[0].reason.code, "engine_hangs");
    bench.script.in_flight("tiny-0", 0);
    bench.script.figures("tiny-0", ReplicaSample { running: Some(0), ..sample });
    until(&room, &model.id, "back", restarted("launch-1")).await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while room.samples().values().all(|sampled| sampled.sample.generated_total != Some(Tokens(7))) {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_goes_on_writing_is_left_alone_and_one_that_stops_is_not() {
    use warden_domain::{
        engine::{Activity, LoadView},
        units::Bytes,
    };
    let bench = Bench::new();
    let model = bench.register("tiny", 1, &[]).await;
    let room = bench.room().await;
    let view = |log: u64| LoadView {
        phase: Some("weights".to_owned()),
        last_line: Some("reading tensors".to_owned()),
        activity: Some(Activity { log: Bytes(log), ..Activity::default() }),
        ..LoadView::default()
    };
    bench.script.next("tiny-0", Mode::Loads(view(0)));
    room.load(&model.id).await.unwrap();
    until(&room, &model.id, "reading weights", |s| s.phase.as_deref() == Some("weights")).await;
    // Four times the patience of this bench, and each look finds more of a log.
    for step in 1..=60 {
        bench.script.now("tiny-0", Mode::Loads(view(step)));
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(room.states()[&model.id].state, StateWord::Loading);
    }
    let state = until(&room, &model.id, "stopped", reason_is("load_stuck")).await;
    let message = state.reason.unwrap().message;
    assert!(message.contains("weights") && message.contains("reading tensors"), "{message}");
    until(&room, &model.id, "failed for good", |s| s.state == StateWord::Failed && s.replicas[0].launch.is_none()).await;
    assert_eq!(bench.script.stopped(), ["tiny-0"]);
}
