//! Runs outside programs for a case: with a time limit, in their own process group, with everything they say in the case's log.
//!
//! In: a `std::process::Command`. Out: how it ended and what it said. A program that is still running when its owner is dropped is
//! killed with all of its children, so a failed case leaves nothing behind.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::log::CaseLog;

/// What a finished program left.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// All it said on both outputs, line by line, in the order of arrival.
    pub output: Vec<String>,
}

impl Finished {
    /// True for exit code 0.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.code == Some(0)
    }

    /// Its output as one text.
    #[must_use]
    pub fn text(&self) -> String {
        self.output.join("\n")
    }

    /// The last few lines, for a failure's sentence.
    #[must_use]
    pub fn tail(&self, lines: usize) -> String {
        let from = self.output.len().saturating_sub(lines);
        self.output[from..].join(" | ")
    }
}

/// A program that runs.
pub struct Running {
    child: Child,
    what: String,
    log: CaseLog,
    started: Instant,
    heard: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
    over: bool,
}

impl Running {
    /// Starts a program in its own process group with both outputs read.
    ///
    /// # Errors
    /// A sentence naming the program when it cannot be started.
    pub fn start(mut command: Command, log: &CaseLog) -> Result<Self, String> {
        let what = command.get_program().to_string_lossy().into_owned();
        log.line(format!("$ {command:?}"));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|e| format!("{what} cannot be started: {e}"))?;
        let heard = Arc::new(Mutex::new(Vec::new()));
        let mut readers = Vec::new();
        if let Some(out) = child.stdout.take() {
            readers.push(listen(out, log.clone(), heard.clone()));
        }
        if let Some(err) = child.stderr.take() {
            readers.push(listen(err, log.clone(), heard.clone()));
        }
        Ok(Self { child, what, log: log.clone(), started: Instant::now(), heard, readers, over: false })
    }

    /// Its process id, which is also the id of its group.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it said until now.
    #[must_use]
    pub fn heard(&self) -> Vec<String> {
        self.heard.lock().map(|lines| lines.clone()).unwrap_or_default()
    }

    /// Waits until a line holds `needle`, and returns that line.
    ///
    /// # Errors
    /// A sentence when the limit passes or the program ends first, with the last lines it said.
    pub fn wait_for_line(&mut self, needle: &str, limit: Duration) -> Result<String, String> {
        let until = Instant::now() + limit;
        loop {
            if let Some(line) = self.heard().into_iter().find(|l| l.contains(needle)) {
                return Ok(line);
            }
            if let Some(status) = self.try_wait()? {
                self.join_readers();
                if let Some(line) = self.heard().into_iter().find(|l| l.contains(needle)) {
                    return Ok(line);
                }
                return Err(format!("{} ended ({status}) before it said \"{needle}\"; last: {}", self.what, self.last(4)));
            }
            if Instant::now() >= until {
                return Err(format!("{} did not say \"{needle}\" within {} s; last: {}", self.what, limit.as_secs(), self.last(4)));
            }
            std::thread::sleep(Duration::from_millis(25));
        }
    }

    /// Sends a signal to the program alone.
    pub fn signal(&self, signal: Signal) {
        self.log.line(format!("{signal} to {} (pid {})", self.what, self.pid()));
        if let Ok(pid) = i32::try_from(self.pid()) {
            let _gone_already = nix::sys::signal::kill(Pid::from_raw(pid), signal);
        }
    }

    /// Sends a signal to the program and all of its group, as Ctrl-C on a terminal does.
    pub fn signal_group(&self, signal: Signal) {
        self.log.line(format!("{signal} to the group of {} (pid {})", self.what, self.pid()));
        if let Ok(pid) = i32::try_from(self.pid()) {
            let _gone_already = killpg(Pid::from_raw(pid), signal);
        }
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// A sentence when the system cannot tell.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, String> {
        let status = self.child.try_wait().map_err(|e| format!("{}: {e}", self.what))?;
        self.over |= status.is_some();
        Ok(status)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// A sentence when the limit passes; the whole group is killed then.
    pub fn wait(mut self, limit: Duration) -> Result<Finished, String> {
        let until = Instant::now() + limit;
        loop {
            if let Some(status) = self.try_wait()? {
                let took = self.started.elapsed();
                self.join_readers();
                self.log.line(format!("{} ended: {status} after {:.2} s", self.what, took.as_secs_f64()));
                return Ok(Finished { code: status.code(), output: self.heard() });
            }
            if Instant::now() >= until {
                return Err(format!("{} was still running after {} s and was stopped; last: {}", self.what, limit.as_secs(), self.last(4)));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn last(&self, lines: usize) -> String {
        let heard = self.heard();
        heard[heard.len().saturating_sub(lines)..].join(" | ")
    }

    /// Reads what is left in the pipes. A grandchild may hold a pipe open for ever, so the wait is short.
    fn join_readers(&mut self) {
        let until = Instant::now() + Duration::from_secs(2);
        for reader in self.readers.drain(..) {
            while !reader.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            if reader.is_finished() {
                let _a_reader_never_panics = reader.join();
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.over {
            self.signal_group(Signal::SIGKILL);
            let _reaped = self.child.wait();
        }
    }
}

fn listen(from: impl Read + Send + 'static, log: CaseLog, heard: Arc<Mutex<Vec<String>>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while matches!(from.read_until(b'\n', &mut line), Ok(n) if n > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            log.line(format!("> {text}"));
            if let Ok(mut heard) = heard.lock() {
                heard.push(text);
            }
            line.clear();
        }
    })
}

/// Runs a program to its end.
///
/// # Errors
/// A sentence when it cannot be started or the limit passes.
pub fn run(command: Command, limit: Duration, log: &CaseLog) -> Result<Finished, String> {
    Running::start(command, log)?.wait(limit)
}

/// Runs a program to its end and demands exit code 0.
///
/// # Errors
/// A sentence that starts with `purpose` and ends with the last lines the program said.
pub fn run_ok(purpose: &str, command: Command, limit: Duration, log: &CaseLog) -> Result<Finished, String> {
    let finished = run(command, limit, log).map_err(|e| format!("{purpose}: {e}"))?;
    if finished.ok() { Ok(finished) } else { Err(format!("{purpose}: exit code {:?}; last: {}", finished.code, finished.tail(6))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> (tempfile::TempDir, CaseLog) {
        let dir = tempfile::tempdir().unwrap();
        let log = CaseLog::create(dir.path(), "t").unwrap();
        (dir, log)
    }

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_its_children() {
        let (_dir, log) = log();
        let mut running = Running::start(sh("sleep 60 & echo child $!; wait"), &log).unwrap();
        let said = running.wait_for_line("child", Duration::from_secs(5)).unwrap();
        let child: i32 = said.trim_start_matches("child ").parse().unwrap();
        assert!(running.wait(Duration::from_millis(100)).unwrap_err().contains("still running"));
        std::thread::sleep(Duration::from_millis(200));
        let state = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(" Z "), "the child lives on: {state}");
    }

    #[test]
    fn a_program_that_ends_early_is_told_apart_from_a_slow_one() {
        let (_dir, log) = log();
        let mut running = Running::start(sh("echo some cause; exit 3"), &log).unwrap();
        let said = running.wait_for_line("never", Duration::from_secs(5)).unwrap_err();
        assert!(said.contains("ended") && said.contains("some cause"), "{said}");
    }

    #[test]
    fn both_outputs_are_heard() {
        let (_dir, log) = log();
        let finished = run(sh("echo a; echo b >&2"), Duration::from_secs(5), &log).unwrap();
        assert!(finished.ok());
        assert!(finished.output.contains(&"a".to_owned()) && finished.output.contains(&"b".to_owned()));
    }
}
