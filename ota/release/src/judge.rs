//! Judges a channel folder or a bundle file as a box would, from the root file the box was born with.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use jiff::Timestamp;
use warden_bundle::{Contents, FolderSource, Opened, Source, inspect, inspect_folder, open, open_folder};
use warden_trust::{Clock, Freshness, Identity, Release, Root, Trusted, Way};

use crate::fault::{Done, Fault};

/// What was found sound.
pub(crate) struct Verdict {
    /// The release.
    pub(crate) release: Release,
    /// Targets that were read and checked.
    pub(crate) targets: usize,
    /// Until when the channel counts as fresh, when it no longer does.
    pub(crate) stale: Option<Timestamp>,
}

/// Verifies everything: signatures, chain, dates, pins, and every byte of every target.
pub(crate) fn verify(path: &Path, root: &[u8], channel: Option<&str>, development: bool, at: Timestamp) -> Done<Verdict> {
    let born = Root::read(root)?.0;
    if born.development && !development {
        return Fault::said(
            "The root file belongs to development keys, and production boxes refuse them. Say --development to verify as a development box.",
        );
    }
    let channel = match channel {
        Some(channel) => channel.to_owned(),
        None => look(path)?.release.channel,
    };
    let identity = Identity { compatible: born.compatible, channel, development };
    let clock = Clock { wall: at, confirmed: true, build_epoch: Timestamp::UNIX_EPOCH };
    let trusted = Trusted::begin(root, &identity, clock.build_epoch)?;
    if path.is_dir() {
        let metadata = FolderSource::new(path)?.metadata()?;
        let accepted = trusted.accept(&metadata, Way::OverTheAir, &identity, &clock)?;
        let verdict = drain(open_folder(path, &trusted, &identity, &clock)?)?;
        let lacking = accepted.release.entries.len() - verdict.targets;
        if lacking > 0 {
            return Fault::said(format!(
                "{lacking} targets of release {} are missing in {}. Publish again from the recipe.",
                accepted.release.version,
                path.join("targets").display()
            ));
        }
        let stale = match accepted.freshness {
            Freshness::Fresh { .. } => None,
            Freshness::Stale { expires, .. } => Some(expires),
        };
        return Ok(Verdict { stale, ..verdict });
    }
    drain(open(stream(path)?, &trusted, &identity, &clock)?)
}

fn drain<S: Source>(mut opened: Opened<S>) -> Done<Verdict> {
    let mut targets = 0;
    while opened.next_target()?.is_some() {
        targets += 1;
    }
    Ok(Verdict { release: opened.accepted().release.clone(), targets, stale: None })
}

/// What a folder or file says, unbelieved.
pub(crate) fn look(path: &Path) -> Done<Contents> {
    Ok(if path.is_dir() { inspect_folder(path)? } else { inspect(stream(path)?)? })
}

fn stream(path: &Path) -> Done<BufReader<File>> {
    let file = File::open(path).map_err(Fault::io(format!("{} cannot be opened", path.display())))?;
    Ok(BufReader::with_capacity(1 << 20, file))
}
