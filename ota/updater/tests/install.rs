//! From a checked image to a confirmed system or back, over a stand-in for RAUC, with the power cut at each point in between.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot set itself up should stop")]

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use support::rauc::State;
use support::scene::{box_of, installs, set, staged, told};
use warden_domain::issue::Looked;
use warden_domain::update::{Automatic, UpdatePhase, UpdateSettings, Updates};
use warden_update_record::{Before, Fallback, Outcome, Phase, Record, Slot, read, write};

#[tokio::test]
async fn an_update_is_installed_tried_and_confirmed_and_every_step_is_on_the_disk() {
    let (_publisher, _server, bench, run) = staged("good").await;
    assert_eq!(installs(&bench), 1);
    let transaction = bench.record().attempt().unwrap().transaction.clone();
    assert_eq!(bench.host.rauc.as_ref().unwrap().state.lock().unwrap().installed.as_deref(), Some(transaction.as_str()));
    let before: Before = read(&bench.places().state).unwrap().unwrap();
    assert_eq!((before.transaction.clone(), before.target_slot, before.served_models.len()), (transaction.clone(), Slot::B, 1));
    run.room.restart().await.unwrap();
    assert_eq!(bench.host.restarts.load(Ordering::SeqCst), 1);
    assert_eq!(bench.record().phase(), Phase::Trial);
    drop(run);

    let trial = bench.start(Slot::B, "two", "1.1.0").await;
    trial.room.start();
    trial.wait(UpdatePhase::Trial).await;
    assert!(trial.room.go_back().await.is_err() && trial.room.cancel().await.is_err() && trial.room.install(None).await.is_err());
    bench.verdict(&transaction, "two", Outcome::Good);
    let view = trial.happened("confirmed").await;
    assert_eq!((view.phase, view.history[0].version.as_str()), (UpdatePhase::Confirmed, "1.1.0"));
    told(&bench).await;
}

#[tokio::test]
async fn a_box_that_went_back_says_why_and_does_not_take_that_image_again_by_itself() {
    let (_publisher, server, bench, run) = staged("bad").await;
    let transaction = bench.record().attempt().unwrap().transaction.clone();
    run.room.restart().await.unwrap();
    bench.verdict(&transaction, "two", Outcome::Bad);
    drop(run);
    let back = bench.start(Slot::A, "three", "1.0.0").await;
    back.room.start();
    let view = back.happened("rolled_back").await;
    assert_eq!(view.phase, UpdatePhase::RolledBack);
    assert_eq!(view.went_back.unwrap().sentence, "The console did not answer.");
    assert_eq!(view.failed.len(), 1);
    let looks: Vec<_> = back.room.checks().into_iter().collect();
    let mut sentences = Vec::new();
    for check in looks {
        if let Looked::Seen(found) = check.look().await {
            sentences.extend(found.into_iter().map(|finding| (finding.code.as_str(), finding.said.to_string())));
        }
    }
    assert!(sentences.iter().any(|(code, words)| *code == "boot_fell_back" && words.contains("The console did not answer.")), "{sentences:?}");

    let settings = UpdateSettings { channel_url: Some(server.address.clone()), automatic: Automatic::Install, ..UpdateSettings::default() };
    back.room.configure(settings).await.unwrap();
    back.check().await;
    back.room.turn_of_the_clock().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(bench.record().phase(), Phase::RolledBack);
    assert!(back.view().await.offers[0].failed_before.as_ref().is_some_and(|why| why.contains("The console did not answer.")));
    assert_eq!(back.install().await, None, "a person may");
    assert_eq!(bench.record().phase(), Phase::Staged);
}

#[tokio::test]
async fn by_itself_the_box_installs_and_restarts() {
    let (_publisher, server, bench, run) = box_of("auto").await;
    let settings = UpdateSettings { channel_url: Some(server.address.clone()), automatic: Automatic::Install, ..UpdateSettings::default() };
    run.room.configure(settings).await.unwrap();
    run.check().await;
    run.room.turn_of_the_clock().await;
    run.wait(UpdatePhase::Staged).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    run.room.turn_of_the_clock().await;
    run.wait(UpdatePhase::Trial).await;
    assert_eq!(bench.host.restarts.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_rauc_shows_of_a_bad_image_is_refused_before_anything_is_written() {
    type Change = fn(&mut State);
    let cases: [(Change, &str); 4] = [
        (|s| s.format = "plain", "takes only \"verity\""),
        (|s| s.hook = true, "brings a program along"),
        (|s| s.compatible = "another-box", "is for \"another-box\""),
        (|s| s.version = "9.9", "says that it is version 9.9"),
    ];
    for (change, words) in cases {
        let (_publisher, _server, bench, run) = box_of("refused").await;
        set(&bench, change);
        let failure = run.install().await.unwrap();
        assert!(failure.contains(words) && failure.contains("Nothing was written"), "{failure}");
        assert_eq!((installs(&bench), bench.record()), (0, Record::Idle));
        assert_eq!(run.view().await.history[0].outcome, "failed");
    }
}

#[tokio::test]
async fn an_install_that_fails_or_does_not_take_leaves_the_old_system() {
    for (change, words) in [((|s| s.error = "no room") as fn(&mut State), "no room"), (|s| s.forgets_primary = true, "is not the next one to start")]
    {
        let (_publisher, _server, bench, run) = box_of("fails").await;
        set(&bench, change);
        let failure = run.install().await.unwrap();
        assert!(failure.contains(words), "{failure}");
        assert_eq!((bench.record(), run.view().await.failed.len()), (Record::Idle, 1));
    }
}

#[tokio::test]
async fn a_restart_that_is_refused_leaves_the_system_staged() {
    let (_publisher, _server, bench, run) = staged("refuse").await;
    *bench.host.refuse_restart.lock().unwrap() = true;
    assert!(run.room.restart().await.unwrap_err().message.contains("refused"));
    assert_eq!(bench.record().phase(), Phase::Staged);
    let other = run.tasks.begin("adopt-disk", &[("x", "X")], false);
    *bench.host.refuse_restart.lock().unwrap() = false;
    assert!(run.room.restart().await.unwrap_err().message.contains("adopt-disk"));
    other.done("x");
    run.room.restart().await.unwrap();
}

#[tokio::test]
async fn a_restart_by_another_door_is_a_trial_too() {
    let (_publisher, _server, bench, run) = staged("door").await;
    run.room.before_power().await;
    assert!(matches!(bench.record(), Record::Trial { asked_boot_id, .. } if asked_boot_id == "one"));
}

#[tokio::test]
async fn a_power_cut_at_each_step_lands_in_a_named_state_and_goes_on_or_backs_out() {
    let (_publisher, _server, bench, run) = staged("cuts").await;
    let Record::Staged { attempt, target_slot, staged_boot_id } = bench.record() else { panic!("not staged") };
    drop(run);
    // In the middle of the write: RAUC has another transaction in the slot. It is installed again, the file having been checked anew.
    set(&bench, |s| s.installed = Some("another".into()));
    bench.put_record(&Record::Installing { attempt: attempt.clone(), target_slot });
    let run = bench.start(Slot::A, "two", "1.0.0").await;
    run.room.start();
    let begun = std::time::Instant::now();
    while bench.record().phase() != Phase::Verified && begun.elapsed() < support::PATIENCE {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(matches!(bench.record(), Record::Verified { attempt } if attempt.interruptions == 1), "{:?}", bench.record());
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(run);

    // After the write, before its note.
    set(&bench, |s| s.installed = Some(attempt.transaction.to_string()));
    bench.put_record(&Record::Installing { attempt: attempt.clone(), target_slot });
    let run = bench.start(Slot::A, "three", "1.0.0").await;
    run.room.start();
    run.wait(UpdatePhase::Staged).await;
    drop(run);

    // Between the note and the restart, and the new slot comes up.
    bench.put_record(&Record::Staged { attempt: attempt.clone(), target_slot, staged_boot_id });
    let run = bench.start(Slot::B, "four", "1.1.0").await;
    run.room.start();
    run.wait(UpdatePhase::Trial).await;
    drop(run);

    // In the trial, and the old slot comes up: the initrd says why.
    let fallback = Fallback { from_slot: Slot::B, reason: "slot b was started 3 times".into(), at_boot: "five".into() };
    write(&bench.places().boot, &fallback).unwrap();
    let run = bench.start(Slot::A, "five", "1.0.0").await;
    run.room.start();
    let view = run.wait(UpdatePhase::RolledBack).await;
    assert!(view.went_back.unwrap().sentence.contains("started 3 times"));
    drop(run);

    // Between the gate's word and our note of it.
    let trial = Record::Trial { attempt: attempt.clone(), target_slot, staged_boot_id: "one".into(), asked_boot_id: "one".into() };
    bench.put_record(&trial);
    bench.verdict(&attempt.transaction, "six", Outcome::Good);
    let run = bench.start(Slot::B, "seven", "1.1.0").await;
    run.room.start();
    run.happened("confirmed").await;
    told(&bench).await;
}

#[tokio::test]
async fn going_back_by_hand_keeps_the_box_from_taking_that_version_again() {
    let (_publisher, _server, bench, run) = box_of("hand").await;
    run.room.go_back().await.unwrap();
    assert_eq!((bench.host.went_back.load(Ordering::SeqCst), bench.host.restarts.load(Ordering::SeqCst)), (1, 1));
    let view = run.view().await;
    assert_eq!((view.failed[0].version.as_str(), view.history[0].outcome.as_str()), ("1.0.0", "went_back"));
}

#[tokio::test]
async fn a_damaged_record_begins_anew_and_is_told() {
    let (_publisher, _server, bench, run) = staged("damaged").await;
    drop(run);
    std::fs::write(bench.places().state.join("record.json"), b"{ torn").unwrap();
    let run = bench.start(Slot::A, "two", "1.0.0").await;
    let view = run.view().await;
    assert_eq!((view.phase, view.fault.unwrap().code.as_str()), (UpdatePhase::Idle, "record_unreadable"));
}
