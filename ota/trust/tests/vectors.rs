//! Files that the release tool made, from fixed development keys: what an older or newer build wrote must be read the same way.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up should stop")]

use std::fs;
use std::path::Path;

use warden_trust::{Accepted, Clock, Identity, Metadata, Refusal, Trusted, Way};

fn file(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name)).unwrap()
}

fn identity() -> Identity {
    Identity { compatible: "lm-warden-x86_64".to_owned(), channel: "stable".to_owned(), development: true }
}

fn clock() -> Clock {
    Clock { wall: "2027-02-08T00:00:00Z".parse().unwrap(), confirmed: true, build_epoch: "2027-01-01T00:00:00Z".parse().unwrap() }
}

fn born() -> Trusted {
    Trusted::begin(&file("root.1.json"), &identity(), clock().build_epoch).unwrap()
}

fn set(name: &str, roots: &[u64]) -> Metadata {
    let roots = roots.iter().map(|n| file(&format!("root.{n}.json"))).collect();
    Metadata { roots, timestamp: file(&format!("{name}/timestamp.json")), release: file(&format!("{name}/release.json")) }
}

fn take(trusted: &Trusted, metadata: &Metadata) -> Result<Accepted, Refusal> {
    trusted.accept(metadata, Way::OverTheAir, &identity(), &clock())
}

#[test]
fn a_box_follows_the_channel_from_its_first_release_through_revocation_and_rotation() {
    let mut trusted = born();
    for (name, roots, version) in
        [("first", &[1][..], "1.0.0"), ("second", &[1], "1.1.0"), ("revoking", &[1], "1.2.0"), ("rotated", &[1, 2, 3], "1.3.0")]
    {
        let accepted = take(&trusted, &set(name, roots)).unwrap_or_else(|refused| panic!("{name}: {refused}"));
        assert_eq!(accepted.release.entries[0].version, version);
        trusted = accepted.trusted;
    }
    assert_eq!(trusted.root.version, 3);
    assert_eq!(take(&trusted, &set("second", &[1])).unwrap_err().code(), "older_than_seen");
}

#[test]
fn a_box_that_slept_takes_the_last_release_at_once() {
    assert_eq!(take(&born(), &set("rotated", &[1, 2, 3])).unwrap().trusted.root.version, 3);
    assert_eq!(take(&born(), &set("rotated", &[1, 3])).unwrap_err().code(), "root_gap");
    assert_eq!(take(&born(), &set("rotated", &[1])).unwrap_err().code(), "not_signed_by_us");
}

#[test]
fn what_is_not_for_this_box_is_refused() {
    assert_eq!(take(&born(), &set("stranger", &[1])).unwrap_err().code(), "not_signed_by_us");
    assert_eq!(take(&born(), &set("beta", &[1])).unwrap_err().code(), "other_channel");
    let mixed = Metadata { timestamp: file("first/timestamp.json"), ..set("second", &[1]) };
    assert_eq!(take(&born(), &mixed).unwrap_err().code(), "not_pinned");
}
