//! The front door as the rest of the agent meets it: what is kept, what follows a rename, what happens when the port cannot be opened.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::{
    net::IpAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use warden_domain::{
    Problem, ProblemKind,
    change::{Changes, Topic},
    front::{Front, FrontConfig, PlainDoor, PlainPort},
    ids::AccountId,
};
use warden_store::Store;
use warden_tls::{Found, FrontRoom, Reason, server_config};

/// The surroundings of a box, changed by a test as a person or a cable would.
#[derive(Clone)]
struct World {
    host: Arc<Mutex<String>>,
    addresses: Arc<Mutex<Vec<IpAddr>>>,
}

impl World {
    fn new() -> Self {
        Self { host: Arc::new(Mutex::new("warden".into())), addresses: Arc::new(Mutex::new(vec!["10.0.0.7".parse().unwrap()])) }
    }

    fn found(&self) -> Found {
        let (host, addresses) = (Arc::clone(&self.host), Arc::clone(&self.addresses));
        Found { host: Box::new(move || host.lock().unwrap().clone()), addresses: Box::new(move || addresses.lock().unwrap().clone()) }
    }
}

/// A door that can be jammed.
#[derive(Default)]
struct Door {
    jammed: AtomicBool,
    open: AtomicBool,
}

#[async_trait]
impl PlainDoor for Door {
    async fn open(&self) -> Result<(), Problem> {
        if self.jammed.load(Ordering::Relaxed) {
            return Err(Problem::new(ProblemKind::SystemService, "It is jammed."));
        }
        self.open.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn close(&self) -> Result<(), Problem> {
        self.open.store(false, Ordering::Relaxed);
        Ok(())
    }
}

async fn room(dir: &Path, world: &World, door: &Arc<Door>, changes: &Changes) -> Arc<FrontRoom> {
    let store = Store::open(dir).unwrap();
    let door: Arc<dyn PlainDoor> = door.clone();
    FrontRoom::open(store, changes.clone(), world.found(), vec!["given.example".into()], Some(dir.join("tls")), Some(door)).await.unwrap()
}

fn admin() -> AccountId {
    AccountId::from_stored("acc_1")
}

#[tokio::test]
async fn a_restart_shows_the_same_authority_and_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let (world, door) = (World::new(), Arc::new(Door::default()));
    let first = room(dir.path(), &world, &door, &Changes::new()).await.state().certificates.unwrap();
    let second = room(dir.path(), &world, &door, &Changes::new()).await.state().certificates.unwrap();
    assert_eq!(first, second);
    assert_eq!(first.names, ["given.example", "localhost", "warden", "warden.local"]);
}

#[tokio::test]
async fn the_certificate_follows_names_and_addresses_and_tells_the_pages() {
    let dir = tempfile::tempdir().unwrap();
    let (world, door, changes) = (World::new(), Arc::new(Door::default()), Changes::new());
    let room = room(dir.path(), &world, &door, &changes).await;
    let before = room.state().certificates.unwrap();
    assert_eq!(room.look().await.unwrap(), None);
    let mut news = changes.subscribe();
    *world.host.lock().unwrap() = "attic".into();
    assert_eq!(room.look().await.unwrap(), Some(Reason::Names));
    assert_eq!(news.try_recv().unwrap(), Topic::Front);
    world.addresses.lock().unwrap().push("fd00::9".parse().unwrap());
    assert_eq!(room.look().await.unwrap(), Some(Reason::Addresses));
    world.addresses.lock().unwrap().clear();
    assert_eq!(room.look().await.unwrap(), None, "a pulled cable changes nothing");
    let after = room.state().certificates.unwrap();
    assert_eq!(after.authority_fingerprint, before.authority_fingerprint);
    assert_ne!(after.leaf_fingerprint, before.leaf_fingerprint);
    assert!(after.names.contains(&"attic.local".to_owned()) && !after.names.contains(&"warden".to_owned()));
    assert!(room.is_own_name("ATTIC.local") && !room.is_own_name("warden.local"));
}

#[tokio::test]
async fn a_damaged_certificate_file_is_replaced_and_the_box_stays_reachable() {
    let dir = tempfile::tempdir().unwrap();
    let (world, door) = (World::new(), Arc::new(Door::default()));
    let before = room(dir.path(), &world, &door, &Changes::new()).await.state().certificates.unwrap();
    std::fs::write(dir.path().join("tls/certificate.json"), "half of a rec").unwrap();
    let after = room(dir.path(), &world, &door, &Changes::new()).await;
    assert!(server_config(&after).unwrap().is_some());
    let after = after.state().certificates.unwrap();
    assert_eq!(after.authority_fingerprint, before.authority_fingerprint);
    assert_ne!(after.leaf_fingerprint, before.leaf_fingerprint);
}

#[tokio::test]
async fn a_disk_that_takes_no_certificate_keeps_neither_the_box_from_starting_nor_its_new_address_from_being_served() {
    let dir = tempfile::tempdir().unwrap();
    let (world, door) = (World::new(), Arc::new(Door::default()));
    drop(room(dir.path(), &world, &door, &Changes::new()).await);
    // A folder where the new file has to be made: as little can be written as on a full disk.
    std::fs::create_dir(dir.path().join("tls/.certificate.json.new")).unwrap();
    *world.addresses.lock().unwrap() = vec!["10.0.0.8".parse().unwrap()];
    let room = room(dir.path(), &world, &door, &Changes::new()).await;
    assert!(room.state().certificates.unwrap().addresses.contains(&"10.0.0.8".parse().unwrap()));
}

#[tokio::test]
async fn an_endless_stream_of_new_addresses_does_not_make_an_endless_stream_of_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let (world, door) = (World::new(), Arc::new(Door::default()));
    let room = room(dir.path(), &world, &door, &Changes::new()).await;
    let mut made = 0;
    for number in 1..=100u16 {
        *world.addresses.lock().unwrap() = vec![IpAddr::from([0x2001, 0xdb8, 0, number, 0, 0, 0, 1])];
        made += usize::from(room.look().await.unwrap().is_some());
    }
    assert!((5..20).contains(&made), "{made}");
    *world.host.lock().unwrap() = "attic".into();
    assert_eq!(room.look().await.unwrap(), Some(Reason::Names), "what an admin does is never put off");
}

#[tokio::test]
async fn an_admins_decision_is_kept_even_when_the_port_cannot_be_opened_now() {
    let dir = tempfile::tempdir().unwrap();
    let (world, door) = (World::new(), Arc::new(Door::default()));
    let first = room(dir.path(), &world, &door, &Changes::new()).await;
    assert_eq!(first.state().plain, PlainPort::Closed);
    door.jammed.store(true, Ordering::Relaxed);
    let wanted = FrontConfig { names: vec!["LLM.example".into()], plain_http: true };
    let refused = first.configure(&admin(), wanted.clone()).await.unwrap_err();
    assert_eq!(refused.kind, ProblemKind::SystemService);
    assert!(matches!(first.state().plain, PlainPort::Failed(_)));
    assert!(first.state().certificates.unwrap().names.contains(&"llm.example".to_owned()));
    drop(first);
    door.jammed.store(false, Ordering::Relaxed);
    let second = room(dir.path(), &world, &door, &Changes::new()).await;
    assert_eq!(second.config(), FrontConfig { names: vec!["llm.example".into()], plain_http: true });
    second.configure(&admin(), second.config()).await.unwrap();
    assert!(door.open.load(Ordering::Relaxed));
    assert_eq!(second.state().plain, PlainPort::Open);
    second.configure(&admin(), FrontConfig::default()).await.unwrap();
    assert!(!door.open.load(Ordering::Relaxed) && !second.is_own_name("llm.example"));
}

#[tokio::test]
async fn a_development_machine_has_names_but_no_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let room = FrontRoom::open(Store::open(dir.path()).unwrap(), Changes::new(), World::new().found(), vec![], None, None).await.unwrap();
    assert!(room.state().certificates.is_none() && server_config(&room).unwrap().is_none());
    assert_eq!(room.state().plain, PlainPort::Only);
    assert!(room.is_own_name("warden.local"));
}
