//! Carries an installation out: one step after the other, each told as it goes on. Decisions were made before; here only writing fails.

use std::path::Path;

use sha2::{Digest, Sha256};
use warden_domain::steps::Steps;
use warden_domain::units::Bytes;
use warden_domain::{Problem, ProblemKind, clock};

use crate::answer::Seed;
use crate::boot_files::{self, Record};
use crate::data::{self, Accounts, Fault};
use crate::disk::Disk;
use crate::layout::{self, Layout};
use crate::mounts::Mounted;
use crate::seed;
use crate::stick::{Manifest, Stick};
use crate::sysfs::Kernel;
use crate::write::{self, Region};
use crate::{plan, tools};

/// What to do.
#[derive(Debug)]
pub struct Job<'a> {
    /// The disk; it was admitted before.
    pub disk: &'a Disk,
    /// The stick.
    pub stick: &'a Stick,
    /// What the stick carries.
    pub manifest: &'a Manifest,
    /// The stick's mounted EFI system partition.
    pub boot: &'a Path,
    /// The partition files.
    pub layout: &'a Layout,
    /// Name of the installation.
    pub install_id: Option<String>,
    /// Settings for the first start.
    pub seed: &'a Seed,
    /// System's name of the port that the seed's network settings mean.
    pub port: Option<String>,
    /// Have the firmware take our keys.
    pub enroll: bool,
}

/// Installs. `tell` gets the steps at each change.
///
/// # Errors
/// What failed, beside the steps as they stood; the disk does not start then.
pub fn run(job: &Job, tell: &mut dyn FnMut(&Steps)) -> (Steps, Result<(), Problem>) {
    let kernel = Kernel::default();
    let still = || if kernel.is_still(job.disk) { Ok(()) } else { Err(swapped(job.disk)) };
    let mut work = Work { steps: plan::steps(), tell, still: &still };
    let result = work.all(job);
    if let Err(problem) = &result {
        work.steps.fail(problem, clock::now());
        (work.tell)(&work.steps);
    }
    (work.steps, result)
}

struct Work<'a> {
    steps: Steps,
    tell: &'a mut dyn FnMut(&Steps),
    /// Whether the disk's name still stands for the disk that was chosen. Asked before each step, since each opens it by its name.
    still: &'a dyn Fn() -> Result<(), Problem>,
}

/// The partitions of the new disk, by kernel name.
struct Parts {
    esp: String,
    root: [String; 2],
    state: String,
    data: String,
}

const LABELS: [&str; 2] = ["warden-root-a", "warden-root-b"];

impl Work<'_> {
    fn step<T>(&mut self, key: &str, work: impl FnOnce(&mut Self) -> Result<T, Problem>) -> Result<T, Problem> {
        self.steps.begin(key, clock::now());
        (self.tell)(&self.steps);
        (self.still)()?;
        let done = work(self)?;
        self.steps.finish(key, clock::now());
        (self.tell)(&self.steps);
        Ok(done)
    }

    fn advance(&mut self, key: &str, done: Bytes, total: Bytes) {
        self.steps.advance(key, plan::bytes(done, total));
        (self.tell)(&self.steps);
    }

    fn all(&mut self, job: &Job) -> Result<(), Problem> {
        let device = format!("/dev/{}", job.disk.name);
        let length = job.manifest.root();
        let pairs = self.step("check", |_| {
            let slot = LABELS.iter().filter_map(|label| job.layout.size_of(label)).min().unwrap_or_default();
            if length > slot {
                return Err(stick_fault(&format!("its system of {length} does not fit into a slot of {slot}")));
            }
            if job.manifest.carried().0 > 0 {
                let packs = packs(job)?;
                if let Some(lacking) = data::lacking(packs.path(), job.manifest.files()) {
                    return Err(stick_fault(&lacking));
                }
                packs.close()?;
            }
            boot_files::pairs(job.boot, job.enroll).map_err(|error| stick_fault(&error.to_string()))
        })?;
        self.step("clear", |work| {
            let fault = |error| disk_fault(job.disk, "clearing it", &error);
            let held = write::hold(Path::new(&device)).map_err(fault)?;
            // Once more with the disk in hand: what is open now stays the same disk whatever is plugged in.
            (work.still)()?;
            write::clear_ends(&held, job.disk.size).map_err(fault)
        })?;
        let parts = self.step("partition", |_| {
            tools::partition(&device, layout::FOLDER)?;
            tools::settle();
            find(&job.disk.name)
        })?;
        let source = format!("/dev/{}", job.stick.root);
        for ((key, part), label) in ["write-root-a", "write-root-b"].into_iter().zip(&parts.root).zip(LABELS) {
            self.step(key, |work| {
                let region = Region::device(format!("/dev/{part}"));
                // Whether the stick holds what it should is seen at the first reading; later readings are compared with that.
                let (first, mut hash) = (label == LABELS[0], Sha256::new());
                let seen = |bytes: &[u8]| {
                    if first {
                        hash.update(bytes)
                    }
                };
                let copied = write::copy(Path::new(&source), &region, length, seen, |done| work.advance(key, done, length));
                copied.map_err(|error| disk_fault(job.disk, &format!("writing {label}"), &error))?;
                let sound = !first || hex::encode(hash.finalize()) == job.manifest.root_sha256;
                if sound { Ok(()) } else { Err(stick_fault("its system does not match its hash")) }
            })?;
        }
        self.step("boot-files", |_| {
            let esp = Mounted::new(&parts.esp, "vfat", "esp", true)?;
            boot_files::copy(job.boot, esp.path(), &pairs).map_err(|error| disk_fault(job.disk, "copying the boot files", &error))?;
            esp.close()
        })?;
        self.step("state", |_| {
            let state = Mounted::new(&parts.state, "ext4", "state", true)?;
            let owner = seed::account(&accounts().passwd, "warden").ok_or_else(|| stick_fault("its system has no user warden"))?;
            seed::fill(state.path(), job.seed, job.port.as_deref(), owner)?;
            state.close()
        })?;
        self.step("data", |work| work.fill_data(job, &parts))?;
        self.step("verify", |work| work.verify(job, &parts, &pairs))?;
        self.step("activate", |_| {
            let record = Record { install_id: job.install_id.clone(), version: job.manifest.version.clone(), at: clock::now().to_string() };
            let esp = Mounted::new(&parts.esp, "vfat", "esp", true)?;
            boot_files::activate(job.boot, esp.path(), &record, job.enroll).map_err(|error| disk_fault(job.disk, "making it bootable", &error))?;
            esp.close()
        })
    }

    fn fill_data(&mut self, job: &Job, parts: &Parts) -> Result<(), Problem> {
        let total = job.manifest.carried();
        let on = Mounted::new(&parts.data, "ext4", "data", true)?;
        // Without packs nothing is read from there.
        let packs = if total.0 > 0 { Some(packs(job)?) } else { None };
        let source = packs.as_ref().map_or_else(|| job.boot, |packs| packs.path());
        let filled = data::fill(on.path(), source, job.manifest.files(), &accounts(), |done| self.advance("data", done, total));
        filled.map_err(|fault| match fault {
            Fault::Account(name) => stick_fault(&format!("its system has no {name}")),
            Fault::Stick(said) => stick_fault(&said),
            Fault::Disk(error) => disk_fault(job.disk, "writing the engine packs", &error),
        })?;
        if let Some(packs) = packs {
            packs.close()?;
        }
        on.close()
    }

    fn verify(&mut self, job: &Job, parts: &Parts, pairs: &[(std::path::PathBuf, std::path::PathBuf)]) -> Result<(), Problem> {
        tools::check_fat(&format!("/dev/{}", parts.esp))?;
        for part in [&parts.state, &parts.data] {
            tools::check_ext4(&format!("/dev/{part}"))?;
        }
        let esp = Mounted::new(&parts.esp, "vfat", "esp", false)?;
        let differs =
            boot_files::difference(job.boot, esp.path(), pairs).map_err(|error| disk_fault(job.disk, "reading the boot files back", &error))?;
        esp.close()?;
        if let Some(file) = differs {
            return Err(damaged(job.disk, &file.display().to_string()));
        }
        let (length, carried) = (job.manifest.root(), job.manifest.carried());
        let total = Bytes(length.0 + carried.0);
        let on = Mounted::new(&parts.data, "ext4", "data", false)?;
        let read = data::difference(on.path(), job.manifest.files(), |done| self.advance("verify", done, total));
        if let Some(file) = read.map_err(|error| disk_fault(job.disk, "reading the engine packs back", &error))? {
            return Err(damaged(job.disk, &file));
        }
        on.close()?;
        let slots = parts.root.each_ref().map(|part| Region::device(format!("/dev/{part}")));
        let source = format!("/dev/{}", job.stick.root);
        let read = write::difference(Path::new(&source), &slots, length, |done| self.advance("verify", Bytes(carried.0 + done.0), total));
        match read.map_err(|error| disk_fault(job.disk, "reading both slots back", &error))?.and_then(|n| LABELS.get(n)) {
            Some(label) => Err(damaged(job.disk, label)),
            None => Ok(()),
        }
    }
}

/// The new partitions, as the kernel shows them on that disk alone.
fn find(disk: &str) -> Result<Parts, Problem> {
    let found = Kernel::default().partitions(disk);
    let of = |label: &str| {
        found.iter().find(|part| part.label == label).map(|part| part.name.clone()).ok_or_else(|| {
            Problem::new(ProblemKind::SystemService, format!("The new partition {label} does not show up on {disk}."))
                .hint("Start the machine from the stick again.")
        })
    };
    Ok(Parts { esp: of("warden-esp")?, root: [of(LABELS[0])?, of(LABELS[1])?], state: of("warden-state")?, data: of(layout::DATA)? })
}

/// The stick's partition of engine packs.
fn packs(job: &Job) -> Result<Mounted, Problem> {
    let part = job.stick.packs.as_ref().ok_or_else(|| stick_fault("it names engine packs and has no partition with them"))?;
    Mounted::new(part, "squashfs", "packs", false)
}

/// The accounts of the system that runs here, which is the one that is installed.
fn accounts() -> Accounts {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    Accounts { passwd: read("/etc/passwd"), group: read("/etc/group") }
}

fn swapped(disk: &Disk) -> Problem {
    Problem::new(ProblemKind::Conflict, format!("Now {} is gone, or another disk stands in its place; that one was not written to.", disk.called()))
        .hint("Leave the disks plugged in, and install again.")
}

fn disk_fault(disk: &Disk, doing: &str, error: &std::io::Error) -> Problem {
    Problem::new(ProblemKind::SystemService, format!("On {}, {doing} failed: {error}.", disk.called()))
        .hint("Check its cable and health, and install again; if it stays, use another disk.")
}

fn damaged(disk: &Disk, what: &str) -> Problem {
    Problem::new(ProblemKind::SystemService, format!("On {}, {what} reads back differently from what was written.", disk.called()))
        .hint("The disk, its cable or the memory of the machine is faulty; the disk was not made bootable.")
}

fn stick_fault(what: &str) -> Problem {
    Problem::new(ProblemKind::SystemService, format!("The stick cannot be installed from: {what}.")).hint("Make the stick again.")
}
