//! Engine packs of the appliance: one manifest and one image per pack, named by the image's SHA-256.
//!
//! Folder in, packs out, the newest first. Whether a pack's signature holds is the system's judgement when it is mounted; whether it is
//! revoked is the helper's.

use std::{fs, path::Path};

use serde::Deserialize;
use warden_domain::engine::{EngineKind, EnginePack, PackState};

const LARGEST: u64 = 64 * 1024;
const MOST: usize = 200;
/// What an owner can do about a missing pack.
const WAY_OUT: &str = "Install this box again from a stick that carries an engine pack; the installer names it before it begins. \
                       Its other disks are not touched.";

#[derive(Deserialize)]
struct Manifest {
    engine: String,
    version: String,
    digest: String,
}

/// The packs in the folder. Never empty: when there is none, one that is broken and says so.
pub(super) fn list(folder: &Path) -> Vec<EnginePack> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).take(MOST);
    let mut packs: Vec<EnginePack> =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "json")).map(|path| read(&path)).collect();
    packs.sort_by_key(|pack| (pack.state != PackState::Ready, std::cmp::Reverse(pack.version.as_deref().map(natural))));
    if packs.is_empty() {
        packs.push(broken(None, None, format!("No engine pack is installed in {}. {WAY_OUT}", folder.display())));
    }
    packs
}

fn read(path: &Path) -> EnginePack {
    let name = path.file_stem().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let small = fs::metadata(path).is_ok_and(|about| about.is_file() && about.len() <= LARGEST);
    let manifest = if small { fs::read(path).ok().and_then(|bytes| serde_json::from_slice::<Manifest>(&bytes).ok()) } else { None };
    let Some(manifest) = manifest else {
        return broken(None, None, format!("The description of the engine pack {name} cannot be read. Install the pack again."));
    };
    let (version, digest) = (Some(manifest.version), Some(manifest.digest.clone()));
    let hex = manifest.digest.len() == 64 && manifest.digest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let (Some(engine), true) = (EngineKind::from_stored(&manifest.engine), hex && manifest.digest == name) else {
        return broken(version, None, format!("The description of the engine pack {name} does not fit it. Install the pack again."));
    };
    let image = path.with_extension("raw");
    let state = if fs::symlink_metadata(&image).is_ok_and(|about| about.is_file() && about.len() > 0) {
        PackState::Ready
    } else {
        PackState::Broken { message: format!("The engine pack {name} has a description but no image. Install the pack again.") }
    };
    EnginePack { engine, version, digest, state }
}

fn broken(version: Option<String>, digest: Option<String>, message: String) -> EnginePack {
    EnginePack { engine: EngineKind::LlamaCpp, version, digest, state: PackState::Broken { message } }
}

/// Numbers inside a version compare as numbers: b9999 is older than b11434.
fn natural(version: &str) -> Vec<(u64, String)> {
    let mut parts = Vec::new();
    let mut rest = version;
    while !rest.is_empty() {
        let word = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (text, after) = rest.split_at(word);
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (number, after) = after.split_at(digits);
        parts.push((number.parse().unwrap_or(0), text.to_owned()));
        rest = after;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(folder: &Path, digest: &str, version: &str) {
        let text = format!(r#"{{"engine":"llama.cpp","version":"{version}","digest":"{digest}"}}"#);
        fs::write(folder.join(format!("{digest}.json")), text).unwrap();
        fs::write(folder.join(format!("{digest}.raw")), b"image").unwrap();
    }

    #[test]
    fn the_newest_whole_pack_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(&list(dir.path())[0].state, PackState::Broken { message } if message.contains("No engine pack")));
        put(dir.path(), &"a".repeat(64), "b9999");
        put(dir.path(), &"b".repeat(64), "b11434");
        put(dir.path(), &"c".repeat(64), "b20000");
        fs::remove_file(dir.path().join(format!("{}.raw", "c".repeat(64)))).unwrap();
        fs::write(dir.path().join("rubbish.json"), b"{").unwrap();
        let packs = list(dir.path());
        assert_eq!(packs.len(), 4);
        assert_eq!(packs[0].version.as_deref(), Some("b11434"));
        assert_eq!(packs[1].version.as_deref(), Some("b9999"));
        assert!(packs[2..].iter().all(|p| p.state != PackState::Ready));
    }

    #[test]
    fn a_manifest_that_names_another_image_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), &"a".repeat(64), "b1");
        fs::rename(dir.path().join(format!("{}.json", "a".repeat(64))), dir.path().join("other.json")).unwrap();
        assert!(matches!(list(dir.path())[0].state, PackState::Broken { .. }));
    }
}
