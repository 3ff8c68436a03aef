//! Whole small files: read one, make one with its folders.

use std::fs;
use std::path::{Path, PathBuf};

use crate::fatal::Fatal;

/// The text of a file.
pub fn read(path: &str) -> Result<String, Fatal> {
    fs::read_to_string(path).map_err(|source| Fatal::File { path: PathBuf::from(path), source })
}

/// Makes a file in a memory file system; nothing there must survive a cut.
pub fn make(path: &str, text: &str) -> Result<(), Fatal> {
    let failed = |source| Fatal::File { path: PathBuf::from(path), source };
    if let Some(folder) = Path::new(path).parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(path, text).map_err(failed)
}
