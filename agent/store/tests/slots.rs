//! What an owner relies on across an update: the way back never costs the database, whatever a trial did to it and wherever the power went.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use proptest::prelude::*;
use warden_domain::{Problem, access::Role, clock, ids::AccountId};
use warden_store::{
    DATA_SCHEMA, Store, StoreError, accounts,
    rusqlite::Connection,
    settings,
    slots::{self, ChangeKind, Found, Kind, Limit, Note, Plan, RecordFacts, Situation, Stuck},
};

fn facts(slot: &str, situation: Situation) -> RecordFacts {
    RecordFacts { running_slot: slot.to_owned(), situation }
}

fn usual(slot: &str) -> RecordFacts {
    facts(slot, Situation::Usual)
}

fn back(transaction: &str) -> RecordFacts {
    facts("a", Situation::RolledBack { transaction: transaction.to_owned() })
}

fn trial() -> RecordFacts {
    facts("b", Situation::OnTrial { previous_slot: "a".to_owned() })
}

async fn set(store: &Store, name: &'static str, value: &str) {
    let value = value.to_owned();
    store.write(move |tx| settings::set(tx, name, &value)).await.unwrap();
}

async fn get(store: &Store, name: &'static str) -> Option<String> {
    store.read(move |db| settings::get(db, name)).await.unwrap()
}

async fn add_admin(store: &Store, name: &str) {
    let account = accounts::Account {
        id: AccountId::random(),
        username: name.to_owned(),
        role: Role::Admin,
        password_hash: "x".to_owned(),
        created_at: clock::now(),
        disabled_at: None,
    };
    store.write(move |tx| accounts::insert(tx, &account)).await.unwrap();
}

/// What a later version may leave: a schema nobody here can read.
fn migrate_far(dir: &Path) {
    let db = Connection::open(dir.join("config.db")).unwrap();
    db.execute_batch("INSERT INTO schema (version, readable_from, applied_at) VALUES (900, 900, 0); ALTER TABLE settings RENAME TO knobs;").unwrap();
}

fn plan(dir: &Path, facts: &RecordFacts) -> Plan {
    slots::open_plan(facts, &slots::look(dir, facts), DATA_SCHEMA)
}

/// A box with an admin, on its way into a trial.
async fn before_trial(dir: &Path) -> slots::CopyInfo {
    let store = Store::open(dir).unwrap();
    add_admin(&store, "owner").await;
    set(&store, "colour", "blue").await;
    let info = slots::prepare_trial(dir, "a").unwrap();
    store.close().await;
    info
}

#[tokio::test]
async fn a_copy_is_whole_private_and_named_after_the_running_slot() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    set(&store, "colour", "blue").await;
    fs::write(dir.path().join("config.a.db.new"), "half a copy of a cut").unwrap();
    let info = slots::prepare_trial(dir.path(), "a").unwrap();
    set(&store, "colour", "red").await;
    assert_eq!(info.path, dir.path().join("config.a.db"));
    assert_eq!(info.schema, DATA_SCHEMA);
    assert_eq!(info.bytes, fs::metadata(&info.path).unwrap().len());
    assert_eq!(fs::metadata(&info.path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!dir.path().join("config.a.db.new").exists());
    let copied: String =
        Connection::open(&info.path).unwrap().query_row("SELECT value FROM settings WHERE name = 'colour'", [], |row| row.get(0)).unwrap();
    assert_eq!(copied, "blue");
    slots::prepare_trial(dir.path(), "a").expect("a second attempt replaces the copy");
    assert!(slots::prepare_trial(dir.path(), "../a").is_err());
}

#[tokio::test]
async fn a_full_disk_says_so_and_leaves_no_half_copy() {
    let dir = tempfile::tempdir().unwrap();
    drop(before_trial(dir.path()).await);
    let old = fs::read(dir.path().join("config.a.db")).unwrap();
    // The limit on the size of files stands in for a full disk; it counts for one process alone, so a child runs into it.
    let status = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$0\" --exact child_that_copies_without_room"])
        .arg(std::env::current_exe().unwrap())
        .env("STORE_TEST_COPY_DIR", dir.path())
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(NO_ROOM));
    assert_eq!(fs::read(dir.path().join("config.a.db")).unwrap(), old, "the copy of before stays");
    assert!(!dir.path().join("config.a.db.new").exists());
}

/// Not a test of its own: the process of the test above.
#[test]
fn child_that_copies_without_room() {
    let Ok(dir) = std::env::var("STORE_TEST_COPY_DIR") else { return };
    assert!(slots::prepare_trial(dir.as_ref(), "a").is_err());
    std::process::exit(NO_ROOM);
}

/// How the child says that it met the full disk.
const NO_ROOM: i32 = 57;

#[tokio::test]
async fn a_rolled_back_system_serves_from_its_copy_and_the_newer_file_stays() {
    let dir = tempfile::tempdir().unwrap();
    before_trial(dir.path()).await;
    let (newer, opening) = slots::open(dir.path(), &trial()).unwrap();
    assert_eq!(opening, slots::Opening { limit: Limit::ReadableBy(DATA_SCHEMA), note: None, kept: None });
    add_admin(&newer, "late").await;
    set(&newer, "colour", "red").await;
    newer.close().await;
    migrate_far(dir.path());

    let (store, opening) = slots::open(dir.path(), &back("t1")).unwrap();
    assert_eq!(opening.note, Some(Note::CopyOpened));
    assert_eq!(get(&store, "colour").await.as_deref(), Some("blue"));
    let kept = opening.kept.unwrap();
    assert_eq!(kept, dir.path().join("config.kept-t1.db"));
    let rows: i64 = Connection::open(&kept).unwrap().query_row("SELECT count(*) FROM knobs", [], |row| row.get(0)).unwrap();
    assert!(rows > 0);

    set(&store, "colour", "green").await;
    store.close().await;
    let (again, opening) = slots::open(dir.path(), &back("t1")).unwrap();
    assert_eq!(opening.note, Some(Note::CopyOpened), "until the record says it was told");
    assert_eq!(get(&again, "colour").await.as_deref(), Some("green"), "a second start with the same fall-back undoes nothing");
    again.close().await;
    slots::prepare_trial(dir.path(), "a").unwrap();
    assert!(!kept.exists(), "the next trial makes room");
}

#[tokio::test]
async fn a_cut_after_any_step_of_the_way_back_is_finished_by_the_next_start() {
    // Read with the log of a trial that never closed its database, as a crash leaves it.
    for cut in 0..=3 {
        let dir = tempfile::tempdir().unwrap();
        before_trial(dir.path()).await;
        let (newer, _) = slots::open(dir.path(), &trial()).unwrap();
        set(&newer, "colour", "red").await;
        let as_it_lies = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(dir.path()).unwrap().flatten() {
            fs::copy(entry.path(), as_it_lies.path().join(entry.file_name())).unwrap();
        }
        assert!(as_it_lies.path().join("config.db-wal").exists());
        let there = as_it_lies.path();
        let Plan::Open { mut steps, limit, note } = slots::open_plan(&back("t1"), &Fallen::files(), DATA_SCHEMA) else { panic!("a plan to open") };
        assert_eq!(steps.len(), 3);
        steps.truncate(cut);
        slots::apply(there, &back("t1"), Plan::Open { steps, limit, note }).unwrap();
        fs::write(there.join("config.db.new"), "half of a restore").unwrap();

        let (store, opening) = slots::open(there, &back("t1")).unwrap();
        assert_eq!(get(&store, "colour").await.as_deref(), Some("blue"), "cut after step {cut}");
        let kept = Connection::open(opening.kept.unwrap()).unwrap();
        let colour: String = kept.query_row("SELECT value FROM settings WHERE name = 'colour'", [], |row| row.get(0)).unwrap();
        assert_eq!(colour, "red", "cut after step {cut}: the newer file lost what its log held");
    }
}

/// The files of a fall-back nobody dealt with, without opening any: that would fold the log.
struct Fallen;

impl Fallen {
    fn files() -> slots::Files {
        let found = Found::Schema { version: DATA_SCHEMA, readable_from: 1, made_by: 0 };
        slots::Files { live: found, own_copy: found, previous_copy: found, kept: false, traces: true }
    }
}

#[tokio::test]
async fn a_later_schema_beside_a_copy_serves_and_without_one_is_named() {
    let dir = tempfile::tempdir().unwrap();
    before_trial(dir.path()).await;
    migrate_far(dir.path());
    let (store, opening) = slots::open(dir.path(), &usual("a")).unwrap();
    assert_eq!(get(&store, "colour").await.as_deref(), Some("blue"));
    assert!(opening.kept.is_some());
    store.close().await;

    migrate_far(dir.path());
    fs::remove_file(dir.path().join("config.a.db")).unwrap();
    for facts in [usual("a"), back("t2")] {
        let error = slots::open(dir.path(), &facts).unwrap_err();
        assert!(matches!(error, StoreError::Stuck { cause: Stuck::NewerWithoutCopy { found: 900, .. }, .. }), "{error}");
        let problem = Problem::from(error);
        assert!(problem.message.contains("later version") && problem.hint.is_some(), "{problem:?}");
    }
    assert!(dir.path().join("config.db").exists());
}

#[tokio::test]
async fn a_box_that_was_set_up_never_shows_the_setup_wizard_again() {
    let dir = tempfile::tempdir().unwrap();
    before_trial(dir.path()).await;
    fs::remove_file(dir.path().join("config.db")).unwrap();
    let elsewhere = slots::open(dir.path(), &usual("b")).unwrap_err();
    assert!(matches!(elsewhere, StoreError::Stuck { cause: Stuck::Gone, .. }), "{elsewhere}");
    assert!(!dir.path().join("config.db").exists(), "an empty database would be taken for a new box");
    let (store, _) = slots::open(dir.path(), &usual("a")).unwrap();
    assert!(store.read(accounts::admin_exists).await.unwrap());
}

#[tokio::test]
async fn a_copy_that_is_damaged_counts_as_missing() {
    let dir = tempfile::tempdir().unwrap();
    before_trial(dir.path()).await;
    fs::write(dir.path().join("config.a.db"), "no database".repeat(900)).unwrap();
    let (store, opening) = slots::open(dir.path(), &back("t1")).unwrap();
    assert_eq!(opening.note, Some(Note::CopyMissing));
    assert_eq!(get(&store, "colour").await.as_deref(), Some("blue"));
}

#[tokio::test]
async fn what_differs_is_listed_by_name_and_never_by_value() {
    let dir = tempfile::tempdir().unwrap();
    before_trial(dir.path()).await;
    let (newer, _) = slots::open(dir.path(), &trial()).unwrap();
    add_admin(&newer, "late").await;
    set(&newer, "colour", "secret-red").await;
    set(&newer, "shape", "round").await;
    newer.write(|tx| Ok(tx.execute("UPDATE accounts SET password_hash = 'other' WHERE username = 'owner'", [])?)).await.unwrap();
    newer.close().await;
    let (_store, opening) = slots::open(dir.path(), &back("t1")).unwrap();
    let found = slots::changed_since(&dir.path().join("config.a.db"), &opening.kept.clone().unwrap()).unwrap();
    let said: Vec<_> = found.changes.iter().map(|c| (c.kind, c.name.as_str(), c.change)).collect();
    assert_eq!(
        said,
        [
            (Kind::Account, "late", ChangeKind::Added),
            (Kind::Account, "owner", ChangeKind::Changed),
            (Kind::Setting, "colour", ChangeKind::Changed),
            (Kind::Setting, "shape", ChangeKind::Added)
        ]
    );
    assert!(found.unknown.is_empty() && !format!("{found:?}").contains("secret-red"));

    Connection::open(opening.kept.clone().unwrap()).unwrap().execute_batch("ALTER TABLE settings RENAME TO knobs").unwrap();
    let found = slots::changed_since(&dir.path().join("config.a.db"), &opening.kept.unwrap()).unwrap();
    assert_eq!(found.unknown, [Kind::Setting], "what cannot be compared is said, not passed over");
}

#[tokio::test]
async fn what_a_trial_left_out_is_run_once_it_is_confirmed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_limited(dir.path(), Limit::ReadableBy(0)).unwrap();
    let done = store.finish_migrations().await.unwrap();
    assert_eq!(done.last(), Some(&DATA_SCHEMA));
    assert!(store.finish_migrations().await.unwrap().is_empty());
    set(&store, "colour", "blue").await;
}

#[derive(Clone, Debug)]
enum Deed {
    Write(u8),
    Update { trial_writes: u8, far: bool, confirmed: bool, cuts: Vec<usize> },
}

fn deed() -> impl Strategy<Value = Deed> {
    let update = (any::<u8>(), any::<bool>(), any::<bool>(), prop::collection::vec(0..=3usize, 0..3));
    prop_oneof![
        any::<u8>().prop_map(Deed::Write),
        update.prop_map(|(trial_writes, far, confirmed, cuts)| Deed::Update { trial_writes, far: far && !confirmed, confirmed, cuts })
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn no_order_of_writes_trials_cuts_and_fall_backs_loses_what_was_there_before_the_trial(deeds in prop::collection::vec(deed(), 1..6)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let mut slot = "a";
            let mut expected = "start".to_owned();
            let store = Store::open(dir.path()).unwrap();
            set(&store, "colour", &expected).await;
            store.close().await;
            for (number, deed) in deeds.iter().enumerate() {
                match deed {
                    Deed::Write(value) => {
                        let (store, _) = slots::open(dir.path(), &usual(slot)).unwrap();
                        expected = format!("w{value}");
                        set(&store, "colour", &expected).await;
                        store.close().await;
                    }
                    Deed::Update { trial_writes, far, confirmed, cuts } => {
                        slots::prepare_trial(dir.path(), slot).unwrap();
                        let other = if slot == "a" { "b" } else { "a" };
                        let (store, _) = slots::open(dir.path(), &facts(other, Situation::OnTrial { previous_slot: slot.to_owned() })).unwrap();
                        let written = format!("t{trial_writes}");
                        set(&store, "colour", &written).await;
                        store.close().await;
                        if *confirmed {
                            (slot, expected) = (other, written);
                        } else {
                            if *far {
                                migrate_far(dir.path());
                            }
                            let back = facts(slot, Situation::RolledBack { transaction: format!("t{number}") });
                            for cut in cuts {
                                if let Plan::Open { mut steps, limit, note } = plan(dir.path(), &back) {
                                    steps.truncate(*cut);
                                    slots::apply(dir.path(), &back, Plan::Open { steps, limit, note }).unwrap();
                                }
                            }
                            let (store, opening) = slots::open(dir.path(), &back).unwrap();
                            assert_eq!(opening.note, Some(Note::CopyOpened));
                            store.close().await;
                        }
                    }
                }
                let (store, _) = slots::open(dir.path(), &usual(slot)).unwrap();
                assert_eq!(get(&store, "colour").await.as_deref(), Some(expected.as_str()));
                store.close().await;
            }
        });
    }
}
