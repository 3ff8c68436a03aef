//! A box whose publisher uses the real release tool, whose server is a real one with faults, and whose RAUC is a stand-in on a private bus.

#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot set itself up should stop")]

pub mod bus;
pub mod rauc;
pub mod scene;
pub mod server;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rauc_client::Rauc;
use sha2::{Digest, Sha256};
use warden_domain::change::Changes;
use warden_domain::ids::TaskId;
use warden_domain::tasks::Tasks;
use warden_domain::update::{UpdatePhase, UpdateSettings, UpdateView, Updates};
use warden_domain::{Problem, ProblemKind, clock};
use warden_update_record::{Outcome, Reason, Record, ServedModel, Slot, TransactionId, Verdict, read, write};
use warden_updater::{BeforeFacts, Host, Machine, Parts, Places, Rules, UpdateRoom};

pub const PATIENCE: Duration = Duration::from_secs(60);

/// A publisher with development keys and a channel folder.
pub struct Publisher {
    folder: tempfile::TempDir,
}

impl Publisher {
    pub fn new(seed: &str) -> Self {
        let publisher = Self { folder: tempfile::tempdir().unwrap() };
        let keys = publisher.text("keys");
        publisher.run(&[
            "keys",
            "init",
            "--dir",
            &keys,
            "--compatible",
            "test-box",
            "--development",
            "--dev-seed",
            seed,
            "--at",
            "2026-01-01T00:00:00Z",
        ]);
        publisher
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub fn run(&self, arguments: &[&str]) {
        let all = ["warden-release"].iter().chain(arguments).map(OsString::from);
        warden_release::run_with(all).unwrap_or_else(|fault| panic!("{arguments:?}: {fault}"));
    }

    /// Publishes release `number` with these targets: kind, name, version, content, more lines.
    pub fn publish(&self, number: u64, more: &str, targets: &[(&str, &str, &str, &[u8], &str)]) {
        let at = clock::now().to_string();
        let mut recipe = format!("channel = \"stable\"\nversion = {number}\nexpires_days = 365\nfloor = \"1.0.0\"\n{more}\n");
        for (n, (kind, name, version, content, lines)) in targets.iter().enumerate() {
            let file = format!("target-{number}-{n}");
            fs::write(self.path(&file), content).unwrap();
            recipe.push_str(&format!("[[target]]\nkind = \"{kind}\"\nname = \"{name}\"\nversion = \"{version}\"\nfile = \"{file}\"\n{lines}\n"));
        }
        fs::write(self.path("release.toml"), recipe).unwrap();
        let (keys, recipe, release, www) = (self.text("keys"), self.text("release.toml"), self.text("release.json"), self.text("www"));
        self.run(&["sign", "--keys", &keys, "--recipe", &recipe, "--out", &release, "--at", &at]);
        self.run(&["publish", "--keys", &keys, "--recipe", &recipe, "--release", &release, "--channel", &www, "--at", &at]);
    }

    /// A release with one system of many parts.
    pub fn system(&self, number: u64, version: &str) -> Vec<u8> {
        let content = image(version);
        self.publish(number, "", &[("os", "lm-warden", version, &content, "data_schema = 9")]);
        content
    }

    pub fn bundle(&self, name: &str) -> PathBuf {
        let (www, out) = (self.text("www"), self.text(name));
        self.run(&["bundle", "--channel", &www, "--out", &out]);
        self.path(name)
    }
}

/// 3 MiB that differ with the version.
pub fn image(version: &str) -> Vec<u8> {
    bytes(version, 3 << 20)
}

/// Bytes that differ with the version.
pub fn bytes(version: &str, length: usize) -> Vec<u8> {
    let mut state = version.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33).to_le_bytes()[0]
    })
    .take(length)
    .collect()
}

pub fn sha256(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}

/// The machine a box runs on, as a test wants it.
pub struct TestHost {
    pub rauc: Option<rauc::Service>,
    pub restarts: AtomicUsize,
    pub refuse_restart: Mutex<bool>,
    pub went_back: AtomicUsize,
    pub taken_back: AtomicUsize,
    pub confirmed: AtomicUsize,
    /// Copies of the data that were begun.
    pub copies: AtomicUsize,
    pub refuse_copy: Mutex<bool>,
    /// Each copy takes so long.
    pub copy_takes: Mutex<Duration>,
}

#[async_trait]
impl Host for TestHost {
    fn cannot_install(&self) -> Option<String> {
        self.rauc.is_none().then(|| "This machine has no slots.".to_owned())
    }

    async fn rauc(&self) -> Result<Rauc, Problem> {
        match &self.rauc {
            Some(service) => Ok(service.rauc.clone()),
            None => Err(Problem::new(ProblemKind::SystemService, "There is no update service.")),
        }
    }

    async fn clock_confirmed(&self) -> bool {
        false
    }

    async fn before(&self) -> BeforeFacts {
        let served_models = vec![ServedModel { name: "tiny".to_owned(), ready_after_s: None }];
        BeforeFacts { console_port: 443, served_models, ..BeforeFacts::default() }
    }

    fn in_flight(&self) -> usize {
        0
    }

    async fn restart(&self) -> Result<(), Problem> {
        if *self.refuse_restart.lock().unwrap() {
            return Err(Problem::new(ProblemKind::SystemService, "The log-in service refused."));
        }
        self.restarts.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn other_slot_next(&self) -> Result<(), Problem> {
        self.went_back.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn other_slot_never(&self) -> Result<(), Problem> {
        self.taken_back.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn keep_data(&self) -> Result<(), Problem> {
        self.copies.fetch_add(1, Ordering::SeqCst);
        let takes = *self.copy_takes.lock().unwrap();
        tokio::time::sleep(takes).await;
        if *self.refuse_copy.lock().unwrap() { Err(Problem::new(ProblemKind::DiskFull, "There is no room for the copy.")) } else { Ok(()) }
    }

    async fn confirmed(&self) {
        self.confirmed.fetch_add(1, Ordering::SeqCst);
    }
}

/// A box: its folders outlive its runs.
pub struct Bench {
    folder: tempfile::TempDir,
    pub host: Arc<TestHost>,
    /// Whether the boot loader counts the starts; unless a test says so, those of the slot that is tried, B.
    pub counted: Option<bool>,
}

impl Bench {
    /// Born with the publisher's root; with a stand-in for RAUC when asked for.
    pub async fn new(publisher: &Publisher, with_rauc: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["state", "health", "boot", "files", "packs", "models", "trust"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::copy(publisher.path("keys/root.1.json"), folder.path().join("trust/root.json")).unwrap();
        let build = r#"{"build_epoch": 1767225600, "compatible": "test-box", "channel": "stable", "development": true, "data_schema": 9}"#;
        fs::write(folder.path().join("trust/build.json"), build).unwrap();
        let rauc = if with_rauc { Some(rauc::Service::new().await) } else { None };
        let host = TestHost {
            rauc,
            restarts: AtomicUsize::new(0),
            refuse_restart: Mutex::new(false),
            went_back: AtomicUsize::new(0),
            taken_back: AtomicUsize::new(0),
            confirmed: AtomicUsize::new(0),
            copies: AtomicUsize::new(0),
            refuse_copy: Mutex::default(),
            copy_takes: Mutex::default(),
        };
        Self { folder, host: Arc::new(host), counted: None }
    }

    pub fn places(&self) -> Places {
        let of = |name: &str| self.folder.path().join(name);
        Places {
            state: of("state"),
            health: of("health"),
            boot: of("boot"),
            files: of("files"),
            packs: of("packs"),
            models: of("models"),
            trust: of("trust"),
        }
    }

    /// A run of the agent in a slot and boot.
    pub async fn start(&self, slot: Slot, boot: &str, version: &str) -> Run {
        self.start_with(slot, boot, version, quick()).await
    }

    pub async fn start_with(&self, slot: Slot, boot: &str, version: &str, rules: Rules) -> Run {
        let changes = Changes::new();
        let tasks = Tasks::new(changes.clone());
        let machine = Machine {
            version: version.to_owned(),
            slot: Some(slot),
            boot_id: boot.to_owned(),
            counted: self.counted.unwrap_or(slot == Slot::B),
            id: "box-1".to_owned(),
            data_needs: 1,
        };
        let parts = Parts {
            places: self.places(),
            machine,
            host: self.host.clone(),
            changes,
            tasks: tasks.clone(),
            rules,
            stall: PATIENCE,
            left_behind: None,
        };
        let room = UpdateRoom::open(parts).await.unwrap();
        Run { room, tasks }
    }

    pub fn record(&self) -> Record {
        read(&self.places().state).unwrap().unwrap_or_default()
    }

    pub fn put_record(&self, record: &Record) {
        write(&self.places().state, record).unwrap();
    }

    pub fn verdict(&self, transaction: &TransactionId, boot: &str, outcome: Outcome) {
        let reason = (outcome == Outcome::Bad).then(|| Reason { code: "console".into(), sentence: "The console did not answer.".into() });
        let verdict = Verdict {
            transaction: Some(transaction.clone()),
            boot_id: boot.to_owned(),
            slot: Slot::B,
            version: "1.1.0".into(),
            at: clock::now(),
            outcome,
            reason,
            checks: Vec::new(),
        };
        write(&self.places().health, &verdict).unwrap();
    }

    pub fn part(&self, content: &[u8]) -> PathBuf {
        self.places().files.join("targets").join(format!("{}.part", sha256(content)))
    }
}

/// Rules that do not make a test wait.
pub fn quick() -> Rules {
    Rules { least: 1 << 10, window: Duration::from_secs(2), limit: None, tries: 3, pause: Duration::from_millis(20) }
}

/// One run of the agent.
pub struct Run {
    pub room: Arc<UpdateRoom>,
    pub tasks: Tasks,
}

impl Run {
    pub async fn follow(&self, address: &str) {
        let settings = UpdateSettings { channel_url: Some(address.to_owned()), ..UpdateSettings::default() };
        self.room.configure(settings).await.unwrap();
    }

    /// Waits for the end of a task: its failure, or nothing.
    pub async fn ended(&self, task: &TaskId) -> Option<String> {
        let begun = Instant::now();
        loop {
            let steps = self.tasks.get(task).unwrap();
            if steps.over() {
                return steps.failure;
            }
            assert!(begun.elapsed() < PATIENCE, "{steps:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn check(&self) -> Option<String> {
        let task = self.room.check().await.unwrap();
        self.ended(&task).await
    }

    pub async fn install(&self) -> Option<String> {
        let task = self.room.install(None).await.unwrap();
        self.ended(&task).await
    }

    pub async fn view(&self) -> UpdateView {
        self.room.view().await
    }

    /// Waits until a transfer got so far.
    pub async fn progress(&self, done: u64) {
        let begun = Instant::now();
        while self.view().await.progress.is_none_or(|progress| progress.done < done) {
            assert!(begun.elapsed() < PATIENCE, "{done} bytes were not reached: {:?}", self.view().await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until this is the newest line of the history.
    pub async fn happened(&self, outcome: &str) -> UpdateView {
        let begun = Instant::now();
        loop {
            let view = self.view().await;
            if view.history.first().is_some_and(|line| line.outcome == outcome) {
                return view;
            }
            assert!(begun.elapsed() < PATIENCE, "{outcome} did not happen: {:?}", view.history);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn wait(&self, phase: UpdatePhase) -> UpdateView {
        let begun = Instant::now();
        loop {
            let view = self.view().await;
            if view.phase == phase {
                return view;
            }
            assert!(begun.elapsed() < PATIENCE, "{} instead of {}: {:?}", view.phase.as_str(), phase.as_str(), view.fault);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// All files below a folder.
pub fn names(folder: &Path) -> Vec<String> {
    let mut all: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    all.sort();
    all
}
