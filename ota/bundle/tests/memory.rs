//! A bundle is read as it comes: its size must not show in memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up should stop")]

mod support;

use std::fs;
use std::io::{Read, pipe};
use std::thread;

use serde_json::json;
use support::{clock, identity, published, trusting};
use warden_bundle::{open, write};
use warden_trust::{Digest, Metadata};

const PART: u64 = 4 << 20;
const PARTS: u64 = 48;

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
    let entry = json!({
        "kind": "model", "name": "zeros", "version": "1", "sha256": whole, "bytes": PARTS * PART, "part_bytes": PART,
        "parts": (0..PARTS).map(|_| part).collect::<Vec<_>>(), "licence": "CC0-1.0", "source": "https://example.org",
    });
    published(&[entry], 2)
}

#[test]
fn a_big_bundle_is_written_and_read_in_little_memory() {
    let metadata = metadata();
    let trusted = trusting(&metadata);
    let before = peak();
    let (reader, mut writer) = pipe().unwrap();
    let writing = thread::spawn(move || {
        let release = warden_trust::Release::read(&metadata.release).unwrap().0;
        let mut content = |_: &warden_trust::Entry| -> std::io::Result<Box<dyn Read>> { Ok(Box::new(std::io::repeat(0).take(PARTS * PART))) };
        write(&mut writer, &metadata, &[release.entries[0].sha256], &mut content).unwrap()
    });
    let mut opened = open(reader, &trusted, &identity(), &clock()).unwrap();
    while opened.next_target().unwrap().is_some() {}
    assert_eq!(opened.progress(), writing.join().unwrap());
    let grown = peak() - before;
    assert!(grown < 16 * 1024, "192 MiB went through, and memory grew by {grown} KiB");
}
