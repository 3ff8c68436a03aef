//! Bundles without a network, cut by the real release tool: uploads in pieces, files and folders on a stick, and what is refused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot set itself up should stop")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use support::{Bench, Publisher, Run, image, names, sha256};
use warden_domain::ids::{AccountId, DiskId, TaskId};
use warden_domain::storage::{Adoption, AdoptionPlan, Disk, OpenSource, Overview, Role, Sources, Storage};
use warden_domain::units::Bytes;
use warden_domain::update::{Stick, UpdatePhase, Updates};
use warden_domain::{Problem, ProblemKind};
use warden_update_record::{Origin, Record, Slot};
use warden_updater::Sticks;

const PIECE: usize = 700_001;

fn everything(name: &str) -> Publisher {
    let publisher = Publisher::new(name);
    let model = [b"GGUF".as_slice(), &[1; 5000]].concat();
    publisher.publish(
        1,
        "",
        &[
            ("os", "lm-warden", "1.1.0", &image("1.1.0"), "data_schema = 9"),
            ("engine", "llama.cpp", "b7", b"an engine pack", ""),
            ("model", "tiny", "1", &model, "licence = \"Apache-2.0\"\nsource = \"https://example.org\""),
        ],
    );
    publisher
}

async fn send(run: &Run, bytes: &[u8]) -> String {
    let id = run.room.open_upload("all.wob", Bytes(bytes.len() as u64)).await.unwrap().id;
    rest(run, &id, bytes).await;
    id
}

async fn rest(run: &Run, id: &str, bytes: &[u8]) {
    let mut at = usize::try_from(run.room.upload(id).await.unwrap().received.0).unwrap();
    while at < bytes.len() {
        let end = (at + PIECE).min(bytes.len());
        run.room.put_upload(id, at as u64, &bytes[at..end]).await.unwrap();
        at = end;
    }
}

async fn take(run: &Run, id: &str) -> Option<String> {
    let task = run.room.take_upload(id, false).await.unwrap();
    run.ended(&task).await
}

#[tokio::test]
async fn an_upload_that_breaks_off_goes_on_after_a_restart_and_brings_system_engine_and_model() {
    let publisher = everything("upload");
    let bytes = fs::read(publisher.bundle("all.wob")).unwrap();
    let bench = Bench::new(&publisher, false).await;
    let run = bench.start(Slot::A, "one", "1.0.0").await;
    let id = run.room.open_upload("all.wob", Bytes(bytes.len() as u64)).await.unwrap().id;
    run.room.put_upload(&id, 0, &bytes[..PIECE]).await.unwrap();
    assert!(run.room.take_upload(&id, false).await.is_err(), "half a bundle");
    drop(run);

    let run = bench.start(Slot::A, "two", "1.0.0").await;
    assert_eq!(run.view().await.uploads[0].received, Bytes(PIECE as u64));
    rest(&run, &id, &bytes).await;
    assert_eq!(take(&run, &id).await, None);
    let places = bench.places();
    assert!(matches!(bench.record(), Record::Verified { attempt } if attempt.origin == Origin::Upload && attempt.entry.version == "1.1.0"));
    assert_eq!(fs::read(places.files.join("targets").join(sha256(&image("1.1.0")))).unwrap(), image("1.1.0"));
    let pack = sha256(b"an engine pack");
    assert_eq!(names(&places.packs), [format!("{pack}.json"), format!("{pack}.raw")]);
    assert!(fs::read_to_string(places.packs.join(format!("{pack}.json"))).unwrap().contains("\"version\": \"b7\""));
    assert_eq!(names(&places.models), ["tiny-1.gguf"]);
    assert!(run.view().await.uploads.is_empty(), "what was taken over is gone");
    assert!(run.view().await.release == Some(1) && run.view().await.offers.iter().filter(|offer| offer.installed).count() == 2);
}

#[tokio::test]
async fn a_flipped_byte_a_cut_and_a_strangers_bundle_are_refused_and_leave_nothing() {
    let publisher = everything("flip");
    let good = fs::read(publisher.bundle("all.wob")).unwrap();
    let stranger = everything("somebody else");
    let mut flipped = good.clone();
    let middle = good.len() / 2;
    flipped[middle] ^= 1;
    let strange = fs::read(stranger.bundle("all.wob")).unwrap();
    let cases = [(flipped, "does not match its checksum"), (good[..middle].to_vec(), "ends in the middle of"), (strange, "differs from the one")];
    let bench = Bench::new(&publisher, false).await;
    let run = bench.start(Slot::A, "one", "1.0.0").await;
    for (bytes, words) in cases {
        let id = send(&run, &bytes).await;
        let failure = take(&run, &id).await.unwrap();
        assert!(failure.contains(words), "{failure}");
        let view = run.view().await;
        assert_eq!((view.phase, view.release, view.uploads.len()), (UpdatePhase::Idle, None, 1), "{words}");
        assert!(names(&bench.places().files.join("targets")).is_empty(), "{words}");
        run.room.drop_upload(&id).await.unwrap();
    }
    let id = send(&run, &good).await;
    assert_eq!(take(&run, &id).await, None);
}

#[tokio::test]
async fn an_older_bundle_is_a_replay_and_one_with_nothing_new_is_fine() {
    let publisher = Publisher::new("old");
    publisher.system(1, "1.1.0");
    let old = fs::read(publisher.bundle("old.wob")).unwrap();
    publisher.system(2, "1.2.0");
    let new = fs::read(publisher.bundle("new.wob")).unwrap();
    let bench = Bench::new(&publisher, false).await;
    let run = bench.start(Slot::A, "one", "1.2.0").await;
    let id = send(&run, &new).await;
    assert_eq!(take(&run, &id).await, None, "the running version is known already");
    assert_eq!(bench.record(), Record::Idle);
    let id = send(&run, &old).await;
    assert!(take(&run, &id).await.unwrap().contains("has already seen"));
}

struct Plugged {
    disks: Mutex<Vec<Disk>>,
    folder: PathBuf,
    open: Mutex<usize>,
}

impl Plugged {
    fn stick(key: &str) -> Disk {
        Disk {
            key: key.to_owned(),
            model: None,
            serial: None,
            wwn: None,
            size: Some(Bytes(1 << 30)),
            bus: Some("usb".to_owned()),
            removable: true,
            role: Role::Foreign,
            contents: Vec::new(),
            importable: true,
        }
    }

    fn new(folder: &Path, keys: &[&str]) -> Arc<Self> {
        let disks = keys.iter().map(|key| Self::stick(key)).collect();
        Arc::new(Self { disks: Mutex::new(disks), folder: folder.to_owned(), open: Mutex::new(0) })
    }
}

#[async_trait]
impl Storage for Plugged {
    async fn overview(&self) -> Result<Overview, Problem> {
        Ok(Overview { disks: self.disks.lock().unwrap().clone(), ..Overview::default() })
    }

    async fn plan(&self, _: &str) -> Result<AdoptionPlan, Problem> {
        Err(Problem::internal("not here"))
    }

    async fn adopt(&self, _: &AccountId, _: Adoption) -> Result<TaskId, Problem> {
        Err(Problem::internal("not here"))
    }

    async fn forget(&self, _: &AccountId, _: &DiskId) -> Result<(), Problem> {
        Err(Problem::internal("not here"))
    }
}

#[async_trait]
impl Sources for Plugged {
    async fn open(&self, key: &str) -> Result<OpenSource, Problem> {
        if !self.disks.lock().unwrap().iter().any(|disk| disk.key == key) {
            return Err(Problem::new(ProblemKind::NotFound, "No such disk."));
        }
        *self.open.lock().unwrap() += 1;
        Ok(OpenSource { key: key.to_owned(), path: self.folder.clone(), name: "stick".to_owned() })
    }

    async fn close(&self, _: &OpenSource) {
        *self.open.lock().unwrap() -= 1;
    }
}

async fn stick(run: &Run, plugged: &Arc<Plugged>, install: bool) -> Option<String> {
    run.room.set_sticks(Sticks { storage: plugged.clone(), sources: plugged.clone() });
    let task = run.room.take_from_stick(Stick::Any, install).await.unwrap();
    let ended = run.ended(&task).await;
    assert_eq!(*plugged.open.lock().unwrap(), 0, "the stick is given back in every case");
    ended
}

#[tokio::test]
async fn a_stick_with_a_bundle_or_a_channel_folder_is_installed_from_and_given_back() {
    let publisher = everything("stick");
    let bundle = publisher.bundle("all.wob");
    for as_folder in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        if as_folder {
            fs::create_dir(folder.path().join("stable")).unwrap();
            for part in ["metadata", "targets"] {
                let (from, to) = (publisher.path("www").join(part), folder.path().join("stable").join(part));
                fs::create_dir(&to).unwrap();
                for name in names(&from) {
                    fs::copy(from.join(&name), to.join(&name)).unwrap();
                }
            }
        } else {
            fs::copy(&bundle, folder.path().join("warden-stable-1.wob")).unwrap();
        }
        let bench = Bench::new(&publisher, true).await;
        let run = bench.start(Slot::A, "one", "1.0.0").await;
        let plugged = Plugged::new(folder.path(), &["STICK"]);
        assert_eq!(stick(&run, &plugged, true).await, None, "folder: {as_folder}");
        assert!(matches!(bench.record(), Record::Staged { attempt, .. } if attempt.origin == Origin::Stick));
        assert_eq!(names(&bench.places().models), ["tiny-1.gguf"]);
    }
}

#[tokio::test]
async fn of_several_bundles_the_newest_that_is_believed_is_taken() {
    let publisher = Publisher::new("several");
    publisher.system(1, "1.1.0");
    let folder = tempfile::tempdir().unwrap();
    fs::copy(publisher.bundle("one.wob"), folder.path().join("a-old.wob")).unwrap();
    publisher.system(2, "1.2.0");
    fs::copy(publisher.bundle("two.wob"), folder.path().join("b-new.wob")).unwrap();
    let stranger = everything("a stranger");
    fs::copy(stranger.bundle("x.wob"), folder.path().join("c-strange.wob")).unwrap();
    std::os::unix::fs::symlink("b-new.wob", folder.path().join("d-link.wob")).unwrap();
    let bench = Bench::new(&publisher, false).await;
    let run = bench.start(Slot::A, "one", "1.0.0").await;
    assert_eq!(stick(&run, &Plugged::new(folder.path(), &["S"]), false).await, None);
    assert_eq!(run.view().await.attempt.unwrap().version, "1.2.0");
}

#[tokio::test]
async fn no_stick_two_sticks_and_an_empty_one_are_told_apart() {
    let publisher = Publisher::new("none");
    publisher.system(1, "1.1.0");
    let bench = Bench::new(&publisher, false).await;
    let run = bench.start(Slot::A, "one", "1.0.0").await;
    let empty = tempfile::tempdir().unwrap();
    for (keys, words) in [(vec![], "No stick"), (vec!["A", "B"], "More than one stick"), (vec!["A"], "no update bundle on the stick")] {
        let failure = stick(&run, &Plugged::new(empty.path(), &keys), false).await.unwrap();
        assert!(failure.contains(words), "{failure}");
    }
}
