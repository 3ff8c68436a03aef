//! What goes wrong around the write of a slot, and that it is settled without a restart of the agent, and without forgetting the slot.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot set itself up should stop")]

mod support;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use support::scene::{box_of, installs, set, staged};
use support::{Bench, PATIENCE, Publisher, Run};
use warden_domain::clock;
use warden_domain::update::{UpdatePhase, Updates};
use warden_update_record::{Before, Fallback, Phase, Record, Slot, read, write};

fn refuse_copy(bench: &Bench, refuse: bool) {
    *bench.host.refuse_copy.lock().unwrap() = refuse;
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn an_install_whose_way_broke_is_settled_by_the_clock_once_rauc_is_idle() {
    let (_publisher, _server, bench, run) = box_of("broke").await;
    set(&bench, |s| s.breaks = true);
    assert!(run.install().await.unwrap().contains("the way broke"));
    run.room.turn_of_the_clock().await;
    assert_eq!(bench.record().phase(), Phase::Installing, "it may still be at work");
    assert!(run.room.install(None).await.is_err() && run.room.go_back().await.is_err() && run.room.cancel().await.is_err());
    let transaction = bench.record().attempt().unwrap().transaction.to_string();
    set(&bench, |s| {
        s.installed = Some(transaction);
        s.primary = "rootfs.1";
        s.operation = "idle";
    });
    run.room.turn_of_the_clock().await;
    assert_eq!(bench.record().phase(), Phase::Staged);
    assert_eq!((run.view().await.fault, installs(&bench)), (None, 1));
}

#[tokio::test]
async fn a_rauc_that_is_busy_costs_no_try_and_says_so() {
    let (_publisher, _server, bench, run) = box_of("busy").await;
    set(&bench, |s| s.operation = "installing");
    assert!(run.install().await.unwrap().contains("already installing"));
    assert!(matches!(bench.record(), Record::Verified { attempt } if attempt.interruptions == 0), "{:?}", bench.record());
}

#[tokio::test]
async fn nothing_is_written_to_a_slot_without_a_copy_to_go_back_to() {
    let (_publisher, _server, bench, run) = box_of("copy").await;
    refuse_copy(&bench, true);
    assert!(run.install().await.unwrap().contains("no room for the copy"));
    assert_eq!((bench.record().phase(), installs(&bench)), (Phase::Verified, 0));
    refuse_copy(&bench, false);
    set(&bench, |s| s.breaks = true);
    assert!(run.install().await.is_some());
    let before: Before = read(&bench.places().state).unwrap().unwrap();
    assert_eq!(before.transaction, bench.record().attempt().unwrap().transaction, "a cut in the write may start the new system");
}

#[tokio::test]
async fn a_staged_slot_found_at_a_start_gets_its_copy_as_soon_as_there_is_room() {
    let (_publisher, _server, bench, run) = staged("late").await;
    let Record::Staged { attempt, target_slot, .. } = bench.record() else { panic!("not staged") };
    drop(run);
    bench.put_record(&Record::Installing { attempt: attempt.clone(), target_slot });
    std::fs::remove_file(bench.places().state.join("before.json")).unwrap();
    refuse_copy(&bench, true);
    let run = bench.start(Slot::A, "two", "1.0.0").await;
    run.room.start();
    let view = run.wait(UpdatePhase::Staged).await;
    until("the copy was tried", || bench.host.copies.load(Ordering::SeqCst) > 2).await;
    until("the trouble is told", || read::<Before>(&bench.places().state).unwrap().is_none()).await;
    drop(view);
    refuse_copy(&bench, false);
    tokio::time::sleep(Duration::from_millis(200)).await;
    run.room.turn_of_the_clock().await;
    let before: Before = read(&bench.places().state).unwrap().unwrap();
    assert_eq!(before.transaction, attempt.transaction);
    assert_eq!(run.view().await.fault, None);
}

#[tokio::test]
async fn a_staged_system_is_neither_replaced_nor_started_by_another_door() {
    let (publisher, _server, bench, run): (Publisher, _, _, Run) = staged("staged").await;
    let record = bench.record();
    publisher.system(2, "1.2.0");
    assert_eq!(run.check().await, None);
    let refused = run.room.install(None).await.unwrap_err();
    assert!(refused.message.contains("waits for a restart"), "{refused:?}");
    assert!(run.room.go_back().await.unwrap_err().message.contains("waits for a restart"));
    assert_eq!(bench.host.went_back.load(Ordering::SeqCst), 0);
    let bundle = std::fs::read(publisher.bundle("two.wob")).unwrap();
    let upload = run.room.open_upload("two.wob", warden_domain::units::Bytes(bundle.len() as u64)).await.unwrap();
    run.room.put_upload(&upload.id, 0, &bundle).await.unwrap();
    let task = run.room.take_upload(&upload.id, true).await.unwrap();
    assert!(run.ended(&task).await.unwrap().contains("waits for a restart"));
    assert_eq!(bench.record(), record);
    // Taken back, its slot is not started any more, and another one may be chosen.
    run.room.cancel().await.unwrap();
    assert_eq!((bench.record(), bench.host.taken_back.load(Ordering::SeqCst)), (Record::Idle, 1));
    assert!(run.room.install(None).await.is_ok());
}

#[tokio::test]
async fn a_cancel_right_before_the_write_leaves_the_slot_alone() {
    let (_publisher, _server, bench, run) = box_of("cancel").await;
    *bench.host.copy_takes.lock().unwrap() = Duration::from_millis(500);
    let task = run.room.install(None).await.unwrap();
    until("the copy was begun", || bench.host.copies.load(Ordering::SeqCst) == 1).await;
    run.room.cancel().await.unwrap();
    assert!(run.ended(&task).await.unwrap().contains("cancelled"));
    assert_eq!((bench.record(), installs(&bench)), (Record::Idle, 0));
    assert_eq!(run.view().await.history[0].outcome, "cancelled");
}

#[tokio::test]
async fn a_confirmed_system_that_falls_later_is_not_taken_again_by_itself() {
    let (_publisher, _server, bench, run) = staged("later").await;
    let attempt = bench.record().attempt().unwrap().clone();
    drop(run);
    let confirmed = Record::Confirmed { attempt, target_slot: Slot::B, at: clock::now() };
    bench.put_record(&confirmed);
    write(&bench.places().boot, &Fallback { from_slot: Slot::B, reason: "slot b was started 3 times".into(), at_boot: "eight".into() }).unwrap();
    for boot in ["nine", "ten"] {
        let run = bench.start(Slot::A, boot, "1.0.0").await;
        run.room.start();
        let view = run.happened("rolled_back").await;
        assert!(view.offers[0].failed_before.as_ref().is_some_and(|why| why.contains("started 3 times")), "{:?}", view.offers);
        assert_eq!((view.failed[0].falls, view.history.len()), (1, 1), "told once");
        assert_eq!(bench.record(), confirmed);
    }
}
