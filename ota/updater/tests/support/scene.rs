//! Boxes with a channel and a stand-in for RAUC, as far as most tests need them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use warden_update_record::{Phase, Slot};

use super::rauc::State;
use super::server::Server;
use super::{Bench, Publisher, Run};

/// A box of version 1.0.0 that knows of 1.1.0.
pub async fn box_of(name: &str) -> (Publisher, Server, Bench, Run) {
    let publisher = Publisher::new(name);
    publisher.system(1, "1.1.0");
    let server = Server::start(&publisher.path("www")).await;
    let bench = Bench::new(&publisher, true).await;
    let run = bench.start(Slot::A, "one", "1.0.0").await;
    run.follow(&server.address).await;
    assert_eq!(run.check().await, None);
    (publisher, server, bench, run)
}

pub fn set(bench: &Bench, change: impl FnOnce(&mut State)) {
    bench.host.rauc.as_ref().unwrap().set(change);
}

pub fn installs(bench: &Bench) -> usize {
    bench.host.rauc.as_ref().unwrap().installs()
}

/// The same with 1.1.0 installed.
pub async fn staged(name: &str) -> (Publisher, Server, Bench, Run) {
    let (publisher, server, bench, run) = box_of(name).await;
    assert_eq!(run.install().await, None);
    assert_eq!(bench.record().phase(), Phase::Staged);
    (publisher, server, bench, run)
}

/// Waits until the machine was told that the trial is over.
pub async fn told(bench: &Bench) {
    let begun = std::time::Instant::now();
    while bench.host.confirmed.load(Ordering::SeqCst) != 1 {
        assert!(begun.elapsed() < super::PATIENCE);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
