//! The program of the installer stick. With an answer file it installs without a question or refuses, leaves the result on the stick and
//! switches the machine off; without one it asks on tty1 and the serial line.

mod talk;

use std::path::Path;
use std::time::Duration;

use nix::sys::reboot::{RebootMode, reboot};
use warden_domain::steps::Steps;
use warden_domain::units::Bytes;
use warden_domain::{Problem, ProblemKind, clock};
use warden_install::answer::{self, Answer, Seed};
use warden_install::choose::{self, Refusal};
use warden_install::disk::Disk;
use warden_install::install::{self, Job};
use warden_install::layout::{self, Layout};
use warden_install::mounts::Mounted;
use warden_install::network::{self, Port};
use warden_install::report::{self, Outcome, Report};
use warden_install::secureboot::{self, Posture};
use warden_install::stick::{self, Manifest, Stick};
use warden_install::sysfs::Kernel;
use warden_install::terminal::Screens;
use warden_install::{boot_files, plan, tools, write};

fn main() {
    let mut screens = Screens::open();
    if let Err(problem) = work(&mut screens) {
        screens.say(&format!("\nNothing can be installed: {}", problem.full_text()));
        let _ = screens.ask("Press Enter to switch the machine off. ");
    }
    screens.say("Switching off.");
    nix::unistd::sync();
    let _ = reboot(RebootMode::RB_POWER_OFF);
}

/// What is wanted of the new system.
struct Wishes {
    install_id: Option<String>,
    seed: Seed,
    /// System's name of the port that the seed's network settings mean.
    port: Option<String>,
    enroll: bool,
}

/// What every way of installing needs.
struct Bench {
    stick: Stick,
    boot: Mounted,
    manifest: Manifest,
    layout: Layout,
    posture: Posture,
}

impl Bench {
    fn open() -> Result<Self, Problem> {
        let said = |error: &dyn std::fmt::Display| Problem::new(ProblemKind::SystemService, format!("{error}."));
        let told = std::fs::read_to_string(stick::TOLD).unwrap_or_default();
        let stick = Stick::parse(&told).map_err(|e| said(&e))?;
        let boot = Mounted::new(&stick.esp, "vfat", "stick", false)?;
        let manifest = Manifest::read(boot.path()).map_err(|e| said(&e))?;
        let layout = Layout::read(Path::new(layout::FOLDER)).map_err(|e| said(&e))?;
        // The variables are the firmware's; without them nothing is said about it.
        let posture = match nix::mount::mount(Some("efivarfs"), secureboot::VARIABLES, Some("efivarfs"), nix::mount::MsFlags::MS_RDONLY, None::<&str>)
        {
            Ok(()) | Err(nix::errno::Errno::EBUSY) => secureboot::read(Path::new(secureboot::VARIABLES)),
            Err(_) => Posture::Unknown,
        };
        Ok(Self { stick, boot, manifest, layout, posture })
    }

    fn disks(&self) -> Vec<Disk> {
        tools::settle();
        let blank = |disk: &str| write::is_blank(&Path::new("/dev").join(disk));
        let id = |part: &str| boot_files::record(Mounted::new(part, "vfat", "look", false).ok()?.path())?.install_id;
        Kernel::default().disks(Some(&self.stick.disk), &blank, &id)
    }

    /// The least size of a disk to install on.
    fn needed(&self) -> Bytes {
        self.layout.needed_for(self.manifest.carried())
    }

    /// Installs and shows how it goes on.
    fn install(&self, screens: &mut Screens, disk: &Disk, wishes: Wishes) -> (Steps, Result<(), Problem>) {
        let Wishes { install_id, seed, port, enroll } = wishes;
        let (stick, manifest, layout) = (&self.stick, &self.manifest, &self.layout);
        let job = Job { disk, stick, manifest, boot: self.boot.path(), layout, install_id, seed: &seed, port, enroll };
        let (mut shown, mut said) = (String::new(), 0);
        let done = install::run(&job, &mut |steps| {
            if let Some(step) = steps.current().filter(|step| step.key != shown) {
                shown.clone_from(&step.key);
                let number = plan::PLAN.iter().position(|(key, ..)| *key == step.key).map_or(0, |at| at + 1);
                screens.say(&format!("[{number}/{}] {}", plan::PLAN.len(), step.title));
            }
            let percent = plan::percent(steps);
            while said + 5 <= percent {
                said += 5;
                screens.say(&format!("Progress {said} %"));
            }
        });
        match &done.1 {
            Ok(()) => screens.say(&format!("Installed: {} starts LM Warden {} now. Take the stick out.", disk.called(), self.manifest.version)),
            Err(problem) => screens.say(&format!("Failed: {} The disk does not start.", problem.full_text())),
        }
        done
    }

    /// Leaves the result on the stick; gives a sentence when that fails.
    fn leave(&self, report: &Report, answer: Option<&str>) -> Result<(), Problem> {
        let Some(part) = &self.stick.files else {
            return Err(Problem::new(ProblemKind::SystemService, "The stick has no partition for the result."));
        };
        let files = Mounted::new(part, "vfat", "files", true)?;
        let failed =
            |error: std::io::Error| Problem::new(ProblemKind::SystemService, format!("The result could not be written to the stick: {error}."));
        let path = files.path().join(report::FILE);
        let before = stick::read_at_most(&path, report::MOST).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        warden_durable::write(&path, report::render(report, before.as_deref()).as_bytes()).map_err(failed)?;
        if let Some(text) = answer {
            let path = files.path().join(answer::FILE);
            // The old bytes are overwritten where they lie before the short file takes the name.
            let length = path.metadata().map_or(0, |meta| meta.len());
            let blank = vec![b'\n'; usize::try_from(length).unwrap_or(0)];
            let overwritten = std::fs::OpenOptions::new().write(true).open(&path).and_then(|mut file| {
                std::io::Write::write_all(&mut file, &blank)?;
                file.sync_all()
            });
            overwritten.and_then(|()| warden_durable::write(&path, text.as_bytes())).map_err(failed)?;
        }
        files.close()
    }

    fn report(&self, outcome: Outcome, install_id: Option<String>, disk: Option<&Disk>, steps: Option<Steps>, failure: Option<String>) -> Report {
        Report {
            outcome,
            at: clock::now(),
            version: self.manifest.version.clone(),
            engines: self.manifest.engines(),
            install_id,
            disk: disk.map(Disk::report),
            steps,
            failure,
        }
    }
}

fn work(screens: &mut Screens) -> Result<(), Problem> {
    let bench = Bench::open()?;
    screens.say(&format!("\nLM Warden {} installer", bench.manifest.version));
    screens.say(&bench.manifest.sentence());
    screens.say(bench.posture.sentence());
    let answer = bench.stick.files.as_ref().and_then(|part| {
        tools::repair_fat(&format!("/dev/{part}"));
        let files = Mounted::new(part, "vfat", "files", false).ok()?;
        let path = files.path().join(answer::FILE);
        // A file that cannot be read is as good as a wrong one: it must not turn into a question that nobody answers.
        std::fs::symlink_metadata(&path).is_ok().then(|| stick::read_at_most(&path, answer::MOST + 1).unwrap_or_default())
    });
    match answer {
        Some(bytes) => unattended(&bench, screens, &bytes),
        None => talk::talk(&bench, screens),
    }
    Ok(())
}

/// Carries the answer file out.
fn unattended(bench: &Bench, screens: &mut Screens, bytes: &[u8]) {
    let disks = bench.disks();
    talk::show(screens, &disks);
    let parsed = answer::parse(bytes);
    let install_id = parsed.as_ref().ok().map(|answer| answer.install_id.clone());
    let decided = parsed
        .map_err(|error| Denied { sentence: error.to_string(), disk: None, used: false })
        .and_then(|answer| choose_patiently(bench, &answer, disks).map(|disk| (answer, disk)))
        .and_then(|(answer, disk)| match find_port(&answer) {
            Ok(port) => Ok((answer, disk, port)),
            Err(sentence) => Err(Denied { sentence, disk: Some(Box::new(disk)), used: false }),
        });
    let (report, rest) = match decided {
        Err(Denied { sentence, disk, used }) => {
            screens.say(&format!("Refused: {sentence}. Nothing was written to any disk."));
            // The power may have gone between the end of the installation and the removal of its secrets.
            let rest = if used { scrubbed(bytes) } else { None };
            (bench.report(Outcome::Refused, install_id, disk.as_deref(), None, Some(sentence)), rest)
        }
        Ok((answer, disk, port)) => {
            let enroll = answer.enroll && bench.posture == Posture::SetupMode;
            screens.say(&format!("Installing {} on {}.", answer.install_id, disk.line()));
            let wishes = Wishes { install_id: install_id.clone(), seed: answer.seed, port, enroll };
            let (steps, result) = bench.install(screens, &disk, wishes);
            let outcome = if result.is_ok() { Outcome::Installed } else { Outcome::Failed };
            let failure = result.err().map(|problem| problem.full_text());
            let rest = if outcome == Outcome::Installed { scrubbed(bytes) } else { None };
            (bench.report(outcome, install_id, Some(&disk), Some(steps), failure), rest)
        }
    };
    if let Err(problem) = bench.leave(&report, rest.as_deref()) {
        screens.say(&problem.full_text());
    }
}

/// What stays of an answer that was used.
fn scrubbed(bytes: &[u8]) -> Option<String> {
    answer::without_secrets(std::str::from_utf8(bytes).ok()?).ok()
}

/// The port that the answer's network settings mean; nothing without such settings. One that is missing gets a moment more, as a disk does.
fn find_port(answer: &Answer) -> Result<Option<String>, String> {
    let Some(network) = &answer.seed.network else { return Ok(None) };
    let look = || -> Vec<Port> { network::ports(Path::new(network::PORTS)) };
    let found = network.find(&look()).map(str::to_owned).or_else(|_| {
        std::thread::sleep(Duration::from_secs(3));
        tools::settle();
        network.find(&look()).map(str::to_owned)
    });
    found.map(Some)
}

/// Why an answer is not carried out.
struct Denied {
    sentence: String,
    /// The disk it means, when that is clear.
    disk: Option<Box<Disk>>,
    /// It was carried out before, and its secrets are still there.
    used: bool,
}

/// The disk an answer means. One that is missing gets a moment more: controllers and cables take their time.
fn choose_patiently(bench: &Bench, answer: &Answer, mut disks: Vec<Disk>) -> Result<Disk, Denied> {
    let needed = bench.needed();
    if matches!(choose::decide(&disks, answer, needed), Err(Refusal::Missing { .. })) {
        std::thread::sleep(Duration::from_secs(3));
        disks = bench.disks();
    }
    let denied = |refusal: Refusal| Denied {
        sentence: refusal.to_string(),
        used: choose::left_over(&refusal, answer),
        disk: choose::select(&disks, &answer.target).ok().map(|disk| Box::new(disk.clone())),
    };
    choose::decide(&disks, answer, needed).cloned().map_err(denied)
}
