//! The one way these documents are read and written.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// The most bytes of a document that does not say otherwise.
pub const MAX_BYTES: u64 = 256 * 1024;
/// `O_NOFOLLOW | O_NONBLOCK`: neither a link nor a pipe in the place of a document is waited for.
const PLAIN: i32 = 0o400_000 | 0o4_000;

/// A document with its place in its folder.
pub trait Document: Serialize + DeserializeOwned {
    /// The file's name.
    const FILE: &'static str;
    /// The most bytes of it; more is damage.
    const MAX: u64 = MAX_BYTES;
}

/// Why a document was not read or written.
#[derive(Debug, Error)]
pub enum FileError {
    /// The system said no.
    #[error("{path} cannot be {doing}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// `read` or `written`.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// It is no document of this kind.
    #[error("{path} is damaged: {detail}")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
}

/// Reads a document from its folder; `None` when it is not there.
///
/// # Errors
/// It cannot be read, is larger than it may be, or is no such document.
pub fn read<D: Document>(folder: &Path) -> Result<Option<D>, FileError> {
    let path = folder.join(D::FILE);
    let failed = |source| FileError::Io { path: path.clone(), doing: "read", source };
    let damaged = |detail: String| FileError::Damaged { path: path.clone(), detail };
    let file = match OpenOptions::new().read(true).custom_flags(PLAIN).open(&path) {
        Ok(file) => file,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(failed(cause)),
    };
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(damaged("it is no plain file".to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(D::MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > D::MAX {
        return Err(damaged(format!("it has more than {} bytes", D::MAX)));
    }
    serde_json::from_slice(&bytes).map(Some).map_err(|cause| damaged(cause.to_string()))
}

/// Writes a document into its folder and returns when it is on the medium. Other programs read them: nothing in them is secret.
///
/// # Errors
/// What the system says; the old document is then still there.
pub fn write<D: Document>(folder: &Path, document: &D) -> Result<(), FileError> {
    let path = folder.join(D::FILE);
    let failed = |source| FileError::Io { path: path.clone(), doing: "written", source };
    let mut bytes = serde_json::to_vec_pretty(document).map_err(|cause| failed(cause.into()))?;
    bytes.push(b'\n');
    warden_durable::write_for_all(&path, &bytes).map_err(failed)
}
