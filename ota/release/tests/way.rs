//! The whole way by the program itself: keys, sign, publish, bundle, verify, then everything that must be refused.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up should stop")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use support::{AT, Desk, TODAY};
use warden_trust::{SeedKey, Signer};

#[test]
fn keys_sign_publish_bundle_verify_inspect() {
    let desk = Desk::published("way");
    desk.bundle();
    for (path, kind) in [("www", "folder"), ("all.wob", "bundle")] {
        let said = desk.verify(path).unwrap();
        assert!(said.contains("sound. Release 1 of stable, 3 targets checked, trusted from root 1"), "{kind}: {said}");
        let seen = desk.done(&["inspect", path]);
        assert!(seen.contains("os lm-warden 1.1.0") && seen.contains("DEVELOPMENT keys") && !seen.contains("not here"), "{kind}: {seen}");
    }
    let seen: serde_json::Value = serde_json::from_str(&desk.done(&["inspect", "all.wob", "--json"])).unwrap();
    assert_eq!((seen["release"].as_u64(), seen["targets"][0]["present"].as_bool()), (Some(1), Some(true)));
    desk.done(&["bundle", "--channel", "www", "--out", "os.wob", "--only", "os/lm-warden"]);
    assert!(desk.verify("os.wob").unwrap().contains("1 targets checked"));
    let said = desk.refused(&["bundle", "--channel", "www", "--out", "x.wob", "--only", "os/other"]);
    assert!(said.contains("It has: os/lm-warden, engine/llama.cpp, model/tiny"), "{said}");
    assert!(!desk.path("x.wob").exists());
}

#[test]
fn a_tampered_target_bundle_or_release_is_refused() {
    let desk = Desk::published("tamper");
    desk.bundle();
    let mut bundle = desk.read("all.wob");
    let middle = bundle.len() - 6000;
    bundle[middle] ^= 1;
    desk.write("flipped.wob", &bundle);
    let said = desk.verify("flipped.wob").unwrap_err();
    assert!(said.starts_with("warden-release: ") && said.contains("does not match its checksum"), "{said}");
    desk.write("cut.wob", &bundle[..middle]);
    assert!(desk.verify("cut.wob").unwrap_err().contains("the bundle ends in the middle of"));

    let target = fs::read_dir(desk.path("www/targets")).unwrap().next().unwrap().unwrap().path();
    let good = fs::read(&target).unwrap();
    fs::write(&target, [&good[..1], &good[..good.len() - 1]].concat()).unwrap();
    assert!(desk.verify("www").unwrap_err().contains("does not match its checksum"));
    fs::remove_file(&target).unwrap();
    assert!(desk.verify("www").unwrap_err().contains("1 targets of release 1 are missing"));
    fs::write(&target, good).unwrap();
    desk.verify("www").unwrap();

    let release = String::from_utf8(desk.read("www/metadata/release.1.json")).unwrap();
    desk.write("www/metadata/release.1.json", release.replace("\"1.1.0\"", "\"9.9.9\"").as_bytes());
    assert!(desk.verify("www").unwrap_err().contains("parts of two releases were mixed"));
}

#[test]
fn another_publishers_root_does_not_trust_it() {
    let (ours, theirs) = (Desk::published("ours"), Desk::with_keys("theirs"));
    let root = theirs.path("keys/root.1.json");
    let said = ours.refused(&["verify", "www", "--root", root.to_str().unwrap(), "--development", "--at", TODAY]);
    assert!(said.contains("root version 1 differs from the one this box trusts"), "{said}");
    let said = ours.refused(&["verify", "www", "--root", "keys/root.1.json", "--at", TODAY]);
    assert!(said.contains("production boxes refuse them"), "{said}");
    let said = ours.refused(&["verify", "www", "--root", "keys/root.1.json", "--development", "--channel", "beta", "--at", TODAY]);
    assert!(said.contains("this box follows \"beta\""), "{said}");
}

#[test]
fn the_same_inputs_give_the_same_bytes() {
    let (one, two) = (Desk::published("same"), Desk::published("same"));
    one.bundle();
    two.bundle();
    assert_eq!(one.tree("www"), two.tree("www"));
    assert!(one.read("all.wob") == two.read("all.wob"));
    let before = one.tree("www");
    one.publish().unwrap();
    assert_eq!(one.tree("www"), before, "publishing the same again changes nothing");
    let epoch = [("SOURCE_DATE_EPOCH", "1801440000")];
    one.run_with(&epoch, &["sign", "--keys", "keys", "--recipe", "release.toml", "--out", "epoch.json"]).unwrap();
    assert!(String::from_utf8(one.read("epoch.json")).unwrap().contains("\"issued\":\"2027-02-01T00:00:00Z\""));
}

#[test]
fn keys_are_never_overwritten() {
    let desk = Desk::with_keys("keep");
    let before = desk.tree("keys");
    let said = desk.refused(&["keys", "init", "--dir", "keys", "--development", "--at", AT]);
    assert!(said.contains("never overwritten"), "{said}");
    assert_eq!(desk.tree("keys"), before);
    let mode = fs::metadata(desk.path("keys/root-1.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn production_keys_are_sealed_and_random() {
    let desk = Desk::new();
    let init = ["keys", "init", "--dir", "keys", "--root-keys", "1", "--root-threshold", "1", "--release-keys", "1", "--at", AT];
    assert!(desk.refused(&init).contains("Production keys need a passphrase"));
    assert!(!desk.path("keys/root.1.json").exists());
    desk.write("pass", b"four words in a row\n");
    desk.done(&[&init[..], &["--passphrase-file", "pass"]].concat());
    desk.recipe(1, "1.1.0", "stable", "");
    assert!(desk.sign().unwrap_err().contains("is sealed"));
    let sign = ["sign", "--keys", "keys", "--recipe", "release.toml", "--out", "release.json", "--at", AT];
    let said = desk.run_with(&[("WARDEN_RELEASE_PASSPHRASE", "wrong")], &sign).unwrap_err();
    assert!(said.contains("the passphrase is wrong"), "{said}");
    desk.run_with(&[("WARDEN_RELEASE_PASSPHRASE", "four words in a row")], &sign).unwrap();
    let seeded = ["keys", "init", "--dir", "other", "--dev-seed", "x", "--at", AT];
    assert!(desk.refused(&seeded).contains("--development"), "a seeded key is a development key");
}

#[test]
fn rotation_carries_old_boxes_along_and_drops_the_old_key() {
    let desk = Desk::published("turn");
    desk.done(&["keys", "rotate", "--dir", "keys", "--replace", "root-1", "--replace", "release-1", "--dev-seed", "turn", "--at", AT]);
    desk.done(&["keys", "rotate", "--dir", "keys", "--replace", "root-2", "--replace", "timestamp-1", "--dev-seed", "turn", "--at", AT]);
    let listed = desk.done(&["keys", "show", "--dir", "keys"]);
    assert!(listed.starts_with("root 3 of lm-warden-x86_64, DEVELOPMENT") && listed.contains("release-1  taken out"), "{listed}");
    desk.recipe(2, "1.2.0", "stable", "");
    let said = desk.refused(&["sign", "--keys", "keys", "--key", "keys/release-1.key", "--recipe", "release.toml", "--out", "bad.json", "--at", AT]);
    assert!(said.contains("is not a release key of root version 3"), "{said}");
    desk.sign().unwrap();
    desk.publish().unwrap();
    assert!(desk.verify("www").unwrap().contains("Release 2 of stable"), "a box born with root 1 walks to root 3");
    desk.bundle();
    desk.verify("all.wob").unwrap();
}

#[test]
fn a_root_that_lacks_signatures_is_not_published_until_the_others_signed() {
    let desk = Desk::published("apart");
    for n in [1, 2, 3] {
        fs::rename(desk.path(&format!("keys/root-{n}.key")), desk.path(&format!("away-{n}.key"))).unwrap();
    }
    let said = desk.done(&["keys", "rotate", "--dir", "keys", "--dev-seed", "apart", "--at", AT]);
    assert!(said.contains("still needs 2 signatures"), "{said}");
    desk.recipe(2, "1.2.0", "stable", "");
    desk.sign().unwrap();
    let before = desk.tree("www");
    assert!(desk.publish().unwrap_err().contains("not signed by any root key"));
    desk.done(&["add-signature", "keys/root.2.json", "--key", "away-3.key"]);
    assert!(desk.publish().unwrap_err().contains("1 of the 2 signatures"));
    assert_eq!(desk.tree("www"), before, "nothing was published");

    // The second signer is a device: it gets the bytes and gives a signature.
    let payload = desk.done(&["payload", "keys/root.2.json"]);
    let file: serde_json::Value = serde_json::from_slice(&desk.read("away-1.key")).unwrap();
    let mut seed = [0; 32];
    for (at, slot) in seed.iter_mut().enumerate() {
        *slot = u8::from_str_radix(&file["seed"].as_str().unwrap()[2 * at..2 * at + 2], 16).unwrap();
    }
    let device = SeedKey::from_seed(&seed);
    desk.write("signature", &device.sign(payload.as_bytes()).unwrap());
    let public = file["public"].as_str().unwrap();
    desk.done(&["attach", "keys/root.2.json", "--public", public, "--signature", "signature"]);
    desk.publish().unwrap();
    desk.verify("www").unwrap();
    desk.write("signature", &[1; 64]);
    let said = desk.refused(&["attach", "keys/root.2.json", "--public", public, "--signature", "signature"]);
    assert!(said.contains("does not match its content"), "{said}");
}

#[test]
fn what_boxes_would_refuse_is_not_published() {
    let desk = Desk::published("careful");
    let before = desk.tree("www");
    desk.recipe(1, "1.1.1", "stable", "");
    desk.sign().unwrap();
    assert!(desk.publish().unwrap_err().contains("Raise `version` in the recipe above 1"));
    desk.recipe(2, "1.2.0", "beta", "");
    desk.sign().unwrap();
    assert!(desk.publish().unwrap_err().contains("Publish it into a folder of its own"));
    desk.recipe(2, "0.9.0", "stable", "");
    assert!(desk.sign().unwrap_err().contains("below the floor 1.0.0"));
    desk.recipe(2, "1.2.0", "stable", "colour = \"red\"");
    assert!(desk.sign().unwrap_err().contains("colour"), "a typing mistake is named");
    desk.recipe(2, "1.2.0", "stable", "");
    desk.sign().unwrap();
    desk.write("os.raucb", b"another file than was signed");
    assert!(desk.publish().unwrap_err().contains("os lm-warden 1.2.0"));
    for (name, content) in before {
        assert_eq!(desk.read(&format!("www/{name}")), content, "{name} is as it was");
    }
    assert!(desk.verify("www").unwrap().contains("Release 1"));
}

#[test]
fn a_withdrawn_key_signs_nothing_that_boxes_take() {
    let desk = Desk::published("thief");
    let listed = desk.done(&["keys", "show", "--dir", "keys"]);
    let id = listed.lines().find(|l| l.contains("release-1")).unwrap().split_whitespace().next().unwrap().to_owned();
    desk.recipe(2, "1.2.0", "stable", &format!("revoked = {{ keys = [\"{id}\"] }}"));
    let by = |key: &str| desk.run(&["sign", "--keys", "keys", "--key", key, "--recipe", "release.toml", "--out", "release.json", "--at", AT]);
    by("keys/release-1.key").unwrap();
    assert!(desk.publish().unwrap_err().contains("which was withdrawn"), "nobody vouches for himself");
    by("keys/release-2.key").unwrap();
    desk.publish().unwrap();
    desk.verify("www").unwrap();
}

#[test]
fn a_stale_channel_is_told_and_a_refresh_mends_it() {
    let desk = Desk::published("stale");
    let late = "2027-03-01T00:00:00Z";
    let verify = ["verify", "www", "--root", "keys/root.1.json", "--development", "--at", late];
    assert!(desk.refused(&verify).contains("The channel is stale"));
    desk.bundle();
    desk.done(&["verify", "all.wob", "--root", "keys/root.1.json", "--development", "--at", late]);
    desk.done(&["refresh", "--keys", "keys", "--channel", "www", "--at", late]);
    desk.done(&verify);
    assert!(desk.done(&["inspect", "www"]).contains("timestamp  2 of 2027-03-01"));
}

#[test]
fn help_teaches_the_whole_way() {
    let said = Desk::new().done(&["--help"]);
    for word in ["keys init", "sign", "publish", "bundle", "verify", "[[target]]", "SOURCE_DATE_EPOCH"] {
        assert!(said.contains(word), "{word}");
    }
}
