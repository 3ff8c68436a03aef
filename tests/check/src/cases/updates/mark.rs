//! `mark-denied`: the agent's user cannot say that a slot is good or bad; the bus does not deliver its call.
//!
//! Looked at in a container with the image's root. The deliberate break opens the bus policy for that call.

use crate::cases::privilege;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

const RAUC: [&str; 3] = ["de.pengutronix.rauc", "/", "de.pengutronix.rauc.Installer"];
const POLICY: &str = "/usr/share/dbus-1/system.d/de.pengutronix.rauc.conf";

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let ctx = privilege::context(stage, task)?;
    let hole = "<policy user=\"warden\"><allow send_destination=\"de.pengutronix.rauc\"/></policy></busconfig>";
    let broken = || privilege::Change::edit(&ctx, POLICY, &[("</busconfig>", hole)]);
    let bench = privilege::Bench::boot(&ctx, if task.sabotage { vec![broken()?] } else { vec![] }, &task.log)?;
    for state in ["good", "bad", "active"] {
        for user in ["warden", "warden-console"] {
            let answer = bench.call(user, &RAUC, &["Mark", "ss", state, "booted"])?;
            result.expect(answer.refused() == privilege::Refused::ByBus, format!("{user} marks the running slot {state}: {}", answer.told()));
        }
    }
    let other = bench.call("warden", &RAUC, &["Mark", "ss", "good", "other"])?;
    result.expect(other.refused() == privilege::Refused::ByBus, format!("warden marks the other slot good: {}", other.told()));
    // What the agent needs is delivered; whether RAUC can do it in a container is another matter.
    let asked = bench.call("warden", &RAUC, &["GetPrimary"])?;
    result.expect(asked.refused() != privilege::Refused::ByBus, format!("warden asks which slot is first: {}", asked.told()));
    let gate = bench.call("warden-health", &RAUC, &["Mark", "ss", "good", "booted"])?;
    result.expect(gate.refused() != privilege::Refused::ByBus, format!("the health gate's call is delivered: {}", gate.told()));
    Ok(())
}
