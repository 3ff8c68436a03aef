//! The helper on a bus of its own: what a caller gets, and when the system manager is told to read its files again.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up should stop")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use warden_helper::bus::{self, NAME, PATH};
use warden_helper::places::Places;
use warden_helper::reset::consumer::{World, run};
use warden_helper::reset::desk::{Desk, REQUEST};
use warden_helper::reset::record::Record;
use warden_helper::reset::scope::{Askers, Scope};
use zbus::Connection;
use zbus::connection::Builder;

const DIGEST: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

struct Bus {
    daemon: Child,
    address: String,
}

impl Bus {
    fn start() -> Self {
        let mut daemon = Command::new("dbus-daemon")
            .args(["--session", "--nofork", "--nopidfile", "--print-address"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("dbus-daemon (package dbus) is needed for this test");
        let mut address = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Self { daemon, address: address.trim().to_owned() }
    }

    fn builder(&self) -> Builder<'_> {
        Builder::address(self.address.as_str())
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Stands where the system manager would be and counts.
struct Manager {
    reloads: Arc<AtomicUsize>,
}

#[zbus::interface(name = "org.freedesktop.systemd1.Manager")]
impl Manager {
    fn reload(&self) {
        self.reloads.fetch_add(1, Ordering::Relaxed);
    }
}

struct Bench {
    bus: Bus,
    top: tempfile::TempDir,
    places: Places,
    client: Connection,
}

impl Bench {
    async fn new() -> Self {
        let bus = Bus::start();
        let top = tempfile::tempdir().unwrap();
        let made = |name: &str| {
            fs::create_dir(top.path().join(name)).unwrap();
            top.path().join(name)
        };
        let places = Places {
            packs: made("packs"),
            revoked: top.path().join("revoked"),
            roots: made("roots"),
            engines: made("engines"),
            units: made("units"),
            desk: Desk { state: made("state"), product: top.path().join("product") },
            askers: Askers { screen: u32::MAX, agent: u32::MAX },
        };
        fs::write(places.packs.join(format!("{DIGEST}.raw")), b"pack").unwrap();
        let client = bus.builder().build().await.unwrap();
        Self { bus, top, places, client }
    }

    async fn call(&self, replica: &str, digest: &str, gpus: &[&str], memory: u64) -> Result<(), String> {
        let body = (replica, digest, gpus, memory);
        match self.client.call_method(Some(NAME), PATH, Some(NAME), "ActivatePack", &body).await {
            Ok(_) => Ok(()),
            Err(zbus::Error::MethodError(name, sentence, _)) => Err(format!("{name}: {}", sentence.unwrap_or_default())),
            Err(error) => Err(error.to_string()),
        }
    }
}

#[tokio::test]
async fn an_activation_over_the_bus_reloads_once_per_change() {
    let bench = Bench::new().await;
    let reloads = Arc::new(AtomicUsize::new(0));
    let manager = Manager { reloads: reloads.clone() };
    let _manager = bench.bus.builder().serve_at("/org/freedesktop/systemd1", manager).name("org.freedesktop.systemd1").build().await.unwrap();
    let _service = bus::offer(bench.bus.builder(), bench.places.clone()).await.unwrap();

    bench.call("a-0", DIGEST, &["0"], 0).await.unwrap();
    bench.call("a-0", DIGEST, &["0"], 0).await.unwrap();
    assert_eq!(reloads.load(Ordering::Relaxed), 1);
    bench.call("a-0", DIGEST, &["0", "1"], 4096).await.unwrap();
    assert_eq!(reloads.load(Ordering::Relaxed), 2);
    let drop_in = fs::read_to_string(bench.places.units.join("warden-engine@a-0.service.d/50-warden.conf")).unwrap();
    assert!(drop_in.contains("MemoryMax=4096") && drop_in.contains("DeviceAllow=/dev/nvidia1 rw"));
}

#[tokio::test]
async fn every_refusal_has_its_name_and_a_sentence() {
    let bench = Bench::new().await;
    let _service = bus::offer(bench.bus.builder(), bench.places.clone()).await.unwrap();
    let other = DIGEST.replace('0', "9");
    fs::write(&bench.places.revoked, "").unwrap();
    for (replica, digest, gpu, name) in [
        ("../x", DIGEST, "0", "BadReplica"),
        ("a-0", "../../etc/shadow", "0", "BadDigest"),
        ("a-0", other.as_str(), "0", "NoSuchPack"),
        ("a-0", DIGEST, "sda", "BadGpu"),
    ] {
        let answer = bench.call(replica, digest, &[gpu], 0).await.unwrap_err();
        assert!(answer.starts_with(&format!("org.lmwarden.Helper1.Error.{name}: ")), "{answer}");
    }
    fs::write(&bench.places.revoked, DIGEST).unwrap();
    assert!(bench.call("a-0", DIGEST, &[], 0).await.unwrap_err().contains("Error.Revoked: "));
    assert_eq!(fs::read_dir(&bench.places.roots).unwrap().count(), 0);
    assert!(bench.top.path().join("engines").read_dir().unwrap().next().is_none());
}

#[tokio::test]
async fn settings_the_system_manager_did_not_take_are_announced_again() {
    let bench = Bench::new().await;
    let _service = bus::offer(bench.bus.builder(), bench.places.clone()).await.unwrap();
    // Nobody answers for the system manager here.
    for _ in 0..2 {
        assert!(bench.call("a-0", DIGEST, &[], 0).await.unwrap_err().contains("Error.Io: "));
    }
}

#[tokio::test]
async fn an_idle_helper_gives_its_name_back_and_ends() {
    let bench = Bench::new().await;
    let service = bus::offer(bench.bus.builder(), bench.places.clone()).await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), service.until_idle(Duration::from_millis(50))).await.unwrap().unwrap();
}

impl Bench {
    /// A start of the machine: the consumer looks at what waits.
    fn start(&self) {
        let mut number = 0;
        let mut world = World {
            data: &self.top.path().join("data"),
            data_is_there: &mut || true,
            random: &mut || {
                number += 1;
                [number; 16]
            },
            say: &mut |_| {},
            step: &mut |_| Ok(()),
        };
        run(&self.places.desk, &mut world).unwrap();
    }

    async fn ask(&self, scope: &str) -> Result<String, String> {
        match self.client.call_method(Some(NAME), PATH, Some(NAME), "RequestReset", &(scope, true)).await {
            Ok(answer) => Ok(answer.body().deserialize().unwrap()),
            Err(zbus::Error::MethodError(name, sentence, _)) => Err(format!("{name}: {}", sentence.unwrap_or_default())),
            Err(error) => Err(error.to_string()),
        }
    }

    fn as_user(&mut self, screen: bool) {
        let own = nix::unistd::getuid().as_raw();
        self.places.askers = Askers { screen: if screen { own } else { u32::MAX }, agent: if screen { u32::MAX } else { own } };
    }
}

#[tokio::test]
async fn the_screen_s_wish_waits_for_the_next_start_and_an_early_one_is_refused() {
    let mut bench = Bench::new().await;
    bench.as_user(true);
    fs::create_dir(bench.places.desk.folder()).unwrap();
    let _service = bus::offer(bench.bus.builder(), bench.places.clone()).await.unwrap();
    assert!(bench.ask("network").await.unwrap_err().contains("Error.NoResets"));
    bench.start();
    let id = bench.ask("network").await.unwrap();
    let waiting = Record::parse(&fs::read_to_string(bench.places.desk.folder().join(REQUEST)).unwrap()).unwrap();
    assert_eq!((waiting.id.as_str(), waiting.scope), (id.as_str(), Scope::Network));
    assert!(bench.ask("everything").await.unwrap_err().contains("Error.BadScope"));
}

#[tokio::test]
async fn the_agent_may_ask_for_a_factory_reset_only_and_confirm_an_admin_one() {
    let mut bench = Bench::new().await;
    fs::create_dir(bench.places.desk.folder()).unwrap();
    bench.start();
    bench.places.desk.ask(Scope::Admin, warden_helper::reset::scope::Asker::Screen, [5; 16]).unwrap();
    bench.start();
    let handed = bench.places.desk.journal().unwrap().unwrap().handed().unwrap().record.id.clone();
    bench.as_user(false);
    let _service = bus::offer(bench.bus.builder(), bench.places.clone()).await.unwrap();
    for scope in ["admin", "network"] {
        assert!(bench.ask(scope).await.unwrap_err().contains("Error.ScreenOnly"), "{scope}");
    }
    bench.ask("factory").await.unwrap();
    bench.client.call_method(Some(NAME), PATH, Some(NAME), "ConfirmReset", &handed.as_str()).await.unwrap();
    assert!(bench.places.desk.journal().unwrap().unwrap().handed().is_none());
}

#[tokio::test]
async fn nobody_else_may_ask_for_a_reset() {
    let bench = Bench::new().await;
    fs::create_dir(bench.places.desk.folder()).unwrap();
    bench.start();
    let _service = bus::offer(bench.bus.builder(), bench.places.clone()).await.unwrap();
    assert!(bench.ask("factory").await.unwrap_err().contains("Error.NotYours"));
    assert!(!bench.places.desk.folder().join(REQUEST).exists());
}

/// Stands where RAUC would be: two slots, and a list of what was marked.
struct Updater {
    operation: &'static str,
    other: &'static str,
    marked: Arc<std::sync::Mutex<Vec<String>>>,
}

#[zbus::interface(name = "de.pengutronix.rauc.Installer")]
impl Updater {
    fn get_slot_status(&self) -> Vec<(String, std::collections::HashMap<String, zbus::OwnedVariant>)> {
        let slot = |name: &str, boot: &str, state: &str, status: &str| {
            let of = |text: &str| zbus::OwnedVariant::try_from(zbus::Variant::from(text)).unwrap();
            let facts = [("bootname", boot), ("state", state), ("boot-status", status)];
            (name.to_owned(), facts.into_iter().map(|(key, value)| (key.to_owned(), of(value))).collect())
        };
        vec![slot("rootfs.0", "a", "booted", "good"), slot("rootfs.1", "b", "inactive", self.other)]
    }

    fn mark(&self, state: &str, slot: &str) -> (String, String) {
        self.marked.lock().unwrap().push(format!("{state} {slot}"));
        (slot.to_owned(), String::new())
    }

    #[zbus(property)]
    fn operation(&self) -> &str {
        self.operation
    }
}

impl Bench {
    /// Asks for the other system while the updater is as given; what came, and what was marked.
    async fn go_back(&self, operation: &'static str, other: &'static str) -> (Result<(), String>, Vec<String>) {
        let marked = Arc::default();
        let updater = Updater { operation, other, marked: Arc::clone(&marked) };
        let _updater = self.bus.builder().serve_at("/", updater).name("de.pengutronix.rauc").build().await.unwrap();
        let answer = match self.client.call_method(Some(NAME), PATH, Some(NAME), "Rollback", &()).await {
            Ok(_) => Ok(()),
            Err(zbus::Error::MethodError(name, sentence, _)) => Err(format!("{name}: {}", sentence.unwrap_or_default())),
            Err(error) => Err(error.to_string()),
        };
        let marked = marked.lock().unwrap().clone();
        (answer, marked)
    }
}

#[tokio::test]
async fn the_agent_may_have_the_other_system_started_next_if_it_is_good() {
    let mut bench = Bench::new().await;
    bench.as_user(false);
    let _service = bus::offer(bench.bus.builder(), bench.places.clone()).await.unwrap();
    assert_eq!(bench.go_back("idle", "good").await, (Ok(()), vec!["active rootfs.1".to_owned()]));
    let (answer, marked) = bench.go_back("idle", "bad").await;
    assert!(answer.unwrap_err().contains("Error.NoOtherSystem") && marked.is_empty());
    let (answer, marked) = bench.go_back("installing", "good").await;
    assert!(answer.unwrap_err().contains("Error.Installing") && marked.is_empty());
}

#[tokio::test]
async fn nobody_else_may_have_the_other_system_started() {
    let mut bench = Bench::new().await;
    bench.as_user(true);
    let _service = bus::offer(bench.bus.builder(), bench.places.clone()).await.unwrap();
    let (answer, marked) = bench.go_back("idle", "good").await;
    assert!(answer.unwrap_err().contains("Error.NotYours") && marked.is_empty());
}
