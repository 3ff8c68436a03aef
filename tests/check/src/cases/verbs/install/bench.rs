//! What the cases of installing share: the built stick, and machines whose outcome several cases look at.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::unistd::{Whence, lseek};
use serde_json::Value;
use sha2::{Digest, Sha256};
use warden_vm::{BuilderRoot, Drive, Forward, Guest, Machine, PowerOn, quiet};

use super::answer;
use super::serves::{self, Served};
use crate::agent::free_port;
use crate::appliance::STALLED;
use crate::images::work;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// What the appliance's screen shows first, with an administrator and without.
const SCREEN: &str = "Health:|Claim code:";

static BENCH: Mutex<Option<Bench>> = Mutex::new(None);

/// Stick, builder root and remembered outcomes.
pub struct Bench {
    builder: BuilderRoot,
    stick: PathBuf,
    older: PathBuf,
    folder: PathBuf,
    logs: PathBuf,
    /// The deliberate break.
    pub swap_serials: bool,
    /// The machine with three disks, once it was installed on.
    pub three: Option<Three>,
    talked: Option<Talk>,
}

/// The bench, held for one case.
pub struct Held(MutexGuard<'static, Option<Bench>>);

impl Held {
    /// The bench itself.
    pub fn get(&mut self) -> Result<&mut Bench, String> {
        self.0.as_mut().ok_or_else(|| "the bench is gone".to_owned())
    }
}

/// A disk to be made.
#[derive(Clone, Copy, Debug)]
pub struct Blank {
    /// Its serial number.
    pub serial: &'static str,
    /// Its size in bytes.
    pub bytes: u64,
}

/// A disk after an event.
#[derive(Clone, Copy, Debug)]
pub struct After {
    /// Its content differs from before.
    pub changed: bool,
}

/// The installation beside two other disks.
pub struct Three {
    stand: Stand,
    /// First, second and older disk after the installation.
    pub installed: [After; 3],
    /// What was left on the stick.
    pub first_result: Value,
    /// The answer file afterwards.
    pub answer_after: String,
    /// From power-on to power-off.
    pub install_seconds: f64,
    started: Option<Started>,
}

/// The second start with the stick.
pub struct Again {
    /// Which disks changed.
    pub changed: Vec<bool>,
    /// What was left on the stick.
    pub result: Value,
}

/// The start without the stick.
#[derive(Clone)]
pub struct Started {
    /// The initrd's word.
    pub slot: String,
    /// What the screen showed first.
    pub screen: String,
    /// The older disk's content differs.
    pub older_changed: bool,
    /// From power-on to the screen.
    pub seconds: f64,
    /// What it did then, or why not.
    pub served: Result<Served, String>,
}

/// A talk at the serial line.
#[derive(Clone)]
pub struct Talk {
    /// The list of disks.
    pub list: String,
    /// The answer to a number that is not there.
    pub third: String,
    /// The answer to the small disk.
    pub small: String,
    /// The answer to a wrong proof.
    pub wrong: String,
    /// Which disks changed.
    pub changed: [bool; 2],
}

/// Builds what is needed once per run, and holds it for a case.
pub fn bench(stage: &mut Stage, task: &Task) -> Result<Held, String> {
    let mut held = BENCH.lock().unwrap_or_else(PoisonError::into_inner);
    if held.is_none() {
        // One machine at a time.
        stage.unplug();
        let (images, places) = stage.images();
        let builder = images.builder(places, &task.log)?;
        let (stick, older) = images.stick(places, &task.log)?;
        let folder = work(places)?.join("install");
        *held = Some(Bench { builder, stick, older, folder, logs: places.logs.clone(), swap_serials: false, three: None, talked: None });
    }
    stage.unplug();
    Ok(Held(held))
}

/// Ends what was shared.
pub fn strike() {
    if let Some(bench) = BENCH.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _gone_already = fs::remove_dir_all(&bench.folder);
    }
}

impl Bench {
    /// A machine with a fresh stick and fresh disks; `older` adds a disk with an older installation.
    pub fn stand(&self, name: &str, blanks: &[Blank], older: Option<&'static str>) -> Result<Stand, String> {
        let folder = self.folder.join(name);
        let said = |e: std::io::Error| format!("the disks in {}: {e}", folder.display());
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(said)?;
        }
        fs::create_dir_all(&folder).map_err(said)?;
        let stick = folder.join("stick.img");
        copy(&self.stick, &stick)?;
        let mut disks = Vec::new();
        for (n, blank) in blanks.iter().enumerate() {
            let path = folder.join(format!("disk{n}.img"));
            let file = File::create(&path).map_err(said)?;
            file.set_len(blank.bytes).map_err(said)?;
            // Something that a careless write would destroy.
            file.write_all_at(b"owner's data", 700 << 20).map_err(said)?;
            disks.push((blank.serial, path));
        }
        if let Some(serial) = older {
            let path = folder.join("older.img");
            copy(&self.older, &path)?;
            disks.push((serial, path));
        }
        let before = disks.iter().map(|(_, path)| content(path)).collect::<Result<_, _>>()?;
        Ok(Stand {
            builder: self.builder.clone(),
            folder,
            logs: self.logs.clone(),
            stick,
            disks,
            before,
            disks_first: false,
            setup_mode: false,
            ports: None,
            runs: 0,
        })
    }

    /// The machine with three disks, installed on once.
    pub fn three(&mut self, task: &Task, result: &mut CaseResult) -> Result<&mut Three, String> {
        if self.three.is_none() {
            let mut stand = self.stand("three", &Self::three_blanks(), Some("OLDER3"))?;
            if self.swap_serials {
                let (one, two) = (stand.disks[0].0, stand.disks[1].0);
                (stand.disks[0].0, stand.disks[1].0) = (two, one);
            }
            stand.answer(&answer("TARGET2"))?;
            let seen = stand.run_to_its_end(task, quiet(180))?;
            result.note(format!("{} ran: {}", task.id, last_words(&seen.serial)));
            let installed = [0, 1, 2].map(|n| After { changed: seen.changed.get(n).copied().unwrap_or(true) });
            let first_result = stand.result()?;
            let answer_after = stand.answer_text()?;
            self.three = Some(Three { stand, installed, first_result, answer_after, install_seconds: seen.seconds, started: None });
        }
        self.three.as_mut().ok_or_else(|| "no machine".to_owned())
    }

    /// The same machine once more, with the stick.
    pub fn start_again(&mut self, task: &Task, result: &mut CaseResult) -> Result<Again, String> {
        let three = self.three(task, result)?;
        three.stand.remember()?;
        let seen = three.stand.run_to_its_end(task, quiet(60))?;
        Ok(Again { changed: seen.changed, result: three.stand.result()? })
    }

    /// The same machine without the stick, started once for all cases that ask.
    pub fn start_installed(&mut self, task: &Task) -> Result<Started, String> {
        let three = self.three.as_mut().ok_or("nothing is installed")?;
        if let Some(started) = &three.started {
            return Ok(started.clone());
        }
        three.stand.remember()?;
        three.stand.ports = Some((free_port()?, free_port()?));
        let begun = Instant::now();
        let mut guest = three.stand.power_on(task, false)?;
        let said = |e: warden_vm::VmError| e.to_string();
        let screen = guest.wait(&format!("({SCREEN})"), quiet(90));
        three.stand.keep_serial(&guest, task);
        let slot = guest.wait("initrd: slot [^\n]*", Duration::from_secs(1)).map_err(said)?;
        let screen = screen.map_err(said)?;
        let seconds = begun.elapsed().as_secs_f64();
        let run = three.stand.folder.join("run");
        let ports = three.stand.ports.take().unwrap_or_default();
        let served = serves::serve(&mut guest, &self.builder, &run, ports, task);
        three.stand.keep_serial(&guest, task);
        guest.power_off(quiet(40)).map_err(said)?;
        let older_changed = three.stand.changes()?.last().copied().unwrap_or(true);
        let started = Started { slot, screen, older_changed, seconds, served };
        three.started = Some(started.clone());
        Ok(started)
    }

    /// A person at the serial line, with a small and a large disk.
    pub fn talk(&mut self, task: &Task) -> Result<Talk, String> {
        if let Some(talk) = &self.talked {
            return Ok(talk.clone());
        }
        let mut stand = self.stand("talk", &[Blank { serial: "SMALL1", bytes: 1 << 30 }, Blank { serial: "BLANK2", bytes: 3 << 30 }], None)?;
        let mut guest = stand.power_on(task, true)?;
        let mut ask = |typed: Option<&str>, answered: &str| -> Result<String, String> {
            let mark = guest.serial().mark();
            if let Some(typed) = typed {
                guest.type_line(typed).map_err(|e| e.to_string())?;
            }
            let mark = if typed.is_some() { mark } else { 0 };
            guest.wait_after(mark, answered, quiet(60)).map_err(|e| e.to_string())
        };
        const PROMPT: &str = "(?s)(Disks of this machine:.*)Number of the disk";
        let list = ask(None, &format!("{PROMPT}.*switch off: "))?;
        let third = ask(Some("3"), "(?s)\n([^\n]*no disk[^\n]*)\n.*switch off: ")?;
        let small = ask(Some("1"), "(?s)\n([^\n]*Refused:[^\n]*)\n.*switch off: ")?;
        ask(Some("2"), "Enter to go back: ")?;
        let wrong = ask(Some("ANK1"), "(?s)\n([^\n]*something else[^\n]*)\n.*switch off: ")?;
        guest.type_line("p").map_err(|e| e.to_string())?;
        let ended = guest.wait_for_end(quiet(10));
        stand.keep_serial(&guest, task);
        ended.map_err(|e| e.to_string())?;
        let changed = stand.changes()?;
        let changed = [0, 1].map(|n| changed.get(n).copied().unwrap_or(true));
        let talk = Talk { list, third, small, wrong, changed };
        self.talked = Some(talk.clone());
        Ok(talk)
    }
}

/// Variables of a firmware that no key was ever given to, in the builder root.
const NO_KEYS: &str = "usr/share/OVMF/OVMF_VARS_4M.fd";

/// One machine: a stick and its disks.
pub struct Stand {
    builder: BuilderRoot,
    folder: PathBuf,
    logs: PathBuf,
    stick: PathBuf,
    disks: Vec<(&'static str, PathBuf)>,
    before: Vec<String>,
    /// The firmware tries the disks before the stick.
    pub disks_first: bool,
    /// The firmware checks signatures and has no keys yet.
    pub setup_mode: bool,
    /// Ports of this host that lead to the guest's 443 and 80; with them comes a controller for sticks.
    ports: Option<(u16, u16)>,
    runs: u32,
}

/// A run that came to its end.
pub struct Ran {
    /// All that the serial line said.
    pub serial: String,
    /// Which disks differ from what was remembered.
    pub changed: Vec<bool>,
    /// From power-on to power-off.
    pub seconds: f64,
}

impl Stand {
    fn machine(&self, with_stick: bool) -> Machine {
        let stick = Drive { boot_order: Some(if self.disks_first { 9 } else { 0 }), ..Drive::new(&self.stick, "STICK") };
        let mut drives: Vec<Drive> = if with_stick { vec![stick] } else { Vec::new() };
        // The disk that is installed on comes before the others, as its owner sets it in the firmware; the rest can be started too.
        for (n, (serial, path)) in (1u32..).zip(&self.disks) {
            let order = if *serial == "TARGET2" { 1 } else { n + 2 };
            drives.push(Drive { boot_order: Some(order), ..Drive::new(path, serial) });
        }
        let mut machine = Machine::from_drives(drives);
        machine.secure_boot = self.setup_mode.then(|| self.builder.dir().join(NO_KEYS));
        if let Some((encrypted, plain)) = self.ports {
            machine.sockets_for_disks = true;
            machine.forwards.extend([Forward { host: encrypted, guest: 443 }, Forward { host: plain, guest: 80 }]);
        }
        machine
    }

    /// Switches the machine on and waits until its installer or its screen says something. A machine whose emulated timers stand still
    /// before that is switched on once more; that is a fault of the emulator on a busy host, and the log says so.
    pub fn power_on(&mut self, task: &Task, with_stick: bool) -> Result<Guest, String> {
        self.runs += 1;
        task.log.line(format!("power on ({}), run {}, stick {with_stick}", self.folder.display(), self.runs));
        let pattern = format!("(LM Warden [^\n]* installer|{SCREEN})");
        let stalled = |guest: &Guest| {
            self.keep_serial(guest, task);
            task.log.line(STALLED);
        };
        let (machine, run_dir) = (self.machine(with_stick), self.folder.join("run"));
        let first = (pattern.as_str(), quiet(60));
        let started = Guest::start_until(&self.builder, &machine, &run_dir, true, first, |_| Ok(()), stalled);
        let PowerOn { guest, said, .. } = started.map_err(|e| e.to_string())?;
        if let Err(error) = said {
            self.keep_serial(&guest, task);
            return Err(error.to_string());
        }
        Ok(guest)
    }

    /// Runs with the stick until the machine switches itself off.
    pub fn run_to_its_end(&mut self, task: &Task, limit: Duration) -> Result<Ran, String> {
        let begun = Instant::now();
        let mut guest = self.power_on(task, true)?;
        let ended = guest.wait_for_end(limit);
        self.keep_serial(&guest, task);
        ended.map_err(|e| e.to_string())?;
        let seconds = begun.elapsed().as_secs_f64();
        Ok(Ran { serial: guest.serial().text(), changed: self.changes()?, seconds })
    }

    /// Runs with the stick and pulls the plug as soon as `pattern` is on the serial line.
    pub fn cut_at(&mut self, task: &Task, pattern: &str, limit: Duration) -> Result<String, String> {
        let mut guest = self.power_on(task, true)?;
        let seen = guest.wait(pattern, limit);
        // Nothing comes before the plug: a moment later the machine may be done.
        let stopped = guest.qmp().call("stop", serde_json::json!({}));
        self.keep_serial(&guest, task);
        let serial = guest.serial().text();
        guest.quit();
        seen.and(stopped).map(|_| serial).map_err(|e| e.to_string())
    }

    /// Keeps the serial log beside the other logs.
    pub fn keep_serial(&self, guest: &Guest, task: &Task) {
        let name = self.folder.file_name().unwrap_or_default().to_string_lossy();
        let _the_run_folder_still_has_it = fs::copy(guest.serial().path(), self.logs.join(format!("serial-install-{name}-{}.log", self.runs)));
        task.log.line(format!("the serial line of run {}:\n{}", self.runs, guest.serial().tail()));
    }

    /// Takes the disks as they are for unchanged from now on.
    pub fn remember(&mut self) -> Result<(), String> {
        self.before = self.disks.iter().map(|(_, path)| content(path)).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Which disks changed.
    pub fn changes(&self) -> Result<Vec<bool>, String> {
        self.disks.iter().zip(&self.before).map(|((_, path), before)| Ok(content(path)? != *before)).collect()
    }

    /// Puts an answer file on the stick.
    pub fn answer(&self, text: &str) -> Result<(), String> {
        let path = self.folder.join("answer.toml");
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        self.mtools("mcopy", &["-o", &path.to_string_lossy(), "::answer.toml"]).map(drop)
    }

    /// The answer file as it is on the stick.
    pub fn answer_text(&self) -> Result<String, String> {
        self.mtools("mtype", &["::answer.toml"])
    }

    /// The result on the stick.
    pub fn result(&self) -> Result<Value, String> {
        let text = self.mtools("mtype", &["::result.json"])?;
        serde_json::from_str(&text).map_err(|e| format!("result.json on the stick is not JSON ({e}): {text}"))
    }

    /// Runs one of the FAT tools on the stick's first partition, which begins at 1 MiB.
    fn mtools(&self, tool: &str, arguments: &[&str]) -> Result<String, String> {
        let image = format!("{}@@1M", self.stick.display());
        let output = self.builder.command(tool, &[&self.folder]).arg("-i").arg(image).args(arguments).output().map_err(|e| format!("{tool}: {e}"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(format!("{tool} {arguments:?} on the stick: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let output = Command::new("cp").arg("--sparse=always").arg(from).arg(to).output().map_err(|e| format!("cp: {e}"))?;
    if output.status.success() { Ok(()) } else { Err(format!("copying {}: {}", from.display(), String::from_utf8_lossy(&output.stderr).trim())) }
}

/// A hash of a disk's content: blank blocks count as nothing, and holes in its file are not read.
fn content(path: &Path) -> Result<String, String> {
    const BLOCK: u64 = 1 << 16;
    let said = |e: std::io::Error| format!("{}: {e}", path.display());
    let file = File::open(path).map_err(said)?;
    let length = file.metadata().map_err(said)?.len();
    let seek = |at: u64, to: Whence| lseek(&file, at.cast_signed(), to).map_or(length, i64::cast_unsigned);
    let (mut hash, mut buffer, zeros) = (Sha256::new(), vec![0u8; 1 << 16], vec![0u8; 1 << 16]);
    let mut at = seek(0, Whence::SeekData) / BLOCK * BLOCK;
    let mut end = seek(at, Whence::SeekHole);
    while at < length {
        let part = &mut buffer[..usize::try_from(BLOCK.min(length - at)).unwrap_or(0)];
        file.read_exact_at(part, at).map_err(said)?;
        if *part != zeros[..part.len()] {
            hash.update(at.to_le_bytes());
            hash.update(&*part);
        }
        at += BLOCK;
        if at >= end {
            at = at.max(seek(at, Whence::SeekData) / BLOCK * BLOCK);
            end = seek(at, Whence::SeekHole);
        }
    }
    Ok(hex::encode(hash.finalize()))
}

/// The last line that says something.
fn last_words(serial: &str) -> String {
    serial.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
}
