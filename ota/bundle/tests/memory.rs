//! A bundle is read as it comes: its size must not show in memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up should stop")]

use std::fs;
use std::io::{Read, pipe};
use std::thread;

use serde_json::json;
use warden_bundle::{open, write};
use warden_trust::{Clock, Digest, Identity, Metadata, SPEC, SeedKey, Signer, Trusted, seal};

const PART: u64 = 4 << 20;
const PARTS: u64 = 48;

fn key(seed: u8) -> SeedKey {
    SeedKey::from_seed(&[seed; 32])
}

/// The most memory this process ever held, in KiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Zeros, 192 MiB of them, whose parts all have the same digest.
fn metadata() -> Metadata {
    let part = Digest::of(&vec![0; usize::try_from(PART).unwrap()]);
    let whole = {
        use sha2::Digest as _;
        let mut hash = sha2::Sha256::new();
        (0..PARTS * PART / 65536).for_each(|_| hash.update([0; 65536]));
        Digest::from_raw(hash.finalize().into())
    };
    let ids = |seed: u8| json!({"key_ids": [key(seed).public().id()], "threshold": 1});
    let keys: Vec<_> = [1, 2, 3].map(|s| json!({"key_id": key(s).public().id(), "public": key(s).public()})).to_vec();
    let root = json!({
        "type": "root", "spec": SPEC, "version": 1, "compatible": "box", "development": true, "issued": "2027-01-01T00:00:00Z",
        "expires": "2037-01-01T00:00:00Z", "keys": keys, "roles": {"root": ids(1), "release": ids(2), "timestamp": ids(3)},
    });
    let entry = json!({
        "kind": "model", "name": "zeros", "version": "1", "sha256": whole, "bytes": PARTS * PART, "part_bytes": PART,
        "parts": (0..PARTS).map(|_| part).collect::<Vec<_>>(), "licence": "CC0-1.0", "source": "https://example.org",
    });
    let release = json!({
        "type": "release", "spec": SPEC, "version": 1, "compatible": "box", "channel": "stable", "issued": "2027-02-01T00:00:00Z",
        "expires": "2028-02-01T00:00:00Z", "floor": "0", "revoked": {}, "entries": [entry],
    });
    let release = seal(&release, &[&key(2)]).unwrap();
    let timestamp = json!({
        "type": "timestamp", "spec": SPEC, "version": 1, "compatible": "box", "channel": "stable", "issued": "2027-02-01T00:00:00Z",
        "expires": "2027-02-08T00:00:00Z", "release": {"version": 1, "sha256": Digest::of(&release), "bytes": release.len()},
    });
    Metadata { roots: vec![seal(&root, &[&key(1)]).unwrap()], timestamp: seal(&timestamp, &[&key(3)]).unwrap(), release }
}

#[test]
fn a_big_bundle_is_written_and_read_in_little_memory() {
    let identity = Identity { compatible: "box".to_owned(), channel: "stable".to_owned(), development: true };
    let now = "2027-03-01T00:00:00Z".parse().unwrap();
    let clock = Clock { wall: now, confirmed: true, build_epoch: now };
    let metadata = metadata();
    let trusted = Trusted::begin(&metadata.roots[0], &identity, now).unwrap();
    let before = peak();
    let (reader, mut writer) = pipe().unwrap();
    let writing = thread::spawn(move || {
        let release = warden_trust::Release::read(&metadata.release).unwrap().0;
        let mut content = |_: &warden_trust::Entry| -> std::io::Result<Box<dyn Read>> { Ok(Box::new(std::io::repeat(0).take(PARTS * PART))) };
        write(&mut writer, &metadata, &[release.entries[0].sha256], &mut content).unwrap()
    });
    let mut opened = open(reader, &trusted, &identity, &clock).unwrap();
    while opened.next_target().unwrap().is_some() {}
    assert_eq!(opened.progress(), writing.join().unwrap());
    let grown = peak() - before;
    assert!(grown < 16 * 1024, "192 MiB went through, and memory grew by {grown} KiB");
}
