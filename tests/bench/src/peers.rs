//! Other gateways in front of the same engine, started so that they have as little to do as they can.
//!
//! What each is spared: no keys, no limits, no metrics asked for, one engine without a choice, warnings only. Ours has all of it on.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use crate::{
    bodies::{Answer, Ask, Size},
    load::{Dialect, Target},
    wire::Connection,
};

/// Longest time a server may take to come up. A Python gateway imports for half of it on a busy machine.
const UP: Duration = Duration::from_secs(120);

/// A server of a measurement; it ends when this is dropped, with all it started.
pub struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts one with its output in `log`.
    ///
    /// # Errors
    /// A sentence with its name.
    pub fn start(mut command: Command, log: &Path) -> Result<Self, String> {
        use std::os::unix::process::CommandExt;
        let what = command.get_program().to_string_lossy().into_owned();
        let said = |e: std::io::Error| format!("{what} cannot be started: {e}");
        let file = fs::File::create(log).map_err(said)?;
        let copy = file.try_clone().map_err(said)?;
        let child = command.stdin(Stdio::null()).stdout(file).stderr(copy).process_group(0).spawn().map_err(said)?;
        Ok(Self { child, log: log.to_path_buf() })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it said last, for a sentence.
    pub fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(4)..].join(" | ")
    }

    /// The address a server of this program prints.
    ///
    /// # Errors
    /// A sentence when it prints none in time.
    pub fn told_address(&self) -> Result<SocketAddr, String> {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let text = fs::read_to_string(&self.log).unwrap_or_default();
            if let Some(address) = text.lines().find_map(|line| line.strip_prefix("listening ")?.parse().ok()) {
                return Ok(address);
            }
            if Instant::now() > until {
                return Err(format!("a server of the measurement does not listen: {}", self.last_words()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until it answers a small chat.
    ///
    /// # Errors
    /// A sentence with its last words.
    pub fn answers(&mut self, target: &Target) -> Result<(), String> {
        let request = target.request(Dialect::Chat, Ask { size: Size::Small, streamed: false, answer: Answer::fast(1), conversation: 0 });
        let until = Instant::now() + UP;
        loop {
            let asked = Connection::open(target.address).and_then(|mut connection| connection.ask(&request));
            if asked.as_ref().is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            let how = asked.map_or_else(|why| why, |answer| format!("it answers {}", answer.status));
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("{} ended ({status}): {}", target.name, self.last_words()));
            }
            if Instant::now() > until {
                return Err(format!("{} is not up after {} s ({how}): {}", target.name, UP.as_secs(), self.last_words()));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(group) = i32::try_from(self.child.id()) {
            let _gone_already = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        let _reaped = self.child.wait();
    }
}

/// A gateway of somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// `vllm-router`.
    VllmRouter,
    /// `smg`.
    Smg,
    /// `litellm[proxy]`.
    Litellm,
}

impl Peer {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::VllmRouter, Self::Smg, Self::Litellm];

    /// Its name, which is also that of its program.
    pub const fn name(self) -> &'static str {
        match self {
            Self::VllmRouter => "vllm-router",
            Self::Smg => "smg",
            Self::Litellm => "litellm",
        }
    }

    /// Whether it keeps up with 1,000 requests a second and is fit for long series.
    pub const fn is_fast(self) -> bool {
        !matches!(self, Self::Litellm)
    }

    /// Starts it in front of an engine. `programs` holds a Python environment named like the peer.
    ///
    /// # Errors
    /// A sentence when it is not installed or does not come up.
    pub fn start(self, programs: &Path, engine: SocketAddr, model: &str, folder: &Path) -> Result<(Server, Target), String> {
        let program = programs.join(self.name()).join("bin").join(self.name());
        if !program.is_file() {
            return Err(format!("{} is not there; tests/bench/peers.sh installs it", program.display()));
        }
        let (port, metrics) = (free_port()?, free_port()?);
        let (port_text, metrics_text, worker) = (port.to_string(), metrics.to_string(), format!("http://{engine}"));
        let mut command = Command::new(&program);
        let common = ["--host", "127.0.0.1", "--port", &port_text];
        match self {
            Self::VllmRouter => {
                command.args(["--worker-urls", &worker, "--policy", "round_robin", "--log-level", "warning", "--prometheus-port", &metrics_text]);
                command.args(["--prometheus-host", "127.0.0.1"]);
            }
            Self::Smg => {
                command.args([
                    "launch",
                    "--worker-urls",
                    &worker,
                    "--policy",
                    "round_robin",
                    "--log-level",
                    "warn",
                    "--prometheus-port",
                    &metrics_text,
                ]);
                command.args([
                    "--prometheus-host",
                    "127.0.0.1",
                    "--disable-load-monitoring",
                    "--history-backend",
                    "none",
                    "--disable-tokenizer-autoload",
                ]);
            }
            Self::Litellm => {
                let config = folder.join("litellm.yaml");
                let text = format!(
                    "model_list:\n  - model_name: {model}\n    litellm_params:\n      model: openai/{model}\n      api_base: {worker}/v1\n      api_key: none\n\
                     litellm_settings:\n  telemetry: false\n  set_verbose: false\n  request_timeout: 60\n"
                );
                fs::write(&config, text).map_err(|e| format!("{}: {e}", config.display()))?;
                command.arg("--config").arg(config).args(["--num_workers", "1", "--telemetry", "False"]);
                // Like the other gateways of others it asks for no key; it listens on loopback, for the length of a measurement.
                command.env("LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY", "true");
                // It ends streams that say the same again and again, which is all that the engine here does.
                command.env("REPEATED_STREAMING_CHUNK_LIMIT", "1000000");
                command.env("LITELLM_LOG", "ERROR").env("LITELLM_LOCAL_MODEL_COST_MAP", "True").env("LITELLM_TELEMETRY", "False");
            }
        }
        command.args(common).current_dir(folder).env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
        let mut server = Server::start(command, &folder.join(format!("{}.log", self.name())))?;
        let target = Target {
            name: self.name().to_owned(),
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            model: model.to_owned(),
            key: None,
            pid: Some(server.pid()),
            with_children: true,
        };
        server.answers(&target)?;
        Ok((server, target))
    }
}

/// A port nobody listens on at this moment.
fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| format!("no free port on loopback: {e}"))?;
    listener.local_addr().map(|a| a.port()).map_err(|e| format!("no free port on loopback: {e}"))
}
