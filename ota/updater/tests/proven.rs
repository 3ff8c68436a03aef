//! An update that is begun before the health check has found the running system good: the other slot is kept until then.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot set itself up should stop")]

mod support;

use std::time::Duration;

use support::scene::{installs, set};
use support::server::Server;
use support::{Bench, Publisher, Run};
use warden_domain::update::Updates;
use warden_update_record::{Outcome, Phase, Slot, TransactionId};

/// A box right after its installation: its starts are counted.
async fn fresh(name: &str) -> (Publisher, Server, Bench, Run) {
    let publisher = Publisher::new(name);
    publisher.system(1, "1.1.0");
    let server = Server::start(&publisher.path("www")).await;
    let mut bench = Bench::new(&publisher, true).await;
    bench.counted = Some(true);
    let run = bench.start(Slot::A, "one", "1.0.0").await;
    run.follow(&server.address).await;
    assert_eq!(run.check().await, None);
    (publisher, server, bench, run)
}

#[tokio::test]
async fn a_fresh_box_writes_the_other_slot_only_once_it_was_found_good_in_this_boot() {
    let (_publisher, _server, bench, run) = fresh("fresh").await;
    let transaction = TransactionId::from("none");
    bench.verdict(&transaction, "zero", Outcome::Good);
    let task = run.room.install(None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!((bench.record().phase(), installs(&bench)), (Phase::Verified, 0), "the word was about another boot");
    let waiting = run.tasks.get(&task).unwrap();
    assert_eq!(waiting.current().map(|step| step.key.as_str()), Some("check"), "{waiting:?}");
    bench.verdict(&transaction, "one", Outcome::Good);
    assert_eq!(run.ended(&task).await, None);
    assert_eq!((bench.record().phase(), installs(&bench)), (Phase::Staged, 1));
}

#[tokio::test]
async fn the_wait_for_the_health_check_can_be_cancelled() {
    let (_publisher, _server, bench, run) = fresh("fresh-cancel").await;
    let task = run.room.install(None).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    run.room.cancel().await.unwrap();
    assert!(run.ended(&task).await.unwrap().contains("cancelled"));
    assert_eq!(installs(&bench), 0);
}

#[tokio::test]
async fn a_slot_that_cannot_be_started_is_no_way_back_and_is_written_at_once() {
    let (_publisher, _server, bench, run) = fresh("fresh-empty").await;
    set(&bench, |state| state.other = "bad");
    assert_eq!(run.install().await, None);
    assert_eq!((bench.record().phase(), installs(&bench)), (Phase::Staged, 1));
}
