//! Bundles as they are written, damaged and forged. Every bad one must be refused, with nothing left in the folder of targets.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up should stop")]

mod support;

use std::fs;
use std::io::Read;

use proptest::prelude::*;
use serde_json::json;
use support::{clock, identity, key, published, trusting};
use tar::{EntryType, Header};
use warden_bundle::{BundleError, in_order_of_need, inspect, inspect_folder, open, open_folder, receive, write};
use warden_trust::{Digest, Metadata, Refusal, Release, Signer, Trusted};

const PART: usize = 64 * 1024;

fn payload(kind: &str) -> Vec<u8> {
    let bytes = match kind {
        "os" => 3 * PART + 700,
        "engine" => 1000,
        _ => 2 * PART,
    };
    (0..bytes).map(|n| u8::try_from((n * 31 + kind.len()) % 251).unwrap()).collect()
}

fn metadata(signer: u8) -> Metadata {
    let entries = ["os", "engine", "model"].map(|kind| {
        let content = payload(kind);
        let parts: Vec<_> = content.chunks(PART).map(Digest::of).collect();
        json!({
            "kind": kind, "name": kind, "version": "1.0", "sha256": Digest::of(&content), "bytes": content.len(), "part_bytes": PART,
            "parts": parts, "requires": {}, "data_schema": 1, "licence": "Apache-2.0", "source": "https://example.org",
        })
    });
    published(&entries, signer)
}

fn release() -> Release {
    Release::read(&metadata(2).release).unwrap().0
}

fn make(metadata: &Metadata, targets: &[Digest]) -> Vec<u8> {
    let mut out = Vec::new();
    let bytes = write(&mut out, metadata, targets, &mut |entry| Ok(Box::new(std::io::Cursor::new(payload(&entry.name))))).unwrap();
    assert_eq!(bytes, out.len() as u64);
    out
}

fn good() -> Vec<u8> {
    make(&metadata(2), &in_order_of_need(&release()))
}

fn trusted() -> Trusted {
    trusting(&metadata(2))
}

/// Reads a bundle into a folder of its own; after a refusal only complete targets may lie there.
fn take(bundle: impl Read) -> Result<Vec<String>, BundleError> {
    let folder = tempfile::tempdir().unwrap();
    let mut names = Vec::new();
    let outcome = open(bundle, &trusted(), &identity(), &clock()).and_then(|mut opened| receive(&mut opened, folder.path(), |_| true, |_| ()));
    for file in fs::read_dir(folder.path()).unwrap() {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        assert_eq!(Digest::of(&fs::read(file.path()).unwrap()).to_string(), name, "only verified targets stay");
        names.push(name);
    }
    names.sort();
    outcome.map(|_| names)
}

/// A member by hand, with any header.
fn forged(name: &str, content: &[u8], bend: impl FnOnce(&mut Header)) -> Vec<u8> {
    let mut header = Header::new_gnu();
    let field = &mut header.as_old_mut().name;
    field[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(content.len() as u64);
    bend(&mut header);
    header.set_cksum();
    let mut out = header.as_bytes().to_vec();
    out.extend_from_slice(content);
    out.resize(out.len().next_multiple_of(512), 0);
    out
}

/// The good bundle with something put between its metadata and its targets.
fn with(extra: &[u8]) -> Vec<u8> {
    let mut bundle = make(&metadata(2), &[]);
    let head = bundle.len() - 1024;
    let rest = good().split_off(head);
    bundle.truncate(head);
    bundle.extend_from_slice(extra);
    bundle.extend_from_slice(&rest);
    bundle
}

#[test]
fn a_bundle_gives_back_what_was_put_in_any_combination() {
    let all = in_order_of_need(&release());
    assert_eq!(take(&good()[..]).unwrap().len(), 3);
    for chosen in [&all[..0], &all[..1], &all[1..], &all[2..]] {
        let mut expected: Vec<_> = chosen.iter().map(Digest::to_string).collect();
        expected.sort();
        assert_eq!(take(&make(&metadata(2), chosen)[..]).unwrap(), expected);
    }
}

#[test]
fn engine_packs_come_before_the_os_and_models_last() {
    let names: Vec<_> = in_order_of_need(&release()).iter().map(|d| release().entry(d).unwrap().name.clone()).collect();
    assert_eq!(names, ["engine", "os", "model"]);
}

#[test]
fn the_same_inputs_give_the_same_bytes() {
    assert_eq!(Digest::of(&good()), Digest::of(&good()));
}

#[test]
fn an_ordinary_tar_program_could_list_it() {
    let bundle = good();
    let mut archive = tar::Archive::new(&bundle[..]);
    let names: Vec<_> = archive.entries().unwrap().map(|e| e.unwrap().path().unwrap().display().to_string()).collect();
    assert_eq!(names[..3], ["metadata/root.1.json", "metadata/timestamp.json", "metadata/release.4.json"]);
    assert_eq!(names.len(), 6);
}

#[test]
fn a_look_inside_names_everything_and_writes_nothing() {
    let contents = inspect(&good()[..]).unwrap();
    assert_eq!((contents.release.version, contents.timestamp.version, contents.targets.len()), (4, 9, 3));
    assert_eq!(contents.bytes, good().len() as u64);
    assert_eq!(contents.signers[2].key_ids, [key(2).public().id()]);
}

#[test]
fn a_timestamp_past_its_time_does_not_matter_offline() {
    let bundle = good();
    let opened = open(&bundle[..], &trusted(), &identity(), &clock()).unwrap();
    assert!(opened.accepted().automatic().is_ok());
    assert_eq!(opened.accepted().trusted.seen["stable"].release, 4, "the state to store");
}

#[test]
fn a_foreign_bundle_is_refused_before_any_target() {
    let refused = take(&make(&metadata(1), &in_order_of_need(&release()))[..]).unwrap_err();
    assert!(matches!(refused, BundleError::Refused(Refusal::NotSignedByUs { .. })), "{refused}");
}

#[test]
fn what_is_no_bundle_says_so() {
    for (name, file) in [("letter.txt", &b"hello"[..]), ("folder/../x", b"")] {
        assert!(matches!(take(&forged(name, file, |_| ())[..]), Err(BundleError::NotABundle { .. })), "{name}");
    }
    assert!(matches!(take(&[b'x'; 5000][..]), Err(BundleError::NotABundle { .. })));
    assert!(matches!(take(&b""[..]), Err(BundleError::Cut { .. })));
}

#[test]
fn links_devices_folders_and_extensions_are_refused() {
    let kinds = [
        EntryType::Symlink,
        EntryType::Link,
        EntryType::Char,
        EntryType::Block,
        EntryType::Fifo,
        EntryType::Directory,
        EntryType::GNUSparse,
        EntryType::GNULongName,
        EntryType::GNULongLink,
        EntryType::XHeader,
        EntryType::XGlobalHeader,
        EntryType::Continuous,
    ];
    for kind in kinds {
        let name = format!("targets/{}", release().entries[0].sha256);
        let bundle = with(&forged(&name, b"", |h| h.set_entry_type(kind)));
        assert!(matches!(take(&bundle[..]), Err(BundleError::NotAFile { .. })), "{kind:?}");
    }
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    for name in ["../../etc/passwd", "/etc/passwd", "targets/../metadata/root.1.json", "targets/a/b", "etc/passwd", "targets/..", "SBOM/list", ""] {
        let refused = take(&with(&forged(name, b"x", |_| ()))[..]).unwrap_err();
        assert!(matches!(refused, BundleError::BadName { .. }), "{name}: {refused}");
    }
}

#[test]
fn extra_and_repeated_members_are_refused() {
    let stranger = forged(&format!("targets/{}", Digest::of(b"x")), b"x", |_| ());
    assert!(matches!(take(&with(&stranger)[..]), Err(BundleError::Refused(Refusal::NotListed { .. }))));
    let engine = payload("engine");
    let twice = forged(&format!("targets/{}", Digest::of(&engine)), &engine, |_| ());
    assert!(matches!(take(&with(&twice)[..]), Err(BundleError::Misplaced { .. })));
    let again = forged("metadata/timestamp.json", b"{}", |_| ());
    assert!(matches!(take(&with(&again)[..]), Err(BundleError::Misplaced { .. })));
}

#[test]
fn a_size_that_is_not_the_listed_one_is_refused_before_a_byte_is_read() {
    let digest = release().entries[0].sha256;
    for claimed in [0, 1, u64::from(u32::MAX), 1 << 50] {
        let bundle = with(&forged(&format!("targets/{digest}"), b"", |h| h.set_size(claimed)));
        assert!(matches!(take(&bundle[..]), Err(BundleError::WrongSize { .. })), "{claimed}");
    }
}

#[test]
fn a_bomb_of_metadata_is_refused_by_its_header() {
    let bundle = forged("metadata/root.1.json", b"", |h| h.set_size(1 << 40));
    assert!(matches!(take(&bundle[..]), Err(BundleError::TooLarge { .. })));
}

#[test]
fn odd_headers_are_refused() {
    let name = format!("targets/{}", Digest::of(&payload("engine")));
    let bends: [fn(&mut Header); 5] = [
        |h| h.set_mode(0o4755),
        |h| h.set_uid(1000),
        |h| h.set_mtime(1),
        |h| h.as_gnu_mut().unwrap().set_atime(1),
        |h| h.as_old_mut().linkname[0] = b'x',
    ];
    for bend in bends {
        assert!(matches!(take(&with(&forged(&name, &payload("engine"), bend))[..]), Err(BundleError::OddHeader { .. })));
    }
}

#[test]
fn more_after_the_end_is_refused() {
    let mut bundle = good();
    bundle.push(0);
    assert!(matches!(take(&bundle[..]), Err(BundleError::AfterTheEnd)));
    bundle.truncate(bundle.len() - 513);
    assert!(matches!(take(&bundle[..]), Err(BundleError::Cut { .. })), "half an end");
}

#[test]
fn a_flipped_byte_of_a_target_names_the_part_and_leaves_the_complete_ones() {
    let mut bundle = good();
    let at = bundle.len() - 1024 - 2 * PART + PART + 5;
    bundle[at] ^= 1;
    assert!(matches!(take(&bundle[..]), Err(BundleError::Refused(Refusal::DamagedPart { part: 1, .. }))));
}

#[test]
fn a_target_that_is_already_there_is_not_written_again_and_a_damaged_one_is() {
    let folder = tempfile::tempdir().unwrap();
    let engine = folder.path().join(Digest::of(&payload("engine")).to_string());
    fs::write(&engine, b"rubbish").unwrap();
    let os = folder.path().join(Digest::of(&payload("os")).to_string());
    fs::write(&os, payload("os")).unwrap();
    let before = fs::metadata(&os).unwrap().modified().unwrap();
    let bundle = good();
    let mut opened = open(&bundle[..], &trusted(), &identity(), &clock()).unwrap();
    let mut heard = Vec::new();
    let received = receive(&mut opened, folder.path(), |e| e.name != "model", |bytes| heard.push(bytes)).unwrap();
    assert_eq!(received.len(), 2);
    assert_eq!(fs::read(&engine).unwrap(), payload("engine"));
    assert_eq!(fs::metadata(&os).unwrap().modified().unwrap(), before);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    assert!(heard.is_sorted() && heard.len() == 3);
}

#[test]
fn a_writer_refuses_content_that_is_not_the_listed_one() {
    let all = in_order_of_need(&release());
    let mut wrong = |_: &warden_trust::Entry| -> std::io::Result<Box<dyn Read>> { Ok(Box::new(std::io::repeat(7))) };
    assert!(matches!(write(&mut Vec::new(), &metadata(2), &all, &mut wrong), Err(BundleError::Refused(_))));
    assert!(matches!(write(&mut Vec::new(), &metadata(2), &[Digest::of(b"?")], &mut wrong), Err(BundleError::NotListed { .. })));
}

#[test]
fn a_folder_of_the_same_layout_is_read_and_links_in_it_are_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    tar::Archive::new(&good()[..]).unpack(folder.path()).unwrap();
    let into = tempfile::tempdir().unwrap();
    let mut opened = open_folder(folder.path(), &trusted(), &identity(), &clock()).unwrap();
    assert_eq!(receive(&mut opened, into.path(), |_| true, |_| ()).unwrap().len(), 3);
    assert_eq!(inspect_folder(folder.path()).unwrap().targets.len(), 3);

    let engine = folder.path().join("targets").join(Digest::of(&payload("engine")).to_string());
    fs::rename(&engine, folder.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("../elsewhere", &engine).unwrap();
    let mut opened = open_folder(folder.path(), &trusted(), &identity(), &clock()).unwrap();
    assert!(matches!(opened.next_target(), Err(BundleError::NotAFile { .. })));
    fs::remove_file(folder.path().join("metadata/timestamp.json")).unwrap();
    assert!(matches!(open_folder(folder.path(), &trusted(), &identity(), &clock()), Err(BundleError::Missing { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_bundle_cut_anywhere_is_refused(at in any::<prop::sample::Index>()) {
        let bundle = good();
        prop_assert!(take(&bundle[..at.index(bundle.len())]).is_err());
    }

    #[test]
    fn a_bundle_with_any_byte_changed_is_refused(at in any::<prop::sample::Index>(), head in any::<bool>(), flip in 1_u8..=255) {
        let mut bundle = good();
        let at = at.index(if head { 8000 } else { bundle.len() });
        bundle[at] ^= flip;
        prop_assert!(take(&bundle[..]).is_err());
    }

    #[test]
    fn rubbish_is_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        prop_assert!(take(&bytes[..]).is_err());
        prop_assert!(inspect(&bytes[..]).is_err());
    }
}

#[test]
fn a_bundle_that_the_release_tool_made_is_read() {
    let bundle = fs::read(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/good.wob")).unwrap();
    let contents = inspect(&bundle[..]).unwrap();
    assert_eq!((contents.release.version, contents.targets.len(), contents.bytes), (2, 2, bundle.len() as u64));
    assert!(
        matches!(open(&bundle[..], &trusted(), &identity(), &clock()), Err(BundleError::Refused(Refusal::RootForked { .. }))),
        "another publisher's box"
    );
}
