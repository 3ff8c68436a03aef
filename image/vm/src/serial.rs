//! The guest's first serial port as a growing file: read it whole, or wait until a pattern shows up in it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use regex::Regex;

use crate::VmError;

/// A log that QEMU (or a container) appends to.
#[derive(Debug, Clone)]
pub struct SerialLog {
    path: PathBuf,
}

impl SerialLog {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Where the log lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Everything said so far; bytes that are no UTF-8 become replacement characters.
    pub fn text(&self) -> String {
        std::fs::read(&self.path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The present end of the text, to wait for something after it (a reboot, for example).
    pub fn mark(&self) -> usize {
        self.text().len()
    }

    /// The last 25 lines.
    pub fn tail(&self) -> String {
        tail(&self.text())
    }

    /// Waits until `pattern` matches in what was said after `mark`; gives the first group, or the whole match without groups.
    /// `alive` is asked on each round; once it says no, the wait fails at once instead of at the timeout.
    pub(crate) fn wait(&self, pattern: &str, mark: usize, timeout: Duration, mut alive: impl FnMut() -> bool) -> Result<String, VmError> {
        let wanted = Regex::new(pattern)?;
        let end = Instant::now() + timeout;
        loop {
            let running = alive();
            let text = self.text();
            if let Some(found) = text.get(mark..).and_then(|text| wanted.captures(text)) {
                let group = found.get(1).or_else(|| found.get(0));
                return Ok(group.map(|m| m.as_str().to_owned()).unwrap_or_default());
            }
            if !running {
                return Err(VmError::Ended { subject: self.path.display().to_string(), tail: tail(&text) });
            }
            if Instant::now() >= end {
                return Err(VmError::TimedOut { what: format!("/{pattern}/"), seconds: timeout.as_secs(), tail: tail(&text) });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(text: &str) -> (tempfile::TempDir, SerialLog) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, text).unwrap();
        (dir, SerialLog::at(path))
    }

    #[test]
    fn a_wait_gives_the_group_so_that_a_test_can_read_the_claim_code() {
        let (_dir, log) = log("boot\nClaim code: ABCD-EFGH\n");
        let found = log.wait(r"Claim code: (\S+)", 0, Duration::from_secs(1), || true).unwrap();
        assert_eq!(found, "ABCD-EFGH");
    }

    #[test]
    fn a_wait_after_a_mark_does_not_find_the_boot_before() {
        let (_dir, log) = log("ready\n");
        let result = log.wait("ready", log.mark(), Duration::from_millis(60), || true);
        assert!(matches!(result, Err(VmError::TimedOut { .. })));
    }

    #[test]
    fn a_dead_guest_ends_the_wait_at_once_and_shows_its_last_words() {
        let (_dir, log) = log("Kernel panic\n");
        let Err(VmError::Ended { tail, .. }) = log.wait("ready", 0, Duration::from_secs(60), || false) else { unreachable!() };
        assert_eq!(tail, "Kernel panic");
    }
}
