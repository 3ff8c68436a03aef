//! A channel folder: `metadata/` and `targets/<sha256>`, as any static server can serve it. A box reads `metadata/timestamp.json` first, and
//! that file is put in place last, by renaming: before, boxes see the old release complete; after, the new one complete.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use jiff::Timestamp;
use warden_bundle::{BundleError, FolderSource, Member, Source, in_order_of_need, write};
use warden_trust::{
    Clock, Digest, Document, Entry, Identity, Metadata, PartCheck, Pin, RELEASE_MAX, Release, Root, SPEC, Signer, TIMESTAMP_MAX, TimestampDoc,
    Trusted, Way, seal,
};

use crate::fault::{Done, Fault};
use crate::files;
use crate::keys::later;

/// What a new timestamp is made from.
pub(crate) struct Stamp<'a> {
    pub(crate) signers: Vec<&'a dyn Signer>,
    pub(crate) at: Timestamp,
    pub(crate) days: i64,
}

/// Publishes a release; `file_of` says where a target's file is. Returns the new timestamp.
pub(crate) fn publish(
    channel: &Path,
    roots: Vec<Vec<u8>>,
    release: Vec<u8>,
    stamp: &Stamp<'_>,
    file_of: impl Fn(&Entry) -> Done<std::path::PathBuf>,
) -> Done<TimestampDoc> {
    let content = Release::read(&release)?.0;
    let before = published(channel)?;
    if let Some((_, old, old_bytes)) = &before {
        if old.channel != content.channel || old.compatible != content.compatible {
            return Fault::said(format!(
                "{} holds channel {:?} of {:?}, and this release is of {:?} of {:?}. Publish it into a folder of its own.",
                channel.display(),
                old.channel,
                old.compatible,
                content.channel,
                content.compatible
            ));
        }
        if content.version < old.version || (content.version == old.version && *old_bytes != release) {
            return Fault::said(format!(
                "Release {} is published already; boxes refuse another one that is not higher. Raise `version` in the recipe above {}.",
                old.version, old.version
            ));
        }
        if content.floor < old.floor {
            return Fault::said(format!(
                "The floor would go down from {} to {}, and boxes never let it. Leave it at {} or higher.",
                old.floor, content.floor, old.floor
            ));
        }
    }
    let timestamp = stamped(before.as_ref().map(|(t, _, _)| t), &content, &release, stamp)?;
    let metadata = Metadata { roots, timestamp, release };
    accepted(&metadata, stamp.at)?;

    for folder in ["metadata", "targets"] {
        files::folder(&channel.join(folder))?;
    }
    for entry in &content.entries {
        place_target(channel, entry, &file_of(entry)?)?;
    }
    for bytes in &metadata.roots {
        let version = Root::read(bytes)?.0.version;
        files::replace_with(&channel.join(Member::Root(version).to_string()), bytes)?;
    }
    files::replace_with(&channel.join(Member::Release(content.version).to_string()), &metadata.release)?;
    files::replace_with(&channel.join(Member::Timestamp.to_string()), &metadata.timestamp)?;
    Ok(TimestampDoc::read(&metadata.timestamp)?.0)
}

/// Signs a fresh timestamp for the release that is published.
pub(crate) fn refresh(channel: &Path, roots: Vec<Vec<u8>>, stamp: &Stamp<'_>) -> Done<TimestampDoc> {
    let Some((_, _, release)) = published(channel)? else {
        return Fault::said(format!("{} holds no published release yet. Use `publish` first.", channel.display()));
    };
    publish(channel, roots, release, stamp, |entry| Ok(channel.join(Member::Target(entry.sha256).to_string())))
}

fn published(channel: &Path) -> Done<Option<(TimestampDoc, Release, Vec<u8>)>> {
    let path = channel.join(Member::Timestamp.to_string());
    if !path.exists() {
        return Ok(None);
    }
    let timestamp = TimestampDoc::read(&files::read(&path, TIMESTAMP_MAX)?)?.0;
    let bytes = files::read(&channel.join(Member::Release(timestamp.release.version).to_string()), RELEASE_MAX)?;
    Ok(Some((timestamp, Release::read(&bytes)?.0, bytes)))
}

fn stamped(before: Option<&TimestampDoc>, content: &Release, release: &[u8], stamp: &Stamp<'_>) -> Done<Vec<u8>> {
    let pin = Pin { version: content.version, sha256: Digest::of(release), bytes: release.len() as u64 };
    let expires = later(stamp.at, stamp.days)?;
    let same = before.is_some_and(|old| old.release == pin && old.issued == stamp.at && old.expires == expires);
    let last = before.map_or(0, |old| old.version);
    let doc = TimestampDoc {
        kind: Document::Timestamp.kind().to_owned(),
        spec: SPEC,
        version: if same { last } else { last + 1 },
        compatible: content.compatible.clone(),
        channel: content.channel.clone(),
        issued: stamp.at,
        expires,
        release: pin,
    };
    seal(&doc, &stamp.signers).map_err(|e| Fault::Said(format!("The timestamp cannot be signed: {e}.")))
}

/// Has the set judged as a new box would.
fn accepted(metadata: &Metadata, at: Timestamp) -> Done<()> {
    let first = metadata.roots.first().map(Vec::as_slice).unwrap_or_default();
    let root = Root::read(first)?.0;
    let channel = Release::read(&metadata.release)?.0.channel;
    let identity = Identity { compatible: root.compatible, channel, development: root.development };
    let clock = Clock { wall: at, confirmed: true, build_epoch: at };
    Ok(Trusted::begin(first, &identity, at)?.accept(metadata, Way::OverTheAir, &identity, &clock)?.automatic()?)
}

/// Copies a file to its place under its digest, checking it on the way. One that is there and right is left.
fn place_target(channel: &Path, entry: &Entry, from: &Path) -> Done<()> {
    let path = channel.join(Member::Target(entry.sha256).to_string());
    if let Ok(file) = File::open(&path) {
        let check = PartCheck::resume(entry, file).map_err(Fault::io(format!("{} cannot be read", path.display())))?;
        if check.finish().is_ok() {
            return Ok(());
        }
    }
    let mut source = File::open(from).map_err(Fault::io(format!("{} cannot be read", from.display())))?;
    files::replace(&path, |out| {
        let mut check = PartCheck::new(entry);
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let got = source.read(&mut buffer).map_err(Fault::io(format!("{} cannot be read", from.display())))?;
            let bytes = buffer.get(..got).unwrap_or_default();
            if bytes.is_empty() {
                return Ok(check.finish()?);
            }
            check.feed(bytes)?;
            out.write_all(bytes).map_err(Fault::io(format!("{} cannot be written", path.display())))?;
        }
    })
}

/// Cuts a bundle from a channel folder. `only` chooses targets as `kind/name`; empty means all. Returns its bytes and targets.
pub(crate) fn cut(channel: &Path, out: &Path, only: &[String]) -> Done<(u64, usize)> {
    let metadata = FolderSource::new(channel)?.metadata()?;
    let release = Release::read(&metadata.release)?.0;
    let name = |e: &Entry| format!("{}/{}", e.kind, e.name);
    if let Some(unknown) = only.iter().find(|o| !release.entries.iter().any(|e| name(e) == **o)) {
        let known: Vec<_> = release.entries.iter().map(name).collect();
        return Fault::said(format!("{unknown:?} is no target of release {}. It has: {}.", release.version, known.join(", ")));
    }
    let chosen = |digest: &Digest| only.is_empty() || release.entry(digest).is_some_and(|e| only.contains(&name(e)));
    let targets: Vec<Digest> = in_order_of_need(&release).into_iter().filter(chosen).collect();
    let mut bytes = 0;
    files::replace(out, |file| {
        let mut buffered = std::io::BufWriter::with_capacity(1 << 20, file);
        let mut open = |entry: &Entry| File::open(channel.join(Member::Target(entry.sha256).to_string())).map(|f| Box::new(f) as Box<dyn Read>);
        bytes = write(&mut buffered, &metadata, &targets, &mut open)?;
        buffered.flush().map_err(|source| BundleError::Io { doing: "the bundle cannot be written".to_owned(), source })?;
        Ok(())
    })?;
    Ok((bytes, targets.len()))
}
