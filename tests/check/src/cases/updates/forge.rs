//! Metadata that the release tool would not make, signed with its publisher's own keys: what a careless or robbed publisher could put out.
//!
//! In: a channel folder, the folder of keys, and a change of what the two files say. Out: the folder with both files signed anew.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use warden_trust::{SeedKey, Signer, seal};

/// Changes what release and timestamp of a channel say (in this order) and signs both again, so that the one names the other.
///
/// # Errors
/// A sentence with what cannot be read or written.
pub fn resign(channel: &Path, keys: &Path, change: impl FnOnce(&mut Value, &mut Value)) -> Result<(), String> {
    let metadata = channel.join("metadata");
    let stamp_file = metadata.join("timestamp.json");
    let mut stamp = signed(&stamp_file)?;
    let mut release = signed(&metadata.join(format!("release.{}.json", stamp["release"]["version"])))?;
    change(&mut release, &mut stamp);
    let bytes = sealed(&release, keys, "release")?;
    let file = metadata.join(format!("release.{}.json", release["version"]));
    fs::write(&file, &bytes).map_err(|e| format!("{}: {e}", file.display()))?;
    stamp["release"] = json!({"version": release["version"], "sha256": hex::encode(Sha256::digest(&bytes)), "bytes": bytes.len()});
    let bytes = sealed(&stamp, keys, "timestamp")?;
    fs::write(&stamp_file, bytes).map_err(|e| format!("{}: {e}", stamp_file.display()))
}

fn signed(file: &Path) -> Result<Value, String> {
    let text = fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let mut document: Value = serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(document["signed"].take())
}

fn sealed(content: &Value, keys: &Path, role: &str) -> Result<Vec<u8>, String> {
    let mut held = Vec::new();
    for entry in fs::read_dir(keys).map_err(|e| format!("{}: {e}", keys.display()))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(&format!("{role}-")) && name.ends_with(".key") {
            held.push(key(&entry.path())?);
        }
    }
    let signers: Vec<&dyn Signer> = held.iter().map(|key| key as &dyn Signer).collect();
    seal(content, &signers)
}

/// A developer's key, which is not sealed.
fn key(file: &Path) -> Result<SeedKey, String> {
    let text = fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let document: Value = serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", file.display()))?;
    let mut seed = [0; 32];
    hex::decode_to_slice(document["seed"].as_str().unwrap_or_default(), &mut seed)
        .map_err(|e| format!("{} holds no open seed: {e}", file.display()))?;
    Ok(SeedKey::from_seed(&seed))
}
