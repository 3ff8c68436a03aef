//! `screen-agent-dead`: the agent is dead; the screen says so, and an admin reset asked for there takes effect at the next start.

use serde_json::{Value, json};
use warden_vm::quiet;

use super::states::{tty1, typed};
use crate::console::{ADMIN, PASSWORD};
use crate::images::{Flavour, PackKind};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let appliance = stage.appliance(Flavour::Test, PackKind::Signed, &task.log)?;
    appliance.ensure_claimed()?;
    let (key, _) = appliance.console().make_key("outlives the reset")?;
    // Masked until the next start: it cannot come back by itself.
    appliance
        .root_ok("systemctl mask --runtime warden-agent.service; systemctl kill -s KILL warden-agent.service; systemctl stop warden-agent.service")?;
    let mark = appliance.serial_text().len();
    appliance.guest().wait_after(mark, "The agent is not answering", quiet(130)).map_err(|e| e.to_string())?;
    let screen = tty1(appliance, |text| text.contains("not answering"))?;
    result.expect(screen.contains("The agent is not answering"), "tty1 says that the agent is not answering");
    result.expect(screen.contains("works without the agent") && screen.contains("menu"), "and what can be done without it");

    typed(appliance, "m", "Press a number")?;
    typed(appliance, "2", "Type the word password")?;
    let mark = appliance.serial_text().len();
    let shown = typed(appliance, "password\r", "restarts now")?;
    result.expect(shown.contains("The admin reset is written down"), "the admin reset is taken and the machine restarts");

    let code = appliance.guest().wait_after(mark, r"Password reset code: ([A-Z0-9]{4}-[A-Z0-9]{4})", quiet(90)).map_err(|e| e.to_string())?;
    result.expect(true, "after the start the screen shows a reset code");
    appliance.console().wait_healthy(quiet(60))?;
    let mut visitor = appliance.console().clone();
    let old = visitor.call("POST", "/api/auth/login", Some(&json!({"username": ADMIN, "password": PASSWORD})))?;
    result.expect(old.status == 401, format!("the old password no longer works ({})", old.status));
    let session = visitor.call("GET", "/api/auth/session", None)?;
    result.expect(session.status == 401, format!("everybody is signed out ({})", session.status));
    let setup: Value = visitor.call("GET", "/api/setup/state", None)?.json();
    result.expect(setup["done"] == true, "setup does not open again");
    let wrong = visitor.call("POST", "/api/auth/reset", Some(&json!({"reset_code": "XXXX-XXXX", "username": ADMIN, "password": PASSWORD})))?;
    result.expect(wrong.status == 403, format!("a wrong code is refused ({})", wrong.status));
    visitor.reset_password(&code)?;
    result.expect(true, "the code sets a new password");
    let again = visitor.call("GET", "/api/auth/reset", None)?.json();
    result.expect(again["open"] == false, "and is then worthless");
    let keys = visitor.call("GET", "/api/tokens", None)?.text();
    result.expect(keys.contains(&key), "the keys stayed");

    let mark = appliance.serial_text().len();
    let going = visitor.call("POST", "/api/system/reboot", Some(&json!({})))?;
    result.expect(going.status == 202, format!("an admin restarts the machine over the API ({})", going.status));
    let back = appliance.guest().wait_after(mark, "initrd: slot", quiet(60));
    result.expect(back.is_ok(), "and it restarts");
    // The next case gets a machine of its own.
    stage.unplug();
    Ok(())
}
