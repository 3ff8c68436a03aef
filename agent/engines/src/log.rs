//! The log file of one engine: its last lines, and a bound on its size.
//!
//! The engine writes it by itself, appending; the agent only reads and, when it grew too large, keeps the end. Blocking, but each call
//! reads at most a fixed amount.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
};

/// A log that grew beyond this is cut.
const LARGEST: u64 = 32 * 1024 * 1024;
/// What is kept of a log that is cut.
const KEPT: u64 = 1024 * 1024;
/// The most that is read to find last lines.
const READ: u64 = 1024 * 1024;
/// Longest line shown, in bytes.
const LONGEST_LINE: usize = 4096;
/// Most lines given out.
const MOST_LINES: usize = 5000;

/// The last lines, oldest first; empty when there is no log.
pub(crate) fn last_lines(path: &Path, count: usize) -> Vec<String> {
    let Ok(tail) = tail(path, READ) else { return Vec::new() };
    let mut lines: Vec<String> = tail.split(|&b| b == b'\n').map(shown).collect();
    if lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    let surplus = lines.len().saturating_sub(count.min(MOST_LINES));
    lines.split_off(surplus)
}

/// Cuts the log when it is too large. What the engine writes in the moment of the cut may be lost.
pub(crate) fn bound(path: &Path) -> io::Result<()> {
    bound_to(path, LARGEST, KEPT)
}

fn bound_to(path: &Path, largest: u64, kept: u64) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(about) if about.len() > largest => {}
        _ => return Ok(()),
    }
    let tail = tail(path, kept)?;
    // Appending, so that our one write and the engine's later ones follow each other.
    let mut file = OpenOptions::new().append(true).open(path)?;
    file.set_len(0)?;
    file.write_all(&tail)
}

/// The end of the file from a line's beginning on.
fn tail(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let start = length.saturating_sub(most);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    if start > 0
        && let Some(newline) = bytes.iter().position(|&b| b == b'\n')
    {
        bytes.drain(..=newline);
    }
    Ok(bytes)
}

/// A line without terminal codes and of bounded length. A bar that was drawn over itself is shown as it was drawn last.
fn shown(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = line.rsplit(|&b| b == b'\r').next().unwrap_or(line);
    let line = &line[..line.len().min(LONGEST_LINE)];
    String::from_utf8_lossy(line).chars().map(|c| if c == '\t' { ' ' } else { c }).filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_of_a_week_is_cut_while_the_engine_goes_on_writing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("engine.log");
        let mut engine = OpenOptions::new().append(true).create(true).open(&path).unwrap();
        for number in 0..1000 {
            writeln!(engine, "line {number:04}").unwrap();
        }
        bound_to(&path, 5000, 100).unwrap();
        writeln!(engine, "after").unwrap();
        let lines = last_lines(&path, 100);
        assert_eq!(lines.first().unwrap(), "line 0991");
        assert_eq!(lines.last().unwrap(), "after");
        bound_to(&path, 5000, 100).unwrap();
        assert_eq!(last_lines(&path, 1), ["after"]);
    }

    #[test]
    fn no_log_is_no_lines_and_hostile_bytes_are_harmless() {
        let dir = tempfile::tempdir().unwrap();
        assert!(last_lines(&dir.path().join("none"), 5).is_empty());
        let path = dir.path().join("log");
        std::fs::write(&path, b"a\x1b[31mb\r\n\xff\xfe\n").unwrap();
        assert_eq!(last_lines(&path, 9), ["a[31mb", "\u{fffd}\u{fffd}"]);
        assert_eq!(last_lines(&path, 0), Vec::<String>::new());
    }

    #[test]
    fn a_bar_that_draws_over_itself_is_read_as_it_stands() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, b"\rgraphs: 0/67\rgraphs: 1/67\rgraphs: 2/67").unwrap();
        assert_eq!(last_lines(&path, 9), ["graphs: 2/67"]);
    }
}
