//! A running guest. Starting it makes the run's overlay disks and a fresh firmware variable store; dropping it kills QEMU.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::json;

use crate::machine::{FIRMWARE_VARS, RunFiles, arguments};
use crate::{BuilderRoot, Machine, Qmp, SerialLog, Shell, VmError};

/// A guest under this process's control.
#[derive(Debug)]
pub struct Guest {
    child: Child,
    started: Instant,
    serial: SerialLog,
    qmp: Qmp,
    shell: PathBuf,
    keyboard: File,
    run_dir: PathBuf,
    // Sockets need short paths, so they live apart from the run folder and vanish with the guest.
    _sockets: tempfile::TempDir,
}

impl Guest {
    /// Starts `machine`. `run_dir` gets `console.log`, `qemu.log`, the overlays and the variable store; with `fresh` those of an
    /// earlier run are replaced, without it the guest goes on with the disks and variables as they were left.
    ///
    /// # Errors
    /// When the builder root lacks QEMU, a disk is missing, a forwarded port is taken or the guest dies at once.
    pub fn start(builder: &BuilderRoot, machine: &Machine, run_dir: &Path, fresh: bool) -> Result<Self, VmError> {
        std::fs::create_dir_all(run_dir).map_err(VmError::io("cannot make the run folder", run_dir))?;
        let sockets = tempfile::Builder::new().prefix("warden-vm-").tempdir().map_err(VmError::io("cannot make a folder for sockets", "/tmp"))?;
        let vars = run_dir.join("vars.fd");
        if fresh || !vars.exists() {
            let from = machine.secure_boot.clone().unwrap_or_else(|| builder.dir().join(FIRMWARE_VARS.trim_start_matches('/')));
            std::fs::copy(&from, &vars).map_err(VmError::io("cannot copy the firmware's variable store", &from))?;
        }
        let mut binds = vec![run_dir.to_owned(), sockets.path().to_owned()];
        let mut overlays = Vec::new();
        for (n, disk) in machine.disk.iter().chain(&machine.more_disks).enumerate() {
            let disk = disk.canonicalize().map_err(VmError::io("no such disk image", disk))?;
            let overlay = run_dir.join(format!("disk{n}.qcow2"));
            binds.push(disk.clone());
            if fresh || !overlay.exists() {
                make_overlay(builder, &disk, &overlay, &binds)?;
            }
            overlays.push(overlay);
        }
        for drive in &machine.drives {
            binds.push(drive.file.canonicalize().map_err(VmError::io("no such drive", &drive.file))?);
        }
        if let crate::Boot::Direct(direct) = &machine.boot {
            binds.extend([direct.kernel.clone(), direct.initrd.clone()]);
        }
        let run = RunFiles {
            vars,
            overlays,
            console: run_dir.join("console.log"),
            line: sockets.path().join("line"),
            shell: sockets.path().join("shell"),
            qmp: sockets.path().join("qmp"),
        };
        // Held open from both sides, QEMU finds a writer when it opens the pipe and never sees its end.
        mkfifo(&run.line, Mode::S_IRUSR | Mode::S_IWUSR).map_err(io::Error::from).map_err(VmError::io("cannot make a pipe", &run.line))?;
        let keyboard = File::options().read(true).write(true).open(&run.line).map_err(VmError::io("cannot open the pipe", &run.line))?;
        let log = run_dir.join("qemu.log");
        let said = File::create(&log).map_err(VmError::io("cannot write QEMU's log", &log))?;
        let also = said.try_clone().map_err(VmError::io("cannot write QEMU's log", &log))?;
        let binds: Vec<&Path> = binds.iter().map(PathBuf::as_path).collect();
        let started = Instant::now();
        let mut child = builder
            .command("qemu-system-x86_64", &binds)
            .args(arguments(machine, &run))
            .stdin(Stdio::null())
            .stdout(said)
            .stderr(also)
            .spawn()
            .map_err(|source| VmError::Start { program: "QEMU".into(), source, way_out: "run `warden-image builder` first, as root" })?;
        let ready = connect(&run.qmp, &mut child, &log).and_then(|()| Qmp::connect(&run.qmp));
        match ready {
            Ok(qmp) => Ok(Self {
                child,
                started,
                serial: SerialLog::at(run.console),
                qmp,
                keyboard,
                shell: run.shell,
                run_dir: run_dir.to_owned(),
                _sockets: sockets,
            }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// The folder with the logs and disks of this run.
    pub fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    /// The log of the first serial port.
    pub fn serial(&self) -> &SerialLog {
        &self.serial
    }

    /// Waits until `pattern` shows up on the serial port; gives its first group, or the whole match.
    ///
    /// # Errors
    /// [`VmError::TimedOut`] or [`VmError::Ended`], each with the last lines of the log.
    pub fn wait(&mut self, pattern: &str, timeout: Duration) -> Result<String, VmError> {
        self.wait_after(0, pattern, timeout)
    }

    /// As [`Guest::wait`], but only in what came after `mark` (see [`SerialLog::mark`]).
    ///
    /// # Errors
    /// As [`Guest::wait`].
    pub fn wait_after(&mut self, mark: usize, pattern: &str, timeout: Duration) -> Result<String, VmError> {
        let child = &mut self.child;
        self.serial.wait(pattern, mark, timeout, || matches!(child.try_wait(), Ok(None)))
    }

    /// Types on the first serial port, as somebody at a terminal would. Before the system is up the firmware and the loader listen
    /// there: wait for the screen first.
    ///
    /// # Errors
    /// When the port cannot be reached.
    pub fn type_serial(&mut self, text: &str) -> Result<(), VmError> {
        self.keyboard()?.write_all(text.as_bytes()).map_err(VmError::io("cannot type on the guest's first serial port", &self.run_dir))
    }

    /// Seconds since power-on.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// CPU seconds QEMU has used; `None` when the process is gone.
    pub fn cpu_seconds(&self) -> Option<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |n: usize| fields.get(n)?.parse::<f64>().ok();
        // The kernel reports user and system time in hundredths of a second on every Debian architecture.
        Some((ticks(11)? + ticks(12)?) / 100.0)
    }

    /// QEMU's control connection, for verbs that have no method here.
    pub fn qmp(&mut self) -> &mut Qmp {
        &mut self.qmp
    }

    /// Plugs a raw disk in, which must lie in the run folder; the machine needs sockets for disks. With `removable` it is like a stick.
    ///
    /// # Errors
    /// [`VmError::Qmp`].
    pub fn plug(&mut self, file: &Path, serial: &str, removable: bool) -> Result<(), VmError> {
        let node = format!("node-{serial}");
        let path = file.to_string_lossy();
        let about = json!({"driver": "raw", "node-name": node, "file": {"driver": "file", "filename": path, "cache": {"direct": false}}});
        self.qmp.call("blockdev-add", about)?;
        let device = json!({"driver": "scsi-hd", "bus": "sockets.0", "drive": node, "id": format!("disk-{serial}"), "serial": serial,
            "removable": removable});
        self.qmp.call("device_add", device).map(drop)
    }

    /// Pulls a disk out that was plugged in under this serial number, without asking the guest.
    ///
    /// # Errors
    /// [`VmError::Qmp`], also when the disk does not go within five seconds.
    pub fn pull(&mut self, serial: &str) -> Result<(), VmError> {
        self.qmp.call("device_del", json!({"id": format!("disk-{serial}")}))?;
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            match self.qmp.call("blockdev-del", json!({"node-name": format!("node-{serial}")})) {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > end => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Where what is typed on the first serial port goes in; what it says is in [`Guest::serial`].
    ///
    /// # Errors
    /// When the system has no further file handle.
    pub fn keyboard(&self) -> Result<File, VmError> {
        self.keyboard.try_clone().map_err(VmError::io("cannot type on the guest's first serial port", &self.run_dir))
    }

    /// Types a line on the first serial port. The firmware reads it too: wait for the system's question first.
    ///
    /// # Errors
    /// When the port cannot be reached.
    pub fn type_line(&mut self, text: &str) -> Result<(), VmError> {
        self.type_serial(&format!("{text}\n"))
    }

    /// Opens the root shell of the test flavour. One can be open at a time.
    ///
    /// # Errors
    /// When nothing answers: a production image has no shell.
    pub fn shell(&mut self, timeout: Duration) -> Result<Shell, VmError> {
        // The firmware and the boot loader read this port too: a letter that comes too early opens the loader's menus.
        self.wait("initrd: ", timeout)?;
        let stream = UnixStream::connect(&self.shell).map_err(VmError::io("cannot reach the guest's second serial port", &self.shell))?;
        Shell::open(stream, timeout)
    }

    /// Presses the reset button: a power cut as the guest sees it.
    ///
    /// # Errors
    /// [`VmError::Qmp`].
    pub fn reset(&mut self) -> Result<(), VmError> {
        self.qmp.call("system_reset", json!({})).map(drop)
    }

    /// Presses the power button and waits until the guest has switched itself off.
    ///
    /// # Errors
    /// [`VmError::TimedOut`] when it does not, with the end of the serial log.
    pub fn power_off(&mut self, timeout: Duration) -> Result<(), VmError> {
        self.qmp.call("system_powerdown", json!({}))?;
        self.wait_for_end(timeout)
    }

    /// Waits until the guest has switched itself off (asked by other means).
    ///
    /// # Errors
    /// [`VmError::TimedOut`] with the end of the serial log.
    pub fn wait_for_end(&mut self, timeout: Duration) -> Result<(), VmError> {
        let end = Instant::now() + timeout;
        while Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(VmError::TimedOut { what: "the guest to switch off".into(), seconds: timeout.as_secs(), tail: self.serial.tail() })
    }

    /// Pulls the plug: QEMU ends, the overlays stay as they are.
    pub fn quit(mut self) {
        let _ = self.qmp.call("quit", json!({}));
        let _ = self.wait_for_end(Duration::from_secs(10));
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn make_overlay(builder: &BuilderRoot, disk: &Path, overlay: &Path, binds: &[PathBuf]) -> Result<(), VmError> {
    let binds: Vec<&Path> = binds.iter().map(PathBuf::as_path).collect();
    let made = builder
        .command("qemu-img", &binds)
        .args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"])
        .args([disk, overlay])
        .output()
        .map_err(|source| VmError::Start { program: "qemu-img".into(), source, way_out: "run `warden-image builder` first, as root" })?;
    if made.status.success() {
        return Ok(());
    }
    Err(VmError::Failed { program: "qemu-img".into(), said: String::from_utf8_lossy(&made.stderr).trim().to_owned() })
}

/// Waits until QEMU listens on its control socket.
fn connect(path: &Path, child: &mut Child, log: &Path) -> Result<(), VmError> {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if UnixStream::connect(path).is_ok() {
            // QEMU takes one control connection at a time; the probe is closed before the real one is made.
            return Ok(());
        }
        if !matches!(child.try_wait(), Ok(None)) {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            return Err(VmError::Failed { program: "QEMU".into(), said: said.trim().to_owned() });
        }
        if Instant::now() > end {
            return Err(VmError::io("QEMU opened no control socket", path)(io::ErrorKind::TimedOut.into()));
        }
        std::thread::sleep(Duration::from_millis(30));
    }
}
