//! A real agent on this machine, started for one case with folders of its own and a free port.
//!
//! In: the agent's program and the genuine engine. Out: its base address, claim code and everything it said. Dropping it stops the
//! agent and whatever engine still runs out of its folders, and removes the folders.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::command::Running;
use crate::console::Console;
use crate::log::CaseLog;

/// What an agent is started with.
#[derive(Clone, Debug)]
pub struct AgentSetup {
    /// The agent's program.
    pub program: PathBuf,
    /// The genuine llama-server; `None` leaves the engines folder empty.
    pub engine: Option<PathBuf>,
    /// `dev` or `appliance`.
    pub profile: &'static str,
    /// Engines end with the agent.
    pub stop_engines: bool,
    /// Extra environment.
    pub environment: Vec<(String, String)>,
    /// Where its folders are made; `None` = a fresh temporary folder.
    pub home: Option<PathBuf>,
    /// Further lines of its configuration.
    pub more: String,
}

impl AgentSetup {
    /// The usual setup: a dev agent with an engine that ends with it.
    #[must_use]
    pub fn dev(program: PathBuf, engine: PathBuf) -> Self {
        Self { program, engine: Some(engine), profile: "dev", stop_engines: true, environment: Vec::new(), home: None, more: String::new() }
    }
}

/// A running agent with its folders.
pub struct AgentUnderTest {
    running: Option<Running>,
    setup: AgentSetup,
    home: PathBuf,
    _temporary: Option<tempfile::TempDir>,
    port: u16,
    log: CaseLog,
}

impl AgentUnderTest {
    /// Makes the folders and the configuration; starts nothing yet.
    ///
    /// # Errors
    /// A sentence when a folder or file cannot be made.
    pub fn prepare(setup: AgentSetup, log: &CaseLog) -> Result<Self, String> {
        let (home, temporary) = match &setup.home {
            Some(home) => (home.clone(), None),
            None => {
                // Short, because engines' socket paths hang below it and may not exceed 107 bytes.
                let dir = tempfile::Builder::new().prefix("wardn").tempdir_in("/tmp").map_err(|e| format!("no temporary folder: {e}"))?;
                (dir.path().to_path_buf(), Some(dir))
            }
        };
        let port = free_port()?;
        let agent = Self { running: None, setup, home, _temporary: temporary, port, log: log.clone() };
        agent.lay_out().map_err(|e| format!("the agent's folders in {}: {e}", agent.home.display()))?;
        Ok(agent)
    }

    /// Prepares, starts and waits for `/healthz`.
    ///
    /// # Errors
    /// A sentence when it does not come up, with what it said.
    pub fn start(setup: AgentSetup, log: &CaseLog) -> Result<Self, String> {
        let mut agent = Self::prepare(setup, log)?;
        agent.launch()?;
        agent.wait_healthy(Duration::from_secs(30))?;
        Ok(agent)
    }

    fn lay_out(&self) -> std::io::Result<()> {
        for folder in ["state", "data/models", "engines", "run"] {
            std::fs::create_dir_all(self.home.join(folder))?;
        }
        if let Some(engine) = &self.setup.engine {
            let ready = json!({"engine": "llama.cpp", "version": "b11434", "state": "ready", "program": engine});
            std::fs::write(self.home.join("engines/llama.cpp.json"), ready.to_string())?;
        }
        let home = self.home.display();
        let config = format!(
            "profile = \"{}\"\nlisten = \"127.0.0.1:{}\"\nstate_dir = \"{home}/state\"\ndata_dir = \"{home}/data\"\nengines_dir = \"{home}/engines\"\n\
             runtime_dir = \"{home}/run\"\nstop_engines_on_exit = {}\ndrain_seconds = 5\n{}",
            self.setup.profile, self.port, self.setup.stop_engines, self.setup.more
        );
        std::fs::write(self.home.join("agent.toml"), config)
    }

    /// Starts the agent; it may be started again after it ended.
    ///
    /// # Errors
    /// A sentence when the program cannot be started.
    pub fn launch(&mut self) -> Result<(), String> {
        let mut command = Command::new(&self.setup.program);
        command.arg("--config").arg(self.home.join("agent.toml")).current_dir(&self.home).env_remove("WARDEN_PORT").env_remove("VW_DATA_DIR");
        for (name, value) in &self.setup.environment {
            command.env(name, value);
        }
        self.running = Some(Running::start(command, &self.log)?);
        Ok(())
    }

    /// Waits for `/healthz`; an agent that ends first is told apart at once.
    ///
    /// # Errors
    /// A sentence with what the agent said.
    pub fn wait_healthy(&mut self, limit: Duration) -> Result<(), String> {
        let until = std::time::Instant::now() + limit;
        let console = self.console();
        loop {
            if console.wait_healthy(Duration::ZERO).is_ok() {
                return Ok(());
            }
            if let Some(status) = self.process()?.try_wait()? {
                std::thread::sleep(Duration::from_millis(100));
                return Err(format!("the agent ended ({status}); it said: {}", self.said()));
            }
            if std::time::Instant::now() >= until {
                return Err(format!("the agent does not answer after {} s; it said: {}", limit.as_secs(), self.said()));
            }
            std::thread::sleep(Duration::from_millis(25));
        }
    }

    /// Waits until the agent ends by itself and returns its exit code.
    ///
    /// # Errors
    /// A sentence when it is still running after the limit.
    pub fn wait_end(&mut self, limit: Duration) -> Result<Option<i32>, String> {
        let until = std::time::Instant::now() + limit;
        loop {
            if let Some(status) = self.process()?.try_wait()? {
                std::thread::sleep(Duration::from_millis(100));
                return Ok(status.code());
            }
            if std::time::Instant::now() >= until {
                return Err(format!("the agent still runs after {} s", limit.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The running process.
    ///
    /// # Errors
    /// A sentence when it was never launched.
    pub fn process(&mut self) -> Result<&mut Running, String> {
        self.running.as_mut().ok_or_else(|| "the agent was not started".to_owned())
    }

    /// Its process id.
    ///
    /// # Errors
    /// A sentence when it was never launched.
    pub fn pid(&self) -> Result<u32, String> {
        self.running.as_ref().map(Running::pid).ok_or_else(|| "the agent was not started".to_owned())
    }

    /// Everything the agent said on both outputs, as one text.
    #[must_use]
    pub fn said(&self) -> String {
        self.running.as_ref().map(|r| r.heard().join(" | ")).unwrap_or_default()
    }

    /// The claim code it printed.
    ///
    /// # Errors
    /// A sentence when it printed none.
    pub fn claim_code(&mut self) -> Result<String, String> {
        let line = self.process()?.wait_for_line("Claim code: ", Duration::from_secs(10))?;
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

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The folder that holds `state`, `data/models`, `engines` and `run`.
    #[must_use]
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// A path in its models folder.
    #[must_use]
    pub fn model_path(&self, name: &str) -> PathBuf {
        self.home.join("data/models").join(name)
    }

    /// Asks it to end, waits, and returns its exit code.
    ///
    /// # Errors
    /// A sentence when it does not end.
    pub fn stop(&mut self, limit: Duration) -> Result<Option<i32>, String> {
        self.process()?.signal(Signal::SIGTERM);
        self.wait_end(limit)
    }

    /// Processes whose command line names this agent's folders: its engines.
    #[must_use]
    pub fn engines(&self) -> Vec<i32> {
        let own = self.running.as_ref().and_then(|r| i32::try_from(r.pid()).ok());
        processes_naming(&self.home).into_iter().filter(|pid| Some(*pid) != own).collect()
    }
}

impl Drop for AgentUnderTest {
    fn drop(&mut self) {
        if let Some(running) = &mut self.running
            && matches!(running.try_wait(), Ok(None))
        {
            running.signal(Signal::SIGTERM);
            let _killed_below = self.wait_end(Duration::from_secs(10));
        }
        self.running = None;
        for pid in self.engines() {
            self.log.line(format!("ending process {pid}, which was left behind"));
            let _gone_already = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// A port nobody listens on at this moment.
///
/// # Errors
/// A sentence when the system has none.
pub fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| format!("no free port on loopback: {e}"))?;
    listener.local_addr().map(|a| a.port()).map_err(|e| format!("no free port on loopback: {e}"))
}

/// Processes whose command line names a path, this one excluded.
#[must_use]
pub fn processes_naming(path: &Path) -> Vec<i32> {
    let needle = path.to_string_lossy().into_owned();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_string_lossy().parse::<i32>().ok())
        .filter(|pid| *pid != std::process::id().cast_signed())
        .filter(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(&needle)))
        .collect()
}
