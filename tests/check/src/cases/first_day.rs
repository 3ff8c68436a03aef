//! The production image from power-on to power-off: console, claim, model, chat. Everything through the forwarded port, the serial
//! port's output and the power button.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use warden_vm::quiet;

use super::bad_requests::expect_detail;
use super::sdk::tokens_of;
use crate::appliance::{Appliance, TINY};
use crate::console::{Console, launch_identity, state_word};
use crate::images::{Flavour, PackKind};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

fn production<'a>(stage: &'a mut Stage, task: &Task) -> Result<&'a mut Appliance, String> {
    stage.appliance(Flavour::Production, PackKind::Signed, &task.log)
}

/// Power-on to `/healthz` on this host.
pub fn boot_to_healthz(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let appliance = production(stage, task)?;
    let seconds = appliance.healthy_after().as_secs_f64();
    result.figure("boot_to_healthz_s", seconds);
    if let Some(cpu) = appliance.guest().cpu_seconds() {
        result.figure("boot_cpu_s", cpu);
    }
    let health = appliance.console().http.get("/healthz")?.json();
    result.expect(health["ok"] == Value::Bool(true), format!("/healthz says ok (it says {health})"));
    result.expect(health["version"].is_string(), "/healthz names its version");
    result.expect(!appliance.claim_code()?.is_empty(), "the serial console shows a claim code");
    let serial = appliance.serial_text();
    result.expect(!serial.contains("login:"), "the serial console offers no log-in");
    result.note(format!("/healthz answered {seconds:.1} s after power-on"));
    Ok(())
}

/// The claim code makes one admin; wrong, late and reused codes are refused.
pub fn claim_once(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let appliance = production(stage, task)?;
    let first = appliance.claim_code()?;
    let mut stranger = appliance.console().stranger(&task.log);
    for n in 1..=10 {
        let reply = try_until_heard(&mut stranger, "WRNG-CODE")?;
        if n == 1 {
            expect_detail(result, "a wrong code", &reply, &[403], &[&["code"]]);
        } else {
            result.expect(reply.status == 403, format!("wrong code {n} of 10 is refused (status {})", reply.status));
        }
    }
    let second = appliance.changed_code(&first)?;
    result.expect(second != first, "after ten wrong tries the screen shows a new code");
    let late = try_until_heard(&mut stranger, &first)?;
    expect_detail(result, "the old code, too late", &late, &[403], &[&["code"]]);

    // Two people type the right code at the same moment.
    let visitor = appliance.console().stranger(&task.log);
    let race = |name: &'static str| {
        let (mut person, code) = (visitor.stranger(&task.log), second.clone());
        std::thread::spawn(move || person.try_claim(&code, name).map(|reply| (reply, person)))
    };
    let hands = [race("alice"), race("admin")];
    let mut owner = None;
    let mut statuses = Vec::new();
    for hand in hands {
        let (reply, person) = hand.join().map_err(|_| "a claiming thread panicked".to_owned())??;
        statuses.push(reply.status);
        if reply.status == 201 {
            owner = Some(person);
        }
    }
    let winners = statuses.iter().filter(|s| **s == 201).count();
    result.expect(winners == 1, format!("two simultaneous claims make exactly one admin (statuses {statuses:?})"));
    let Some(owner) = owner else { return Err("nobody could claim the box".to_owned()) };
    let again = stranger.try_claim(&second, "mallory")?;
    expect_detail(result, "the same code again", &again, &[403, 409], &[&["already", "closed", "exists", "done"]]);
    let setup = stranger.expect("GET", "/api/setup/state", None, &[200])?.json();
    result.expect(setup["done"] == Value::Bool(true), "setup is closed");
    let session = owner.expect("GET", "/api/auth/session", None, &[200])?.json();
    result.expect(session["role"] == "admin", format!("the one who claimed is admin ({session})"));
    appliance.sign_in_as(&owner);
    Ok(())
}

/// A try that is not held back by the slow-down for guessers.
fn try_until_heard(stranger: &mut Console, code: &str) -> Result<crate::http::Reply, String> {
    for _ in 0..20 {
        let reply = stranger.try_claim(code, "mallory")?;
        if reply.status != 429 {
            return Ok(reply);
        }
        let wait = reply.header("retry-after").and_then(|s| s.parse().ok()).unwrap_or(1);
        std::thread::sleep(Duration::from_secs(wait));
    }
    Err("the box kept saying 429".to_owned())
}

/// The tiny model: registered, loaded over D-Bus, its state on page and API as it changes.
pub fn load_tiny(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let appliance = production(stage, task)?;
    let id = appliance.ensure_registered(TINY)?;
    let console = appliance.console();
    let packs = console.expect("GET", "/api/packs", None, &[200])?.text();
    result.expect(packs.contains("\"ready\"") && packs.contains("llama.cpp"), format!("the engine pack is ready ({packs})"));
    let before = console.page("/ui/models")?;
    result.expect(before.contains(TINY), "the page lists the model");

    let watching = watch_events(console);
    // Long enough for the stream to be open before the first change.
    std::thread::sleep(quiet(1) / 5);
    let started = std::time::Instant::now();
    console.load(&id)?;
    let mut words = BTreeSet::new();
    let model = loop {
        let model = console.model(&id)?;
        words.insert(state_word(&model).to_owned());
        if state_word(&model) == "running" {
            break model;
        }
        if state_word(&model) == "failed" || started.elapsed() > quiet(40) {
            return Err(format!("the model is {}: {}", state_word(&model), model["state"]));
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let seconds = started.elapsed().as_secs_f64();
    result.figure("load_tiny_s", seconds);
    result.expect(words.contains("loading"), format!("the API shows the load as it goes on (states seen: {words:?})"));
    let launch = launch_identity(&model).unwrap_or_default().to_owned();
    let invocation = launch.len() == 32 && launch.bytes().all(|b| b.is_ascii_hexdigit());
    result.expect(invocation, format!("the launch identity is an InvocationID of the system manager ({launch})"));
    let after = console.page("/ui/models")?;
    result.expect(after.to_lowercase().contains("running"), "the page shows it running");
    let events = watching.join().map_err(|_| "the watcher panicked".to_owned())??;
    result.expect(events >= 2, format!("{events} changes were pushed without a reload while it loaded"));
    result.note(format!("running after {seconds:.1} s, launch {launch}"));
    Ok(())
}

/// Listens to the stream of changes while a model loads; returns how many spoke of models.
fn watch_events(console: &Console) -> std::thread::JoinHandle<Result<usize, String>> {
    let console = console.clone();
    std::thread::spawn(move || {
        let mut stream = console.stream("GET", "/api/events", quiet(12))?;
        let mut seen = 0;
        // The stream has no end of its own: its time limit ends it.
        while let Ok(Some((_, line))) = stream.next_line() {
            if line.contains("models") {
                seen += 1;
            }
            if seen >= 2 {
                break;
            }
        }
        Ok(seen)
    })
}

/// A streamed chat completion with a key, and what it is charged with.
pub fn chat_stream(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let appliance = production(stage, task)?;
    appliance.ensure_serving(TINY)?;
    let console = appliance.console();
    let (key_id, key) = console.make_key("stream")?;
    let listed = console.http.send("GET", "/v1/models", &[("authorization", &format!("Bearer {key}"))], None)?.json();
    result.expect(listed["data"][0]["id"] == TINY, format!("/v1/models names it ({listed})"));
    let seen = console.chat_stream(&key, TINY, "Tell me something.", 48)?;
    result.expect(
        seen.status == 200 && seen.content_type.starts_with("text/event-stream"),
        format!("an event stream answers (status {}, {})", seen.status, seen.content_type),
    );
    result.expect(seen.events > 2 && seen.moments > 1, format!("it comes as it is made: {} events at {} moments", seen.events, seen.moments));
    result.expect(seen.done && seen.other.is_empty(), format!("it is closed by [DONE] ({})", seen.other));
    result.expect(!seen.text.is_empty(), "it carries text");
    let told = tokens_of(&seen.usage);
    result.expect(told > 0.0, format!("it ends with usage ({})", seen.usage));
    result.figure("first_event_s", seen.first_event.as_secs_f64());
    result.figure("stream_s", seen.took.as_secs_f64());
    let whole = console.chat(&key, TINY, "Once more.")?;
    let wanted = told + tokens_of(&whole["usage"]);
    let mut charged = 0.0;
    for _ in 0..100 {
        charged = tokens_of(&console.expect("GET", &format!("/api/tokens/{key_id}"), None, &[200])?.json()["usage"]);
        if (charged - wanted).abs() < 0.5 {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    result.expect((charged - wanted).abs() < 0.5, format!("the key is charged with what was said: {charged} of {wanted} tokens"));
    result.note(format!("first event after {:.2} s, {charged} tokens charged", seen.first_event.as_secs_f64()));
    Ok(())
}

/// What a serial log may not hold.
const TROUBLE: &[&str] =
    &["[FAILED]", "Failed to start", "ordering cycle", "Kernel panic", "Call Trace", "EXT4-fs error", "Failed unmounting", "RECOVERY"];

/// The power button: everything stops in order.
pub fn poweroff_clean(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let appliance = production(stage, task)?;
    appliance.ensure_serving(TINY)?;
    let late = appliance.console().http.again(Duration::from_secs(2));
    let pressed = std::time::Instant::now();
    appliance.guest().power_off(quiet(40)).map_err(|e| e.to_string())?;
    let seconds = pressed.elapsed().as_secs_f64();
    result.figure("poweroff_s", seconds);
    let serial = appliance.serial_text();
    for word in TROUBLE {
        let line = serial.lines().find(|l| l.contains(word));
        result.expect(line.is_none(), format!("the serial log holds no \"{word}\" ({})", line.unwrap_or_default().trim()));
    }
    result.expect(serial.contains("Power down"), "the kernel itself switched the machine off");
    result.expect(late.get("/healthz").is_err(), "nobody answers any more");
    result.note(format!("off {seconds:.1} s after the power button"));
    stage.unplug();
    Ok(())
}
