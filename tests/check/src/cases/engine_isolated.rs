//! From inside a running engine: the agent, another engine, DNS and the LAN are out of reach.
//!
//! The same probes are made twice: from the machine itself, where they must succeed (or they would show nothing), and from inside the
//! engine's network and mount namespaces, where they must not. A listener on this host is the LAN and its name server; it counts who got
//! through. The deliberate break switches PrivateNetwork off.

use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use warden_vm::quiet;

use super::engine_life::{property, unit_of};
use crate::appliance::{Appliance, TINY};
use crate::images::{Flavour, PackKind};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// A second engine to look for.
const OTHER: &str = "other";
const DNS: &str = "DNS";

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    if task.sabotage {
        stage.unplug();
    }
    let appliance = stage.appliance(Flavour::Test, PackKind::Signed, &task.log)?;
    if task.sabotage {
        appliance.root_ok(
            "mkdir -p /run/systemd/system/warden-engine@.service.d && printf '[Service]\\nPrivateNetwork=no\\n' \
             > /run/systemd/system/warden-engine@.service.d/99-sabotage.conf && systemctl daemon-reload",
        )?;
    }
    let (_, model) = appliance.ensure_serving(TINY)?;
    let (_, other) = appliance.ensure_serving(OTHER)?;
    let pid = property(appliance, &unit_of(&model)?, "MainPID")?;
    let lan = Lan::listen()?;
    let probes = [
        ("the agent on loopback", "wget -q -T 4 -O - http://127.0.0.1/ca.crt".to_owned()),
        ("the agent on the LAN address", "wget -q -T 4 -O - http://10.0.2.15/ca.crt".to_owned()),
        ("a host on the LAN", format!("wget -q -T 4 -O - http://10.0.2.2:{}/", lan.port)),
        (DNS, format!("nslookup warden-probe.invalid 10.0.2.2:{}", lan.names)),
    ];
    for (what, probe) in &probes {
        let (status, output) = appliance.root(probe, quiet(12))?;
        result.expect(reached(what, status, &output), format!("from the machine itself {what} answers, so the probe can tell ({})", output.trim()));
    }
    let through = lan.count();
    for (what, probe) in &probes {
        let (status, output) = appliance.root(&format!("nsenter -t {pid} -n -- /usr/lib/warden-test/bin/busybox {probe}"), quiet(12))?;
        result.expect(!reached(what, status, &output), format!("from inside the engine {what} is out of reach ({})", last_line(&output)));
    }
    result.expect(
        lan.count() == through,
        format!("the host on the LAN saw nobody from inside ({} connections before, {} after)", through, lan.count()),
    );
    files(appliance, &pid, &unit_of(&other)?, result)?;
    if task.sabotage {
        stage.unplug();
    }
    Ok(())
}

/// What the engine sees of other engines and of the agent's files.
fn files(appliance: &mut Appliance, pid: &str, other_unit: &str, result: &mut CaseResult) -> Result<(), String> {
    let other = other_unit.trim_start_matches("warden-engine@").trim_end_matches(".service");
    let socket = format!("/run/warden-engine/{other}/engine.sock");
    let (there, _) = appliance.root(&format!("test -S {socket}"), quiet(5))?;
    result.expect(there == 0, "the other engine's socket exists on the machine");
    for (what, path) in [
        ("the other engine's socket", socket.as_str()),
        ("the other engine's folder", &format!("/run/warden-engine/{other}")),
        ("the agent's state", "/state"),
        ("the system bus", "/run/dbus/system_bus_socket"),
        ("the agent's local socket", "/run/warden-agent"),
        ("the helper's folder", "/run/warden"),
    ] {
        let (seen, _) = appliance.root(&format!("test -e /proc/{pid}/root{path}"), quiet(5))?;
        result.expect(seen != 0, format!("inside the engine {what} does not exist"));
    }
    for folder in ["/data/models", "/engine", "/.warden/specs"] {
        let (written, said) = appliance.root(&format!("touch /proc/{pid}/root{folder}/x"), quiet(5))?;
        result.expect(
            written != 0 && said.to_lowercase().contains("read-only"),
            format!("{folder} is read-only inside, even for root ({})", last_line(&said)),
        );
    }
    let status = appliance.root_ok(&format!("grep -E '^(Uid|NoNewPrivs|Seccomp|CapBnd):' /proc/{pid}/status"))?;
    let uid = status.lines().find_map(|l| l.strip_prefix("Uid:")).and_then(|l| l.split_whitespace().next().map(str::to_owned)).unwrap_or_default();
    result.expect(uid.parse::<u32>().is_ok_and(|u| u >= 61_184), format!("the engine runs as a dynamic user (uid {uid})"));
    let has = |name: &str, value: &str| status.lines().any(|l| l.starts_with(name) && l.split_whitespace().nth(1) == Some(value));
    result.expect(
        has("NoNewPrivs:", "1") && has("Seccomp:", "2") && has("CapBnd:", "0000000000000000"),
        "it has no capabilities, a system call filter, and can gain nothing",
    );
    Ok(())
}

/// Whether a probe got an answer. A name server that says "no such name" has answered.
fn reached(what: &str, status: i32, output: &str) -> bool {
    if what == DNS {
        let said = output.to_uppercase();
        return ["NXDOMAIN", "SERVFAIL", "REFUSED", "CAN'T FIND"].iter().any(|word| said.contains(word));
    }
    status == 0
}

fn last_line(text: &str) -> &str {
    text.trim().lines().last().unwrap_or_default()
}

/// A host on the guest's LAN: a web server and a name server of this process that answer and count. The guest's router leads to them
/// under its own address.
struct Lan {
    port: u16,
    names: u16,
    seen: Arc<AtomicUsize>,
}

impl Lan {
    fn listen() -> Result<Self, String> {
        let said = |e: std::io::Error| format!("no listener for the LAN: {e}");
        let web = TcpListener::bind("127.0.0.1:0").map_err(said)?;
        let port = web.local_addr().map_err(said)?.port();
        let dns = UdpSocket::bind("127.0.0.1:0").map_err(said)?;
        let names = dns.local_addr().map_err(said)?.port();
        let seen = Arc::new(AtomicUsize::new(0));
        let counting = seen.clone();
        std::thread::spawn(move || serve_web(&web, &counting));
        let counting = seen.clone();
        std::thread::spawn(move || serve_names(&dns, &counting));
        Ok(Self { port, names, seen })
    }

    fn count(&self) -> usize {
        self.seen.load(Ordering::SeqCst)
    }
}

fn serve_web(listener: &TcpListener, seen: &AtomicUsize) {
    use std::io::{Read, Write};
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { break };
        seen.fetch_add(1, Ordering::SeqCst);
        let _read_limit = stream.set_read_timeout(Some(Duration::from_secs(2)));
        let mut head = [0_u8; 1024];
        let _any_head = stream.read(&mut head);
        let _gone_already = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nlan");
    }
}

/// Answers every question with "no such name".
fn serve_names(socket: &UdpSocket, seen: &AtomicUsize) {
    let mut packet = [0_u8; 512];
    while let Ok((length, from)) = socket.recv_from(&mut packet) {
        if length < 12 {
            continue;
        }
        seen.fetch_add(1, Ordering::SeqCst);
        // An answer, recursion available, no such name; the counts of records but the question's are zero.
        packet[2..4].copy_from_slice(&[0x81, 0x83]);
        packet[6..12].fill(0);
        let _gone_already = socket.send_to(&packet[..length], from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_server_that_knows_no_such_name_was_reached() {
        assert!(reached("DNS", 1, "** server can't find warden-probe.invalid: NXDOMAIN"));
        assert!(!reached("DNS", 1, ";; connection timed out; no servers could be reached"));
        assert!(!reached("the agent", 1, "wget: can't connect to remote host: Network is unreachable"));
        assert!(reached("the agent", 0, "{}"));
    }
}
