//! The room over a real store and ports in memory: what is found is kept, told once, and survives restarts.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "../../../tests/fakes/ports.rs"]
mod ports;

use std::{
    net::IpAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use ports::World;
use warden_domain::{
    alert::{Alerts, DeliveryState, NewAlertConfig},
    ids::AccountId,
    issue::{Check, Finding, IssueCode, Issues, Looked, Said},
    model::StateWord,
};
use warden_monitor::{Appliance, Monitor, MonitorParts};
use warden_store::Store;

/// A check whose answer a test sets.
struct Told(Arc<Mutex<Looked>>);

#[async_trait]
impl Check for Told {
    fn codes(&self) -> &'static [IssueCode] {
        &[IssueCode::UnitFailed]
    }

    async fn look(&self) -> Looked {
        self.0.lock().unwrap().clone()
    }
}

struct Bench {
    folder: tempfile::TempDir,
    world: World,
    answer: Arc<Mutex<Looked>>,
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), world: World::claimed(), answer: Arc::new(Mutex::new(Looked::Seen(Vec::new()))) }
    }

    fn fail(&self, unit: &str) {
        let finding = Finding {
            code: IssueCode::UnitFailed,
            subject: unit.into(),
            said: Said::UnitFailed { unit: unit.to_owned() },
            hint: "Restart.".into(),
            fix: None,
        };
        *self.answer.lock().unwrap() = Looked::Seen(vec![finding]);
    }

    fn heal(&self) {
        *self.answer.lock().unwrap() = Looked::Seen(Vec::new());
    }

    /// The room over the bench's store, as after a start of the agent. The check of services is the bench's own, so it comes last.
    async fn start(&self) -> (Arc<Monitor>, Store) {
        let store = Store::open(self.folder.path()).unwrap();
        let ports = Arc::new(self.world.clone());
        let monitor = Monitor::start(MonitorParts {
            store: store.clone(),
            changes: self.world.changes.clone(),
            registry: ports.clone(),
            serving: ports.clone(),
            engines: ports.clone(),
            front: ports,
            time: Arc::new(ports::network::Place::default()),
            appliance: Appliance::No,
            data_dir: self.folder.path().to_owned(),
            state_dir: self.folder.path().to_owned(),
            addresses: Arc::new(Vec::<IpAddr>::new),
            loopback_only: true,
            box_name: Arc::new(|| "test-box".to_owned()),
            version: "0",
            more_checks: vec![Arc::new(Told(self.answer.clone()))],
        })
        .await
        .unwrap();
        (monitor, store)
    }
}

fn admin() -> AccountId {
    AccountId::from_stored("acc_ada")
}

fn failed(monitor: &Monitor) -> Vec<String> {
    let board = monitor.board();
    board.open.iter().filter(|issue| issue.finding.code == IssueCode::UnitFailed).map(|issue| issue.id.to_string()).collect()
}

#[tokio::test]
async fn an_issue_keeps_its_identity_over_a_restart_and_ends_after_it() {
    let bench = Bench::new();
    bench.fail("a.service");
    let (monitor, store) = bench.start().await;
    monitor.check_now().await.unwrap();
    let before = failed(&monitor);
    assert_eq!(before.len(), 1);
    drop(monitor);
    store.close().await;

    let (monitor, _store) = bench.start().await;
    assert_eq!(failed(&monitor), before, "it is there before the first look");
    monitor.check_now().await.unwrap();
    assert_eq!(failed(&monitor), before);
    bench.heal();
    monitor.check_now().await.unwrap();
    assert!(failed(&monitor).is_empty());
    assert_eq!(monitor.resolved(10).await.unwrap()[0].id.to_string(), before[0]);
}

#[tokio::test]
async fn a_model_that_dies_is_an_issue_within_a_moment_without_being_asked_for() {
    let bench = Bench::new();
    let (monitor, _store) = bench.start().await;
    monitor.check_now().await.unwrap();
    bench.world.add_model("tiny", None, Some(StateWord::Failed));
    let begun = Instant::now();
    while !monitor.board().open.iter().any(|issue| issue.finding.code == IssueCode::ModelFailed) {
        assert!(begun.elapsed() < Duration::from_secs(10), "no issue after 10 s");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_alert_is_queued_once_per_appearance_also_over_a_restart() {
    let bench = Bench::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (monitor, store) = bench.start().await;
    let url = format!("http://127.0.0.1:{port}/");
    let secret = monitor.set(&admin(), NewAlertConfig { enabled: true, url, codes: None, new_secret: false }).await.unwrap();
    assert!(secret.unwrap().expose().starts_with("whsec_"));
    bench.fail("a.service");
    monitor.check_now().await.unwrap();
    monitor.check_now().await.unwrap();
    drop(monitor);
    store.close().await;

    let (monitor, _store) = bench.start().await;
    monitor.check_now().await.unwrap();
    bench.heal();
    monitor.check_now().await.unwrap();
    let state = monitor.state(20).await.unwrap();
    let events: Vec<&str> =
        state.latest.iter().filter(|d| d.code.as_deref() == Some("unit_failed")).map(|delivery| delivery.event.as_str()).collect();
    assert_eq!(events, ["issue.resolved", "issue.opened"]);
    assert_eq!(state.waiting, state.latest.len(), "{:?}", state.latest);

    let off = NewAlertConfig { enabled: false, url: String::new(), codes: None, new_secret: false };
    assert!(monitor.set(&admin(), off).await.unwrap().is_none());
    let state = monitor.state(20).await.unwrap();
    assert!(state.waiting == 0 && state.latest.iter().all(|delivery| matches!(delivery.state, DeliveryState::GivenUp { .. })));
}

#[tokio::test]
async fn whoever_dismisses_an_issue_that_is_over_is_told_so() {
    let bench = Bench::new();
    bench.fail("a.service");
    let (monitor, _store) = bench.start().await;
    monitor.check_now().await.unwrap();
    let id = monitor.board().open.iter().find(|issue| issue.finding.code == IssueCode::UnitFailed).unwrap().id.clone();
    let dismissed = monitor.dismiss(&admin(), &id, Some("known")).await.unwrap();
    assert_eq!(dismissed.dismissed.unwrap().reason.as_deref(), Some("known"));
    let open = monitor.board();
    assert!(open.open.iter().any(|issue| issue.id == id) && open.open.iter().all(|issue| issue.id != id || !issue.needs_somebody()));
    bench.heal();
    monitor.check_now().await.unwrap();
    assert_eq!(monitor.recall(&admin(), &id).await.unwrap_err().kind, warden_domain::ProblemKind::NotFound);
    assert_eq!(monitor.fix(&admin(), &id).await.unwrap_err().kind, warden_domain::ProblemKind::NotFound);
}

#[tokio::test]
async fn a_certificate_that_was_not_made_anew_in_time_is_an_issue_until_it_is() {
    let bench = Bench::new();
    let (monitor, _store) = bench.start().await;
    let ending = |monitor: &Monitor| {
        let board = monitor.board();
        board.open.iter().find(|issue| issue.finding.code == IssueCode::CertificateEnding).map(|issue| issue.finding.said.clone())
    };
    monitor.check_now().await.unwrap();
    assert_eq!(ending(&monitor), None);
    bench.world.edit(|m| m.certificate_days = Some(3));
    monitor.check_now().await.unwrap();
    assert_eq!(ending(&monitor), Some(Said::CertificateEnding { days: 3 }));
    bench.world.edit(|m| m.certificate_days = Some(-1));
    monitor.check_now().await.unwrap();
    assert_eq!(ending(&monitor), Some(Said::CertificateEnded {}));
    bench.world.edit(|m| m.certificate_days = None);
    monitor.check_now().await.unwrap();
    assert_eq!(ending(&monitor), None);
}

/// A receiver that takes everything; gives the delivery ids it heard. `first` runs before the first answer.
async fn receiver(first: impl Fn() + Send + 'static) -> (u16, Arc<Mutex<Vec<String>>>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let told = heard.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut text, mut piece) = (String::new(), [0u8; 4096]);
            while !text.ends_with('}') {
                let n = stream.read(&mut piece).await.unwrap();
                text.push_str(&String::from_utf8_lossy(&piece[..n]));
            }
            let id = text.lines().find_map(|line| line.strip_prefix("x-warden-delivery: ")).unwrap().to_owned();
            if told.lock().unwrap().is_empty() {
                first();
            }
            told.lock().unwrap().push(id);
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        }
    });
    (port, heard)
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(20), "not within 20 s: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_full_disk_does_not_make_the_box_send_an_alert_again_and_again() {
    let bench = Bench::new();
    let (monitor, _store) = bench.start().await;
    let file = bench.folder.path().join("config.db");
    let filled = file.clone();
    let full = "CREATE TRIGGER full BEFORE UPDATE ON alerts BEGIN SELECT RAISE(FAIL, 'full'); END";
    let (port, heard) = receiver(move || rusqlite(&filled, full)).await;
    let url = format!("http://127.0.0.1:{port}/");
    let codes = Some(vec![IssueCode::UnitFailed]);
    monitor.set(&admin(), NewAlertConfig { enabled: true, url, codes, new_secret: false }).await.unwrap();
    let first = monitor.test(&admin()).await.unwrap().to_string();
    until("the first is heard", || heard.lock().unwrap().len() == 1).await;
    // Every wish wakes the sender; what it cannot note it must not send a second time.
    let second = monitor.test(&admin()).await.unwrap().to_string();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(*heard.lock().unwrap(), std::slice::from_ref(&first));

    rusqlite(&file, "DROP TRIGGER full");
    let third = monitor.test(&admin()).await.unwrap().to_string();
    until("the rest is heard", || heard.lock().unwrap().len() >= 3).await;
    assert_eq!(*heard.lock().unwrap(), [first, second, third]);
    let delivered = |state: &DeliveryState| matches!(state, DeliveryState::Delivered { .. });
    until_state(&monitor, |state| state.waiting == 0 && state.latest.iter().all(|d| delivered(&d.state) && d.tries == 1)).await;
}

async fn until_state(monitor: &Monitor, done: impl Fn(&warden_domain::alert::AlertState) -> bool) {
    let begun = Instant::now();
    while !done(&monitor.state(20).await.unwrap()) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", monitor.state(20).await.unwrap());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Changes the database behind the room's back.
fn rusqlite(file: &std::path::Path, sql: &str) {
    warden_store::rusqlite::Connection::open(file).unwrap().execute_batch(sql).unwrap();
}
