//! Several replicas of a model: table, rolling reload, drain, cards, adoption, reboot; on engines that do what the test says.

mod scripted;

use std::time::Duration;

use scripted::{Bench, Mode, served, until};
use warden_domain::{
    ProblemKind,
    ids::GpuId,
    model::{ModelChange, Registry, RunawayGuard, StateWord},
    replica::{Demand, Reload, Serving, Wanted},
};

fn all_run(replicas: usize) -> impl Fn(&warden_domain::model::ModelState) -> bool {
    move |state| state.replicas.len() == replicas && state.replicas.iter().all(|r| r.state == StateWord::Running && r.phase.is_none())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_replica_that_answers_is_in_the_table_with_its_own_cards() {
    let bench = Bench::new();
    bench.script.cards(&["a", "b", "c", "d"]);
    let model = bench.register("tiny", 2, &["a", "b", "c", "d"]).await;
    let room = bench.room().await;
    bench.script.next("tiny-1", Mode::Loads(Default::default()));
    room.load(&model.id).await.unwrap();
    until(&room, &model.id, "running with one replica", |s| s.state == StateWord::Running).await;
    assert_eq!(served(&room, "tiny"), ["tiny-0"]);
    bench.script.now("tiny-1", Mode::Answers);
    until(&room, &model.id, "both", all_run(2)).await;
    assert_eq!(served(&room, "tiny"), ["tiny-0", "tiny-1"]);
    let mut cards: Vec<Vec<GpuId>> = bench.script.started().into_iter().map(|plan| plan.gpus).collect();
    cards.sort_by_key(|own| own[0].as_str().to_owned());
    assert_eq!(cards, [["a", "b"].map(GpuId::from_stored), ["c", "d"].map(GpuId::from_stored)]);
    let mut files: Vec<Vec<u32>> = bench.script.started().into_iter().map(|plan| plan.device_minors).collect();
    files.sort();
    assert_eq!(files, [[0, 1], [2, 3]], "and their device files, which a sandbox needs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_loads_a_model_that_may_be_loaded_by_one_and_no_other() {
    let bench = Bench::new();
    let model = bench.register("tiny", 1, &[]).await;
    let room = bench.room().await;
    assert_eq!(room.wanted("tiny"), Wanted::Not);
    bench.models.change(&model.id, ModelChange { on_request: Some(true), ..ModelChange::default() }).await.unwrap();
    room.caught_up().await;
    for _ in 0..20 {
        assert_eq!(room.wanted("tiny"), Wanted::Coming);
    }
    until(&room, &model.id, "running", all_run(1)).await;
    assert_eq!(bench.script.started().len(), 1, "many requests are one load");
    assert_eq!(room.wanted("another"), Wanted::Not);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_about_runaway_answers_counts_at_once_for_a_running_model() {
    let bench = Bench::new();
    let model = bench.register("tiny", 1, &[]).await;
    let room = bench.room().await;
    room.load(&model.id).await.unwrap();
    until(&room, &model.id, "running", all_run(1)).await;
    let guard = || room.table().models["tiny"].runaway;
    assert_eq!(guard(), RunawayGuard::Log);
    let change = ModelChange { runaway: Some(RunawayGuard::Enforce), ..ModelChange::default() };
    let changed = bench.models.change(&model.id, change).await.unwrap();
    room.caught_up().await;
    assert_eq!(guard(), RunawayGuard::Enforce);
    assert!(room.states()[&model.id].loaded.as_ref().unwrap().runs_as(&changed.config), "no reload is asked for");
    assert_eq!(bench.script.started().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_model_on_a_claimed_card_is_refused_at_once_with_the_name_of_the_first() {
    let bench = Bench::new();
    bench.script.cards(&["a", "b"]);
    let (big, small) = (bench.register("big", 1, &["a", "b"]).await, bench.register("small", 1, &["b"]).await);
    let (plain, lost) = (bench.register("plain", 1, &[]).await, bench.register("lost", 1, &["x"]).await);
    let room = bench.room().await;
    bench.script.next("big-0", Mode::Loads(Default::default()));
    room.load(&big.id).await.unwrap();
    let refused = room.load(&small.id).await.unwrap_err();
    assert_eq!(refused.kind, ProblemKind::Conflict, "a load under way holds its cards already");
    assert!(refused.message.contains("model big"), "{refused}");
    assert_eq!(room.load(&lost.id).await.unwrap_err().kind, ProblemKind::Invalid);
    assert!(!room.states().contains_key(&small.id));
    room.load(&plain.id).await.unwrap();
    until(&room, &plain.id, "running on processors", all_run(1)).await;

    // The load of the first makes no step: it is stopped, and its cards are free.
    until(&room, &big.id, "stopped as stuck", |s| s.reason.as_ref().is_some_and(|r| r.code == "load_stuck") && s.replicas[0].launch.is_none()).await;
    assert!(bench.script.stopped().contains(&"big-0".to_owned()));
    room.load(&small.id).await.unwrap();
    until(&room, &small.id, "running", all_run(1)).await;
    let refused = room.load(&big.id).await.unwrap_err();
    assert!(refused.message.contains("model small"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_without_a_driver_for_cards_is_refused_with_the_reason_and_processors_serve() {
    let bench = Bench::new();
    bench.script.cards(&[]);
    let (cards, plain) = (bench.register("cards", 1, &["a"]).await, bench.register("plain", 1, &[]).await);
    let room = bench.room().await;
    let refused = room.load(&cards.id).await.unwrap_err();
    assert!(refused.kind == ProblemKind::Invalid && refused.hint.is_some(), "{refused:?}");
    room.load(&plain.id).await.unwrap();
    until(&room, &plain.id, "running", all_run(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_reboot_a_model_waits_for_its_cards_and_loads_by_itself_whatever_kept_them() {
    use warden_domain::{change::Topic, gpu::GpuReading};
    let bench = Bench::new();
    bench.script.cards(&["a"]);
    let model = bench.register("tiny", 1, &["a"]).await;
    let room = bench.room().await;
    room.load(&model.id).await.unwrap();
    until(&room, &model.id, "running", all_run(1)).await;
    let readings = [
        (GpuReading::Starting, vec![]),
        (GpuReading::Stale { since_s: 90.0, cause: "reading power".to_owned() }, vec![]),
        (GpuReading::NoLibrary { detail: "libnvidia-ml.so.1".to_owned() }, vec![]),
        (GpuReading::Failed { cause: "Driver/library version mismatch".to_owned() }, vec![]),
        (GpuReading::Live, vec!["b"]),
    ];
    let mut room = Some(room);
    for (number, (reading, cards)) in readings.into_iter().enumerate() {
        drop(room.take());
        bench.script.power_off();
        bench.script.reader(reading.clone(), &cards);
        let again = bench.room().await;
        let waits =
            |s: &warden_domain::model::ModelState| s.state == StateWord::Waiting && s.reason.as_ref().is_some_and(|r| r.code == "gpus_missing");
        until(&again, &model.id, &format!("waiting: {reading:?}"), waits).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        bench.changes.publish(Topic::Gpus);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let state = until(&again, &model.id, &format!("still waiting: {reading:?}"), waits).await;
        assert!(state.reason.unwrap().message.contains("loads by itself"));
        assert_eq!(bench.script.started().len(), number + 1, "it was started without its cards");
        let refused = again.load(&model.id).await.unwrap_err();
        assert_eq!(refused.kind, ProblemKind::Conflict, "it is being loaded already");
        bench.script.cards(&["a"]);
        bench.changes.publish(Topic::Gpus);
        until(&again, &model.id, &format!("running after {reading:?}"), all_run(1)).await;
        room = Some(again);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_reload_drains_one_replica_while_the_other_serves_and_takes_the_new_settings() {
    let bench = Bench::new();
    let model = bench.register("tiny", 2, &[]).await;
    let room = bench.room().await;
    room.load(&model.id).await.unwrap();
    let before = until(&room, &model.id, "both", all_run(2)).await;
    bench.models.change(&model.id, ModelChange { slots: Some(3), ..ModelChange::default() }).await.unwrap();
    assert_eq!(room.states()[&model.id].loaded.as_ref().unwrap().slots, 4, "nothing changes before the reload");

    bench.script.in_flight("tiny-0", 1);
    assert_eq!(room.reload(&model.id).await.unwrap(), Reload::Rolling);
    assert_eq!(room.reload(&model.id).await.unwrap_err().kind, ProblemKind::Conflict);
    until(&room, &model.id, "the first drains", |s| s.replicas[0].phase.as_deref() == Some("draining")).await;
    assert_eq!(served(&room, "tiny"), ["tiny-1"], "new requests go elsewhere");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(bench.script.stopped().is_empty(), "it was stopped under a running request");
    bench.script.in_flight("tiny-0", 0);
    let after =
        until(&room, &model.id, "both anew", |s| all_run(2)(s) && s.replicas.iter().zip(&before.replicas).all(|(new, old)| new.launch != old.launch))
            .await;
    assert_eq!(after.loaded.unwrap().slots, 3);
    assert_eq!(bench.script.stopped(), ["tiny-0", "tiny-1"]);
    assert!(bench.script.started()[2..].iter().all(|plan| plan.slots == 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_replica_is_drained_by_hand_and_comes_back_with_the_next_load() {
    let bench = Bench::new();
    bench.script.cards(&["a", "b"]);
    let (model, other) = (bench.register("tiny", 2, &["a", "b"]).await, bench.register("other", 1, &["b"]).await);
    let room = bench.room().await;
    assert_eq!(room.drain(&model.id, 0).await.unwrap_err().kind, ProblemKind::NotFound);
    room.load(&model.id).await.unwrap();
    until(&room, &model.id, "both", all_run(2)).await;
    assert_eq!(room.drain(&model.id, 2).await.unwrap_err().kind, ProblemKind::NotFound);
    bench.script.in_flight("tiny-1", 1);
    room.drain(&model.id, 1).await.unwrap();
    assert_eq!(served(&room, "tiny"), ["tiny-0"], "new requests go to the other");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(bench.script.stopped().is_empty(), "it was stopped under a running request");
    bench.script.in_flight("tiny-1", 0);
    let parked = |s: &warden_domain::model::ModelState| s.replicas.len() == 2 && s.replicas[1].reason.as_ref().is_some_and(|r| r.code == "drained");
    let state = until(&room, &model.id, "drained", parked).await;
    assert_eq!((state.state, state.replicas[1].state), (StateWord::Running, StateWord::Stopped));
    assert_eq!(room.drain(&model.id, 0).await.unwrap_err().kind, ProblemKind::Conflict, "nothing would serve");
    assert_eq!(room.load(&other.id).await.unwrap_err().kind, ProblemKind::Conflict, "its card is kept for it");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(bench.script.started().len(), 2, "it came back by itself");
    room.load(&model.id).await.unwrap();
    until(&room, &model.id, "both again", all_run(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_replicas_come_and_fewer_go_with_a_reload() {
    let bench = Bench::new();
    let model = bench.register("tiny", 1, &[]).await;
    let room = bench.room().await;
    assert_eq!(room.reload(&model.id).await.unwrap_err().kind, ProblemKind::Conflict, "it is not running");
    room.load(&model.id).await.unwrap();
    until(&room, &model.id, "one", all_run(1)).await;
    assert!(matches!(room.reload(&model.id).await.unwrap(), Reload::Restart { .. }));
    until(&room, &model.id, "one anew", |s| all_run(1)(s) && s.replicas[0].launch.as_deref() == Some("launch-2")).await;
    bench.models.change(&model.id, ModelChange { replicas: Some(3), ..ModelChange::default() }).await.unwrap();
    room.reload(&model.id).await.unwrap();
    until(&room, &model.id, "three", |s| all_run(3)(s) && s.replicas[0].launch.as_deref() != Some("launch-2")).await;
    bench.models.change(&model.id, ModelChange { replicas: Some(2), ..ModelChange::default() }).await.unwrap();
    room.reload(&model.id).await.unwrap();
    until(&room, &model.id, "two", all_run(2)).await;
    assert_eq!(served(&room, "tiny"), ["tiny-0", "tiny-1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_could_not_be_stopped_keeps_its_cards_and_is_stopped_again_by_itself_and_by_an_unload() {
    for (pause, by_hand) in [(Duration::from_millis(300), false), (Duration::from_secs(3600), true)] {
        let mut bench = Bench::new();
        bench.rules.stop_again = pause;
        bench.script.cards(&["a", "b"]);
        let (big, small) = (bench.register("big", 2, &["a", "b"]).await, bench.register("small", 1, &["a"]).await);
        let room = bench.room().await;
        room.load(&big.id).await.unwrap();
        until(&room, &big.id, "both", all_run(2)).await;
        bench.script.stops("big-0", false);
        room.unload(&big.id).await.unwrap();
        let words = |s: &warden_domain::model::ModelState| s.replicas.iter().map(|r| r.state).collect::<Vec<_>>();
        let failed = until(&room, &big.id, "not stopped", |s| words(s) == [StateWord::Failed, StateWord::Stopped]).await;
        assert!(failed.reason.unwrap().message.contains("do not end"));
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert_eq!(words(&room.states()[&big.id]), [StateWord::Failed, StateWord::Stopped], "the page must show that something still runs");
        assert_eq!(bench.script.started().len(), 2, "nobody wants it, and something of it was started again");
        let refused = room.load(&small.id).await.unwrap_err();
        assert!(refused.kind == ProblemKind::Conflict && refused.message.contains("model big"), "{refused}");

        bench.script.stops("big-0", true);
        if by_hand {
            room.unload(&big.id).await.unwrap();
        }
        until(&room, &big.id, "stopped", |s| s.state == StateWord::Stopped).await;
        room.load(&small.id).await.unwrap();
        until(&room, &small.id, "running", all_run(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_reload_to_fewer_replicas_never_stops_all_of_them() {
    let bench = Bench::new();
    let model = bench.register("tiny", 2, &[]).await;
    let room = bench.room().await;
    room.load(&model.id).await.unwrap();
    until(&room, &model.id, "both", all_run(2)).await;
    bench.models.change(&model.id, ModelChange { replicas: Some(1), ..ModelChange::default() }).await.unwrap();

    // Given up: the one beyond the number is all that serves.
    bench.script.next("tiny-0", Mode::Gone("It does not take these settings."));
    assert_eq!(room.reload(&model.id).await.unwrap(), Reload::Rolling);
    until(&room, &model.id, "given up", |s| s.notice.is_some()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(served(&room, "tiny"), ["tiny-1"]);
    assert_eq!(bench.script.stopped(), ["tiny-0"]);

    // Again, and it takes a while: the other serves until the new one does.
    bench.script.next("tiny-0", Mode::Loads(Default::default()));
    assert_eq!(room.reload(&model.id).await.unwrap(), Reload::Rolling);
    until(&room, &model.id, "loading", |s| s.replicas[0].state == StateWord::Loading && s.replicas[0].launch.is_some()).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(served(&room, "tiny"), ["tiny-1"]);
    bench.script.now("tiny-0", Mode::Answers);
    until(&room, &model.id, "one", all_run(1)).await;
    assert_eq!(served(&room, "tiny"), ["tiny-0"]);
    assert_eq!(bench.script.stopped(), ["tiny-0", "tiny-1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_that_does_not_come_up_leaves_the_other_replica_serving() {
    let bench = Bench::new();
    let model = bench.register("tiny", 2, &[]).await;
    let room = bench.room().await;
    room.load(&model.id).await.unwrap();
    until(&room, &model.id, "both", all_run(2)).await;
    bench.script.next("tiny-0", Mode::Gone("It does not take these settings."));
    room.reload(&model.id).await.unwrap();
    let state = until(&room, &model.id, "given up", |s| s.notice.is_some()).await;
    assert_eq!(state.state, StateWord::Running);
    assert!(state.notice.unwrap().message.contains("does not take these settings"));
    assert_eq!(served(&room, "tiny"), ["tiny-1"]);
    assert_eq!(bench.script.stopped(), ["tiny-0"], "the other was not touched");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_replicas_outlive_the_agent_and_keep_the_settings_they_were_loaded_with() {
    let bench = Bench::new();
    let (model, idle) = (bench.register("tiny", 2, &[]).await, bench.register("idle", 1, &[]).await);
    let room = bench.room().await;
    for id in [&model.id, &idle.id] {
        room.load(id).await.unwrap();
        until(&room, id, "running", |s| s.state == StateWord::Running).await;
    }
    let before = until(&room, &model.id, "both", all_run(2)).await;
    room.unload(&idle.id).await.unwrap();
    until(&room, &idle.id, "stopped", |s| s.state == StateWord::Stopped).await;
    bench.models.change(&model.id, ModelChange { slots: Some(9), ..ModelChange::default() }).await.unwrap();
    let started = bench.script.started().len();
    drop(room);

    let room = bench.room().await;
    let after = until(&room, &model.id, "adopted", all_run(2)).await;
    assert_eq!(after.replicas.iter().map(|r| &r.launch).collect::<Vec<_>>(), before.replicas.iter().map(|r| &r.launch).collect::<Vec<_>>());
    assert_eq!(after.loaded.unwrap().slots, 4);
    assert_eq!(bench.script.started().len(), started, "something was started again");
    drop(room);

    bench.script.power_off();
    let room = bench.room().await;
    let after = until(&room, &model.id, "restored", all_run(2)).await;
    assert_eq!(after.loaded.unwrap().slots, 9, "a fresh load takes the settings of now");
    assert!(!room.states().contains_key(&idle.id), "what was stopped stays stopped");
}
