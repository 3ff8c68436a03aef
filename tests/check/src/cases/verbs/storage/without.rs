//! The adopted disk stays away for a start, and comes back late.

use std::time::{Duration, Instant};

use serde_json::Value;
use warden_vm::quiet;

use super::bench::{self, BLANK, Bench, Held, MODELS};
use crate::console::{Console, short, state_word};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// How late the disk comes.
const LATE: Duration = Duration::from_secs(60);

/// A machine that was started without its adopted disk; the id of the model on it.
fn started_without(held: &mut Held) -> Result<String, String> {
    let id = held.bench()?.ensure_model_on_disk()?;
    if held.bench()?.has(MODELS) {
        Bench::power_cycle(held, &[BLANK])?;
    }
    Ok(id)
}

/// Looks until the issue about the disk is open, or over.
fn issue_is_open(console: &Console, wanted: bool, limit: Duration) -> Result<Value, String> {
    let begun = Instant::now();
    loop {
        let list = console.expect("POST", "/api/issues/check", None, &[200])?.json();
        let open = list["open"].as_array().into_iter().flatten().find(|issue| issue["code"] == "model_disk_missing").cloned();
        if open.is_some() == wanted {
            return Ok(open.unwrap_or_default());
        }
        if begun.elapsed() > limit {
            return Err(format!(
                "the issue model_disk_missing is {} after {} s: {list}",
                if wanted { "not there" } else { "still there" },
                limit.as_secs()
            ));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// `disk-missing`
pub fn missing(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut held = bench::machine(stage, task)?;
    let id = started_without(&mut held)?;
    let machine = held.bench()?;
    if task.sabotage {
        // What an agent would do that makes up for a missing disk with the next blank one.
        let name = machine.device(BLANK)?;
        machine.udisks(&name, "Block", "Format sa{sv} ext4 2 auth.no_user_interaction b true label s wm-00000000")?;
    }
    let (document, took) = machine.storage_when("degraded mode", quiet(15), |d| d["state"]["degraded"] == true)?;
    result.figure("degraded_after_seconds", took.as_secs_f64());
    let reason = document["state"]["reasons"][0].as_str().unwrap_or_default();
    result.expect(reason.contains("missing") && reason.contains(MODELS), format!("the API says why: {reason}"));
    let volumes = document["state"]["volumes"].as_array().cloned().unwrap_or_default();
    result.expect(volumes.len() == 1 && volumes.iter().all(|v| v["state"] == "missing"), "the recorded disk is missing and no other volume is there");
    let blank = bench::disk_of(&document, BLANK).unwrap_or_default();
    result.expect(blank["role"] == "blank", format!("the other disk is still offered as blank ({})", blank["role"]));
    let console = machine.console()?;
    let begun = Instant::now();
    let issue = issue_is_open(&console, true, quiet(40))?;
    result.figure("issue_after_seconds", begun.elapsed().as_secs_f64());
    let sentence = issue["sentence"].as_str().unwrap_or_default();
    result.expect(sentence.contains("missing") && sentence.contains(MODELS), format!("it is an issue: {sentence}"));
    for page in ["/ui/", "/ui/issues", "/ui/storage"] {
        result.expect(console.page(page)?.contains(MODELS), format!("{page} says it in a sentence"));
    }
    let model = console.model(&id)?;
    result.expect(
        state_word(&model) == "failed" && model["state"]["reason"]["code"] == "disk_missing",
        format!("the model on it says: {} {}", state_word(&model), model["state"]["reason"]["message"]),
    );
    let reply = console.call("POST", &format!("/api/models/{id}/load"), None)?;
    result.expect(reply.text().contains("disk_missing"), format!("loading it is refused: {} {}", reply.status, short(&reply)));
    let health = console.call("GET", "/healthz", None)?;
    result.expect(health.status == 200, "the box itself works");
    // Time enough for an agent that would help itself.
    std::thread::sleep(Duration::from_secs(8));
    machine.blank_is_blank(result)?;
    let mounts = machine.root_ok("grep -c ' /media/' /proc/mounts || true")?;
    result.expect(mounts.trim() == "0", format!("nothing is mounted in its place ({})", mounts.trim()));
    if task.sabotage {
        held.give_up();
    }
    Ok(())
}

/// `disk-late`
pub fn late(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut held = bench::machine(stage, task)?;
    let id = started_without(&mut held)?;
    let machine = held.bench()?;
    machine.storage_when("degraded mode", quiet(15), |d| d["state"]["degraded"] == true)?;
    let waited = machine.healthy.elapsed();
    if let Some(rest) = LATE.checked_sub(waited) {
        std::thread::sleep(rest);
    }
    result.figure("attached_after_seconds", machine.healthy.elapsed().as_secs_f64());
    machine.plug(MODELS, false)?;
    let plugged = Instant::now();
    let (document, took) = machine.storage_when("the late disk", quiet(10), |d| d["state"]["volumes"][0]["state"] == "mounted")?;
    result.figure("picked_up_seconds", took.as_secs_f64());
    result.expect(
        document["state"]["degraded"] == false,
        format!("picked up {:.1} s after it was plugged in; degraded mode is over", took.as_secs_f64()),
    );
    let console = machine.console()?;
    issue_is_open(&console, false, quiet(20))?;
    loop {
        let model = console.model(&id)?;
        match state_word(&model) {
            "running" => break,
            word if plugged.elapsed() > quiet(40) => return Err(format!("the model on the late disk is {word}: {}", model["state"])),
            _ => std::thread::sleep(Duration::from_millis(300)),
        }
    }
    result.figure("model_running_seconds", plugged.elapsed().as_secs_f64());
    result.expect(true, format!("the model on it runs by itself {:.1} s after it was plugged in", plugged.elapsed().as_secs_f64()));
    Ok(())
}
