//! A network service that is restarted while a change waits for its confirmation: it forgets its checkpoints, keeps profiles that were
//! only tried, and gives everything new numbers.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use warden_domain::{
    ProblemKind,
    change::Changes,
    ids::AccountId,
    network::{ChangeRequest, InterfaceConfig, LastChange, Network},
};
use warden_platform::{
    bus::Bus,
    network::{NetworkParts, NetworkRoom},
};
use warden_store::Store;
use zbus::{OwnedObjectPath, OwnedVariant, Variant, fdo};

use crate::bus::{TestBus, until};

const NM: &str = "org.freedesktop.NetworkManager";
const ROOT: &str = "/org/freedesktop/NetworkManager";
const NUMBERS: u32 = 40;

type Settings = HashMap<String, HashMap<String, OwnedVariant>>;

#[derive(Default)]
struct State {
    /// By number: settings, and whether they lie on the disk.
    profiles: BTreeMap<u32, (Settings, bool)>,
    active: u32,
    checkpoints: Vec<u32>,
    last: u32,
}

impl State {
    fn next(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    fn forget_tried(&mut self) {
        self.profiles.retain(|_, (_, saved)| *saved);
        self.active = *self.profiles.keys().next().unwrap();
    }

    /// Everything as after a crash and a start of the real service.
    fn restart(&mut self) {
        self.checkpoints.clear();
        let before = std::mem::take(&mut self.profiles);
        for (number, profile) in before {
            let new = self.next();
            if number == self.active {
                self.active = new;
            }
            self.profiles.insert(new, profile);
        }
    }

    fn uuids(&self) -> Vec<String> {
        self.profiles.values().map(|(settings, _)| uuid(settings)).collect()
    }
}

fn uuid(settings: &Settings) -> String {
    let Variant::Str(uuid) = &*settings["connection"]["uuid"] else { panic!("no UUID") };
    uuid.to_string()
}

type Shared = Arc<Mutex<State>>;

fn path(kind: &str, number: u32) -> OwnedObjectPath {
    OwnedObjectPath::try_from(format!("{ROOT}/{kind}/{number}")).unwrap()
}

fn number(path: &OwnedObjectPath) -> u32 {
    path.as_str().rsplit('/').next().unwrap().parse().unwrap()
}

fn owned<'a>(value: impl Into<Variant<'a>>) -> OwnedVariant {
    OwnedVariant::try_from(value.into()).unwrap()
}

struct Listing(Shared);

#[zbus::interface(name = "org.freedesktop.DBus.ObjectManager")]
impl Listing {
    fn get_managed_objects(&self) -> HashMap<OwnedObjectPath, HashMap<String, HashMap<String, OwnedVariant>>> {
        let state = self.0.lock().unwrap();
        let of = |items: Vec<(&str, OwnedVariant)>| items.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<HashMap<_, _>>();
        let active = path("ActiveConnection", state.active);
        let device = of(vec![
            ("Interface", owned("eth0")),
            ("DeviceType", owned(1u32)),
            ("State", owned(100u32)),
            ("ActiveConnection", owned(active.as_ref())),
        ]);
        let mut all = HashMap::from([
            (path("Devices", 1), HashMap::from([(format!("{NM}.Device"), device)])),
            (active, HashMap::from([(format!("{NM}.Connection.Active"), of(vec![("Connection", owned(path("Settings", state.active).as_ref()))]))])),
        ]);
        for (number, (_, saved)) in &state.profiles {
            let file = if *saved { "/etc/NetworkManager/x.nmconnection" } else { "/run/NetworkManager/system-connections/x.nmconnection" };
            let facts = of(vec![("Unsaved", owned(!saved)), ("Filename", owned(file))]);
            all.insert(path("Settings", *number), HashMap::from([(format!("{NM}.Settings.Connection"), facts)]));
        }
        for number in &state.checkpoints {
            all.insert(path("Checkpoint", *number), HashMap::from([(format!("{NM}.Checkpoint"), HashMap::new())]));
        }
        all
    }
}

struct Manager(Shared);

#[zbus::interface(name = "org.freedesktop.NetworkManager")]
impl Manager {
    fn checkpoint_create(&self, _devices: Vec<OwnedObjectPath>, _timeout: u32, _flags: u32) -> OwnedObjectPath {
        let mut state = self.0.lock().unwrap();
        let new = state.next();
        state.checkpoints.push(new);
        path("Checkpoint", new)
    }

    fn checkpoint_destroy(&self, checkpoint: OwnedObjectPath) -> fdo::Result<()> {
        self.take(&checkpoint).map(drop)
    }

    fn checkpoint_rollback(&self, checkpoint: OwnedObjectPath) -> fdo::Result<HashMap<String, u32>> {
        self.take(&checkpoint)?;
        self.0.lock().unwrap().forget_tried();
        Ok(HashMap::new())
    }

    fn activate_connection(&self, profile: OwnedObjectPath, _device: OwnedObjectPath, _specific: OwnedObjectPath) -> OwnedObjectPath {
        self.0.lock().unwrap().active = number(&profile);
        path("ActiveConnection", number(&profile))
    }
}

impl Manager {
    fn take(&self, checkpoint: &OwnedObjectPath) -> fdo::Result<()> {
        let mut state = self.0.lock().unwrap();
        let place = state.checkpoints.iter().position(|held| *held == number(checkpoint));
        let place = place.ok_or_else(|| fdo::Error::Failed("no such checkpoint".into()))?;
        state.checkpoints.remove(place);
        Ok(())
    }
}

struct Profiles(Shared);

#[zbus::interface(name = "org.freedesktop.NetworkManager.Settings")]
impl Profiles {
    fn add_connection2(
        &self,
        settings: Settings,
        _flags: u32,
        _args: HashMap<String, OwnedVariant>,
    ) -> (OwnedObjectPath, HashMap<String, OwnedVariant>) {
        let mut state = self.0.lock().unwrap();
        let new = state.next();
        state.profiles.insert(new, (settings, false));
        (path("Settings", new), HashMap::new())
    }
}

struct Profile(Shared, u32);

#[zbus::interface(name = "org.freedesktop.NetworkManager.Settings.Connection")]
impl Profile {
    fn get_settings(&self) -> fdo::Result<Settings> {
        let state = self.0.lock().unwrap();
        state.profiles.get(&self.1).map(|(settings, _)| settings.clone()).ok_or_else(|| fdo::Error::UnknownObject("gone".into()))
    }

    fn update2(&self, _settings: Settings, _flags: u32, _args: HashMap<String, OwnedVariant>) -> fdo::Result<HashMap<String, OwnedVariant>> {
        let mut state = self.0.lock().unwrap();
        state.profiles.get_mut(&self.1).ok_or_else(|| fdo::Error::UnknownObject("gone".into()))?.1 = true;
        Ok(HashMap::new())
    }

    fn delete(&self) -> fdo::Result<()> {
        let mut state = self.0.lock().unwrap();
        state.profiles.remove(&self.1).ok_or_else(|| fdo::Error::UnknownObject("gone".into()))?;
        if state.active == self.1 {
            state.active = *state.profiles.keys().next().unwrap();
        }
        Ok(())
    }
}

fn request() -> ChangeRequest {
    ChangeRequest {
        interface: "eth0".into(),
        wanted: InterfaceConfig { search: vec!["example.com".into()], ..InterfaceConfig::default() },
        window: Duration::from_secs(60),
        arrived_on: None,
        account: AccountId::from_stored("acc_ada"),
    }
}

struct Bench {
    bus: TestBus,
    folder: tempfile::TempDir,
    store: Store,
    state: Shared,
    _service: zbus::Connection,
}

impl Bench {
    async fn new() -> Self {
        let bus = TestBus::start();
        let state = Shared::default();
        let connection = [("id", "first"), ("uuid", "uuid-first"), ("type", "802-3-ethernet"), ("interface-name", "eth0")];
        let settings = [
            ("connection".to_owned(), connection.into_iter().map(|(k, v)| (k.to_owned(), owned(v))).collect()),
            ("ipv4".to_owned(), HashMap::from([("method".to_owned(), owned("auto"))])),
        ];
        {
            let mut state = state.lock().unwrap();
            state.active = state.next();
            state.profiles.insert(1, (settings.into(), true));
        }
        let mut builder = bus
            .builder()
            .serve_at("/org/freedesktop", Listing(state.clone()))
            .serve_at(ROOT, Manager(state.clone()))
            .serve_at(format!("{ROOT}/Settings"), Profiles(state.clone()));
        for number in 1..=NUMBERS {
            builder = builder.serve_at(path("Settings", number), Profile(state.clone(), number));
        }
        let service = builder.name(NM).build().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        Self { bus, folder, store, state, _service: service }
    }

    fn parts(&self) -> NetworkParts {
        NetworkParts {
            bus: Arc::new(Bus::at(self.bus.address.clone())),
            store: self.store.clone(),
            changes: Changes::new(),
            state_dir: self.folder.path().to_owned(),
            console_url: Arc::new(|ip| format!("https://{ip}/ui/")),
        }
    }

    /// Begins a change and waits until it is in use; its token.
    async fn try_change(&self, room: &NetworkRoom) -> String {
        let begun = room.change(request()).await.unwrap();
        self.is_tried().await;
        begun.token.expose().clone()
    }

    async fn is_tried(&self) {
        until("the new profile is in use", async || self.active() != "uuid-first").await;
    }

    fn active(&self) -> String {
        let state = self.state.lock().unwrap();
        uuid(&state.profiles[&state.active].0)
    }

    /// Waits for the end of the change, which has to leave the first profile alone and in use.
    async fn is_back(&self, room: &NetworkRoom) -> LastChange {
        until("the change is over", async || {
            let document = room.document().await;
            document.pending.is_none() && document.last.is_some()
        })
        .await;
        assert_eq!(self.state.lock().unwrap().uuids(), ["uuid-first"]);
        assert_eq!(self.active(), "uuid-first");
        let last = room.document().await.last.unwrap();
        assert!(!last.kept, "{last:?}");
        last
    }
}

#[tokio::test]
async fn a_network_service_that_is_restarted_in_the_window_does_not_leave_unconfirmed_settings_behind() {
    let bench = Bench::new().await;
    let room = NetworkRoom::start(bench.parts());
    let token = bench.try_change(&room).await;
    bench.state.lock().unwrap().restart();
    let last = bench.is_back(&room).await;
    assert!(last.sentence.contains("old settings are back"), "{last:?}");
    assert_eq!(room.confirm(&token, None).await.unwrap_err().kind, ProblemKind::NotFound);
    bench.try_change(&room).await;
    room.undo().await.unwrap();
    bench.is_back(&room).await;
}

#[tokio::test]
async fn undoing_works_right_after_the_network_service_was_restarted() {
    let bench = Bench::new().await;
    let room = NetworkRoom::start(bench.parts());
    bench.try_change(&room).await;
    bench.state.lock().unwrap().restart();
    let last = room.undo().await.unwrap();
    assert!(last.sentence.contains("the old settings are back"), "{last:?}");
    bench.is_back(&room).await;
}

#[tokio::test]
async fn an_agent_that_comes_back_does_not_take_a_tried_profile_for_a_confirmed_one() {
    let bench = Bench::new().await;
    let (parts, dying) = (bench.parts(), tokio::runtime::Runtime::new().unwrap());
    dying.spawn(async move { NetworkRoom::start(parts).change(request()).await.map(drop) }).await.unwrap().unwrap();
    bench.is_tried().await;
    // The agent dies, and the network service is started anew meanwhile.
    dying.shutdown_background();
    bench.state.lock().unwrap().restart();
    let last = bench.is_back(&NetworkRoom::start(bench.parts())).await;
    assert!(last.sentence.contains("agent was restarted"), "{last:?}");
}
