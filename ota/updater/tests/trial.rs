//! Ways in which a trial begins or ends without the agent having asked for it: none of them may last for ever.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot set itself up should stop")]

mod support;

use support::scene::{staged, told};
use warden_domain::clock;
use warden_domain::update::{UpdatePhase, Updates};
use warden_update_record::{Outcome, Phase, Record, Slot, Verdict, read, write};

#[tokio::test]
async fn a_restart_by_another_door_that_does_not_happen_leaves_the_system_staged() {
    let (_publisher, _server, bench, run) = staged("undone").await;
    run.room.before_power().await;
    assert_eq!(bench.record().phase(), Phase::Trial);
    run.room.power_failed().await;
    assert_eq!(bench.record().phase(), Phase::Staged);
    run.room.power_failed().await;
    run.room.restart().await.unwrap();
}

#[tokio::test]
async fn a_slot_marked_good_without_a_word_on_the_disk_is_confirmed_at_its_next_start() {
    let (_publisher, _server, mut bench, run) = staged("wordless").await;
    run.room.restart().await.unwrap();
    drop(run);
    let first = bench.start(Slot::B, "two", "1.1.0").await;
    first.room.start();
    first.wait(UpdatePhase::Trial).await;
    drop(first);
    bench.counted = Some(false);
    let second = bench.start(Slot::B, "three", "1.1.0").await;
    second.room.start();
    second.happened("confirmed").await;
    told(&bench).await;
}

#[tokio::test]
async fn a_bad_system_without_another_one_can_be_left_where_it_is() {
    let (_publisher, _server, bench, run) = staged("nowhere").await;
    let transaction = bench.record().attempt().unwrap().transaction.clone();
    run.room.restart().await.unwrap();
    drop(run);
    let trial = bench.start(Slot::B, "two", "1.1.0").await;
    trial.room.start();
    trial.wait(UpdatePhase::Trial).await;
    assert!(trial.room.cancel().await.is_err(), "nobody has judged it");
    bench.verdict(&transaction, "two", Outcome::Bad);
    let begun = std::time::Instant::now();
    while !trial.room.cancel().await.unwrap_err().message.contains("goes back by itself") {
        assert!(begun.elapsed() < support::PATIENCE);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    drop(trial);

    let found: Verdict = read(&bench.places().health).unwrap().unwrap();
    write(&bench.places().health, &Verdict { at: clock::now() - jiff::SignedDuration::from_mins(5), ..found }).unwrap();
    let trial = bench.start(Slot::B, "two", "1.1.0").await;
    trial.room.start();
    trial.wait(UpdatePhase::Trial).await;
    trial.room.cancel().await.unwrap();
    assert_eq!(bench.record(), Record::Idle);
    let view = trial.view().await;
    assert_eq!((view.failed[0].version.as_str(), view.history[0].outcome.as_str()), ("1.1.0", "failed"));
    assert_eq!(view.history[0].sentence.as_deref(), Some("The console did not answer."));
}
