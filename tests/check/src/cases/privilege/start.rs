//! The one thing the agent's user may do with units: run engines. The real template, launcher, helper and bus calls are used; only the
//! pack is a folder, because a container cannot open a signed image.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::bench::{Bench, Refused, write};
use super::{MANAGER, NspawnCtx};
use crate::log::CaseLog;
use crate::result::CaseResult;

const REPLICA: &str = "check-0";
/// The engine unit of these cases.
pub const UNIT: &str = "warden-engine@check-0.service";
/// The digest under which the pack is known.
pub const DIGEST: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
/// The helper's name, object and interface.
pub const HELPER: [&str; 3] = ["org.lmwarden.Helper1", "/org/lmwarden/Helper1", "org.lmwarden.Helper1"];
const LIMIT: Duration = Duration::from_secs(20);

/// Lays out a folder that stands in for an opened pack, and the template's setting that uses it.
pub fn lay_pack(bench: &Bench, more: &str) -> Result<(), String> {
    let pack = bench.data().join("pack");
    for folder in [".warden/specs", "data/models", "run", "tmp", "proc", "sys", "dev", "var/tmp", "etc", "usr/lib"] {
        std::fs::create_dir_all(pack.join(folder)).map_err(|e| format!("{}: {e}", pack.display()))?;
    }
    write(&pack.join(".warden/launch"), "")?;
    write(&pack.join("usr/lib/os-release"), "ID=pack\n")?;
    write(&pack.join("etc/os-release"), "ID=pack\n")?;
    write(&pack.join("engine/bin/llama-server"), std::fs::read(bench.data().join("sandbox-program")).map_err(|e| e.to_string())?)?;
    write(&bench.data().join(format!("packs/{DIGEST}.raw")), "a folder stands in for it")?;
    let program = pack.join("engine/bin/llama-server");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).map_err(|e| format!("{}: {e}", program.display()))?;
    let setting = format!("[Service]\nRootImage=\nRootImagePolicy=\nRootDirectory=/data/pack\n{more}");
    write(&bench.seen("/run/systemd/system/warden-engine@.service.d/90-folder.conf"), setting)
}

/// Runs the case.
pub fn start_engine(ctx: &NspawnCtx, log: &CaseLog, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::boot(ctx, vec![], log)?;
    lay_pack(&bench, "")?;

    let pack = ["ActivatePack", "ssast", REPLICA, DIGEST, "0", "1073741824"];
    let answer = bench.call("warden-console", &HELPER, &pack)?;
    result.expect(answer.refused() == Refused::ByBus, format!("another user activates a pack: {}", answer.told()));
    let answer = bench.call("warden", &HELPER, &pack)?;
    result.expect(answer.refused() == Refused::No, format!("warden activates a pack: {}", answer.told()));
    let link = std::fs::read_link(bench.seen(&format!("/run/warden/root/{REPLICA}"))).unwrap_or_default();
    result.expect(link.ends_with(format!("{DIGEST}.raw")), format!("the replica points at {}", link.display()));

    write_spec(&bench)?;
    let first = cycle(&bench, "StartUnit", result)?;
    let second = cycle(&bench, "RestartUnit", result)?;
    result.expect(first != second, format!("a restart is another launch ({second})"));
    expect_identity(&bench, result)?;

    let answer = bench.call("warden", &MANAGER, &["StopUnit", "ss", UNIT, "replace"])?;
    result.expect(answer.refused() == Refused::No, format!("warden stops {UNIT}: {}", answer.told()));
    let state = wait_state(&bench, &["inactive", "failed"])?;
    result.expect(state == "inactive" || state == "failed", format!("after the stop the unit is {state}"));
    let third = cycle(&bench, "StartUnit", result)?;
    result.expect(third != first && third != second, format!("a start after the stop is another launch ({third})"));
    let answer = bench.call("warden", &MANAGER, &["StopUnit", "ss", UNIT, "replace"])?;
    result.expect(answer.refused() == Refused::No, "warden stops it again");
    wait_state(&bench, &["inactive", "failed"])?;
    let answer = bench.call("warden", &MANAGER, &["ResetFailedUnit", "s", UNIT])?;
    result.expect(answer.refused() != Refused::ByBus && answer.refused() != Refused::ByPolkit, format!("warden clears a failure: {}", answer.told()));
    let kept = std::fs::read_to_string(bench.seen(&format!("/run/warden-engine/{REPLICA}/engine.log"))).unwrap_or_default();
    result.expect(kept.contains("sandbox program listens"), "the engine's log is still there after its end");
    Ok(())
}

fn write_spec(bench: &Bench) -> Result<(), String> {
    let spec = serde_json::json!({
        "format": 1, "replica": REPLICA, "generation": "1", "program": "/engine/bin/llama-server",
        "args": ["--host", format!("/run/warden-engine/{REPLICA}/engine.sock")], "env": {"OMP_WAIT_POLICY": "passive"},
    });
    write(&bench.seen(&format!("/run/warden/launch/{REPLICA}.json")), spec.to_string())
}

/// Has an engine run, for cases that are about something else.
pub fn run_engine(bench: &Bench) -> Result<(), String> {
    write_spec(bench)?;
    for (target, call) in [(&HELPER, vec!["ActivatePack", "ssast", REPLICA, DIGEST, "0", "0"]), (&MANAGER, vec!["StartUnit", "ss", UNIT, "replace"])]
    {
        let answer = bench.call("warden", target, &call)?;
        if answer.refused() != Refused::No {
            return Err(format!("no engine to look at: {}", answer.told()));
        }
    }
    match wait_state(bench, &["active", "failed"])?.as_str() {
        "active" => Ok(()),
        state => Err(format!("no engine to look at: it is {state}")),
    }
}

/// Starts or restarts, waits until the engine answers on its socket, and returns the launch's identity.
fn cycle(bench: &Bench, verb: &str, result: &mut CaseResult) -> Result<String, String> {
    let answer = bench.call("warden", &MANAGER, &[verb, "ss", UNIT, "replace"])?;
    result.expect(answer.refused() == Refused::No, format!("warden calls {verb} for {UNIT}: {}", answer.told()));
    let state = wait_state(bench, &["active", "failed"])?;
    let said = talk(bench);
    result.expect(state == "active" && said.contains("engine speaks"), format!("the unit is {state} and its socket answers: {}", said.trim()));
    if state != "active" {
        bench.run("root", &["/usr/bin/journalctl", "--no-pager", "-u", UNIT, "-n", "30"])?;
    }
    result.expect(
        said.contains("HOME=/tmp") && said.contains("OMP_WAIT_POLICY=passive") && !said.contains("INVOCATION_ID"),
        "the engine has exactly the environment of its launch spec",
    );
    let path = bench.call("warden", &MANAGER, &["GetUnit", "s", UNIT])?;
    let path = path.text().trim_start_matches("o ").trim_matches('"').to_owned();
    let identity = property(bench, &path, "org.freedesktop.systemd1.Unit", "InvocationID")?;
    result.expect(identity.starts_with("ay 16 "), format!("warden reads the launch's identity: {identity}"));
    Ok(identity)
}

/// The sandbox as it was really made.
fn expect_identity(bench: &Bench, result: &mut CaseResult) -> Result<(), String> {
    let shown = bench
        .run("root", &["/usr/bin/systemctl", "show", UNIT, "-p", "MainPID", "-p", "MemoryMax", "-p", "DynamicUser", "-p", "PrivateNetwork"])?
        .stdout;
    result.expect(shown.contains("MemoryMax=1073741824"), "the memory limit of the activation is in force");
    let pid = shown.lines().find_map(|line| line.strip_prefix("MainPID=")).unwrap_or_default();
    let status = std::fs::read_to_string(bench.seen(&format!("/proc/{pid}/status"))).unwrap_or_default();
    let of = |key: &str| {
        status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().split_whitespace().next().unwrap_or_default().to_owned()
    };
    let (uid, gid, capabilities) = (of("Uid:"), of("Gid:"), of("CapEff:"));
    result.expect(uid.parse::<u32>().is_ok_and(|uid| uid >= 61_184), format!("the engine runs as a user of its own ({uid})"));
    result.expect(
        gid == "710" && capabilities == "0000000000000000",
        format!("in the group of engines ({gid}), without capabilities ({capabilities})"),
    );
    Ok(())
}

fn property(bench: &Bench, path: &str, interface: &str, name: &str) -> Result<String, String> {
    let ran = bench.run("warden", &["/usr/bin/busctl", "get-property", "org.freedesktop.systemd1", path, interface, name])?;
    Ok(ran.stdout.trim().to_owned())
}

/// Waits until the unit is in one of the states, asked as warden would ask.
pub fn wait_state(bench: &Bench, wanted: &[&str]) -> Result<String, String> {
    let path = format!("/org/freedesktop/systemd1/unit/{}", escaped(UNIT));
    let until = Instant::now() + LIMIT;
    loop {
        let said = property(bench, &path, "org.freedesktop.systemd1.Unit", "ActiveState")?;
        let state = said.trim_start_matches("s ").trim_matches('"').to_owned();
        if wanted.contains(&state.as_str()) || Instant::now() > until {
            return Ok(state);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A unit's name as part of its path on the bus.
fn escaped(name: &str) -> String {
    name.bytes().map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("_{byte:02x}") }).collect()
}

fn talk(bench: &Bench) -> String {
    let socket = bench.seen(&format!("/run/warden-engine/{REPLICA}/engine.sock"));
    let until = Instant::now() + LIMIT;
    while Instant::now() < until {
        if let Ok(mut stream) = UnixStream::connect(&socket) {
            let mut said = String::new();
            let spoke = stream.write_all(b"hello").and_then(|()| stream.read_to_string(&mut said));
            if spoke.is_ok() {
                return said;
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    String::new()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_unit_s_name_becomes_its_path() {
        assert_eq!(super::escaped("warden-engine@a.service"), "warden_2dengine_40a_2eservice");
    }
}
