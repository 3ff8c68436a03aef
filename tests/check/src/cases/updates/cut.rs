//! Power cuts at the worst moments, and what is left of a box whose slots are not as they were: one machine, cut again and again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use warden_vm::quiet;

use super::calls;
use super::chain::{Bench, bench, running_slot};
use super::machine::{Setup, UpdateBox};
use super::publisher::{Target, Wanted};
use super::works::{Build, FIRST, SECOND, THIRD};
use crate::console::Console;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

static BOX: Mutex<Option<UpdateBox>> = Mutex::new(None);

/// Ends the machine.
pub fn strike() {
    *BOX.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

type Held = MutexGuard<'static, Option<UpdateBox>>;

/// The machine of these cases, which is another one than that of the chain.
fn machine(bench: &mut Bench, stage: &mut Stage, task: &Task) -> Result<Held, String> {
    bench.machine = None;
    let mut held = BOX.lock().unwrap_or_else(PoisonError::into_inner);
    match held.as_mut() {
        Some(machine) => machine.log_to(stage, task),
        None => *held = Some(UpdateBox::start(&mut bench.works, stage, "cut", &Setup::default(), &task.log)?),
    }
    Ok(held)
}

fn of(held: &mut Held) -> Result<&mut UpdateBox, String> {
    held.as_mut().ok_or_else(|| "there is no machine".to_owned())
}

/// Publishes an update and has the box believe it; its digest and the bytes of its image.
fn offer(bench: &mut Bench, build: Build, console: &Console, stage: &mut Stage, task: &Task) -> Result<(String, u64), String> {
    let file = bench.works.update(build, stage, &task.log)?;
    bench.publish_wanted(&Wanted::version(bench.release, vec![Target::os(build.version(), &file)]))?;
    calls::follow(console, &bench.address(), "off")?;
    let asked = calls::check(console)?;
    if !asked.done {
        return Err(format!("the channel was not believed: {}", asked.sentence));
    }
    let bytes = std::fs::metadata(&file).map_err(|e| format!("{}: {e}", file.display()))?.len();
    Ok((calls::offered(&calls::document(console)?, build.version())?, bytes))
}

/// Bytes written to the disk so far.
fn written(machine: &mut UpdateBox) -> Result<u64, String> {
    let stats = machine.guest()?.qmp().call("query-blockstats", serde_json::json!({})).map_err(|e| e.to_string())?;
    Ok(stats.as_array().into_iter().flatten().filter_map(|s| s["stats"]["wr_bytes"].as_u64()).sum())
}

/// `cut-write`
pub fn write(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut bench = bench(stage, task)?;
    let bench = bench.get()?;
    let mut held = machine(bench, stage, task)?;
    let machine = of(&mut held)?;
    let console = machine.console()?;
    let old = machine.version().unwrap_or_default();
    let slot = running_slot(&machine.updates()?).unwrap_or_default();
    let (sha256, bytes) = offer(bench, Build::Second, &console, stage, task)?;
    let kept = machine.drive().slot_hash(&slot)?;
    let mut begin = written(machine)?;
    calls::begin_install(&console, &sha256)?;
    for percent in [10_u64, 50, 90] {
        // After a cut it begins again by itself, as long as it was not cut too often. Kernel and root are written, in this order.
        let until = Instant::now() + quiet(60);
        let mut at = 0;
        while at < bytes * percent / 100 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
            at = written(machine)?.saturating_sub(begin);
        }
        machine.unplug();
        let reached = at * 100 / bytes.max(1);
        result.expect(reached >= percent, format!("the power was cut after {reached} % of the image's bytes were written"));
        result.expect(machine.drive().slot_hash(&slot)? == kept, format!("slot {slot}, which ran, has its content as before"));
        machine.switch_on()?;
        machine.wait_up()?;
        begin = written(machine)?;
        let version = machine.version().unwrap_or_default();
        result.expect(version == old, format!("the box starts with {old} ({version})"));
    }
    let document = calls::wait_phase(&console, &["verified", "staged"], quiet(60))?;
    let now = running_slot(&machine.updates()?).unwrap_or_default();
    result.expect(now == slot, format!("it still runs from slot {slot} ({now})"));
    result.note(format!("after three cuts it stands at {}: {}", document["phase"], document["fault"]["message"]));
    if document["phase"] == "verified" {
        // Cut that often, it waits for a person, who may come just when the schedule begins again: then the call is refused, and that is fine.
        let ended = calls::install(&console, &sha256, quiet(90))?;
        result.note(format!("asked for once more: {} {}", ended.done, ended.sentence));
    }
    calls::wait_phase(&console, &["staged"], quiet(60))?;
    calls::restart(&console)?;
    machine.wait_version(SECOND, quiet(90))?;
    let document = calls::wait_confirmed(&console, quiet(60))?;
    result.expect(document["version"] == SECOND, format!("and confirmed ({})", document["version"]));
    Ok(())
}

/// `cut-mark`
pub fn mark(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut bench = bench(stage, task)?;
    let bench = bench.get()?;
    let mut held = machine(bench, stage, task)?;
    let machine = of(&mut held)?;
    let console = machine.console()?;

    // While it waits: the power comes back into the new system, and nobody asked for that. Then in the trial, as soon as it answers.
    let target = update_to(bench, Build::Second, machine, &console, stage, task)?;
    machine.cut()?;
    machine.wait_version(SECOND, quiet(90))?;
    let phase = calls::document(&console)?["phase"].clone();
    result.expect(phase == "trial" || phase == "confirmed", format!("a power cut while it waits begins the trial, too ({phase})"));
    machine.cut()?;
    std::thread::sleep(Duration::from_secs(1));
    machine.wait_up()?;
    machine.wait_version(SECOND, quiet(90))?;
    let document = calls::wait_phase(&console, &["confirmed", "rolled_back"], quiet(90))?;
    result.expect(document["phase"] == "confirmed", format!("cut in the trial, the new system is tried again and stays ({})", document["phase"]));
    let entries = wait_entries(machine, |names| names.contains_key(&format!("{target}.conf")))?;
    result.expect(entries.contains_key(&format!("{target}.conf")), format!("its entry counts no tries ({:?})", entries.keys()));

    // At the mark: the moment the entry without a counter is there.
    let target = update_to(bench, Build::Third, machine, &console, stage, task)?;
    calls::restart(&console)?;
    machine.wait_version(THIRD, quiet(90))?;
    let until = Instant::now() + quiet(60);
    let name = format!("{target}.conf");
    let mut entries = machine.drive().entries().unwrap_or_default();
    while !entries.contains_key(&name) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
        // A folder that is just being written may not be readable for a moment.
        entries = machine.drive().entries().unwrap_or(entries);
    }
    machine.cut()?;
    result.expect(entries.contains_key(&name), format!("the power was cut when {name} was there ({:?})", entries.keys()));
    std::thread::sleep(Duration::from_secs(1));
    machine.wait_up()?;
    let document = calls::wait_phase(&console, &["confirmed", "rolled_back"], quiet(90))?;
    let version = machine.version().unwrap_or_default();
    result.expect(
        document["phase"] == "confirmed" && version == THIRD,
        format!("the box starts with {THIRD}, confirmed ({version}, {})", document["phase"]),
    );
    let entries = wait_entries(machine, |names| names.len() == 2)?;
    result.expect(entries.len() == 2, format!("there is one entry per slot ({:?})", entries.keys()));

    // Still updatable: the next image is written and would be started next.
    let (sha256, _) = offer(bench, Build::Crash, &console, stage, task)?;
    let ended = calls::install(&console, &sha256, quiet(90))?;
    result.expect(ended.done, format!("the next image is installed ({})", ended.sentence));
    // Taken back, it is not started by any restart.
    calls::cancel(&console)?;
    let given_up = |name: &str| name.contains("+0");
    let entries = wait_entries(machine, |names| names.keys().any(|name| given_up(name)))?;
    result.expect(entries.keys().filter(|name| given_up(name)).count() == 1, format!("cancelled, its slot is given up ({:?})", entries.keys()));
    calls::wait_phase(&console, &["idle"], quiet(5)).map(drop)
}

/// The boot entries, once they are as wanted or a while is over: the mark comes a moment after the word that it is good.
fn wait_entries(machine: &UpdateBox, wanted: impl Fn(&BTreeMap<String, String>) -> bool) -> Result<BTreeMap<String, String>, String> {
    let until = Instant::now() + quiet(10);
    loop {
        match machine.drive().entries() {
            Ok(entries) if wanted(&entries) || Instant::now() > until => return Ok(entries),
            Err(cause) if Instant::now() > until => return Err(cause),
            _ => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

/// Brings an update to staged; the slot it was written to.
fn update_to(bench: &mut Bench, build: Build, machine: &mut UpdateBox, console: &Console, stage: &mut Stage, task: &Task) -> Result<String, String> {
    let (sha256, _) = offer(bench, build, console, stage, task)?;
    let slot = running_slot(&machine.updates()?).unwrap_or_default();
    let ended = calls::install(console, &sha256, quiet(90))?;
    if !ended.done {
        return Err(format!("OS {} was not installed: {}", build.version(), ended.sentence));
    }
    calls::wait_phase(console, &["staged"], Duration::from_secs(5))?;
    Ok(if slot == "a" { "b" } else { "a" }.to_owned())
}

/// `verity-confirmed`
pub fn verity(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut bench = bench(stage, task)?;
    let bench = bench.get()?;
    let mut held = machine(bench, stage, task)?;
    let machine = of(&mut held)?;
    let console = machine.console()?;
    if machine.version().as_deref() != Some(SECOND) {
        update_to(bench, Build::Second, machine, &console, stage, task)?;
        calls::restart(&console)?;
        machine.wait_version(SECOND, quiet(90))?;
        calls::wait_confirmed(&console, quiet(60))?;
    }
    let slot = running_slot(&machine.updates()?).unwrap_or_default();
    machine.switch_off()?;
    // In the file system's first block, which every start reads.
    machine.drive().flip(&slot, 40)?;
    let begun = Instant::now();
    machine.switch_on()?;
    machine.wait_version(FIRST, quiet(120))?;
    let other = running_slot(&machine.updates()?).unwrap_or_default();
    result.expect(other != slot, format!("slot {other} runs instead of slot {slot}"));
    result.figure("verity_back_s", begun.elapsed().as_secs_f64());
    let until = Instant::now() + quiet(20);
    let mut issues = String::new();
    while !issues.contains("boot_fell_back") && Instant::now() < until {
        issues = console.expect("GET", "/api/issues", None, &[200])?.json().to_string();
        std::thread::sleep(Duration::from_millis(500));
    }
    result.expect(issues.contains("boot_fell_back"), "an issue says that the box fell back");
    result.expect(issues.contains(&format!("slot {slot}")), format!("and from which slot ({slot})"));
    Ok(())
}

/// `no-good-slot`
pub fn no_good_slot(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut bench = bench(stage, task)?;
    let bench = bench.get()?;
    let mut held = machine(bench, stage, task)?;
    let machine = of(&mut held)?;
    machine.unplug();
    let entry = |slot: &str| format!("title LM Warden (slot {slot})\nsort-key warden\nversion 000007\nefi /EFI/warden/{slot}.efi\n");
    machine.drive().set_entries(&[("a+0-3.conf", &entry("a")), ("b+0-3.conf", &entry("b"))])?;
    for slot in ["a", "b"] {
        machine.drive().flip(slot, 40)?;
    }
    machine.switch_on()?;
    let shown = machine.guest()?.wait("(RECOVERY No system[^\n]*)", quiet(90));
    result.expect(shown.is_ok(), format!("a recovery screen is shown: {}", shown.as_deref().unwrap_or_default()));
    let (begun, mark) = (Instant::now(), machine.guest()?.serial().mark());
    while begun.elapsed() < Duration::from_secs(25) {
        std::thread::sleep(Duration::from_secs(1));
    }
    let since = machine.serial().get(mark..).unwrap_or_default().to_owned();
    result.expect(!since.contains("BdsDxe") && !since.contains("initrd: FATAL"), "and the machine does not restart by itself in the 25 s after it");
    result.note(machine.tail().lines().rev().take(6).collect::<Vec<_>>().join(" | "));
    drop(held);
    strike();
    Ok(())
}
