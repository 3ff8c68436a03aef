//! Updates that must not stay. Each is installed over the air like a good one; the box must find out by itself, be back with the version it
//! had, say why, and leave the image alone from then on.
//!
//! The deliberate break gives the broken system a health gate that says yes to everything.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use warden_vm::quiet;

use super::calls;
use super::chain::{Bench, bench, running_slot};
use super::machine::MODEL;
use super::works::Build;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// What is expected of a fall-back.
struct Expected {
    build: Build,
    /// Codes of the reason, one of them.
    codes: &'static [&'static str],
    /// Words of the sentence, one of them.
    words: &'static [&'static str],
    /// The plug is pulled while it waits, instead of asking for the restart: nobody wrote down then that a trial begins.
    by_the_plug: bool,
}

/// `bad-crash`
pub fn crash(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let build = if task.sabotage { Build::CrashUnseen } else { Build::Crash };
    let seen = fall(&Expected { build, codes: &["agent"], words: &["agent"], by_the_plug: false }, stage, task, result)?;
    let Some(seen) = seen else { return Ok(()) };
    result.expect(seen.starts == 1, format!("the broken system was started once, and one deadline ended it ({} starts)", seen.starts));
    // With automatic updates on it is left alone.
    let mut held = bench(stage, task)?;
    let bench = held.get()?;
    let address = bench.address();
    let console = bench.machine(stage, task)?.console()?;
    calls::follow(&console, &address, "install")?;
    let asked = calls::check(&console)?;
    result.expect(asked.done, format!("the channel still offers it ({})", asked.sentence));
    let until = Instant::now() + Duration::from_secs(25);
    let mut phase = Value::Null;
    while Instant::now() < until {
        phase = calls::document(&console)?["phase"].clone();
        if phase != "rolled_back" && phase != "idle" {
            break;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    result.expect(phase == "rolled_back" || phase == "idle", format!("it is not tried again by itself ({phase})"));
    let document = calls::document(&console)?;
    let told = document["failed"].as_array().into_iter().flatten().any(|f| f["version"] == build.version());
    result.expect(told, format!("it is listed as one that fell back here ({})", document["failed"]));
    calls::follow(&console, &address, "off")
}

/// `bad-console`
pub fn console(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    fall(
        &Expected { build: Build::Console, codes: &["page", "console"], words: &["form", "console", "page"], by_the_plug: false },
        stage,
        task,
        result,
    )
    .map(drop)
}

/// `bad-model`
pub fn model(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    {
        let mut held = bench(stage, task)?;
        held.get()?.machine(stage, task)?.serve_model()?;
    }
    fall(&Expected { build: Build::Model, codes: &["models", "model"], words: &[MODEL, "model"], by_the_plug: false }, stage, task, result).map(drop)
}

/// `bad-kernel`
pub fn kernel(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let expected = Expected { build: Build::Kernel, codes: &["boot_count", "unknown"], words: &["did not come up"], by_the_plug: false };
    let seen = fall(&expected, stage, task, result)?;
    if let Some(seen) = seen {
        result.note(format!("the box was back {:.0} s after the restart", seen.took.as_secs_f64()));
    }
    Ok(())
}

/// `bad-migrates`
pub fn migrates(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let (key, before) = {
        let mut held = bench(stage, task)?;
        let machine = held.get()?.machine(stage, task)?;
        machine.serve_model()?;
        let console = machine.console()?;
        (console.make_key("before-the-migration")?.1, console.expect("GET", "/api/models", None, &[200])?.json())
    };
    fall(&Expected { build: Build::Migrates, codes: &["agent"], words: &["agent"], by_the_plug: true }, stage, task, result)?;
    let mut held = bench(stage, task)?;
    let console = held.get()?.machine(stage, task)?.console()?;
    let after = console.expect("GET", "/api/models", None, &[200])?.json();
    let count = |listed: &Value| crate::console::items(listed).map_or(0, |all| all.len());
    result.expect(count(&before) == count(&after) && count(&after) > 0, format!("the models are there as before ({})", count(&after)));
    let until = Instant::now() + quiet(30);
    let mut answer = console.chat(&key, MODEL, "hello");
    while answer.is_err() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(500));
        answer = console.chat(&key, MODEL, "hello");
    }
    result.expect(answer.is_ok(), format!("the old system serves with the key from before ({:?})", answer.err()));
    let setup = console.expect("GET", "/api/setup/state", None, &[200])?.json();
    result.expect(setup["done"] == true, "and shows no setup wizard");
    let issues = console.expect("GET", "/api/issues", None, &[200])?.json().to_string();
    result.note(format!("issues afterwards: {}", issues.chars().take(600).collect::<String>()));
    Ok(())
}

/// What was seen of a fall-back.
struct Seen {
    /// From the call to the answer of the old system.
    took: Duration,
    /// Starts of the other slot, by the serial line.
    starts: usize,
}

/// Installs, restarts, and waits for the old version to be back; nothing when the broken system stayed.
fn fall(expected: &Expected, stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<Option<Seen>, String> {
    let mut held = bench(stage, task)?;
    let bench = held.get()?;
    let (build, version) = (expected.build, expected.build.version());
    bench.machine(stage, task)?;
    let old = current(bench)?;
    let slot = running_slot(&bench.machine(stage, task)?.updates()?).unwrap_or_default();
    bench.stage_over_the_air(build, stage, task)?;
    let machine = bench.machine(stage, task)?;
    let console = machine.console()?;
    let (mut mark, begun) = (machine.guest()?.serial().mark(), Instant::now());
    if expected.by_the_plug {
        machine.cut()?;
        // A machine that is switched on begins a new file.
        mark = 0;
    } else {
        calls::restart(&console)?;
    }
    // The old system goes, the new one comes and goes, the old one is back: only then is there a verdict.
    let gone = Instant::now() + quiet(30);
    while machine.version().is_some() && Instant::now() < gone {
        std::thread::sleep(Duration::from_millis(100));
    }
    let back = machine.wait_version(&old, quiet(100));
    let took = begun.elapsed();
    if task.sabotage && back.is_err() {
        result.expect(false, format!("OS {version}, whose agent crashes, falls back to {old}"));
        // The machine cannot be used any more.
        bench.machine = None;
        return Ok(None);
    }
    if let Err(cause) = back {
        // Nobody knows what runs in it now.
        bench.machine = None;
        return Err(cause);
    }
    calls::wait_phase(&console, &["rolled_back", "confirmed", "idle"], quiet(20))?;
    let document = calls::with_slots(&console)?;
    result.expect(document["phase"] == "rolled_back", format!("OS {version} fell back to {old} ({})", document["phase"]));
    let now = running_slot(&document).unwrap_or_default();
    result.expect(now == slot, format!("slot {slot} runs again ({now})"));
    let why = &document["went_back"];
    let (code, sentence) = (why["code"].as_str().unwrap_or_default(), why["message"].as_str().unwrap_or_default());
    result.expect(expected.codes.contains(&code), format!("the reason is {} ({code}: {sentence})", expected.codes.join(" or ")));
    result.expect(expected.words.iter().any(|word| sentence.contains(word)), format!("and says so in a sentence: {sentence}"));
    let issues = console.expect("GET", "/api/issues", None, &[200])?.json().to_string();
    result.expect(issues.contains("update_failed") || issues.contains("boot_fell_back"), "an issue is raised");
    let serial = machine.serial();
    let other = if slot == "a" { "b" } else { "a" };
    let starts = serial.get(mark..).unwrap_or_default().matches(&format!("initrd: slot {other}")).count();
    result.figure(&format!("{}_back_s", task.id.replace('-', "_")), took.as_secs_f64());
    task.log.line(json!({"code": code, "sentence": sentence, "starts": starts, "took_s": took.as_secs_f64()}).to_string());
    Ok(Some(Seen { took, starts }))
}

fn current(bench: &Bench) -> Result<String, String> {
    bench.machine.as_ref().and_then(super::machine::UpdateBox::version).ok_or_else(|| "the box does not answer".to_owned())
}
