//! A publisher with one key per role, and a box that trusts it.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up should stop")]

use jiff::Timestamp;
use serde_json::{Value, json};
use warden_trust::{Clock, Digest, Identity, Metadata, SPEC, SeedKey, Signer, Trusted, seal};

pub fn key(seed: u8) -> SeedKey {
    SeedKey::from_seed(&[seed; 32])
}

pub fn identity() -> Identity {
    Identity { compatible: "box".to_owned(), channel: "stable".to_owned(), development: true }
}

pub fn clock() -> Clock {
    let now: Timestamp = "2027-03-01T00:00:00Z".parse().unwrap();
    Clock { wall: now, confirmed: true, build_epoch: now }
}

/// Release 4 with these entries, signed by the key of seed `signer` (2 is the right one), timestamp 9 and root 1.
pub fn published(entries: &[Value], signer: u8) -> Metadata {
    let ids = |seed: u8| json!({"key_ids": [key(seed).public().id()], "threshold": 1});
    let keys: Vec<_> = [1, 2, 3].map(|s| json!({"key_id": key(s).public().id(), "public": key(s).public()})).to_vec();
    let root = json!({
        "type": "root", "spec": SPEC, "version": 1, "compatible": "box", "development": true, "issued": "2027-01-01T00:00:00Z",
        "expires": "2037-01-01T00:00:00Z", "keys": keys, "roles": {"root": ids(1), "release": ids(2), "timestamp": ids(3)},
    });
    let release = json!({
        "type": "release", "spec": SPEC, "version": 4, "compatible": "box", "channel": "stable", "issued": "2027-02-01T00:00:00Z",
        "expires": "2028-02-01T00:00:00Z", "floor": "0", "revoked": {}, "entries": entries,
    });
    let release = seal(&release, &[&key(signer)]).unwrap();
    let timestamp = json!({
        "type": "timestamp", "spec": SPEC, "version": 9, "compatible": "box", "channel": "stable", "issued": "2027-02-01T00:00:00Z",
        "expires": "2027-02-08T00:00:00Z", "release": {"version": 4, "sha256": Digest::of(&release), "bytes": release.len()},
    });
    Metadata { roots: vec![seal(&root, &[&key(1)]).unwrap()], timestamp: seal(&timestamp, &[&key(3)]).unwrap(), release }
}

pub fn trusting(metadata: &Metadata) -> Trusted {
    Trusted::begin(&metadata.roots[0], &identity(), clock().build_epoch).unwrap()
}
