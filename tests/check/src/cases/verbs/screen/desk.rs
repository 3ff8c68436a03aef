//! A container with the image's root in which resets are asked for, consumed and put back: one folder for state and data that outlives
//! its starts, the real helper, the real consumer, the real screen.
//!
//! A start is a boot of the container; a power cut is the end of all its processes at once.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use warden_vm::{Container, ContainerSpec, Ran};

use crate::log::CaseLog;

const UP: Duration = Duration::from_secs(90);
const HELPER: [&str; 3] = ["org.lmwarden.Helper1", "/org/lmwarden/Helper1", "org.lmwarden.Helper1"];
/// The agent is left out: nothing but the reset under test moves.
const NO_AGENT: &str = "[Unit]\nConditionPathExists=/nonexistent\n[Service]\nExecStart=/usr/lib/warden/warden-agent\n";

/// State and data of a box, and the container that runs on them while it is started.
pub struct Desk {
    root: PathBuf,
    folder: tempfile::TempDir,
    running: Option<Container>,
    log: CaseLog,
}

impl Desk {
    /// A box that has an owner: an account's database, a network profile, a model, a pack.
    pub fn furnished(root: &Path, log: &CaseLog) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("wardr").tempdir_in("/tmp").map_err(|e| format!("no temporary folder: {e}"))?;
        open_to_all(folder.path())?;
        let desk = Self { root: root.to_owned(), folder, running: None, log: log.clone() };
        desk.furnish()?;
        desk.lay("state/machine-id", "0123456789abcdef0123456789abcdef\n")?;
        Ok(desk)
    }

    /// Lays the owner's things where they are missing.
    pub fn furnish(&self) -> Result<(), String> {
        for file in ["state/warden/config.db", "state/network/connections/lan.nmconnection", "data/models/a.gguf", "data/packs/p.raw"] {
            self.lay(file, "the owner's\n")?;
        }
        Ok(())
    }

    /// Writes a file of the box.
    pub fn lay(&self, file: &str, text: &str) -> Result<(), String> {
        let path = self.path(file);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|e| format!("{}: {e}", parent.display()))?;
        }
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// A path of the box: below `state/` or `data/`.
    #[must_use]
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// Whether a file of the box is there.
    #[must_use]
    pub fn there(&self, file: &str) -> bool {
        self.path(file).exists()
    }

    /// The text of a file of the box; empty when it is not there.
    #[must_use]
    pub fn text(&self, file: &str) -> String {
        std::fs::read_to_string(self.path(file)).unwrap_or_default()
    }

    /// The stage of a reset in the list, by its id.
    #[must_use]
    pub fn stage(&self, id: &str) -> String {
        let list: Value = serde_json::from_str(&self.text("state/reset/consumed")).unwrap_or_default();
        let entries = list["resets"].as_array().cloned().unwrap_or_default();
        entries.iter().find(|entry| entry["record"]["id"] == id).and_then(|entry| entry["stage"].as_str()).unwrap_or("unknown").to_owned()
    }

    /// Starts the box and waits until it is up.
    pub fn start(&mut self) -> Result<(), String> {
        self.cut();
        let agent = self.path("agent.service");
        std::fs::write(&agent, NO_AGENT).map_err(|e| format!("{}: {e}", agent.display()))?;
        let binds = vec![(agent, "/usr/lib/systemd/system/warden-agent.service".to_owned())];
        let spec = ContainerSpec { root: self.root.clone(), run_dir: self.folder.path().to_owned(), binds };
        let container = Container::boot(&spec, UP).map_err(|e| e.to_string())?;
        self.log.line(format!("started after {:.1} s", container.age().as_secs_f64()));
        self.running = Some(container);
        let said = self.run("root", &["/usr/bin/journalctl", "--no-pager", "-o", "cat", "-u", "warden-reset.service"])?;
        self.log.line(said.stdout);
        Ok(())
    }

    /// Starts the box without waiting for it and pulls the plug as soon as `when` holds.
    pub fn start_and_cut_when(&mut self, when: impl Fn(&Self) -> bool) -> Result<(), String> {
        self.cut();
        let agent = self.path("agent.service");
        let mut child = Command::new("systemd-nspawn")
            .env("UNIFIED_CGROUP_HIERARCHY", "1")
            .arg("--directory")
            .arg(&self.root)
            .args(["--register=no", "--keep-unit", "--boot", "--private-network", "--console=pipe", "--read-only", "--tmpfs=/var"])
            .arg(format!("--machine=warden-cut-{}", std::process::id()))
            .arg(format!("--bind={}:/state", self.path("state").display()))
            .arg(format!("--bind={}:/data", self.path("data").display()))
            .arg(format!("--bind-ro={}:/usr/lib/systemd/system/warden-agent.service", agent.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("systemd-nspawn cannot be started: {e}"))?;
        let until = Instant::now() + UP;
        let mut seen = false;
        while Instant::now() < until && !seen {
            seen = when(self);
            std::thread::sleep(Duration::from_millis(1));
        }
        kill_tree(child.id());
        let _ended = child.wait();
        if seen { Ok(()) } else { Err("the moment for the power cut did not come".to_owned()) }
    }

    /// Pulls the plug.
    pub fn cut(&mut self) {
        self.running = None;
    }

    /// Asks the helper for a reset as a user; gives the id or the refusal.
    pub fn ask(&self, user: &str, scope: &str, keep_models: bool) -> Result<Result<String, String>, String> {
        let keep = if keep_models { "true" } else { "false" };
        let mut call = vec!["/usr/bin/busctl", "--timeout=30", "--", "call"];
        call.extend(HELPER);
        call.extend(["RequestReset", "sb", scope, keep]);
        let ran = self.run(user, &call)?;
        let id = ran.stdout.trim().strip_prefix("s \"").and_then(|text| text.strip_suffix('"')).map(str::to_owned);
        Ok(id.filter(|_| ran.status == Some(0)).ok_or(ran.stderr))
    }

    /// Sits down at a screen and types; gives what it showed, and the record that came to lie in the folder (the box restarts at once
    /// and consumes it).
    pub fn type_at_screen(&self, keys: &[&str]) -> Result<(String, String), String> {
        let container = self.running.as_ref().ok_or("the box is not started")?;
        let mut child = Command::new("nsenter")
            .args(["--target", &container.init_pid().to_string(), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"])
            .args(["--setuid", "701", "--setgid", "701", "--", "/usr/lib/warden/warden-console", "--terminal", "ttyS9"])
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("nsenter cannot be started: {e}"))?;
        let mut record = String::new();
        if let Some(mut input) = child.stdin.take() {
            for key in keys {
                std::thread::sleep(Duration::from_millis(400));
                let _gone = input.write_all(key.as_bytes());
            }
            let until = Instant::now() + Duration::from_secs(20);
            while record.is_empty() && Instant::now() < until {
                record = self.text("state/reset/request");
                std::thread::sleep(Duration::from_millis(2));
            }
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        kill_tree(child.id());
        let output = child.wait_with_output().map_err(|e| e.to_string())?;
        let shown = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        self.log.line(format!("the screen showed:\n{shown}"));
        Ok((shown, record))
    }

    /// Whether the box wanted a restart by itself; it is off then.
    pub fn restarts(&mut self) -> bool {
        let restarts = self.running.as_mut().and_then(|container| container.ended(UP)) == Some(true);
        self.cut();
        restarts
    }

    /// Runs a program inside.
    pub fn run(&self, user: &str, argv: &[&str]) -> Result<Ran, String> {
        let container = self.running.as_ref().ok_or("the box is not started")?;
        let ran = container.run_as(user, argv).map_err(|e| e.to_string())?;
        self.log.line(format!("{user} $ {}\n{}{}(exit {:?})", argv.join(" "), ran.stdout, ran.stderr, ran.status));
        Ok(ran)
    }
}

/// Ends a process and all its children at once, the deepest last: what a power cut is to a container.
fn kill_tree(pid: u32) {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    let mut all = vec![pid];
    let mut at = 0;
    while let Some(pid) = all.get(at).copied() {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        at += 1;
    }
    for pid in all.iter().rev() {
        let _gone = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
    }
}

fn open_to_all(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).map_err(|e| format!("{}: {e}", path.display()))
}
