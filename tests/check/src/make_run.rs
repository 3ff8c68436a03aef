//! `make run` as a person starts it, with a state folder and a port of its own.
//!
//! In: the tree. Out: base address and claim code, then an end by Ctrl-C that leaves nothing behind. The first start on a machine may
//! take minutes (engine, model, agent are built); it is never measured here, only waited for.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::agent::{free_port, processes_naming};
use crate::command::{Finished, Running};
use crate::console::Console;
use crate::log::CaseLog;
use crate::stage::Stage;

/// The model file that lies ready after `make run`.
pub const SMALL_MODEL: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// A running `make run`.
pub struct MakeRun {
    running: Running,
    started: Instant,
    port: u16,
    log: CaseLog,
}

impl MakeRun {
    /// Starts it; its state lies in `folder` (short, sockets hang below it) and stays there.
    ///
    /// # Errors
    /// A sentence when make cannot be started.
    pub fn start(stage: &Stage, folder: &Path, log: &CaseLog) -> Result<Self, String> {
        let port = free_port()?;
        let mut make = stage.in_tree("make");
        make.args(["--no-print-directory", "run"]).env("WARDEN_RUN_DIR", folder).env("WARDEN_PORT", port.to_string());
        let started = Instant::now();
        Ok(Self { running: Running::start(make, log)?, started, port, log: log.clone() })
    }

    /// Waits until the console's address is printed and answers; returns the time since the start.
    ///
    /// # Errors
    /// A sentence with the last lines it said.
    pub fn wait_console(&mut self, limit: Duration) -> Result<Duration, String> {
        self.running.wait_for_line("Console: http", limit)?;
        let console = self.console();
        console.wait_healthy(Duration::from_secs(20))?;
        let page = console.http.get("/ui/")?;
        if page.status >= 400 {
            return Err(format!("the console's page answered {}", page.status));
        }
        Ok(self.started.elapsed())
    }

    /// The claim code it printed.
    ///
    /// # Errors
    /// A sentence when there is none.
    pub fn claim_code(&mut self) -> Result<String, String> {
        let line = self.running.wait_for_line("Claim code: ", Duration::from_secs(10))?;
        line.split("Claim code: ").nth(1).map(|code| code.trim().to_owned()).ok_or_else(|| "the claim code's line is empty".to_owned())
    }

    /// A visitor without a session.
    #[must_use]
    pub fn console(&self) -> Console {
        Console::new(&self.base(), &self.log)
    }

    /// A visitor who has claimed the box.
    ///
    /// # Errors
    /// A sentence when the claim is refused.
    pub fn claimed(&mut self) -> Result<Console, String> {
        let code = self.claim_code()?;
        let mut console = self.console();
        console.claim(&code)?;
        Ok(console)
    }

    /// `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Presses Ctrl-C and waits for the end.
    ///
    /// # Errors
    /// A sentence when it does not end in time.
    pub fn interrupt(self, limit: Duration) -> Result<Finished, String> {
        self.running.signal_group(Signal::SIGINT);
        self.running.wait(limit)
    }
}

/// Processes that still work in a state folder shortly after the end.
#[must_use]
pub fn left_behind(folder: &Path) -> Vec<i32> {
    let until = Instant::now() + Duration::from_secs(3);
    loop {
        let left = processes_naming(folder);
        if left.is_empty() || Instant::now() >= until {
            return left;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A short temporary folder for a state.
///
/// # Errors
/// A sentence when it cannot be made.
pub fn state_folder() -> Result<tempfile::TempDir, String> {
    tempfile::Builder::new().prefix("wardn").tempdir_in("/tmp").map_err(|e| format!("no temporary folder: {e}"))
}
