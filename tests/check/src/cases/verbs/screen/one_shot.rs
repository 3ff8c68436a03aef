//! `reset-one-shot`: a record is consumed once and bound to this machine; whatever is put back is ignored; a power cut in the middle is
//! finished by the next start.

use std::path::PathBuf;
use std::time::Duration;

use super::desk::Desk;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

const REQUEST: &str = "state/reset/request";
const CONSUMED: &str = "state/reset/consumed";
const PROFILE: &str = "state/network/connections/lan.nmconnection";
const DATABASE: &str = "state/warden/config.db";

/// The image's root: built by this run, or named.
pub fn root(stage: &mut Stage, task: &Task) -> Result<PathBuf, String> {
    if let Some(root) = std::env::var_os("WARDEN_NSPAWN_ROOT") {
        return Ok(PathBuf::from(root));
    }
    let (images, places) = stage.images();
    images.production_root(places, &task.log)
}

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let root = root(stage, task)?;
    let mut desk = Desk::furnished(&root, &task.log)?;
    desk.start()?;
    who_may(&desk, result)?;
    network_once(&mut desk, result)?;
    other_machine(&mut desk, result)?;
    cut_in_the_middle(&mut desk, result)?;
    admin_is_handed_over(&mut desk, result)
}

fn asked(desk: &Desk, user: &str, scope: &str, keep: bool) -> Result<String, String> {
    desk.ask(user, scope, keep)?.map_err(|refusal| format!("the {scope} reset was not taken from {user}: {refusal}"))
}

/// The verb answers the screen and, for a factory reset, the agent; nobody else.
fn who_may(desk: &Desk, result: &mut CaseResult) -> Result<(), String> {
    for (user, scope, may) in [
        ("warden", "admin", false),
        ("warden", "network", false),
        ("root", "factory", false),
        ("systemd-network", "factory", false),
        ("warden-console", "everything", false),
        ("warden", "factory", true),
        ("warden-console", "admin", true),
    ] {
        let answer = desk.ask(user, scope, true)?;
        result.expect(answer.is_ok() == may, format!("{user} asks for the reset {scope:?}: {}", if answer.is_ok() { "taken" } else { "refused" }));
    }
    let screen = desk.run(
        "warden-console",
        &["/usr/bin/busctl", "call", "org.lmwarden.Helper1", "/org/lmwarden/Helper1", "org.lmwarden.Helper1", "ConfirmReset", "s", "x"],
    )?;
    result.expect(screen.status != Some(0), "the screen cannot confirm a reset in the agent's place");
    std::fs::remove_file(desk.path(REQUEST)).map_err(|e| format!("the record that was asked for last: {e}"))
}

/// Asked for at the real screen, done at the next start, never again.
fn network_once(desk: &mut Desk, result: &mut CaseResult) -> Result<(), String> {
    let list_before = desk.text(CONSUMED);
    let (shown, record) = desk.type_at_screen(&["m", "1", "network", "\r"])?;
    result.expect(shown.contains("The network reset is written down"), "the screen takes a network reset for its typed word");
    result.expect(desk.restarts(), "and has the machine restarted");
    desk.start()?;
    result.expect(!desk.there(PROFILE) && desk.there(DATABASE), "the next start removes the network profile and nothing else");
    result.expect(!desk.there(REQUEST), "the record is gone");

    desk.furnish()?;
    desk.lay(REQUEST, &record)?;
    desk.start()?;
    result.expect(desk.there(PROFILE) && !desk.there(REQUEST), "the record put back is removed and not followed");
    desk.lay(REQUEST, &record)?;
    desk.lay(CONSUMED, if list_before.is_empty() { "{\"resets\":[]}" } else { &list_before })?;
    desk.start()?;
    result.expect(desk.there(PROFILE), "the record put back together with the older list is not followed either");
    Ok(())
}

/// A disk that moved: the same files, another machine.
fn other_machine(desk: &mut Desk, result: &mut CaseResult) -> Result<(), String> {
    asked(desk, "warden-console", "factory", false)?;
    desk.cut();
    let own = desk.text("state/machine-id");
    desk.lay("state/machine-id", "fedcba9876543210fedcba9876543210\n")?;
    desk.start()?;
    result.expect(desk.there(DATABASE) && desk.there("data/models/a.gguf"), "a record of another machine does nothing");
    desk.cut();
    desk.lay("state/machine-id", &own)?;
    desk.start()
}

/// The plug is pulled while a factory reset removes files; the next start finishes it, and what is put back later stays.
fn cut_in_the_middle(desk: &mut Desk, result: &mut CaseResult) -> Result<(), String> {
    for number in 0..20_000 {
        desk.lay(&format!("data/models/part-{:03}/{number}", number / 200), "")?;
    }
    let id = asked(desk, "warden-console", "factory", false)?;
    let record = desk.text(REQUEST);
    desk.start_and_cut_when(|desk| !desk.there("data/models/part-050") || !desk.there("data/models/part-010"))?;
    let stage = desk.stage(&id);
    result.expect(stage == "begun" && !desk.there(REQUEST), format!("the power was cut while the reset was {stage}"));
    let left = desk.there(DATABASE);
    result.note(format!("then the database was {}", if left { "still there" } else { "gone already" }));

    // The container restarts by itself after a factory reset; its second start is the first of the new life.
    desk.start_and_cut_when(|desk| desk.stage(&id) == "done" && !desk.there("state/machine-id"))?;
    let wiped = !desk.there(DATABASE) && !desk.there("data/models") && !desk.there(PROFILE);
    result.expect(wiped && desk.there("data/packs/p.raw"), "the next start finished it: the owner's things are gone, the engine packs are there");
    desk.furnish()?;
    desk.lay("state/machine-id", "00000000000000000000000000000001\n")?;
    desk.lay(REQUEST, &record)?;
    desk.start()?;
    std::thread::sleep(Duration::from_millis(500));
    result.expect(desk.there(DATABASE) && desk.there("data/models/a.gguf"), "the record put back after it does nothing");
    Ok(())
}

/// The admin reset waits for the agent and is forgotten when the agent has confirmed it.
fn admin_is_handed_over(desk: &mut Desk, result: &mut CaseResult) -> Result<(), String> {
    let id = asked(desk, "warden-console", "admin", true)?;
    desk.start()?;
    result.expect(desk.stage(&id) == "handed" && desk.there(DATABASE), "an admin reset is handed to the agent and removes nothing");
    desk.start()?;
    result.expect(desk.stage(&id) == "handed", "a start without the agent keeps it for the agent");
    let call = ["/usr/bin/busctl", "call", "org.lmwarden.Helper1", "/org/lmwarden/Helper1", "org.lmwarden.Helper1", "ConfirmReset", "s", &id];
    let confirmed = desk.run("warden", &call)?;
    result.expect(confirmed.status == Some(0) && desk.stage(&id) == "done", "the agent confirms it, and it is over");
    Ok(())
}
