//! Records of this room in files: read, written durably, set aside when they cannot be read.

use std::{io, path::Path};

use serde::{Serialize, de::DeserializeOwned};
use warden_domain::Problem;

/// What a file held.
pub(crate) enum Kept<T> {
    /// Its record.
    Read(T),
    /// There is none, or it was set aside because it could not be read.
    Nothing,
}

/// Reads a record. One that is no record is set aside.
///
/// # Errors
/// The file is there and cannot be read or set aside.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Kept<T>, Problem> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Kept::Nothing),
        Err(cause) => return Err(said(path, &cause)),
    };
    match serde_json::from_slice(&bytes) {
        Ok(record) => Ok(Kept::Read(record)),
        Err(cause) => {
            set_aside(path, &cause.to_string())?;
            Ok(Kept::Nothing)
        }
    }
}

/// Writes a record for its owner's eyes only.
///
/// # Errors
/// The disk is full or the folder is not writable.
pub(crate) fn write<T: Serialize>(path: &Path, record: &T) -> Result<(), Problem> {
    let text = serde_json::to_vec(record).map_err(|cause| Problem::internal(format!("{} cannot be written: {cause}.", path.display())))?;
    warden_durable::write_with_mode(path, &text, 0o600).map_err(|cause| said(path, &cause))
}

/// Gives an unreadable file another name, so that nothing is lost and nothing stands in the way.
///
/// # Errors
/// It cannot be renamed.
pub(crate) fn set_aside(path: &Path, why: &str) -> Result<(), Problem> {
    let aside = path.with_extension("unreadable");
    tracing::error!(path = %path.display(), why, "a file of the front door cannot be read; it is kept aside and made anew");
    std::fs::rename(path, &aside).map_err(|cause| said(path, &cause))
}

fn said(path: &Path, cause: &io::Error) -> Problem {
    let problem = Problem::from_io(&format!("the file {}", path.display()), cause);
    if problem.hint.is_some() { problem } else { problem.hint("Check that the agent's user may write in that folder.") }
}
