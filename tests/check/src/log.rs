//! The log of one case: every command, request and answer with the seconds since its start.
//!
//! In: lines. Out: a file under `target/evidence/logs`. A line that cannot be written is lost and does not end the case; secrets do not
//! matter here, because every account and key of a case is made for it and thrown away.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A log that several hands of one case may write to.
#[derive(Clone, Debug)]
pub struct CaseLog {
    path: PathBuf,
    started: Instant,
    file: Arc<Mutex<File>>,
}

impl CaseLog {
    /// Starts the log of a case; an older one of the same name is replaced.
    ///
    /// # Errors
    /// A sentence when the file cannot be made.
    pub fn create(folder: &Path, id: &str) -> Result<Self, String> {
        let path = folder.join(format!("{id}.log"));
        let file = File::create(&path).map_err(|e| format!("cannot write the log {}: {e}", path.display()))?;
        Ok(Self { path, started: Instant::now(), file: Arc::new(Mutex::new(file)) })
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes one entry; further lines of it are indented.
    pub fn line(&self, text: impl AsRef<str>) {
        let entry = format!("[{:9.3}] {}\n", self.started.elapsed().as_secs_f64(), text.as_ref().trim_end().replace('\n', "\n            "));
        if let Ok(mut file) = self.file.lock() {
            let _lost_when_the_disk_is_full = file.write_all(entry.as_bytes());
        }
    }
}
