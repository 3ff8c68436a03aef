//! The machine of these cases: the test flavour with a controller for disks, started several times on the same disks.
//!
//! In: which disks are plugged in at a start. Out: its console, its root shell, and plugging and pulling while it runs. It is kept between
//! cases and ends with the run.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use warden_domain::clock;
use warden_fixtures::TinyModel;
use warden_vm::{BuilderRoot, Forward, Guest, Machine, PowerOn, Shell, quiet};

use crate::agent::free_port;
use crate::appliance::STALLED;
use crate::command;
use crate::console::Console;
use crate::evidence::MachineEvidence;
use crate::front_door::FrontDoor;
use crate::images::{Flavour, PackKind, TINY_FILE, work};
use crate::log::CaseLog;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Serial number of the disk that is adopted.
pub const MODELS: &str = "WARDENMODELS1";
/// Serial number of a disk that is blank and stays so.
pub const BLANK: &str = "WARDENBLANK2";
/// Serial number of the stick.
pub const STICK: &str = "WARDENSTICK3";
/// Serial number of a stick that the guest formats with exfat.
pub const STICK_EXFAT: &str = "WARDENSTICK4";
/// Name under which the model on the adopted disk is served.
pub const ON_DISK: &str = "on-disk";

const DISK_SIZE: u64 = 1 << 30;
const STICK_SIZE: u64 = 96 << 20;

static BENCH: Mutex<Option<Bench>> = Mutex::new(None);

/// Ends the machine, if one runs.
pub fn strike() {
    *BENCH.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// A running machine and what was learnt of it.
pub struct Bench {
    guest: Guest,
    shell: Option<Shell>,
    console: Console,
    log: CaseLog,
    builder: BuilderRoot,
    machine: Machine,
    run_dir: PathBuf,
    evidence: MachineEvidence,
    plugged: Vec<&'static str>,
    /// Since the agent answers.
    pub healthy: Instant,
    claimed: bool,
}

/// The machine for one case: the one that runs, or a fresh one with its disks made anew. Another machine of the run is unplugged first.
///
/// # Errors
/// A sentence when it does not come up.
pub fn machine(stage: &mut Stage, task: &Task) -> Result<Held, String> {
    stage.unplug();
    let mut held = BENCH.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(bench) = held.as_mut() {
        bench.log_to(&task.log);
    } else {
        *held = Some(Bench::first(stage, &task.log)?);
    }
    if let Some(bench) = held.as_ref() {
        stage.machine_took_part(bench.evidence.clone());
    }
    Ok(Held(held))
}

/// The machine while a case has it.
pub struct Held(MutexGuard<'static, Option<Bench>>);

impl Held {
    /// The machine.
    ///
    /// # Errors
    /// When it was given up.
    pub fn bench(&mut self) -> Result<&mut Bench, String> {
        self.0.as_mut().ok_or_else(|| "the machine was given up".to_owned())
    }

    /// Gives the machine up: what was done to it must not reach the next case.
    pub fn give_up(&mut self) {
        *self.0 = None;
    }
}

impl Bench {
    fn first(stage: &mut Stage, log: &CaseLog) -> Result<Self, String> {
        let (images, places) = stage.images();
        let builder = images.builder(places, log)?;
        let disk = images.disk(Flavour::Test, PackKind::Signed, places, log)?;
        let run_dir = work(places)?.join("vm-storage");
        let _older = std::fs::remove_dir_all(&run_dir);
        std::fs::create_dir_all(&run_dir).map_err(|e| format!("{}: {e}", run_dir.display()))?;
        for serial in [MODELS, BLANK] {
            blank(&run_dir.join(serial), DISK_SIZE)?;
        }
        blank(&run_dir.join(STICK_EXFAT), STICK_SIZE)?;
        make_stick(&builder, &run_dir, log)?;
        let mut machine = Machine::from_disk(&disk.path);
        machine.sockets_for_disks = true;
        machine.forwards.extend([Forward { host: free_port()?, guest: 443 }, Forward { host: free_port()?, guest: 80 }]);
        let evidence = MachineEvidence {
            flavour: Flavour::Test.name().to_owned(),
            boot_id: format!("power-on {}", clock::now()),
            hashes: disk.hashes,
            serial_log: Some(run_dir.join("console.log")),
        };
        Self::start(builder, machine, run_dir, evidence, true, &[MODELS, BLANK], log)
    }

    #[allow(clippy::too_many_arguments, reason = "what a start is made from")]
    fn start(
        builder: BuilderRoot,
        machine: Machine,
        run_dir: PathBuf,
        evidence: MachineEvidence,
        fresh: bool,
        disks: &[&'static str],
        log: &CaseLog,
    ) -> Result<Self, String> {
        log.line(format!("powering on with the disks {}", disks.join(" ")));
        let plug = |guest: &mut Guest| disks.iter().try_for_each(|serial| guest.plug(&run_dir.join(serial), serial, false));
        let stalled = |_: &Guest| log.line(STALLED);
        let started = Guest::start_until(&builder, &machine, &run_dir, fresh, ("initrd: ", quiet(40)), plug, stalled);
        let PowerOn { guest, said, .. } = started.map_err(|e| e.to_string())?;
        said.map_err(|e| e.to_string())?;
        let port = |n: usize| machine.forwards.get(n).map_or(0, |f| f.host);
        let door = FrontDoor { encrypted: format!("https://127.0.0.1:{}", port(0)), plain: format!("http://127.0.0.1:{}", port(1)) };
        let console = door.wait_console(quiet(60), log).and_then(|console| console.wait_healthy(quiet(60)).map(|_| console));
        let console = console.map_err(|cause| format!("{cause}; the serial log ends with: {}", guest.serial().tail()))?;
        log.line(format!("/healthz answers {:.1} s after power-on, {:?} CPU seconds", guest.age().as_secs_f64(), guest.cpu_seconds()));
        Ok(Self {
            guest,
            shell: None,
            console,
            log: log.clone(),
            builder,
            machine,
            run_dir,
            evidence,
            plugged: disks.to_vec(),
            healthy: Instant::now(),
            claimed: !fresh,
        })
    }

    fn log_to(&mut self, log: &CaseLog) {
        self.log = log.clone();
        self.console = self.console.logging_to(log);
    }

    /// Powers off as its owner would, and on again with these disks plugged in.
    ///
    /// # Errors
    /// A sentence when it does not go off or come up.
    pub fn power_cycle(held: &mut Held, disks: &[&'static str]) -> Result<(), String> {
        let mut old = held.0.take().ok_or("the machine was given up")?;
        old.guest.power_off(quiet(30)).map_err(|e| e.to_string())?;
        let Self { console, log, builder, machine, run_dir, evidence, .. } = old;
        let mut new = Self::start(builder, machine, run_dir, evidence, false, disks, &log)?;
        // The session outlives the restart.
        new.console = console;
        *held.0 = Some(new);
        Ok(())
    }

    /// The owner's console, signed in.
    ///
    /// # Errors
    /// A sentence when the claim is refused.
    pub fn console(&mut self) -> Result<Console, String> {
        if !self.claimed {
            let code = self.guest.wait(r"Claim code: ([A-Z0-9]{4}-[A-Z0-9]{4})", quiet(20)).map_err(|e| e.to_string())?;
            self.console.claim(&code)?;
            self.claimed = true;
        }
        Ok(self.console.clone())
    }

    /// Runs a line of shell as root in the guest; exit status and output.
    ///
    /// # Errors
    /// A sentence when no shell answers.
    pub fn root(&mut self, line: &str) -> Result<(i32, String), String> {
        if self.shell.is_none() {
            self.shell = Some(self.guest.shell(quiet(20)).map_err(|e| e.to_string())?);
        }
        let Some(shell) = &mut self.shell else { return Err("no shell".to_owned()) };
        let reply = shell.run(line, quiet(30)).map_err(|e| e.to_string())?;
        self.log.line(format!("guest# {line}\n-> {} {}", reply.status, reply.output));
        Ok((reply.status, reply.output))
    }

    /// The same, demanding exit status 0.
    ///
    /// # Errors
    /// A sentence with what it said.
    pub fn root_ok(&mut self, line: &str) -> Result<String, String> {
        let (status, output) = self.root(line)?;
        if status == 0 { Ok(output) } else { Err(format!("in the guest `{line}` ended with {status}: {output}")) }
    }

    /// Runs a program as the agent's user.
    ///
    /// # Errors
    /// A sentence when no shell answers.
    pub fn as_warden(&mut self, line: &str) -> Result<(i32, String), String> {
        self.root(&format!("su -s /usr/lib/warden-test/bin/sh warden -c \"{line}\""))
    }

    /// A storage call as the agent's user: object below the disk manager's block devices, interface, method with signature and arguments.
    ///
    /// # Errors
    /// A sentence when no shell answers.
    pub fn udisks(&mut self, block: &str, interface: &str, call: &str) -> Result<(i32, String), String> {
        let path = format!("/org/freedesktop/UDisks2/block_devices/{block}");
        self.as_warden(&format!("busctl --timeout=60 -- call org.freedesktop.UDisks2 {path} org.freedesktop.UDisks2.{interface} {call}"))
    }

    /// The kernel's name of the disk with this serial number.
    ///
    /// # Errors
    /// A sentence when there is none.
    pub fn device(&mut self, serial: &str) -> Result<String, String> {
        let said = self.root_ok(&format!("readlink -f /dev/disk/by-id/*{serial} | head -n 1"))?;
        let name = said.trim().strip_prefix("/dev/").unwrap_or_default().to_owned();
        if name.is_empty() || name.contains('*') { Err(format!("no disk {serial} in the guest: {said}")) } else { Ok(name) }
    }

    /// Plugs a disk in while it runs.
    ///
    /// # Errors
    /// QEMU's words.
    pub fn plug(&mut self, serial: &'static str, removable: bool) -> Result<(), String> {
        if !self.plugged.contains(&serial) {
            let file = self.run_dir.join(serial);
            self.guest.plug(&file, serial, removable).map_err(|e| e.to_string())?;
            self.plugged.push(serial);
        }
        Ok(())
    }

    /// Pulls a disk out.
    ///
    /// # Errors
    /// QEMU's words.
    pub fn pull(&mut self, serial: &'static str) -> Result<(), String> {
        self.guest.pull(serial).map_err(|e| e.to_string())?;
        self.plugged.retain(|s| *s != serial);
        Ok(())
    }

    /// Whether a disk is plugged in.
    #[must_use]
    pub fn has(&self, serial: &str) -> bool {
        self.plugged.contains(&serial)
    }

    /// The storage document.
    ///
    /// # Errors
    /// A sentence that quotes the refusal.
    pub fn storage(&mut self) -> Result<Value, String> {
        Ok(self.console()?.expect("GET", "/api/storage", None, &[200])?.json())
    }

    /// Waits until the storage document satisfies `done`; the document and how long it took.
    ///
    /// # Errors
    /// A sentence with the last document.
    pub fn storage_when(&mut self, what: &str, limit: Duration, done: impl Fn(&Value) -> bool) -> Result<(Value, Duration), String> {
        let console = self.console()?;
        let begin = Instant::now();
        loop {
            let reply = console.call("GET", "/api/storage", None)?;
            let document = reply.json();
            if reply.status == 200 && done(&document) {
                return Ok((document, begin.elapsed()));
            }
            if begin.elapsed() > limit {
                return Err(format!("{what} did not come within {} s; the storage document: {} {document}", limit.as_secs(), reply.status));
            }
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    /// Waits for a disk with this serial number to show; its part of the document.
    ///
    /// # Errors
    /// A sentence with the last document.
    pub fn disk(&mut self, serial: &str) -> Result<Value, String> {
        let (document, _) = self.storage_when(&format!("the disk {serial}"), quiet(10), |d| disk_of(d, serial).is_some())?;
        disk_of(&document, serial).ok_or_else(|| format!("no disk {serial}"))
    }

    /// Waits until a task is over; its document.
    ///
    /// # Errors
    /// A sentence when it does not end.
    pub fn task(&mut self, id: &str, limit: Duration) -> Result<Value, String> {
        let console = self.console()?;
        let until = Instant::now() + limit;
        loop {
            let task = console.expect("GET", &format!("/api/tasks/{id}"), None, &[200])?.json();
            if task["state"] != "running" {
                return Ok(task);
            }
            if Instant::now() > until {
                return Err(format!("the task did not end within {} s: {task}", limit.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    /// The adopted disk as the document's volume; adopts it first if that was not done.
    ///
    /// # Errors
    /// A sentence when it cannot be adopted.
    pub fn ensure_adopted(&mut self) -> Result<Value, String> {
        let document = self.storage()?;
        if document["config"]["volumes"].as_array().is_none_or(Vec::is_empty) {
            let key = self.disk(MODELS)?["key"].as_str().unwrap_or_default().to_owned();
            let begun = self.console()?.expect("POST", "/api/storage/adopt", Some(&json!({"disk": key})), &[202])?.json();
            let task = self.task(begun["task"].as_str().unwrap_or_default(), quiet(60))?;
            if task["state"] != "done" {
                return Err(format!("the disk was not adopted: {task}"));
            }
        }
        let (document, _) = self.storage_when("the adopted disk mounted", quiet(15), |d| d["state"]["volumes"][0]["state"] == "mounted")?;
        Ok(document["state"]["volumes"][0].clone())
    }

    /// The model on the adopted disk, registered and wanted; its id.
    ///
    /// # Errors
    /// A sentence with the step that failed.
    pub fn ensure_model_on_disk(&mut self) -> Result<String, String> {
        // A machine that runs without the disk already is known to have the model: do not wait for what is away.
        let console = self.console()?;
        let listed = console.expect("GET", "/api/models", None, &[200])?.json();
        let known = listed["models"].as_array().and_then(|all| all.iter().find(|m| m["served_model_name"] == ON_DISK).cloned());
        if let Some(id) = known.and_then(|m| m["id"].as_str().map(str::to_owned)) {
            return Ok(id);
        }
        let volume = self.ensure_adopted()?;
        let path = volume["path"].as_str().unwrap_or_default().to_owned();
        let console = self.console()?;
        // As the agent itself would write it: its user, the group of the folder, readable for that group.
        self.as_warden(&format!("umask 027; cp /data/models/{TINY_FILE} {path}/on-disk.gguf && sync"))?;
        let id = console.register(&format!("{path}/on-disk.gguf"), ON_DISK)?;
        console.load(&id)?;
        console.wait_state(&id, &["running"], quiet(40))?;
        Ok(id)
    }

    /// Checks that the blank disk is still blank, byte by byte at its beginning.
    ///
    /// # Errors
    /// A sentence when the file cannot be read.
    pub fn blank_is_blank(&mut self, result: &mut CaseResult) -> Result<(), String> {
        let name = self.device(BLANK)?;
        let (status, said) = self.root(&format!("cmp -n 8388608 /dev/{name} /dev/zero"))?;
        result.expect(status == 0, format!("the other disk, which is blank, was not touched ({})", said.trim()));
        Ok(())
    }
}

/// The disk with a serial number in a storage document.
#[must_use]
pub fn disk_of(document: &Value, serial: &str) -> Option<Value> {
    document["state"]["disks"].as_array()?.iter().find(|d| d["serial"] == serial).cloned()
}

fn blank(path: &Path, size: u64) -> Result<(), String> {
    File::create(path).and_then(|file| file.set_len(size)).map_err(|e| format!("{}: {e}", path.display()))
}

/// A stick with one FAT partition, the tiny model and its SHA-256 on it: the file [`STICK`] in `run_dir`.
///
/// # Errors
/// A sentence with what a tool said.
pub fn make_stick(builder: &BuilderRoot, run_dir: &Path, log: &CaseLog) -> Result<(), String> {
    use sha2::{Digest, Sha256};
    let stick = run_dir.join(STICK);
    blank(&stick, STICK_SIZE)?;
    let model = run_dir.join("stick-model.gguf");
    let bytes = TinyModel::default().bytes();
    let sum = format!("{}  stick-model.gguf\n", hex::encode(Sha256::digest(&bytes)));
    let said = |e: std::io::Error| format!("the stick's files: {e}");
    std::fs::write(&model, bytes).map_err(said)?;
    std::fs::write(run_dir.join("stick-model.gguf.sha256"), sum).map_err(said)?;
    std::fs::write(run_dir.join("stick.sfdisk"), "label: dos\nstart=2048, type=c\n").map_err(said)?;
    let (image, folder) = (stick.display(), run_dir.display());
    let script = format!(
        "sfdisk -q {image} < {folder}/stick.sfdisk && mkfs.vfat --offset=2048 -n STICK {image} {} && \
         mcopy -i {image}@@1M {folder}/stick-model.gguf {folder}/stick-model.gguf.sha256 ::",
        (STICK_SIZE >> 10) - 1024
    );
    let mut make = builder.command("/bin/sh", &[run_dir]);
    make.arg("-c").arg(script);
    command::run_ok("making the stick", make, Duration::from_secs(60), log).map(drop)
}
