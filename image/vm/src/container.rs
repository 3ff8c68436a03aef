//! The same root as the image, booted by systemd-nspawn in about a second: bus, polkit, units and network without a kernel of its
//! own. There is no device-mapper in it, so signed packs and updates need a guest.
//!
//! In go a root tree and a folder for state; out comes a container in which commands run as a chosen user through `nsenter`.
//! The tree itself is mounted read-only and never changed.

use std::ffi::OsStr;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{SerialLog, VmError};

/// What to boot.
#[derive(Debug, Clone)]
pub struct ContainerSpec {
    /// The root tree.
    pub root: PathBuf,
    /// A folder for this run: `state/` and `data/` are bound at `/state` and `/data`, the log is `container.log`.
    pub run_dir: PathBuf,
    /// Further read-only binds, host path to container path.
    pub binds: Vec<(PathBuf, String)>,
}

/// What a command in the container answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// The exit status; `None` when a signal ended it.
    pub status: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// A running container; it is killed when dropped.
#[derive(Debug)]
pub struct Container {
    child: Child,
    init: Pid,
    root: PathBuf,
    log: SerialLog,
    started: Instant,
}

impl Container {
    /// Boots the root and waits until the system manager says that start-up is over (with or without failed units).
    ///
    /// # Errors
    /// When systemd-nspawn is missing, or the system is not up within `timeout`.
    pub fn boot(spec: &ContainerSpec, timeout: Duration) -> Result<Self, VmError> {
        Self::boot_plugged(spec, &[], timeout, || Ok(()))
    }

    /// The same with virtual cables: for each, the name of the end that appears on this machine and of the one inside. `plug` is called
    /// once the first process runs, while the system comes up.
    ///
    /// # Errors
    /// As `boot`; and those of `plug`.
    pub fn boot_plugged(
        spec: &ContainerSpec,
        cables: &[(&str, &str)],
        timeout: Duration,
        plug: impl FnOnce() -> Result<(), VmError>,
    ) -> Result<Self, VmError> {
        for folder in ["state", "data"] {
            let path = spec.run_dir.join(folder);
            std::fs::create_dir_all(&path).map_err(VmError::io("cannot make a folder for the container", &path))?;
        }
        let log_path = spec.run_dir.join("container.log");
        let said = File::create(&log_path).map_err(VmError::io("cannot write the container's log", &log_path))?;
        let also = said.try_clone().map_err(VmError::io("cannot write the container's log", &log_path))?;
        let name = format!("warden-{}-{}", std::process::id(), spec.run_dir.file_name().unwrap_or(OsStr::new("run")).to_string_lossy());
        let mut command = Command::new("systemd-nspawn");
        command
            .env("UNIFIED_CGROUP_HIERARCHY", "1")
            .arg("--directory")
            .arg(&spec.root)
            .args(["--register=no", "--keep-unit", "--boot", "--private-network", "--console=pipe", "--read-only", "--tmpfs=/var"])
            .arg(format!("--machine={}", machine_name(&name)))
            .arg(format!("--bind={}:/state", spec.run_dir.join("state").display()))
            .arg(format!("--bind={}:/data", spec.run_dir.join("data").display()));
        for (outside, inside) in cables {
            command.arg(format!("--network-veth-extra={outside}:{inside}"));
        }
        for (from, to) in &spec.binds {
            command.arg(format!("--bind-ro={}:{to}", from.display()));
        }
        // Standard input stays an open pipe: without one systemd-nspawn takes the end of input for a wish to stop.
        let child = command.stdin(Stdio::piped()).stdout(said).stderr(also).spawn().map_err(|source| VmError::Start {
            program: "systemd-nspawn".into(),
            source,
            way_out: "install the Debian package systemd-container",
        })?;
        let log = SerialLog::at(log_path);
        let mut container = Self { child, init: Pid::from_raw(0), root: spec.root.clone(), log, started: Instant::now() };
        let end = Instant::now() + timeout;
        container.init = container.find_init(end)?;
        plug()?;
        loop {
            let state = container.run_as("root", &["/usr/bin/systemctl", "is-system-running"])?;
            if matches!(state.stdout.trim(), "running" | "degraded") {
                return Ok(container);
            }
            container.check(end, "the container to be up")?;
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Time since the start.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// What the container printed.
    pub fn log(&self) -> &SerialLog {
        &self.log
    }

    /// The process id, on the host, of the container's system manager.
    pub fn init_pid(&self) -> i32 {
        self.init.as_raw()
    }

    /// Runs a program (absolute path) inside as `user`, with that user's own group and no others.
    ///
    /// # Errors
    /// When the user is unknown or `nsenter` cannot be started. A program that fails is an answer, not an error.
    pub fn run_as<S: AsRef<OsStr>>(&self, user: &str, argv: &[S]) -> Result<Ran, VmError> {
        let (uid, gid) = self.account(user)?;
        let output = Command::new("nsenter")
            .args(["--target", &self.init.to_string(), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"])
            .args(["--setuid", &uid.to_string(), "--setgid", &gid.to_string(), "--"])
            .args(argv)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/usr/lib/warden-test/bin")
            .env("LC_ALL", "C.UTF-8")
            .env("SYSTEMD_PAGER", "cat")
            .stdin(Stdio::null())
            .output()
            .map_err(|source| VmError::Start {
                program: "nsenter".into(),
                source,
                way_out: "install the Debian package util-linux and run as root",
            })?;
        Ok(Ran {
            status: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Waits for an end that the container came to by itself: `Some(true)` when its system manager wanted a restart, `Some(false)` when
    /// it switched off or broke, nothing when it still runs after `timeout`.
    pub fn ended(&mut self, timeout: Duration) -> Option<bool> {
        let end = Instant::now() + timeout;
        loop {
            match self.child.try_wait() {
                // The code by which systemd-nspawn asks whoever started it for a fresh start.
                Ok(Some(status)) => return Some(status.code() == Some(133)),
                _ if Instant::now() >= end => return None,
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Asks the container to power off and waits for its end; kills it after `timeout`.
    pub fn stop(mut self, timeout: Duration) {
        // systemd-nspawn passes a polite signal on as a wish to power off.
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM);
        let end = Instant::now() + timeout;
        while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn account(&self, user: &str) -> Result<(u32, u32), VmError> {
        let passwd = self.root.join("etc/passwd");
        let text = std::fs::read_to_string(&passwd).map_err(VmError::io("cannot read the accounts", &passwd))?;
        find_account(&text, user).ok_or_else(|| VmError::NoUser { user: user.into(), root: self.root.clone() })
    }

    fn find_init(&mut self, end: Instant) -> Result<Pid, VmError> {
        loop {
            if let Some(init) = self.present_init() {
                return Ok(init);
            }
            self.check(end, "the container's first process")?;
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// The system manager that runs now.
    fn present_init(&self) -> Option<Pid> {
        let text = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.child.id())).unwrap_or_default();
        // systemd-nspawn starts through a child that goes away again; the one to be found is number 1 of its own process space.
        let first = |pid: &&str| std::fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| is_first(&status));
        text.split_whitespace().find(first).and_then(|pid| pid.parse().ok()).map(Pid::from_raw)
    }

    fn check(&mut self, end: Instant, what: &str) -> Result<(), VmError> {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return Err(VmError::Ended { subject: "the container".into(), tail: self.log.tail() });
        }
        if Instant::now() > end {
            return Err(VmError::TimedOut { what: what.into(), seconds: self.started.elapsed().as_secs(), tail: self.log.tail() });
        }
        Ok(())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Looked up anew: a container that restarted itself has another first process, and the old number may be somebody else's.
        if let (Ok(None), Some(init)) = (self.child.try_wait(), self.present_init()) {
            let _ = kill(init, Signal::SIGKILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a process, by its status, is number 1 in a process space of its own.
fn is_first(status: &str) -> bool {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    let numbers: Vec<&str> = numbers.split_whitespace().collect();
    numbers.len() > 1 && numbers.last() == Some(&"1")
}

/// Names of machines may hold letters, digits and dashes only.
fn machine_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(60).collect::<String>().trim_end_matches('-').to_owned()
}

fn find_account(passwd: &str, user: &str) -> Option<(u32, u32)> {
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        if fields.first() != Some(&user) {
            return None;
        }
        Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_whole_name_only() {
        let passwd = "root:x:0:0::/root:/bin/sh\nwarden-console:x:701:701::/:/\nwarden:x:700:700::/:/\n";
        assert_eq!(find_account(passwd, "warden"), Some((700, 700)));
        assert_eq!(find_account(passwd, "ward"), None);
    }

    #[test]
    fn the_child_that_goes_away_is_not_taken_for_the_system_manager() {
        assert!(is_first("Name:\tsystemd\nNSpid:\t3400\t1\n"));
        assert!(!is_first("Name:\tsystemd-nspawn\nNSpid:\t3399\n"));
        assert!(!is_first("NSpid:\t3401\t7\n"));
    }

    #[test]
    fn a_run_folder_with_odd_letters_gives_a_valid_machine_name() {
        assert_eq!(machine_name("warden-1-a_b."), "warden-1-a-b");
    }
}
