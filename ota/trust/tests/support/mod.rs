//! A publisher in memory: keys from fixed seeds, files with any member bent before signing.

#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up should stop")]

use jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};
use warden_trust::{Accepted, Clock, Digest, Identity, Installed, KeyId, Metadata, Refusal, SPEC, SeedKey, Signer, Trusted, Way, seal};

pub const PRODUCT: &str = "lm-warden-x86_64";
pub const PAYLOAD: &[u8] = b"an image of the system";

pub fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The day on which nothing is wrong.
pub fn today() -> Timestamp {
    at("2027-03-01T00:00:00Z")
}

pub fn clock(wall: &str, confirmed: bool) -> Clock {
    Clock { wall: at(wall), confirmed, build_epoch: at("2027-01-01T00:00:00Z") }
}

pub fn now() -> Clock {
    Clock { wall: today(), confirmed: true, build_epoch: at("2027-01-01T00:00:00Z") }
}

pub fn identity() -> Identity {
    Identity { compatible: PRODUCT.to_owned(), channel: "stable".to_owned(), development: true }
}

pub fn installed(os: &str) -> Installed {
    Installed { os: os.parse().unwrap(), driver: Some("550.163.01".parse().unwrap()), data_needs: 1 }
}

pub fn key(seed: u8) -> SeedKey {
    SeedKey::from_seed(&[seed; 32])
}

pub fn id(seed: u8) -> KeyId {
    key(seed).public().id()
}

/// Signs with the keys of these seeds.
pub fn sign(content: &Value, seeds: &[u8]) -> Vec<u8> {
    let keys: Vec<SeedKey> = seeds.iter().map(|seed| key(*seed)).collect();
    let signers: Vec<&dyn Signer> = keys.iter().map(|k| k as &dyn Signer).collect();
    seal(content, &signers).unwrap()
}

/// Root keys 1 2 3 (two of three), release keys 11 12 (one of two), timestamp key 21.
pub fn root(version: u64) -> Value {
    root_of(version, &[1, 2, 3], &[11, 12], &[21])
}

pub fn root_of(version: u64, roots: &[u8], releases: &[u8], stamps: &[u8]) -> Value {
    let ids = |seeds: &[u8]| seeds.iter().map(|s| id(*s).to_string()).collect::<Vec<_>>();
    let all = roots.iter().chain(releases).chain(stamps);
    let keys: Vec<Value> = all.map(|s| json!({"key_id": id(*s), "public": key(*s).public()})).collect();
    json!({
        "type": "root", "spec": SPEC, "version": version, "compatible": PRODUCT, "development": true,
        "issued": "2027-01-01T00:00:00Z", "expires": "2032-01-01T00:00:00Z", "keys": keys,
        "roles": {
            "root": {"key_ids": ids(roots), "threshold": 2, "from_version": 0},
            "release": {"key_ids": ids(releases), "threshold": 1, "from_version": 0},
            "timestamp": {"key_ids": ids(stamps), "threshold": 1, "from_version": 0},
        }
    })
}

/// Release `version` with one OS image.
pub fn release(version: u64, os: &str) -> Value {
    json!({
        "type": "release", "spec": SPEC, "version": version, "compatible": PRODUCT, "channel": "stable",
        "issued": "2027-02-01T00:00:00Z", "expires": "2028-02-01T00:00:00Z", "floor": "1.0.0",
        "revoked": {"digests": [], "key_ids": []},
        "entries": [{
            "kind": "os", "name": "lm-warden", "version": os, "sha256": Digest::of(PAYLOAD), "bytes": PAYLOAD.len(),
            "part_bytes": 65536, "parts": [Digest::of(PAYLOAD)], "requires": {}, "data_schema": 3,
        }]
    })
}

/// Timestamp `version` for a release file, signed.
pub fn stamp(version: u64, release_version: u64, release: &[u8], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut content = json!({
        "type": "timestamp", "spec": SPEC, "version": version, "compatible": PRODUCT, "channel": "stable",
        "issued": "2027-02-20T00:00:00Z", "expires": "2027-03-06T00:00:00Z",
        "release": {"version": release_version, "sha256": Digest::of(release), "bytes": release.len()},
    });
    change(&mut content);
    sign(&content, &[21])
}

/// A set for a release signed by these keys, with a good timestamp and no new root.
pub fn set(release: &Value, seeds: &[u8]) -> Metadata {
    let version = release["version"].as_u64().unwrap();
    let bytes = sign(release, seeds);
    Metadata { roots: Vec::new(), timestamp: stamp(version, version, &bytes, |_| ()), release: bytes }
}

/// A box that trusts root 1 and has seen nothing else.
pub fn fresh_box() -> Trusted {
    Trusted::begin(&sign(&root(1), &[1, 2]), &identity(), at("2027-01-01T00:00:00Z")).unwrap()
}

/// A box that took release `version` over the air.
pub fn box_at(version: u64, os: &str) -> Trusted {
    over_the_air(&fresh_box(), &set(&release(version, os), &[11])).unwrap().trusted
}

pub fn over_the_air(trusted: &Trusted, metadata: &Metadata) -> Result<Accepted, Refusal> {
    trusted.accept(metadata, Way::OverTheAir, &identity(), &now())
}

pub fn offline(trusted: &Trusted, metadata: &Metadata) -> Result<Accepted, Refusal> {
    trusted.accept(metadata, Way::Offline, &identity(), &now())
}

pub fn days_later(days: i64) -> Clock {
    Clock { wall: today() + (days * 24).hours(), ..now() }
}
