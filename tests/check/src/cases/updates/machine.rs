//! A box that is updated: the production image on a disk of its own, as its owner and its hypervisor see it.
//!
//! In: a copy of the golden disk. Out: its console over TLS, its screen on the serial line, its plug, and its disk as a file of this machine.
//! No shell and no program inside takes part. Dropping it pulls the plug.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use warden_domain::clock;
use warden_vm::{Drive as Disk, Forward, Guest, Machine, quiet};

use super::calls;
use super::drive::{self, Drive};
use super::works::Works;
use crate::agent::free_port;
use crate::appliance::STALLED;
use crate::console::Console;
use crate::evidence::MachineEvidence;
use crate::front_door::FrontDoor;
use crate::images::TINY_FILE;
use crate::log::CaseLog;
use crate::stage::{Stage, Task};

/// Serial number of the disk.
const SERIAL: &str = "WARDENBOX1";
/// Name under which the tiny model is served.
pub const MODEL: &str = "tiny";

/// How a machine is set up.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// There is no network card.
    pub no_network: bool,
    /// There is one, and nothing behind it.
    pub closed: bool,
    /// Its hardware clock.
    pub clock: Option<String>,
    /// It has a controller for sticks.
    pub sticks: bool,
}

/// A machine, running or not.
pub struct UpdateBox {
    guest: Option<Guest>,
    machine: Machine,
    drive: Drive,
    run_dir: PathBuf,
    door: FrontDoor,
    console: Option<Console>,
    evidence: MachineEvidence,
    serials: u32,
    boot: Duration,
    logs: PathBuf,
    log: CaseLog,
    builder: warden_vm::BuilderRoot,
}

impl UpdateBox {
    /// Copies the golden disk; nothing is switched on yet.
    ///
    /// # Errors
    /// A sentence with what could not be made.
    pub fn prepare(works: &mut Works, stage: &mut Stage, name: &str, setup: &Setup, log: &CaseLog) -> Result<Self, String> {
        let (golden, hashes) = works.golden(stage, log)?;
        let run_dir = works.folder().join(format!("box-{name}"));
        let _older_run = std::fs::remove_dir_all(&run_dir);
        let disk = run_dir.join("disk.img");
        drive::copy(&golden, &disk)?;
        let drive = Drive::open(&disk, works.builder())?;
        let (encrypted, plain) = (free_port()?, free_port()?);
        let mut machine = Machine::from_drives(vec![Disk { boot_order: Some(0), ..Disk::new(&disk, SERIAL) }]);
        machine.forwards.extend([Forward { host: encrypted, guest: 443 }, Forward { host: plain, guest: 80 }]);
        machine.network = !setup.no_network;
        machine.closed = setup.closed;
        machine.clock.clone_from(&setup.clock);
        machine.sockets_for_disks = setup.sticks;
        let evidence = MachineEvidence {
            flavour: "production".to_owned(),
            boot_id: format!("power-on {} of box-{name}", clock::now()),
            hashes,
            serial_log: Some(stage.places.logs.join(format!("serial-updates-{name}.log"))),
        };
        stage.machine_took_part(evidence.clone());
        let door = FrontDoor { encrypted: format!("https://127.0.0.1:{encrypted}"), plain: format!("http://127.0.0.1:{plain}") };
        Ok(Self {
            guest: None,
            machine,
            drive,
            run_dir,
            door,
            console: None,
            evidence,
            serials: 0,
            boot: Duration::ZERO,
            logs: stage.places.logs.clone(),
            log: log.clone(),
            builder: works.builder().clone(),
        })
    }

    /// The same, switched on and answering.
    ///
    /// # Errors
    /// A sentence with the end of the serial log.
    pub fn start(works: &mut Works, stage: &mut Stage, name: &str, setup: &Setup, log: &CaseLog) -> Result<Self, String> {
        let mut made = Self::prepare(works, stage, name, setup, log)?;
        made.switch_on()?;
        made.wait_up()?;
        made.boot = made.guest()?.age();
        Ok(made)
    }

    /// Lets another case's log and evidence have what follows.
    pub fn log_to(&mut self, stage: &mut Stage, task: &Task) {
        self.log = task.log.clone();
        self.console = self.console.as_ref().map(|console| console.logging_to(&task.log));
        stage.machine_took_part(self.evidence.clone());
    }

    /// From power-on to the first answer, at its very first start.
    #[must_use]
    pub const fn plain_boot(&self) -> Duration {
        self.boot
    }

    /// Its disk.
    #[must_use]
    pub const fn drive(&self) -> &Drive {
        &self.drive
    }

    /// The description it is switched on with, to be changed while it is off.
    pub const fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// The folder of its run, where sticks must lie.
    #[must_use]
    pub fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    /// Switches it on. A machine whose emulated timers stand still is switched on again.
    ///
    /// # Errors
    /// QEMU's words.
    pub fn switch_on(&mut self) -> Result<(), String> {
        self.keep_serial();
        self.guest = None;
        self.log.line(format!("power on: {}", self.run_dir.display()));
        let first = ("(initrd: |(?i:Access Denied|Security Violation))", quiet(40));
        let stalled = |guest: &Guest| self.log.line(format!("{STALLED}; its serial log ended with: {}", guest.serial().tail()));
        let started = Guest::start_until(&self.builder, &self.machine, &self.run_dir, false, first, |_| Ok(()), stalled);
        // A machine that says nothing is for the caller to judge: some must not start.
        self.guest = Some(started.map_err(|e| e.to_string())?.guest);
        Ok(())
    }

    /// The running guest.
    ///
    /// # Errors
    /// A sentence when it is off.
    pub fn guest(&mut self) -> Result<&mut Guest, String> {
        self.guest.as_mut().ok_or_else(|| "the machine is off".to_owned())
    }

    /// Waits until its agent answers.
    ///
    /// # Errors
    /// A sentence with the end of the serial log.
    pub fn wait_up(&mut self) -> Result<(), String> {
        let waited = match &self.console {
            Some(console) => console.wait_healthy(quiet(60)).map(drop),
            None => self.door.wait_console(quiet(60), &self.log).and_then(|console| {
                console.wait_healthy(quiet(60))?;
                self.console = Some(console);
                Ok(())
            }),
        };
        waited.map_err(|cause| format!("{cause}; the serial log ends with: {}", self.tail()))
    }

    /// The end of the serial log.
    #[must_use]
    pub fn tail(&self) -> String {
        self.guest.as_ref().map(|guest| guest.serial().tail()).unwrap_or_default()
    }

    /// Everything on the serial line since it was switched on last.
    #[must_use]
    pub fn serial(&self) -> String {
        self.guest.as_ref().map(|guest| guest.serial().text()).unwrap_or_default()
    }

    /// The owner's console, claimed and signed in at first use.
    ///
    /// # Errors
    /// A sentence when the claim is refused.
    pub fn console(&mut self) -> Result<Console, String> {
        let mut console = self.console.clone().ok_or("nobody has reached the box yet")?;
        if !console.is_signed_in() {
            let code = self.guest()?.wait(r"Claim code: ([A-Z0-9]{4}-[A-Z0-9]{4})", quiet(20)).map_err(|e| e.to_string())?;
            console.claim(&code)?;
            self.console = Some(console.clone());
        }
        Ok(console)
    }

    /// The version that answers, by `/healthz`; nothing when nobody answers.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        let console = self.console.as_ref()?;
        let reply = console.http.again(Duration::from_secs(3)).get("/healthz").ok().filter(|reply| reply.status == 200)?;
        reply.json()["version"].as_str().map(str::to_owned)
    }

    /// Waits until that version answers, through whatever restarts there are; how long it took.
    ///
    /// # Errors
    /// A sentence with the version that answers instead.
    pub fn wait_version(&mut self, version: &str, limit: Duration) -> Result<Duration, String> {
        let begun = Instant::now();
        let mut last = None;
        loop {
            let now = self.version();
            if now.as_deref() == Some(version) {
                self.log.line(format!("version {version} answers after {:.1} s", begun.elapsed().as_secs_f64()));
                return Ok(begun.elapsed());
            }
            last = now.or(last);
            if begun.elapsed() > limit {
                let seen = last.map_or_else(|| "nobody answered".to_owned(), |v| format!("{v} answered last"));
                return Err(format!(
                    "version {version} does not answer within {} s ({seen}); the serial log ends with: {}",
                    limit.as_secs(),
                    self.tail()
                ));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The document about updates, with the slots in it.
    ///
    /// # Errors
    /// A sentence that quotes the refusal.
    pub fn updates(&mut self) -> Result<Value, String> {
        calls::with_slots(&self.console()?)
    }

    /// The tiny model running; its id.
    ///
    /// # Errors
    /// A sentence with the step that failed.
    pub fn serve_model(&mut self) -> Result<String, String> {
        let console = self.console()?;
        let listed = console.expect("GET", "/api/models", None, &[200])?.json();
        let known = crate::console::items(&listed).unwrap_or_default().into_iter().find(|m| m["served_model_name"] == MODEL);
        let id = match known.and_then(|m| m["id"].as_str().map(str::to_owned)) {
            Some(id) => id,
            None => console.register(TINY_FILE, MODEL)?,
        };
        // What served before a restart is on its way by itself.
        if matches!(crate::console::state_word(&console.model(&id)?), "stopped" | "failed") {
            console.load(&id)?;
        }
        console.wait_state(&id, &["running"], quiet(40))?;
        Ok(id)
    }

    /// A power cut: off at once, and on again.
    ///
    /// # Errors
    /// QEMU's words.
    pub fn cut(&mut self) -> Result<(), String> {
        self.unplug();
        self.switch_on()
    }

    /// Pulls the plug; the machine stays off.
    pub fn unplug(&mut self) {
        self.keep_serial();
        if let Some(guest) = self.guest.take() {
            self.log.line("the plug is pulled");
            guest.quit();
        }
    }

    /// Presses the power button and waits until it is off.
    ///
    /// # Errors
    /// A sentence when it does not go off.
    pub fn switch_off(&mut self) -> Result<(), String> {
        let off = self.guest()?.power_off(quiet(30)).map_err(|e| e.to_string());
        self.keep_serial();
        self.guest = None;
        off
    }

    /// Adds the serial log to the kept one: each power-on begins a new file.
    fn keep_serial(&mut self) {
        let Some(guest) = &self.guest else { return };
        self.serials += 1;
        let Some(to) = &self.evidence.serial_log else { return };
        let name = to.file_stem().unwrap_or_default().to_string_lossy();
        let to = if self.serials == 1 { to.clone() } else { self.logs.join(format!("{name}-{}.log", self.serials)) };
        let _the_run_folder_still_has_it = std::fs::copy(guest.serial().path(), to);
    }
}

impl Drop for UpdateBox {
    fn drop(&mut self) {
        self.keep_serial();
        self.guest = None;
        // Disks are large; logs are kept elsewhere.
        let _gone_already = std::fs::remove_dir_all(&self.run_dir);
    }
}
