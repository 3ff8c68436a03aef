//! An agent that is killed in the middle of a reload, at every step of it; and what the next one makes of the engines that it finds.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod scripted;

use std::time::Duration;

use scripted::{Bench, Mode, served, until};
use warden_domain::{
    ProblemKind,
    ids::GpuId,
    model::{ModelChange, ModelState, Registry, StateWord},
    replica::Serving,
};

fn all_run(replicas: usize) -> impl Fn(&ModelState) -> bool {
    move |state| state.replicas.len() == replicas && state.replicas.iter().all(|r| r.state == StateWord::Running && r.phase.is_none() && !r.outdated)
}

/// Kills the agent at one step of a reload; false when the reload has fewer steps.
async fn cut_at(step: usize, before: (u16, &[&str]), change: &ModelChange) -> bool {
    let bench = Bench::new();
    bench.script.cards(&["a", "b", "c", "d"]);
    let model = bench.register("tiny", before.0, before.1).await;
    let room = bench.room().await;
    room.load(&model.id).await.unwrap();
    until(&room, &model.id, "running", all_run(usize::from(before.0))).await;
    let next = bench.models.change(&model.id, change.clone()).await.unwrap().config;
    let replicas = usize::from(next.layout.replicas);
    let through = || {
        let plans = bench.script.plans();
        plans.len() == replicas && plans.iter().all(|plan| plan.slots == next.slots)
    };
    bench.script.cut_after(step);
    room.reload(&model.id).await.unwrap();
    let mut cut = false;
    for _ in 0..1000 {
        cut = bench.script.cut_reached();
        if cut || (through() && room.states().get(&model.id).is_some_and(all_run(replicas))) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    if !cut {
        assert!(through(), "neither cut nor through at step {step}");
        return false;
    }
    drop(room);
    bench.script.agent_dies();

    let room = bench.room().await;
    // Whatever runs holds its cards, with whichever settings it was started.
    let other = bench.register("other", 1, &["d"]).await;
    for plan in bench.script.plans() {
        for card in plan.gpus {
            bench.models.change(&other.id, ModelChange { gpus: Some(vec![card.clone()]), ..ModelChange::default() }).await.unwrap();
            let refused = room.load(&other.id).await;
            let still = bench.script.plans().iter().any(|plan| plan.gpus.contains(&card)) || next.layout.gpus.contains(&card);
            assert!(refused.is_err() || !still, "step {step}: {card} is in use and was given away");
            if refused.is_ok() {
                room.unload(&other.id).await.unwrap();
                until(&room, &other.id, "stopped", |s| s.state == StateWord::Stopped).await;
            }
        }
    }
    until(&room, &model.id, &format!("reloaded after a cut at step {step}"), all_run(replicas)).await;
    assert!(through(), "step {step}: something runs with settings of before: {:?}", bench.script.plans());
    assert_eq!(bench.script.clashes(), Vec::<String>::new(), "step {step}");
    assert_eq!(served(&room, "tiny").len(), replicas);
    true
}

async fn cut_everywhere(before: (u16, &[&str]), change: ModelChange, least: usize) {
    let mut steps = 0;
    while cut_at(steps, before, &change).await {
        steps += 1;
        assert!(steps < 40, "the reload never ends");
    }
    assert!(steps >= least, "only {steps} steps were cut");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_reload_cut_at_any_step_is_finished_by_the_next_agent() {
    cut_everywhere((2, &[]), ModelChange { slots: Some(3), ..ModelChange::default() }, 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_in_which_cards_change_hands_cut_at_any_step_never_puts_two_engines_on_one() {
    let swapped = ["b", "a"].map(GpuId::from_stored).to_vec();
    cut_everywhere((2, &["a", "b"]), ModelChange { slots: Some(3), gpus: Some(swapped), ..ModelChange::default() }, 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_to_fewer_replicas_cut_at_any_step_ends_with_as_many_as_were_asked_for() {
    let fewer = ModelChange { slots: Some(3), replicas: Some(1), gpus: Some(vec![GpuId::from_stored("a")]), ..ModelChange::default() };
    cut_everywhere((2, &["a", "b"]), fewer, 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_reload_that_was_given_up_left_running_is_adopted_and_seen_to_be_older() {
    let bench = Bench::new();
    let model = bench.register("tiny", 2, &[]).await;
    let room = bench.room().await;
    room.load(&model.id).await.unwrap();
    until(&room, &model.id, "both", all_run(2)).await;
    bench.models.change(&model.id, ModelChange { replicas: Some(1), slots: Some(3), ..ModelChange::default() }).await.unwrap();
    bench.script.next("tiny-0", Mode::Gone("It does not take these settings."));
    room.reload(&model.id).await.unwrap();
    let left = |s: &ModelState| s.notice.is_some() && s.replicas.len() == 2 && s.replicas[1].outdated && s.replicas[1].state == StateWord::Running;
    let state = until(&room, &model.id, "given up", left).await;
    assert_eq!(state.loaded.unwrap().slots, 4, "the page says that a reload is due");
    drop(room);

    let room = bench.room().await;
    until(&room, &model.id, "given up again", left).await;
    assert_eq!(served(&room, "tiny"), ["tiny-1"], "all that serves was stopped as nobody's");
    assert_eq!(bench.script.stopped(), ["tiny-0"]);
    bench.script.next("tiny-0", Mode::Answers);
    room.reload(&model.id).await.unwrap();
    until(&room, &model.id, "one", all_run(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adopted_engine_that_hangs_is_given_up_by_the_rules_for_silence_and_not_as_a_long_load() {
    let mut bench = Bench::new();
    bench.rules.stuck_after = Duration::from_secs(600);
    bench.rules.silent_after = Duration::from_millis(300);
    let model = bench.register("tiny", 1, &[]).await;
    let room = bench.room().await;
    room.load(&model.id).await.unwrap();
    until(&room, &model.id, "running", all_run(1)).await;
    // Written beside the path of the answer.
    let folder = bench.dir.path().join("state/launches");
    let answered =
        || std::fs::read_dir(&folder).unwrap().any(|f| std::fs::read_to_string(f.unwrap().path()).is_ok_and(|t| t.contains(r#""answered":true"#)));
    for _ in 0..400 {
        if answered() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(room);
    // As a runner says it that never saw this engine answer, whether or not its log is still there.
    bench.script.now("tiny-0", Mode::Loads(warden_domain::engine::LoadView::default()));
    let room = bench.room().await;
    let state = until(&room, &model.id, "given up", |s| !s.incidents.is_empty()).await;
    assert_eq!(state.incidents[0].reason.code, "engine_silent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_hangs_holds_up_what_lies_on_it_and_nothing_else() {
    let bench = Bench::new();
    let (first, second) = (bench.register("first", 1, &[]).await, bench.register("second", 1, &[]).await);
    let room = bench.room().await;
    room.load(&first.id).await.unwrap();
    until(&room, &first.id, "running", all_run(1)).await;

    bench.script.hangs("packs", true);
    let asked = tokio::time::Instant::now();
    room.load(&second.id).await.unwrap();
    let state = until(&room, &second.id, "waiting", |s| s.state == StateWord::Waiting).await;
    assert_eq!(state.reason.unwrap().code, "engines_unknown");
    assert!(asked.elapsed() < Duration::from_secs(8));
    let begin = tokio::time::Instant::now();
    room.unload(&first.id).await.unwrap();
    until(&room, &first.id, "stopped", |s| s.state == StateWord::Stopped).await;
    assert!(begin.elapsed() < Duration::from_secs(5), "another model was held up for {:?}", begin.elapsed());
    bench.script.hangs("packs", false);
    until(&room, &second.id, "running", all_run(1)).await;

    // A file whose disk hangs: the model that is to be loaded from it waits, another one is unloaded meanwhile.
    bench.script.hangs("verify", true);
    let hung = tokio::spawn({
        let (room, id) = (room.clone(), first.id.clone());
        async move { room.load(&id).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    room.unload(&second.id).await.unwrap();
    until(&room, &second.id, "stopped", |s| s.state == StateWord::Stopped).await;
    bench.script.hangs("verify", false);
    hung.await.unwrap().unwrap();
    until(&room, &first.id, "running", all_run(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_starts_although_the_system_does_not_tell_what_runs() {
    let bench = Bench::new();
    let model = bench.register("tiny", 1, &[]).await;
    let room = bench.room().await;
    room.load(&model.id).await.unwrap();
    let before = until(&room, &model.id, "running", all_run(1)).await;
    drop(room);
    bench.script.hangs("running", true);
    let room = tokio::time::timeout(Duration::from_secs(15), bench.room()).await.expect("the agent does not start");
    let state = until(&room, &model.id, "waiting", |s| s.state == StateWord::Waiting).await;
    assert_eq!(state.reason.unwrap().code, "engines_unknown");
    let said = tokio::time::timeout(Duration::from_secs(5), room.reload(&model.id)).await.expect("wishes are not taken");
    assert_eq!(said.unwrap_err().kind, ProblemKind::Conflict, "it does not run yet");
    bench.script.hangs("running", false);
    let after = until(&room, &model.id, "adopted", all_run(1)).await;
    assert_eq!(after.replicas[0].launch, before.replicas[0].launch, "it was started again beside itself");
}
