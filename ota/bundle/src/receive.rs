//! Lays a bundle's targets into a folder of the box: under a temporary name while they come, under their digest once they are verified and on
//! the medium. What was there complete before is not written again.

use std::fs::File;
use std::path::{Path, PathBuf};

use warden_durable::Coming;
use warden_trust::{Digest, Entry, PartCheck};

use crate::fault::BundleError;
use crate::reader::{Opened, Source};

/// A target that lies verified in the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Which.
    pub digest: Digest,
    /// Its file.
    pub path: PathBuf,
}

/// Receives the targets that `wanted` says yes to. `progress` hears the bytes read so far after each target.
///
/// # Errors
/// The first fault of the bundle or the folder. Targets named before it are complete; the one at work is removed.
pub fn receive<S: Source>(
    opened: &mut Opened<S>,
    folder: &Path,
    mut wanted: impl FnMut(&Entry) -> bool,
    mut progress: impl FnMut(u64),
) -> Result<Vec<Received>, BundleError> {
    let mut all = Vec::new();
    while let Some(digest) = opened.next_target()? {
        let entry = opened.accepted().release.entry(&digest);
        if entry.is_some_and(&mut wanted) {
            let path = folder.join(digest.to_string());
            let there = match (entry, File::open(&path)) {
                (Some(entry), Ok(file)) => PartCheck::resume(entry, file).is_ok_and(|check| check.finish().is_ok()),
                _ => false,
            };
            if !there {
                take(opened, &path)?;
            }
            all.push(Received { digest, path });
        }
        progress(opened.progress());
    }
    Ok(all)
}

fn take<S: Source>(opened: &mut Opened<S>, path: &Path) -> Result<(), BundleError> {
    let mut coming = Coming::new(path).map_err(BundleError::io(format!("{} cannot be made", path.display())))?;
    opened.copy_to(coming.file())?;
    coming.place().map_err(BundleError::io(format!("{} cannot be put in place", path.display())))
}
