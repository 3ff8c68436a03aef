//! Two administrators who name the box at the same moment.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use warden_domain::{change::Changes, ids::AccountId, names::Names};
use warden_platform::{bus::Bus, names::NamesRoom};
use warden_store::Store;

use crate::bus::TestBus;

/// Takes names; the first one keeps it busy.
struct Hostnamed(Arc<Mutex<Vec<String>>>);

#[zbus::interface(name = "org.freedesktop.hostname1")]
impl Hostnamed {
    async fn set_hostname(&self, name: String, _interactive: bool) {
        let first = {
            let mut given = self.0.lock().unwrap();
            given.push(name);
            given.len() == 1
        };
        if first {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    #[zbus(property)]
    fn hostname(&self) -> String {
        self.0.lock().unwrap().last().cloned().unwrap_or_default()
    }
}

#[tokio::test]
async fn a_name_that_a_full_disk_does_not_take_is_not_in_use_either() {
    let bus = TestBus::start();
    let given: Arc<Mutex<Vec<String>>> = Arc::default();
    let service = bus.builder().serve_at("/org/freedesktop/hostname1", Hostnamed(Arc::clone(&given))).name("org.freedesktop.hostname1");
    let _service = service.build().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let room = NamesRoom::start(Arc::new(Bus::at(bus.address.clone())), store.clone(), Changes::new(), "box".into());
    let admin = AccountId::from_stored("acc_ada");
    room.set(Some("one".into()), &admin).await.unwrap();
    let file = warden_store::rusqlite::Connection::open(folder.path().join("config.db")).unwrap();
    file.execute_batch("CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(FAIL, 'full'); END").unwrap();
    room.set(Some("two".into()), &admin).await.unwrap_err();
    assert_eq!(given.lock().unwrap().last().map(String::as_str), Some("one"));
    assert_eq!(room.document().await.wanted.as_deref(), Some("one"));
}

#[tokio::test]
async fn two_admins_who_rename_the_box_at_once_leave_it_with_the_name_that_is_stored() {
    let bus = TestBus::start();
    let given = Arc::default();
    let service = bus.builder().serve_at("/org/freedesktop/hostname1", Hostnamed(Arc::clone(&given))).name("org.freedesktop.hostname1");
    let _service = service.build().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let room = NamesRoom::start(Arc::new(Bus::at(bus.address.clone())), store.clone(), Changes::new(), "box".into());
    let admin = AccountId::from_stored("acc_ada");
    let (slow, quick) = tokio::join!(room.set(Some("one".into()), &admin), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        room.set(Some("two".into()), &admin).await
    });
    slow.unwrap();
    quick.unwrap();
    let stored = store.read(|db| warden_store::settings::get(db, "names.hostname")).await.unwrap();
    assert_eq!(stored.as_deref(), given.lock().unwrap().last().map(String::as_str));
}
