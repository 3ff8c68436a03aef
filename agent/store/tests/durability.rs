//! What an owner relies on: what was acknowledged is there after a crash, a full disk changes nothing and says so.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

use warden_domain::{
    Problem, ProblemKind,
    access::Role,
    change::{Changes, Topic},
    clock,
    ids::{AccountId, KeyId, ModelId, RequestId},
    key::Key,
    units::{Millis, Tokens},
    usage::{Finished, Ledger, Outcome, UsageTotals},
};
use warden_store::{Store, StoreError, accounts, keys, settings, usage};

const CHILD_DIR: &str = "STORE_TEST_CHILD_DIR";

/// Not a test of its own: the process that `acknowledged_writes_survive_a_kill` kills.
#[tokio::test]
async fn child_that_writes_until_killed() {
    let Ok(dir) = std::env::var(CHILD_DIR) else { return };
    let store = Store::open(dir.as_ref()).unwrap();
    for i in 0..1_000_000u32 {
        store.write(move |tx| settings::set(tx, &format!("n{i}"), "x")).await.unwrap();
        println!("wrote {i}");
    }
}

#[tokio::test]
async fn acknowledged_writes_survive_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_writes_until_killed", "--nocapture"])
        .env(CHILD_DIR, dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut last = None;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if let Some((_, n)) = line.split_once("wrote ") {
            let n: u32 = n.trim().parse().unwrap();
            last = Some(n);
            if n >= 30 {
                break;
            }
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let last = last.expect("the child wrote something");
    let store = Store::open(dir.path()).unwrap();
    for i in 0..=last {
        assert!(store.read(move |db| settings::get(db, &format!("n{i}"))).await.unwrap().is_some(), "write {i} was acknowledged and is gone");
    }
}

#[tokio::test]
async fn a_full_disk_changes_nothing_and_reads_still_work() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    store.write(|tx| settings::set(tx, "kept", "1")).await.unwrap();
    limit_pages(&store, 1).await;
    let error = store
        .write(|tx| {
            settings::set(tx, "kept", "2")?;
            settings::set(tx, "big", &"x".repeat(200_000))
        })
        .await
        .unwrap_err();
    assert_eq!(Problem::from(error).kind, ProblemKind::DiskFull);
    assert!(!dir.path().join("reserve").exists(), "what was kept back is given away, so that somebody can sign in and make room");
    assert_eq!(store.read(|db| settings::get(db, "kept")).await.unwrap().as_deref(), Some("1"));
    assert_eq!(store.read(|db| settings::get(db, "big")).await.unwrap(), None);
    limit_pages(&store, 1_000_000).await;
    store.write(|tx| settings::set(tx, "kept", "2")).await.expect("it works again once there is room");
}

#[tokio::test]
async fn charges_wait_for_room_on_a_full_disk_and_are_made_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let key = make_key(&store, "app").await;
    let ledger = store.ledger(&Changes::new());
    limit_pages(&store, 1).await;
    for _ in 0..400 {
        ledger.open().unwrap().finish(finished(&key, Some(7)));
    }
    assert!(matches!(ledger.flush().await, Err(StoreError::DiskFull)));
    limit_pages(&store, 1_000_000).await;
    ledger.flush().await.unwrap();
    ledger.flush().await.unwrap();
    let sums = totals(&store, &key).await;
    assert_eq!((sums.requests, sums.prompt.0, sums.requests_without_counts), (400, 2800, 0));
}

#[tokio::test]
async fn a_charge_reaches_the_disk_by_itself_within_a_second_and_pages_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let key = make_key(&store, "app").await;
    let changes = Changes::new();
    let mut news = changes.subscribe();
    let ledger = store.ledger(&changes);
    ledger.open().unwrap().finish(finished(&key, None));
    let topic = tokio::time::timeout(Duration::from_secs(2), news.recv()).await.unwrap().unwrap();
    assert_eq!(topic, Topic::Keys);
    let sums = totals(&store, &key).await;
    assert_eq!((sums.requests, sums.requests_without_counts), (1, 1));
    let id = key.clone();
    let used = store.read(move |db| keys::get(db, &id)).await.unwrap().unwrap().last_used_at.expect("the key was used");
    assert_eq!(used.as_second() % 60, 0, "kept to the minute");
}

#[tokio::test]
async fn closing_finishes_what_was_handed_over_and_refuses_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let key = make_key(&store, "app").await;
    let ledger = store.ledger(&Changes::new());
    ledger.open().unwrap().finish(finished(&key, Some(1)));
    ledger.flush().await.unwrap();
    store.close().await;
    assert!(matches!(store.write(|_| Ok(())).await, Err(StoreError::Closed)));
    assert!(matches!(store.read(|_| Ok(())).await, Err(StoreError::Closed)));
    let again = Store::open(dir.path()).unwrap();
    assert_eq!(totals(&again, &key).await.requests, 1);
}

#[tokio::test]
async fn a_panic_in_one_write_undoes_it_and_the_next_write_works() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let broke = store
        .write(|tx| -> Result<(), StoreError> {
            settings::set(tx, "half", "1")?;
            panic!("meant to");
        })
        .await;
    assert!(matches!(broke, Err(StoreError::Broke)));
    store.write(|tx| settings::set(tx, "whole", "1")).await.unwrap();
    assert_eq!(store.read(|db| settings::get(db, "half")).await.unwrap(), None);
}

#[tokio::test]
async fn a_name_in_use_is_told_apart_from_other_faults() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    make_key(&store, "app").await;
    let account = store.read(|db| accounts::by_username(db, "ADMIN")).await.unwrap().unwrap();
    let again = store.write(move |tx| keys::insert(tx, &key_named("app", &account.id), &[9; 32])).await;
    assert!(again.unwrap_err().is_taken());
}

#[tokio::test]
async fn a_reader_cannot_change_anything() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    assert!(store.read(|db| settings::set(db, "a", "1")).await.is_err());
}

#[test]
fn the_database_is_for_the_agent_alone_and_rubbish_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    drop(Store::open(&state).unwrap());
    assert_eq!(std::fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(std::fs::metadata(state.join("config.db")).unwrap().permissions().mode() & 0o777, 0o600);

    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("config.db"), "this is no database at all, only some text that is long enough to be read".repeat(20)).unwrap();
    let error = Store::open(other.path()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(Problem::from(error).hint.is_some());
}

#[test]
fn a_state_folder_that_cannot_be_made_is_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let text = Store::open(&dir.path().join("file/state")).unwrap_err().to_string();
    assert!(text.contains("file/state"), "{text}");
}

/// A database that may not grow: what SQLite answers then is what it answers on a full disk.
async fn limit_pages(store: &Store, pages: u32) {
    store.write(move |tx| Ok(tx.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?)).await.unwrap();
}

async fn totals(store: &Store, key: &KeyId) -> UsageTotals {
    let key = key.clone();
    store.read(move |db| usage::totals_of_key(db, &key)).await.unwrap()
}

fn key_named(name: &str, by: &AccountId) -> Key {
    Key {
        id: KeyId::random(),
        name: name.to_owned(),
        prefix: "vw_abcde".to_owned(),
        priority: warden_domain::key::Priority::USUAL,
        created_at: clock::now(),
        created_by: by.clone(),
        revoked_at: None,
        last_used_at: None,
        usage: UsageTotals::default(),
    }
}

async fn make_key(store: &Store, name: &str) -> KeyId {
    let account = accounts::Account {
        id: AccountId::random(),
        username: "admin".to_owned(),
        role: Role::Admin,
        password_hash: String::new(),
        created_at: clock::now(),
        disabled_at: None,
    };
    let key = key_named(name, &account.id);
    let id = key.id.clone();
    store
        .write(move |tx| {
            accounts::insert(tx, &account)?;
            keys::insert(tx, &key, &[1; 32])
        })
        .await
        .unwrap();
    id
}

fn finished(key: &KeyId, prompt: Option<u64>) -> Finished {
    Finished {
        request: RequestId::random(),
        key: Some(key.clone()),
        model: ModelId::from_stored("mdl_a"),
        started_at: clock::now(),
        duration: Millis(5),
        first_byte: Some(Millis(2)),
        prompt: prompt.map(Tokens),
        cached: None,
        completion: prompt.map(|_| Tokens(1)),
        outcome: Outcome::Completed,
        status: 200,
    }
}

#[tokio::test]
async fn a_torn_page_is_found_at_start_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    for i in 0..400u32 {
        store.write(move |tx| settings::set(tx, &format!("name-{i}"), &"x".repeat(200))).await.unwrap();
    }
    store.close().await;
    let path = dir.path().join("config.db");
    let mut bytes = std::fs::read(&path).unwrap();
    assert!(bytes.len() > 16 * 4096, "the database must have enough pages to tear one");
    let middle = bytes.len() / 4096 / 2 * 4096;
    bytes[middle..middle + 4096].fill(0xa5);
    std::fs::write(&path, bytes).unwrap();
    let error = Store::open(dir.path()).unwrap_err();
    assert!(matches!(&error, StoreError::Damaged { .. }), "{error:?}");
    assert!(error.to_string().contains("config.db"), "{error}");
}

#[test]
fn a_pipe_in_place_of_the_database_is_refused_and_does_not_hang() {
    let dir = tempfile::tempdir().unwrap();
    nix::unistd::mkfifo(&dir.path().join("config.db"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(matches!(Store::open(dir.path()).unwrap_err(), StoreError::Damaged { .. }));
}
