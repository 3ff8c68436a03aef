//! From a recipe to a signed release file.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use warden_trust::{Digest, Document, Entry, Kind, Release, Revoked, Root, SPEC, Signer, seal};

use crate::fault::{Done, Fault};
use crate::keys::later;
use crate::recipe::{Recipe, Target};

const PART: u64 = 4 * 1024 * 1024;
/// More parts than this make the parts bigger instead.
const PARTS: u64 = 4096;

/// Reads all files of the recipe and makes the release.
pub(crate) fn release(recipe: &Recipe, root: &Root, at: Timestamp) -> Done<Release> {
    let mut entries = Vec::new();
    for target in &recipe.targets {
        let entry = entry(recipe, target)?;
        if entry.kind == Kind::Os && entry.number().is_some_and(|v| v < recipe.floor) {
            return Fault::said(format!(
                "{} is below the floor {} of its own release; no box would take it. Lower the floor or raise the version.",
                entry.subject(),
                recipe.floor
            ));
        }
        entries.push(entry);
    }
    let release = Release {
        kind: Document::Release.kind().to_owned(),
        spec: SPEC,
        version: recipe.version,
        compatible: root.compatible.clone(),
        channel: recipe.channel.clone(),
        issued: at,
        expires: later(at, recipe.expires_days)?,
        floor: recipe.floor.clone(),
        revoked: Revoked { digests: recipe.revoked.targets.iter().copied().collect(), key_ids: recipe.revoked.keys.iter().copied().collect() },
        entries,
    };
    release.check().map_err(|detail| Fault::Said(format!("The recipe contradicts itself: {detail}.")))?;
    Ok(release)
}

/// The signed file.
pub(crate) fn signed(release: &Release, signers: &[&dyn Signer]) -> Done<Vec<u8>> {
    seal(release, signers).map_err(|e| Fault::Said(format!("The release cannot be signed: {e}.")))
}

fn entry(recipe: &Recipe, target: &Target) -> Done<Entry> {
    let path = recipe.path(target);
    let Measured { bytes, part_bytes, sha256, parts } = measure(&path)?;
    Ok(Entry {
        kind: target.kind,
        name: target.name.clone(),
        version: target.version.clone(),
        sha256,
        bytes,
        part_bytes,
        parts,
        requires: (&target.requires).into(),
        data_schema: target.data_schema,
        manifest_hash: target.manifest_hash,
        waves: target.waves.clone(),
        notes: target.notes.clone(),
        licence: target.licence.clone(),
        source: target.source.clone(),
    })
}

struct Measured {
    bytes: u64,
    part_bytes: u64,
    sha256: Digest,
    parts: Vec<Digest>,
}

fn measure(path: &Path) -> Done<Measured> {
    let cannot = || Fault::io(format!("{} cannot be read", path.display()));
    let mut file = File::open(path).map_err(cannot())?;
    let length = file.metadata().map_err(cannot())?.len();
    let mut part_bytes = PART;
    while length.div_ceil(part_bytes) > PARTS && part_bytes < warden_trust::MAX_PART {
        part_bytes *= 2;
    }
    let (mut whole, mut parts, mut bytes) = (Sha256::new(), Vec::new(), 0);
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let mut part = Sha256::new();
        let mut filled = 0;
        while filled < part_bytes {
            let room = usize::try_from(part_bytes - filled).unwrap_or(usize::MAX).min(buffer.len());
            let slot = buffer.get_mut(..room).unwrap_or_default();
            let got = file.read(slot).map_err(cannot())?;
            if got == 0 {
                break;
            }
            let piece = slot.get(..got).unwrap_or_default();
            whole.update(piece);
            part.update(piece);
            filled += got as u64;
        }
        if filled == 0 {
            break;
        }
        bytes += filled;
        parts.push(Digest::from_raw(part.finalize().into()));
    }
    Ok(Measured { bytes, part_bytes, sha256: Digest::from_raw(whole.finalize().into()), parts })
}
