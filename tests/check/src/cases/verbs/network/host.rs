//! Name, time servers and a clock set by hand, over resets of the real image with its read-only root.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use warden_domain::clock;
use warden_vm::quiet;

use crate::appliance::Appliance;
use crate::console::short;
use crate::images::{Flavour, PackKind};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

const NAME: &str = "warden-check";
const SERVERS: [&str; 2] = ["10.0.2.2", "time.example.com"];
/// The clock is set this far into the future; a clock that came from anywhere else shows.
const AHEAD_S: i64 = 26 * 3600;

/// Sets all three through the API, cuts the power, and asks the system's own services again.
pub fn name_and_clock(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let appliance = stage.appliance(Flavour::Production, PackKind::Signed, &task.log)?;
    appliance.ensure_claimed()?;
    let outcome = look(appliance, result);
    // Whatever happened, the machine goes on with its own name and the true time.
    let _as_good_as_it_gets = restore(appliance);
    outcome
}

fn look(appliance: &mut Appliance, result: &mut CaseResult) -> Result<(), String> {
    let console = appliance.console();
    for bad in ["a b", "-x", "a.b", "localhost"] {
        let refused = console.call("PUT", "/api/network/hostname", Some(&json!({"hostname": bad})))?;
        result.expect(refused.status == 422, format!("the name {bad:?} is refused: {}", refused.json()["detail"]["message"]));
    }
    let named = console.expect("PUT", "/api/network/hostname", Some(&json!({"hostname": NAME})), &[200])?.json();
    result.expect(named["state"] == NAME, format!("the system takes the name {NAME} ({})", named["state"]));
    let early = console.call("POST", "/api/time/clock", Some(&json!({"now": clock::now().to_string()})))?;
    result.expect(early.status == 409, format!("a clock that comes from servers is not set by hand: {}", early.json()["detail"]["message"]));
    let told = console.expect("PUT", "/api/time", Some(&json!({"mode": "ntp", "servers": SERVERS})), &[200])?.json();
    result.expect(told["state"]["servers"] == json!(SERVERS), format!("the time client is told its servers ({})", told["state"]["servers"]));

    cut_power(appliance)?;
    let name = wait_for(appliance, "/api/network", |d| d["hostname"]["state"] == NAME)?;
    result.expect(name["hostname"]["state"] == NAME, format!("after a power cut the system's name is {}", name["hostname"]["state"]));
    let time = wait_for(appliance, "/api/time", |d| d["state"]["servers"] == json!(SERVERS))?;
    result.expect(time["state"]["servers"] == json!(SERVERS), format!("and the time client has its servers ({})", time["state"]["servers"]));

    let console = appliance.console();
    let manual = console.expect("PUT", "/api/time", Some(&json!({"mode": "manual"})), &[200])?.json();
    result.expect(manual["state"]["client_runs"] == false, "for a clock set by hand the time client is stopped");
    let set_at = Instant::now();
    let to = clock::now().as_second() + AHEAD_S;
    let moment = jiff::Timestamp::from_second(to).map_err(|e| e.to_string())?;
    let set = console.call("POST", "/api/time/clock", Some(&json!({"now": moment.to_string()})))?;
    result.expect(set.status == 200, format!("the clock is set to {moment} ({})", short(&set)));

    cut_power(appliance)?;
    let time = wait_for(appliance, "/api/time", |d| d["state"]["client_runs"] == false)?;
    result.expect(time["config"]["mode"] == "manual" && time["state"]["client_runs"] == false, "after a power cut the time client stays stopped");
    let now: jiff::Timestamp = time["state"]["now"].as_str().unwrap_or_default().parse().map_err(|e| format!("the box's time: {e}"))?;
    let off = now.as_second() - to - i64::try_from(set_at.elapsed().as_secs()).unwrap_or(0);
    result.expect(off.abs() <= 60, format!("and the clock is the one that was set, {off} s off ({now})"));
    result.figure("clock_off_s", f64::from(i32::try_from(off).unwrap_or(i32::MAX)));
    Ok(())
}

fn cut_power(appliance: &mut Appliance) -> Result<(), String> {
    let guest = appliance.guest();
    let mark = guest.serial().mark();
    guest.reset().map_err(|e| e.to_string())?;
    guest.wait_after(mark, "initrd: slot", quiet(60)).map_err(|e| e.to_string())?;
    let mut owner = appliance.console().clone();
    owner.wait_healthy(quiet(60))?;
    owner.login()?;
    appliance.sign_in_as(&owner);
    Ok(())
}

/// The document once it holds, or as it is when it never does.
fn wait_for(appliance: &Appliance, path: &str, holds: impl Fn(&Value) -> bool) -> Result<Value, String> {
    let until = Instant::now() + quiet(10);
    loop {
        let document = appliance.console().expect("GET", path, None, &[200])?.json();
        if holds(&document) || Instant::now() >= until {
            return Ok(document);
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn restore(appliance: &mut Appliance) -> Result<(), String> {
    let mut owner = appliance.console().clone();
    let _in_case_it_is_set_by_hand = owner.call("PUT", "/api/time", Some(&json!({"mode": "manual"})))?;
    owner.call("POST", "/api/time/clock", Some(&json!({"now": clock::now().to_string()})))?;
    owner.login()?;
    owner.call("PUT", "/api/time", Some(&json!({"mode": "ntp", "servers": []})))?;
    owner.call("PUT", "/api/network/hostname", Some(&json!({"hostname": null})))?;
    appliance.sign_in_as(&owner);
    Ok(())
}
