//! The committed test vectors of `warden-trust` and `warden-bundle` are what this tool makes from fixed development keys and dates. A change
//! of the format shows here first. `WARDEN_WRITE_VECTORS=1` writes them anew.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up should stop")]

mod support;

use std::fs;
use std::path::Path;

use support::{AT, Desk};

/// Name in the vectors' folder and content.
type Vector = (String, Vec<u8>);

fn small(desk: &Desk, version: u64, os: &str, channel: &str, more: &str) {
    desk.write("os.raucb", format!("os {os}\n").as_bytes());
    desk.write("engine.raw", b"an engine pack\n");
    let text = format!(
        "channel = \"{channel}\"\nversion = {version}\nexpires_days = 365\nfloor = \"1.0.0\"\n{more}\n\
         [[target]]\nkind = \"os\"\nname = \"lm-warden\"\nversion = \"{os}\"\nfile = \"os.raucb\"\ndata_schema = 1\n\
         [[target]]\nkind = \"engine\"\nname = \"llama.cpp\"\nversion = \"b1\"\nfile = \"engine.raw\"\n"
    );
    desk.write("release.toml", text.as_bytes());
}

fn keep(desk: &Desk, set: &str, version: u64, all: &mut Vec<Vector>) {
    for (name, file) in
        [("release.json", format!("www/metadata/release.{version}.json")), ("timestamp.json", "www/metadata/timestamp.json".to_owned())]
    {
        all.push((format!("{set}/{name}"), desk.read(&file)));
    }
}

fn publish(desk: &Desk, key: &str) {
    desk.done(&["sign", "--keys", "keys", "--key", key, "--recipe", "release.toml", "--out", "release.json", "--at", AT]);
    desk.publish().unwrap();
}

fn made() -> (Vec<Vector>, Vec<u8>) {
    let mut all = Vec::new();
    let desk = Desk::with_keys("vectors");
    small(&desk, 1, "1.0.0", "stable", "");
    publish(&desk, "keys/release-1.key");
    keep(&desk, "first", 1, &mut all);
    small(&desk, 2, "1.1.0", "stable", "");
    publish(&desk, "keys/release-1.key");
    keep(&desk, "second", 2, &mut all);
    desk.done(&["bundle", "--channel", "www", "--out", "good.wob"]);
    let bundle = desk.read("good.wob");
    let listed = desk.done(&["keys", "show", "--dir", "keys"]);
    let id = listed.lines().find(|l| l.contains("release-1")).unwrap().split_whitespace().next().unwrap().to_owned();
    small(&desk, 3, "1.2.0", "stable", &format!("revoked = {{ keys = [\"{id}\"] }}"));
    publish(&desk, "keys/release-2.key");
    keep(&desk, "revoking", 3, &mut all);
    for key in ["release-1", "root-1"] {
        desk.done(&["keys", "rotate", "--dir", "keys", "--replace", key, "--dev-seed", "vectors", "--at", AT]);
    }
    small(&desk, 4, "1.3.0", "stable", "");
    publish(&desk, "keys/release-3.key");
    keep(&desk, "rotated", 4, &mut all);
    for n in 1..=3 {
        all.push((format!("root.{n}.json"), desk.read(&format!("keys/root.{n}.json"))));
    }
    let beta = Desk::with_keys("vectors");
    small(&beta, 9, "2.0.0", "beta", "");
    publish(&beta, "keys/release-1.key");
    keep(&beta, "beta", 9, &mut all);
    let stranger = Desk::with_keys("stranger");
    small(&stranger, 9, "6.6.6", "stable", "");
    publish(&stranger, "keys/release-1.key");
    keep(&stranger, "stranger", 9, &mut all);
    (all, bundle)
}

#[test]
fn the_committed_vectors_are_what_this_tool_makes() {
    let ota = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (vectors, bundle) = made();
    let place = |name: &str| ota.join("trust/tests/vectors").join(name);
    let files = vectors.into_iter().map(|(name, content)| (place(&name), content)).chain([(ota.join("bundle/tests/vectors/good.wob"), bundle)]);
    for (path, content) in files {
        if std::env::var_os("WARDEN_WRITE_VECTORS").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &content).unwrap();
        }
        let there = fs::read(&path).unwrap_or_default();
        assert!(there == content, "{} differs; if the format was meant to change, WARDEN_WRITE_VECTORS=1 writes it anew", path.display());
    }
}
