//! Conditions of services and network: the appliance's own root with its real agent, buses and units, in a container.
//!
//! The agent listens on loopback inside, so that taking the address away does not cut off whoever watches; the watcher's thread joins the
//! container's network for that. The time service is the genuine one, allowed to run in a container and without the right to set the
//! clock of this machine.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use serde_json::Value;
use warden_vm::{Container, ContainerSpec};

use super::watch::Watch;
use crate::command;
use crate::console::Console;
use crate::log::CaseLog;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

const PORT: u16 = 8090;
const TIME: &str = "systemd-timesyncd.service";
const NAMES: &str = "systemd-resolved.service";
const ADDRESS: &str = "10.77.0.2/24";
const GATEWAY: &str = "10.77.0.1";
const UNITS: &str = "usr/lib/systemd/system";

/// Causes and cures each condition; returns the codes seen.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<BTreeSet<String>, String> {
    let root = match std::env::var_os("WARDEN_NSPAWN_ROOT") {
        Some(root) => PathBuf::from(root),
        None => {
            let (images, places) = stage.images();
            images.production_root(places, &task.log)?
        }
    };
    let folder = tempfile::Builder::new().prefix("wardn").tempdir_in("/tmp").map_err(|e| format!("no temporary folder: {e}"))?;
    let container = boot(&root, folder.path(), &task.log)?;
    // Only this thread joins the container's network; what it starts is there as well.
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| watch(&container, folder.path(), &task.log, result));
        let seen = inside.join().unwrap_or_else(|_| Err("the watcher inside the container broke off".to_owned()));
        for unit in ["warden-agent.service", TIME] {
            if let Ok(journal) = container.run_as("root", &["/usr/bin/journalctl", "--no-pager", "--lines=60", "--unit", unit]) {
                task.log.line(format!("the journal of {unit}:\n{}{}", journal.stdout, journal.stderr));
            }
        }
        seen
    })
}

fn boot(root: &Path, folder: &Path, log: &CaseLog) -> Result<Container, String> {
    let mut binds = Vec::new();
    let mut change = |path: &str, content: Vec<u8>, mode: u32| -> Result<(), String> {
        let file = folder.join(format!("change-{}", binds.len()));
        std::fs::write(&file, content)
            .and_then(|()| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)))
            .map_err(|e| format!("{}: {e}", file.display()))?;
        binds.push((file, format!("/{path}")));
        Ok(())
    };
    let config = edited(root, "usr/lib/warden/agent.toml", &[("listen = \"systemd\"", &format!("listen = \"127.0.0.1:{PORT}\""))])?;
    change("usr/lib/warden/agent.toml", config.into_bytes(), 0o644)?;
    let unit = format!("{UNITS}/{TIME}");
    let pieces = [
        ("ConditionVirtualization=!container\n", ""),
        ("ConditionCapability=CAP_SYS_TIME\n", ""),
        ("AmbientCapabilities=CAP_SYS_TIME\n", ""),
        ("ExecStart=!!", "ExecStart="),
    ];
    change(&unit, edited(root, &unit, &pieces)?.into_bytes(), 0o644)?;
    if let Some(agent) = std::env::var_os("WARDEN_AGENT") {
        change("usr/lib/warden/warden-agent", std::fs::read(&agent).map_err(|e| format!("WARDEN_AGENT: {e}"))?, 0o755)?;
    }
    for name in ["state", "data/models", "data/packs"] {
        std::fs::create_dir_all(folder.join(name)).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).map_err(|e| format!("{}: {e}", folder.display()))?;
    let spec = ContainerSpec { root: root.to_owned(), run_dir: folder.to_owned(), binds };
    let container = Container::boot(&spec, Duration::from_secs(90)).map_err(|e| e.to_string())?;
    log.line(format!("a container with {} is up after {:.1} s", root.display(), container.age().as_secs_f64()));
    Ok(container)
}

/// A file of the root with pieces replaced; each must be there.
fn edited(root: &Path, path: &str, pieces: &[(&str, &str)]) -> Result<String, String> {
    let file = root.join(path);
    let mut text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    for (from, to) in pieces {
        if !text.contains(from) {
            return Err(format!("/{path} has no {from:?}: this case must be fitted to it"));
        }
        text = text.replace(from, to);
    }
    Ok(text)
}

fn watch(container: &Container, folder: &Path, log: &CaseLog, result: &mut CaseResult) -> Result<BTreeSet<String>, String> {
    let network = format!("/proc/{}/ns/net", container.init_pid());
    let network = File::open(&network).map_err(|e| format!("{network}: {e}"))?;
    setns(network, CloneFlags::CLONE_NEWNET).map_err(|e| format!("the container's network cannot be joined: {e}"))?;
    for command in ["link add wan0 type veth peer name far0", "link set far0 up", "link set wan0 up"] {
        ip(command, log)?;
    }
    address_back(log)?;
    let console = claimed(container, log)?;
    let mut watch = Watch::new(&console);
    settle(&mut watch, log)?;

    let root = |argv: &[&str]| -> Result<String, String> {
        let ran = container.run_as("root", argv).map_err(|e| e.to_string())?;
        log.line(format!("root $ {}\n{}{}(exit {:?})", argv.join(" "), ran.stdout, ran.stderr, ran.status));
        Ok(ran.stdout.trim().to_owned())
    };
    let cure_unit = |_: &Console, _: &Value| {
        root(&["/usr/bin/systemctl", "reset-failed", NAMES])?;
        root(&["/usr/bin/systemctl", "start", NAMES]).map(drop)
    };
    watch.caused(result, "unit_failed", NAMES, || fail(&root), cure_unit)?;

    // By the unit's name over the bus, as the agent's own user: what polkit allows is all it takes.
    let stop = || root(&["/usr/bin/systemctl", "stop", TIME]).map(drop);
    let click = |console: &Console, issue: &Value| {
        let id = issue["id"].as_str().unwrap_or_default();
        console.expect("POST", &format!("/api/issues/{id}/fix"), None, &[202]).map(drop)
    };
    watch.caused(result, "time_service_stopped", TIME, stop, click)?;
    let until = Instant::now() + Duration::from_secs(20);
    let mut active = root(&["/usr/bin/systemctl", "is-active", TIME])?;
    while active == "activating" && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(200));
        active = root(&["/usr/bin/systemctl", "is-active", TIME])?;
    }
    result.expect(active == "active", format!("one click started the time service ({active})"));

    // What the initrd leaves when it gives a slot up; the record is all that the running system ever sees of it.
    let record = folder.join("state/boot/fallback.json");
    let told = |e: std::io::Error| format!("{}: {e}", record.display());
    let fall_back = || {
        std::fs::create_dir_all(folder.join("state/boot")).map_err(told)?;
        let text = br#"{"from_slot": "b", "reason": "started 3 times without being confirmed", "at_boot": "0"}"#;
        warden_durable::write(&record, text).map_err(told)
    };
    watch.caused(result, "boot_fell_back", "", fall_back, |_, _| std::fs::remove_file(&record).map_err(told))?;

    let no_gateway = || ip("route del default", log);
    watch.caused(result, "no_default_route", "network", no_gateway, |_, _| ip(&format!("route add default via {GATEWAY}"), log))?;
    let no_address = || ip("address flush dev wan0", log);
    watch.caused(result, "no_network_address", "network", no_address, |_, _| address_back(log))?;
    result.figure("slowest_issue_look_appliance_s", watch.slowest_look_s);
    Ok(watch.seen)
}

/// Kills the service until the system manager gives it up.
fn fail(root: &impl Fn(&[&str]) -> Result<String, String>) -> Result<(), String> {
    for _ in 0..20 {
        root(&["/usr/bin/systemctl", "kill", "--signal=KILL", NAMES])?;
        std::thread::sleep(Duration::from_millis(200));
        if root(&["/usr/bin/systemctl", "is-failed", NAMES])? == "failed" {
            return Ok(());
        }
    }
    Err(format!("{NAMES} could not be made to fail"))
}

/// Waits until what belongs to the start is over: no address yet, services still coming up.
fn settle(watch: &mut Watch<'_>, log: &CaseLog) -> Result<(), String> {
    for code in ["no_network_address", "no_default_route", "time_service_stopped"] {
        watch.over(code, "", Duration::from_secs(40))?;
    }
    let open = watch.look()?["open"].clone();
    log.line(format!("open before anything is caused: {open}"));
    Ok(())
}

fn address_back(log: &CaseLog) -> Result<(), String> {
    ip(&format!("address replace {ADDRESS} dev wan0"), log)?;
    ip(&format!("route replace default via {GATEWAY}"), log)
}

fn ip(arguments: &str, log: &CaseLog) -> Result<(), String> {
    let mut ip = Command::new("ip");
    ip.args(arguments.split(' '));
    command::run_ok("setting the container's network", ip, Duration::from_secs(10), log).map(drop)
}

/// Reads the claim code where the local screen reads it, and claims.
fn claimed(container: &Container, log: &CaseLog) -> Result<Console, String> {
    let mut console = Console::new(&format!("http://127.0.0.1:{PORT}"), log);
    console.wait_healthy(Duration::from_secs(60))?;
    let socket = format!("/proc/{}/root/run/warden-agent/console.sock", container.init_pid());
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match claim_code(Path::new(&socket)) {
            Ok(code) => {
                console.claim(&code)?;
                return Ok(console);
            }
            Err(why) if Instant::now() >= until => return Err(format!("no claim code from {socket}: {why}")),
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

fn claim_code(socket: &Path) -> Result<String, String> {
    let mut stream = UnixStream::connect(socket).map_err(|e| e.to_string())?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(|e| e.to_string())?;
    stream.write_all(b"GET /console/status HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n").map_err(|e| e.to_string())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(|e| e.to_string())?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    let status: Value = serde_json::from_str(body).map_err(|e| format!("{e}: {answer}"))?;
    status["claim_code"].as_str().map(str::to_owned).ok_or_else(|| format!("the status holds no claim code: {status}"))
}
