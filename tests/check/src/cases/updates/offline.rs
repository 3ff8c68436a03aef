//! Updates without a network: by a browser beside the box, by a stick at its screen, and with a clock that nobody set.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use warden_vm::{BuilderRoot, quiet};

use super::calls;
use super::chain::{Bench, bench};
use super::machine::{Setup, UpdateBox};
use super::publisher::{Target, Wanted};
use super::works::{Build, SECOND, THIRD};
use crate::command;
use crate::log::CaseLog;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

const STICK: &str = "UPDATESTICK1";
const STICK_SIZE: u64 = 256 << 20;

/// The offline bundle of an update.
fn bundle_of(bench: &mut Bench, build: Build, stage: &mut Stage, task: &Task) -> Result<PathBuf, String> {
    let image = bench.works.update(build, stage, &task.log)?;
    let name = format!("offline-{}", build.version());
    let made = bench.works.folder().join("publisher").join(format!("{name}.wob"));
    if made.is_file() {
        return Ok(made);
    }
    let channel = bench.publisher.publish(&name, &Wanted::version(bench.release, vec![Target::os(build.version(), &image)]))?;
    bench.release += 1;
    let made = bench.publisher.bundle(&channel, &name)?;
    // The channel folder holds the image a second time.
    let _room = fs::remove_dir_all(&channel);
    Ok(made)
}

/// Uploads, installs, restarts and waits for the confirmation.
fn by_browser(machine: &mut UpdateBox, bundle: &Path, version: &str, result: &mut CaseResult) -> Result<(), String> {
    let console = machine.console()?;
    let id = calls::upload(&console, bundle)?;
    let ended = calls::take(&console, &id, true, quiet(90))?;
    result.expect(ended.done, format!("the bundle with {version} is checked and installed ({})", ended.sentence));
    if !ended.done {
        return Ok(());
    }
    let staged = calls::wait_phase(&console, &["staged"], Duration::from_secs(5))?;
    result.note(format!("by its own clock that was begun at {}", staged["attempt"]["began_at"]));
    calls::restart(&console)?;
    machine.wait_version(version, quiet(90))?;
    let document = calls::wait_confirmed(&console, quiet(60))?;
    result.expect(document["version"] == version, format!("{version} runs and is confirmed ({})", document["version"]));
    Ok(())
}

/// A machine with an address and nothing behind it, whose clock begins in 1990; two cases share it.
struct Closed {
    machine: UpdateBox,
    /// The update that was brought to it in 1990 is confirmed.
    updated: bool,
}

static CLOSED: Mutex<Option<Closed>> = Mutex::new(None);

/// Ends it.
pub fn strike() {
    *CLOSED.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

fn closed(bench: &mut Bench, stage: &mut Stage, task: &Task) -> Result<Closed, String> {
    let setup = Setup { closed: true, clock: Some("1990-01-01T00:00:00".to_owned()), ..Setup::default() };
    let machine = UpdateBox::start(&mut bench.works, stage, "closed", &setup, &task.log)?;
    Ok(Closed { machine, updated: false })
}

/// `offline-browser`
pub fn browser(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut held = bench(stage, task)?;
    let bench = held.get()?;
    bench.machine = None;
    let bundle = bundle_of(bench, Build::Second, stage, task)?;
    let mut closed = closed(bench, stage, task)?;
    result.note("the machine has an address and nothing behind it: no name service, no route out; it was powered on in 1990");
    let console = closed.machine.console()?;
    // Somebody closes the browser in the middle of the upload.
    let bytes = fs::read(&bundle).map_err(|e| format!("{}: {e}", bundle.display()))?;
    let begun =
        console.expect("POST", "/api/updates/uploads", Some(&serde_json::json!({"name": "update.wob", "size_bytes": bytes.len()})), &[201])?.json();
    let id = begun["id"].as_str().ok_or("the upload has no handle")?.to_owned();
    calls::upload_rest(&console, &id, &bytes, Some(bytes.len() / 2))?;
    let stands = console.expect("GET", &format!("/api/updates/uploads/{id}"), None, &[200])?.json();
    let half = stands["received_bytes"].as_u64().unwrap_or(0);
    result.expect(half > 0 && half < bytes.len() as u64, format!("an upload that was broken off is kept ({half} of {} bytes)", bytes.len()));
    calls::upload_rest(&console, &id, &bytes, None)?;
    let ended = calls::take(&console, &id, false, quiet(60))?;
    result.expect(ended.done, format!("it goes on from there, and the whole is believed ({})", ended.sentence));
    calls::cancel(&console)?;
    by_browser(&mut closed.machine, &bundle, SECOND, result)?;
    closed.updated = result.passed;
    *CLOSED.lock().unwrap_or_else(PoisonError::into_inner) = Some(closed);
    Ok(())
}

/// `clock`
pub fn clock(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut held = bench(stage, task)?;
    let bench = held.get()?;
    bench.machine = None;
    let (second, third) = (bundle_of(bench, Build::Second, stage, task)?, bundle_of(bench, Build::Third, stage, task)?);
    let kept = CLOSED.lock().unwrap_or_else(PoisonError::into_inner).take();
    let mut closed = match kept {
        Some(mut kept) => {
            kept.machine.log_to(stage, task);
            kept
        }
        None => closed(bench, stage, task)?,
    };
    result.note("powered on in 1990, with nobody to ask for the time");
    if !closed.updated {
        by_browser(&mut closed.machine, &second, SECOND, result)?;
    }
    let mut machine = closed.machine;
    let version = machine.version();
    result.expect(version.as_deref() == Some(SECOND), format!("{SECOND} was installed in 1990 ({version:?})"));
    machine.switch_off()?;
    machine.machine().clock = Some("2050-01-01T00:00:00".to_owned());
    machine.switch_on()?;
    machine.wait_up()?;
    result.note("powered on in 2050");
    by_browser(&mut machine, &third, THIRD, result)
}

/// `offline-stick`
pub fn stick(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut held = bench(stage, task)?;
    let bench = held.get()?;
    bench.machine = None;
    let bundle = bundle_of(bench, Build::Second, stage, task)?;
    let setup = Setup { no_network: true, sticks: true, ..Setup::default() };
    let mut machine = UpdateBox::prepare(&mut bench.works, stage, "stick", &setup, &task.log)?;
    make_stick(bench.works.builder(), machine.run_dir(), &bundle, &task.log)?;
    machine.switch_on()?;
    let stick = machine.run_dir().join(STICK);
    let guest = machine.guest()?;
    let said = |e: warden_vm::VmError| e.to_string();
    guest.wait("(Claim code:|Health:)", quiet(60)).map_err(said)?;
    guest.plug(&stick, STICK, true).map_err(said)?;
    std::thread::sleep(Duration::from_secs(3));
    super::screen::update_from_stick(guest)?;
    let mark = guest.serial().mark();
    let seen = guest.wait_after(mark, "initrd: slot b", quiet(120));
    result.expect(seen.is_ok(), "the box installs from the stick and restarts into the other slot");
    seen.map_err(said)?;
    let seen = guest.wait_after(mark, &format!("LM Warden {}", SECOND.replace('.', "\\.")), quiet(60));
    result.expect(seen.is_ok(), format!("its screen shows {SECOND}"));
    seen.map_err(said)?;
    // Confirmed: no counter is left in the name of the entry.
    let until = std::time::Instant::now() + quiet(60);
    let mut entries = machine.drive().entries()?;
    while !entries.contains_key("b.conf") && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_secs(1));
        // A folder that is just being written may not be readable for a moment.
        entries = machine.drive().entries().unwrap_or(entries);
    }
    result.expect(entries.contains_key("b.conf"), format!("and the new slot is confirmed ({:?})", entries.keys()));
    Ok(())
}

/// A stick with one FAT partition and a bundle on it.
fn make_stick(builder: &BuilderRoot, run_dir: &Path, bundle: &Path, log: &CaseLog) -> Result<(), String> {
    let said = |e: std::io::Error| format!("the stick's files: {e}");
    let stick = run_dir.join(STICK);
    fs::File::create(&stick).and_then(|file| file.set_len(STICK_SIZE)).map_err(said)?;
    fs::write(run_dir.join("stick.sfdisk"), "label: dos\nstart=2048, type=c\n").map_err(said)?;
    let inside = run_dir.join("update.wob");
    fs::copy(bundle, &inside).map_err(said)?;
    let (image, folder) = (stick.display(), run_dir.display());
    let script = format!(
        "sfdisk -q {image} < {folder}/stick.sfdisk && mkfs.vfat --offset=2048 -n UPDATE {image} {} && mcopy -i {image}@@1M {folder}/update.wob ::",
        (STICK_SIZE >> 10) - 1024
    );
    let mut make = builder.command("/bin/sh", &[run_dir]);
    make.arg("-c").arg(script);
    command::run_ok("making the stick", make, Duration::from_secs(60), log)?;
    fs::remove_file(&inside).map_err(said)
}
