//! What the agent's user can and cannot have done for it by the system manager, in a container with the image's root.
//!
//! Two layers stand between: the bus policy (which calls leave the bus) and polkit (which unit, which verb). Each is looked at by itself:
//! the bus as it is, polkit once more in a container whose bus lets everything through. A hole in one is therefore seen although the
//! other still holds. A deliberate break replaces one file of the root for the container; the root itself is never changed.

mod bench;
mod launch;
mod mark;
mod start;

use std::path::PathBuf;

use crate::log::CaseLog;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

use bench::{Bench, Change, Refused};

pub use bench::strike;

const MANAGER: [&str; 3] = ["org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"];
const BUS_POLICY: &str = "/usr/share/dbus-1/system.d/org.lmwarden.systemd1.conf";
const RULE: &str = "/usr/share/polkit-1/rules.d/10-warden.rules";
/// A running unit that is nobody's business but the system's.
const STRANGER: &str = "systemd-journald.service";

/// What a case needs to know of the world.
#[derive(Clone, Debug)]
pub struct NspawnCtx {
    /// The image's root tree.
    pub root: PathBuf,
    /// The source of the program that stands in for engines.
    pub program: PathBuf,
}

/// Runs one of the cases as a row of the table.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let root = match std::env::var_os("WARDEN_NSPAWN_ROOT") {
        Some(root) => PathBuf::from(root),
        None => {
            let (images, places) = stage.images();
            images.production_root(places, &task.log)?
        }
    };
    if !root.join("usr/lib/systemd/systemd").exists() {
        return Err(format!("the image's root {} is not there; build it with `make image`", root.display()));
    }
    let ctx = NspawnCtx { root, program: stage.places.root.join("tests/check/fixtures/sandbox_program.rs") };
    run_case(task.id, task.sabotage, &ctx, &task.log, result)
}

/// Runs the case of that id, with its deliberate break if `sabotage`.
///
/// # Errors
/// A cause outside the case's expectations: no container, a tool missing, an id that is not of this module.
pub fn run_case(id: &str, sabotage: bool, ctx: &NspawnCtx, log: &CaseLog, result: &mut CaseResult) -> Result<(), String> {
    match id {
        "polkit-start-engine" => start::start_engine(ctx, log, result),
        "polkit-other-unit" => other_unit(sabotage, ctx, log, result),
        "polkit-transient-service" => transient_service(sabotage, ctx, log, result),
        "polkit-transient-timer-aux" => transient_timer(sabotage, ctx, log, result),
        "polkit-bind-mount" => not_on_the_bus(&BIND_MOUNT, ctx, log, result),
        "polkit-set-properties" => not_on_the_bus(&SET_PROPERTIES, ctx, log, result),
        "launch-symlink" => launch::symlink(sabotage, ctx, log, result),
        "mark-denied" => mark::denied(sabotage, ctx, log, result),
        other => Err(format!("{other} is not a case of privileges")),
    }
}

/// A bus without our policy for the system manager: what polkit alone holds back.
fn open_bus() -> Change {
    Change::whole(BUS_POLICY, "<busconfig/>\n")
}

fn other_unit(sabotage: bool, ctx: &NspawnCtx, log: &CaseLog, result: &mut CaseResult) -> Result<(), String> {
    let broken = Change::edit(ctx, RULE, &[("engine.test(unit) && [", "unit.length > 0 && [")]);
    let bench = Bench::boot(ctx, if sabotage { vec![broken?] } else { vec![] }, log)?;
    let units = [
        STRANGER,
        "systemd-tmpfiles-clean.service",
        "poweroff.target",
        "warden-helper.service",
        "warden-engine@UPPER.service",
        "warden-engine@a.timer",
        "warden-engine@a.socket",
        "xwarden-engine@a.service",
        "warden-engine@a_b.service",
    ];
    for unit in units {
        let answer = bench.call("warden", &MANAGER, &["StartUnit", "ss", unit, "replace"])?;
        result.expect(answer.refused() == Refused::ByPolkit, format!("warden starts {unit}: {}", answer.told()));
        if unit == "poweroff.target" && answer.refused() == Refused::No {
            // The container is about to go.
            return Ok(());
        }
    }
    for (verb, unit) in [("StopUnit", STRANGER), ("RestartUnit", STRANGER)] {
        let answer = bench.call("warden", &MANAGER, &[verb, "ss", unit, "replace"])?;
        result.expect(answer.refused() == Refused::ByPolkit, format!("warden calls {verb} for {unit}: {}", answer.told()));
    }
    let answer = bench.call("warden-console", &MANAGER, &["StartUnit", "ss", "warden-engine@a.service", "replace"])?;
    result.expect(answer.refused() != Refused::No, format!("another user starts an engine: {}", answer.told()));
    Ok(())
}

/// The arguments of StartTransientUnit for a service that leaves a mark.
fn service(name: &'static str) -> Vec<&'static str> {
    vec![
        "StartTransientUnit",
        "ssa(sv)a(sa(sv))",
        name,
        "replace",
        "1",
        "ExecStart",
        "a(sasb)",
        "1",
        bench::PROGRAM,
        "3",
        bench::PROGRAM,
        "--mark",
        bench::MARK,
        "false",
        "0",
    ]
}

fn transient_service(sabotage: bool, ctx: &NspawnCtx, log: &CaseLog, result: &mut CaseResult) -> Result<(), String> {
    let hole = "<allow send_destination=\"org.freedesktop.systemd1\" send_interface=\"org.freedesktop.systemd1.Manager\" send_member=\"StartTransientUnit\"/>\n  </policy>";
    let broken = Change::edit(ctx, BUS_POLICY, &[("</policy>", hole)]);
    let bench = Bench::boot(ctx, if sabotage { vec![broken?] } else { vec![] }, log)?;
    for name in ["planted.service", "warden-engine@planted.service"] {
        let answer = bench.call("warden", &MANAGER, &service(name))?;
        result.expect(answer.refused() == Refused::ByBus, format!("warden makes the transient {name}: {}", answer.told()));
    }
    bench.no_mark(result);
    drop(bench);
    let bench = Bench::boot(ctx, vec![open_bus()], log)?;
    let answer = bench.call("warden", &MANAGER, &service("planted.service"))?;
    result.expect(answer.refused() == Refused::ByPolkit, format!("the same with an open bus: {}", answer.told()));
    bench.no_mark(result);
    Ok(())
}

fn transient_timer(sabotage: bool, ctx: &NspawnCtx, log: &CaseLog, result: &mut CaseResult) -> Result<(), String> {
    let broken = || Change::edit(ctx, RULE, &[("engine.test(unit)", "unit.indexOf(\"warden-engine@\") === 0")]);
    let timer = [
        "StartTransientUnit",
        "ssa(sv)a(sa(sv))",
        "warden-engine@planted.timer",
        "replace",
        "2",
        "Wants",
        "as",
        "1",
        "planted.service",
        "TimersMonotonic",
        "a(st)",
        "1",
        "OnActiveSec",
        "1000",
        "1",
        "planted.service",
        "1",
        "ExecStart",
        "a(sasb)",
        "1",
        bench::PROGRAM,
        "3",
        bench::PROGRAM,
        "--mark",
        bench::MARK,
        "false",
    ];
    let bench = Bench::boot(ctx, if sabotage { vec![broken()?] } else { vec![] }, log)?;
    let answer = bench.call("warden", &MANAGER, &timer)?;
    result.expect(answer.refused() == Refused::ByBus, format!("warden makes a transient timer that brings a service along: {}", answer.told()));
    bench.no_mark(result);
    drop(bench);
    let mut changes = vec![open_bus()];
    if sabotage {
        changes.push(broken()?);
    }
    let bench = Bench::boot(ctx, changes, log)?;
    let answer = bench.call("warden", &MANAGER, &timer)?;
    result.expect(answer.refused() == Refused::ByPolkit, format!("the same with an open bus: {}", answer.told()));
    bench.no_mark(result);
    Ok(())
}

/// A method and what comes before and after the unit's name in its arguments.
struct Method {
    name: &'static str,
    signature: &'static str,
    rest: &'static [&'static str],
}

const BIND_MOUNT: Method = Method { name: "BindMountUnit", signature: "sssbb", rest: &["/data", "/mnt", "false", "false"] };
const SET_PROPERTIES: Method = Method { name: "SetUnitProperties", signature: "sba(sv)", rest: &["true", "1", "CPUWeight", "t", "10"] };

/// Calls that no unit's name makes right: refused by the bus, and by polkit alone. The units are running and have a mount space of their
/// own, so that nothing but privilege is in the way.
fn not_on_the_bus(method: &Method, ctx: &NspawnCtx, log: &CaseLog, result: &mut CaseResult) -> Result<(), String> {
    for (changes, refusal, bus) in [(vec![], Refused::ByBus, "as it is"), (vec![open_bus()], Refused::ByPolkit, "let through")] {
        let bench = Bench::boot(ctx, changes, log)?;
        start::lay_pack(&bench, "")?;
        start::run_engine(&bench)?;
        for unit in [start::UNIT, "polkit.service"] {
            let mut call = vec![method.name, method.signature, unit];
            call.extend(method.rest);
            let answer = bench.call("warden", &MANAGER, &call)?;
            result.expect(answer.refused() == refusal, format!("warden calls {} for {unit}, the bus {bus}: {}", method.name, answer.told()));
        }
    }
    Ok(())
}
