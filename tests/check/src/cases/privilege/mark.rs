//! Who may judge a slot. The bus policy alone stands there: RAUC asks nobody. Its service cannot do anything in a container; whether a call
//! reaches it is all that is looked at.

use super::NspawnCtx;
use super::bench::{Bench, Change, Refused};
use crate::log::CaseLog;
use crate::result::CaseResult;

const INSTALLER: [&str; 3] = ["de.pengutronix.rauc", "/", "de.pengutronix.rauc.Installer"];
/// Seconds for a call that is let through to a service that will not answer.
const SOON: u32 = 4;
const POLICY: &str = "/usr/share/dbus-1/system.d/de.pengutronix.rauc.conf";

pub fn denied(sabotage: bool, ctx: &NspawnCtx, log: &CaseLog, result: &mut CaseResult) -> Result<(), String> {
    let to_install = "send_interface=\"de.pengutronix.rauc.Installer\" send_member=\"InspectBundle\"/>";
    let hole = format!(
        "{to_install}\n    <allow send_destination=\"de.pengutronix.rauc\" send_interface=\"de.pengutronix.rauc.Installer\" send_member=\"Mark\"/>"
    );
    let broken = || Change::edit(ctx, POLICY, &[(to_install, &hole)]);
    let bench = Bench::boot(ctx, if sabotage { vec![broken()?] } else { vec![] }, log)?;
    for (state, slot) in [("good", "booted"), ("bad", "other"), ("active", "other"), ("good", "rootfs.1")] {
        let answer = bench.call("warden", &INSTALLER, &["Mark", "ss", state, slot])?;
        result.expect(answer.refused() == Refused::ByBus, format!("warden marks {slot} as {state}: {}", answer.told()));
    }
    for user in ["warden-console", "nobody"] {
        let answer = bench.call(user, &INSTALLER, &["Mark", "ss", "good", "booted"])?;
        result.expect(answer.refused() == Refused::ByBus, format!("{user} marks: {}", answer.told()));
    }
    for call in [["InstallBundle", "sa{sv}", "/data/x.raucb", "0"], ["InspectBundle", "sa{sv}", "/data/x.raucb", "0"]] {
        let answer = bench.call("warden-health", &INSTALLER, &call)?;
        result.expect(answer.refused() == Refused::ByBus, format!("the update gate calls {}: {}", call[0], answer.told()));
        let answer = bench.call_within(SOON, "warden", &INSTALLER, &call)?;
        result.expect(answer.refused() != Refused::ByBus, format!("the agent calls {}: {}", call[0], answer.told()));
    }
    let answer = bench.call_within(SOON, "warden-health", &INSTALLER, &["Mark", "ss", "good", "booted"])?;
    result.expect(answer.refused() != Refused::ByBus, format!("the update gate marks: {}", answer.told()));
    let answer = bench.call("warden-console", &["org.lmwarden.Helper1", "/org/lmwarden/Helper1", "org.lmwarden.Helper1"], &["Rollback"])?;
    result.expect(answer.refused() == Refused::ByBus, format!("the local screen asks for the other system: {}", answer.told()));
    Ok(())
}
