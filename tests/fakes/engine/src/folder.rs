//! The folder that the engine lives in: its program under the name of the genuine one, its script, and what it notes.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

/// The program's name, as in an engine pack.
pub const PROGRAM: &str = "llama-server";
/// What it is to do.
pub const SCRIPT: &str = "script.json";
/// One line per request that is over: what it was and how it ended.
pub const ASKED: &str = "asked.jsonl";
/// One line per request that came, before anything is done with it.
pub const ARRIVED: &str = "arrived.jsonl";

/// See the module.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Puts the built program into a folder (made when missing) as a hard link, or as a copy where links do not reach.
    ///
    /// # Errors
    /// A sentence when the program is not built or the folder cannot be made.
    pub fn lay(folder: &Path, built: &Path) -> Result<Self, String> {
        let program = folder.join(PROGRAM);
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        fs::hard_link(built, &program).or_else(|_| fs::copy(built, &program).map(drop)).map_err(|e| {
            format!("the scripted engine {} cannot be used: {e}. Build it with `cargo build -p warden-fake-engine`.", built.display())
        })?;
        Ok(Self(folder.to_path_buf()))
    }

    /// The program to start.
    #[must_use]
    pub fn program(&self) -> PathBuf {
        self.0.join(PROGRAM)
    }

    /// Gives it another script, which holds from the next request on.
    ///
    /// # Errors
    /// A sentence when it is no script or cannot be written.
    pub fn script(&self, script: &Value) -> Result<(), String> {
        serde_json::from_value::<crate::script::Script>(script.clone()).map_err(|e| format!("this is no script ({e}): {script}"))?;
        let (path, new) = (self.0.join(SCRIPT), self.0.join("script.new"));
        let write = || {
            fs::File::create(&new)?.write_all(script.to_string().as_bytes())?;
            fs::rename(&new, &path)
        };
        write().map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Requests that are over, in the order in which they ended.
    #[must_use]
    pub fn asked(&self) -> Vec<Value> {
        lines(&self.0.join(ASKED))
    }

    /// Requests that came.
    #[must_use]
    pub fn arrived(&self) -> Vec<Value> {
        lines(&self.0.join(ARRIVED))
    }

    /// Waits for something to hold of its notes; what it returned, or a sentence with the notes.
    ///
    /// # Errors
    /// A sentence when the time is over.
    pub fn wait<T>(&self, what: &str, limit: Duration, mut holds: impl FnMut(&Self) -> Option<T>) -> Result<T, String> {
        let until = Instant::now() + limit;
        loop {
            if let Some(found) = holds(self) {
                return Ok(found);
            }
            if Instant::now() >= until {
                let (came, over) = (self.arrived(), self.asked().iter().map(|a| a["ended"].clone()).collect::<Vec<_>>());
                return Err(format!(
                    "{what}: not within {} s; {} requests came, those that are over ended as {over:?}",
                    limit.as_secs_f32(),
                    came.len()
                ));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Forgets what was noted so far.
    pub fn forget(&self) {
        for name in [ASKED, ARRIVED] {
            let _nothing_noted = fs::remove_file(self.0.join(name));
        }
    }
}

/// A line that is being written is left for the next time.
fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
