//! One trial from the first look to its end, with made-up eyes and hands and a clock that jumps.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use warden_health::checks::Expected;
use warden_health::facts::{BusNames, Console, Facts, Gpus, Unit};
use warden_health::hands::Hands;
use warden_health::run::{Ended, Eyes, Trial, settle, watch};
use warden_health::times::Times;
use warden_update_record::{Outcome, Slot, Verdict};

/// Sees a healthy system from a moment on; each look takes its time.
struct ComesUpAfter {
    start: Instant,
    healthy_from: Duration,
    look: Duration,
}

impl ComesUpAfter {
    fn new(healthy_from: u64, look: u64) -> Self {
        Self { start: Instant::now(), healthy_from: Duration::from_secs(healthy_from), look: Duration::from_secs(look) }
    }
}

impl Eyes for ComesUpAfter {
    async fn look(&self, expected: &Expected) -> Facts {
        sleep(self.look).await;
        let up = self.start.elapsed() >= self.healthy_from;
        let names = ["org.freedesktop.systemd1", "org.freedesktop.login1", "org.freedesktop.NetworkManager"];
        let others = [
            "de.pengutronix.rauc",
            "org.freedesktop.PolicyKit1",
            "org.freedesktop.UDisks2",
            "org.freedesktop.hostname1",
            "org.freedesktop.resolve1",
            "org.lmwarden.Helper1",
        ];
        Facts {
            slot: Some(Slot::B),
            verity: Ok(true),
            state: Ok(true),
            data: Ok(None),
            agent: Ok(Unit { state: "active".into(), restarts: 0 }),
            failed: Ok(vec![]),
            bus: Ok(BusNames { owned: names.map(str::to_owned).to_vec(), activatable: others.map(str::to_owned).to_vec() }),
            addresses: Ok(vec![]),
            consoles: vec![Console {
                address: [127, 0, 0, 1].into(),
                version: if up { Ok(expected.version.clone()) } else { Err("refused".into()) },
                form: Ok(true),
            }],
            gpus: Ok(Gpus::default()),
            models: vec![],
        }
    }

    async fn agent_answers(&self) -> Result<(), String> {
        if self.start.elapsed() >= self.healthy_from { Ok(()) } else { Err("refused".into()) }
    }
}

/// Writes down what it is told to do, and whether a verdict lay there by then.
struct Recorder<'a> {
    folder: &'a Path,
    other: Result<bool, String>,
    mark_fails: u32,
    done: Mutex<Vec<String>>,
}

impl<'a> Recorder<'a> {
    fn new(folder: &'a Path) -> Self {
        Self { folder, other: Ok(true), mark_fails: 0, done: Mutex::default() }
    }

    fn done(&self) -> Vec<String> {
        self.done.lock().unwrap().clone()
    }
}

impl Hands for Recorder<'_> {
    async fn other_is_good(&self) -> Result<bool, String> {
        self.other.clone()
    }

    async fn mark(&self, good: bool) -> Result<(), String> {
        let verdict = warden_update_record::read::<Verdict>(self.folder).unwrap();
        let mut done = self.done.lock().unwrap();
        done.push(format!("mark {} with verdict {}", if good { "good" } else { "bad" }, verdict.is_some()));
        if u32::try_from(done.len()).unwrap() <= self.mark_fails { Err("busy".into()) } else { Ok(()) }
    }

    async fn restart(&self) -> Result<(), String> {
        self.done.lock().unwrap().push("restart".into());
        Ok(())
    }
}

fn trial(folder: &Path, spent: u64) -> Trial {
    Trial {
        expected: Expected { version: "1.1.0".into(), before: None },
        transaction: Some("t-1".into()),
        slot: Slot::B,
        boot_id: "boot".into(),
        times: Times { dwell: Duration::from_secs(10), deadline: Duration::from_secs(120), model: Duration::from_secs(5) },
        spent: Duration::from_secs(spent),
        folder: folder.to_owned(),
    }
}

fn verdict(folder: &Path) -> Verdict {
    warden_update_record::read(folder).unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_system_that_comes_up_is_good_after_its_dwell() {
    let folder = tempfile::tempdir().unwrap();
    let (eyes, hands) = (ComesUpAfter::new(30, 0), Recorder::new(folder.path()));
    let start = Instant::now();
    assert_eq!(watch(&trial(folder.path(), 0), &eyes, &hands).await, Ok(Ended::Good));
    assert!((40..45).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert_eq!(hands.done(), ["mark good with verdict true"]);
    let verdict = verdict(folder.path());
    assert_eq!((verdict.outcome, verdict.reason, verdict.transaction), (Outcome::Good, None, Some("t-1".into())));
}

#[tokio::test(start_paused = true)]
async fn a_system_that_does_not_come_up_is_given_up_at_the_deadline_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let (eyes, hands) = (ComesUpAfter::new(1000, 1), Recorder::new(folder.path()));
    let start = Instant::now();
    let Ok(Ended::Bad(reason)) = watch(&trial(folder.path(), 0), &eyes, &hands).await else { panic!("it was not found bad") };
    assert!((119..=122).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert_eq!(reason.code, "console");
    assert_eq!(hands.done(), ["mark bad with verdict true", "restart"]);
    assert_eq!(verdict(folder.path()).reason, Some(reason));
}

#[tokio::test(start_paused = true)]
async fn a_look_that_never_ends_does_not_stretch_the_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let (eyes, hands) = (ComesUpAfter::new(0, 100_000), Recorder::new(folder.path()));
    let start = Instant::now();
    let Ok(Ended::Bad(reason)) = watch(&trial(folder.path(), 0), &eyes, &hands).await else { panic!("it was not found bad") };
    assert_eq!((start.elapsed().as_secs(), reason.code.as_str()), (120, "deadline"));
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_is_started_again_goes_on_under_the_same_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let (eyes, hands) = (ComesUpAfter::new(1000, 0), Recorder::new(folder.path()));
    let start = Instant::now();
    assert!(matches!(watch(&trial(folder.path(), 100), &eyes, &hands).await, Ok(Ended::Bad(_))));
    assert!((20..=22).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_bad_system_without_another_one_is_left_running() {
    let folder = tempfile::tempdir().unwrap();
    let eyes = ComesUpAfter::new(1000, 0);
    let hands = Recorder { other: Ok(false), ..Recorder::new(folder.path()) };
    assert!(matches!(watch(&trial(folder.path(), 0), &eyes, &hands).await, Ok(Ended::NowhereToGo(_))));
    assert_eq!(hands.done(), Vec::<String>::new());
    assert_eq!(verdict(folder.path()).outcome, Outcome::Bad);
}

#[tokio::test(start_paused = true)]
async fn a_bad_system_restarts_even_if_nothing_is_known_of_the_other_and_marking_fails() {
    let folder = tempfile::tempdir().unwrap();
    let eyes = ComesUpAfter::new(1000, 0);
    let hands = Recorder { other: Err("no bus".into()), mark_fails: u32::MAX, ..Recorder::new(folder.path()) };
    assert!(matches!(watch(&trial(folder.path(), 0), &eyes, &hands).await, Ok(Ended::Bad(_))));
    assert_eq!(hands.done().last().map(String::as_str), Some("restart"));
}

#[tokio::test(start_paused = true)]
async fn marking_good_is_tried_again_and_in_the_end_told() {
    let folder = tempfile::tempdir().unwrap();
    let eyes = ComesUpAfter::new(0, 0);
    let hands = Recorder { mark_fails: 3, ..Recorder::new(folder.path()) };
    assert_eq!(watch(&trial(folder.path(), 0), &eyes, &hands).await, Ok(Ended::Good));
    assert_eq!(hands.done().len(), 4);
    let hands = Recorder { mark_fails: u32::MAX, ..Recorder::new(folder.path()) };
    assert!(watch(&trial(folder.path(), 0), &eyes, &hands).await.is_err());
    assert!(!hands.done().contains(&"restart".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_settled_system_is_marked_once_it_answers_and_waits_for_ever_before() {
    let folder = tempfile::tempdir().unwrap();
    let (eyes, hands) = (ComesUpAfter::new(5000, 0), Recorder::new(folder.path()));
    let start = Instant::now();
    settle(&eyes, &hands, Duration::from_secs(2)).await.unwrap();
    assert!(start.elapsed().as_secs() >= 5000);
    assert_eq!(hands.done(), ["mark good with verdict false"]);
}
