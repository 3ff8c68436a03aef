//! `firewall`: something listens inside the box on ports nobody named; the neighbour reaches the named ones and no other.
//!
//! The listeners are real sockets in the box's network. Each is first reached over loopback inside, so that the probe is known to work.
//! The deliberate break empties the packet filter.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::json;
use warden_vm::Lan;

use super::bench::Bench;
use super::certificate::connects;
use crate::http::Http;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Ports that a program gone astray might open.
const ASTRAY: [u16; 4] = [22, 5355, 9090, 40_000];
const NAMED: [u16; 2] = [443, 80];
const PLAIN: u16 = 8080;

fn inside<T: Send>(bench: &Bench, work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    bench.container.within_network(|| Ok(work())).map_err(|e| e.to_string())?
}

fn reached(bench: &Bench, address: IpAddr, port: u16) -> Result<bool, String> {
    all_reached(bench, &[SocketAddr::new(address, port)]).map(|reached| reached.first() == Some(&true))
}

/// Which of them the neighbour reaches, tried all at once: what is filtered answers by its silence, which takes time.
fn all_reached(bench: &Bench, addresses: &[SocketAddr]) -> Result<Vec<bool>, String> {
    bench.within(|| {
        std::thread::scope(|scope| {
            let tries: Vec<_> = addresses.iter().map(|address| scope.spawn(|| connects(*address))).collect();
            Ok(tries.into_iter().map(|one| one.join().unwrap_or(false)).collect())
        })
    })
}

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::boot(stage, task, |_| Ok(()))?;
    if task.sabotage {
        bench.root_ok(&["/usr/sbin/nft", "flush", "ruleset"])?;
    }
    let listeners = inside(&bench, || {
        let open = |port| TcpListener::bind(("::", port)).map_err(|e| format!("a listener on port {port}: {e}"));
        ASTRAY.into_iter().map(open).collect::<Result<Vec<_>, _>>()
    })?;
    let deaf = inside(&bench, || {
        let socket = UdpSocket::bind(("::", 9_090)).map_err(|e| e.to_string())?;
        socket.set_read_timeout(Some(Duration::from_secs(1))).map_err(|e| e.to_string())?;
        Ok(socket)
    })?;
    let addresses = [IpAddr::from(Lan::BOX_V4), IpAddr::from(Lan::BOX_V6)];
    for port in ASTRAY {
        let within = inside(&bench, || Ok(connects((Ipv4Addr::LOCALHOST, port).into())))?;
        result.expect(within, format!("inside, port {port} answers, so the probe can tell"));
    }
    let mut ports = listening(&bench)?;
    result.expect(ASTRAY.iter().chain(&NAMED).all(|port| ports.contains(port)), format!("inside, these ports listen: {ports:?}"));
    ports.push(PLAIN);
    let probes: Vec<SocketAddr> = ports.iter().flat_map(|port| addresses.map(|address| SocketAddr::new(address, *port))).collect();
    for (probe, reached) in probes.iter().zip(all_reached(&bench, &probes)?) {
        let named = NAMED.contains(&probe.port());
        result.expect(reached == named, format!("the neighbour {} {probe}", if reached { "reaches" } else { "does not reach" }));
    }
    if task.sabotage {
        // With the ruleset gone there is no set for the plain port either: the rest would fail for another cause.
        return Ok(());
    }
    let mut word = [0u8; 16];
    inside(&bench, || {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).map_err(|e| e.to_string())?;
        socket.send_to(b"x", ("127.0.0.1", 9_090)).map_err(|e| e.to_string())
    })?;
    result.expect(deaf.recv(&mut word).is_ok(), "inside, a datagram arrives on port 9090");
    bench.within(|| {
        let socket = UdpSocket::bind(("0.0.0.0", 0)).map_err(|e| e.to_string())?;
        socket.send_to(b"x", (Lan::BOX_V4, 9_090)).map_err(|e| e.to_string())
    })?;
    result.expect(deaf.recv(&mut word).is_err(), "the neighbour's datagram does not");
    drop(listeners);
    name_on_the_network(&bench, result)?;
    plain_port(&bench, result)
}

/// Ports on which something listens on all addresses, as the kernel lists them.
fn listening(bench: &Bench) -> Result<Vec<u16>, String> {
    let mut ports = Vec::new();
    for file in ["tcp", "tcp6"] {
        let path = format!("/proc/{}/net/{file}", bench.container.init_pid());
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        ports.extend(text.lines().skip(1).filter_map(open_port));
    }
    ports.sort_unstable();
    ports.dedup();
    Ok(ports)
}

/// The local port of a line of `/proc/net/tcp` whose socket listens.
fn open_port(line: &str) -> Option<u16> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    if *fields.get(3)? != "0A" {
        return None;
    }
    u16::from_str_radix(fields.get(1)?.rsplit(':').next()?, 16).ok()
}

/// The box's name is found by multicast DNS.
fn name_on_the_network(bench: &Bench, result: &mut CaseResult) -> Result<(), String> {
    let started = Instant::now();
    let mut last = String::new();
    while started.elapsed() < Duration::from_secs(20) {
        match bench.within(|| Ok(ask_mdns())) {
            Ok(Ok(address)) => {
                result.expect(address == Lan::BOX_V4, format!("the neighbour asks the network for warden.local and hears {address}"));
                return Ok(());
            }
            Ok(Err(cause)) | Err(cause) => last = cause,
        }
    }
    bench.run("root", &["/usr/bin/resolvectl", "--no-pager", "status"])?;
    result.expect(false, format!("the neighbour asks the network for warden.local and hears something ({last})"));
    Ok(())
}

/// One question to everybody on the network; the first address that comes back.
fn ask_mdns() -> Result<Ipv4Addr, String> {
    let said = |e: std::io::Error| format!("multicast DNS: {e}");
    let group = Ipv4Addr::new(224, 0, 0, 251);
    let socket = UdpSocket::bind(("0.0.0.0", 5353)).map_err(said)?;
    socket.join_multicast_v4(&group, &Lan::NEIGHBOUR_V4).map_err(said)?;
    socket.set_multicast_loop_v4(false).map_err(said)?;
    socket.set_read_timeout(Some(Duration::from_millis(500))).map_err(said)?;
    let question = b"\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x06warden\x05local\x00\x00\x01\x00\x01";
    socket.send_to(question, (group, 5353)).map_err(said)?;
    let started = Instant::now();
    let mut packet = [0u8; 1500];
    while started.elapsed() < Duration::from_secs(1) {
        let Ok((n, _)) = socket.recv_from(&mut packet) else { continue };
        if let Some(address) = answer(&packet[..n]) {
            return Ok(address);
        }
    }
    Err("no answer".to_owned())
}

/// The address record for `warden.local` in an answer. Good enough for one name: its record ends with type, class, life, length 4.
fn answer(packet: &[u8]) -> Option<Ipv4Addr> {
    let is_response = packet.len() > 12 && packet[2] & 0x80 != 0 && packet.windows(13).any(|w| w.eq_ignore_ascii_case(b"\x06warden\x05local"));
    if !is_response {
        return None;
    }
    // Type A, class IN with or without the cache-flush bit, four bytes of life, length 4.
    packet
        .windows(14)
        .find(|w| w[..3] == [0, 1, 0x80] && w[3] == 1 && w[8..10] == [0, 4] || w[..4] == [0, 1, 0, 1] && w[8..10] == [0, 4])
        .map(|w| Ipv4Addr::new(w[10], w[11], w[12], w[13]))
}

/// Port 8080: shut, opened by an admin, kept over a restart, shut again.
fn plain_port(bench: &Bench, result: &mut CaseResult) -> Result<(), String> {
    let address = IpAddr::from(Lan::BOX_V4);
    result.expect(!reached(bench, address, PLAIN)?, "the plain port is shut until an admin opens it");
    let astray = inside(bench, || TcpListener::bind(("::", PLAIN)).map_err(|e| e.to_string()))?;
    result.expect(!reached(bench, address, PLAIN)?, "even when another program listens there");
    drop(astray);
    let console = bench.claimed()?;
    let set = |open: bool| bench.within(|| console.expect("PUT", "/api/tls", Some(&json!({"plain_http": open})), &[200]));
    let opened = set(true)?.json();
    result.expect(opened["state"]["plain"]["state"] == "open", format!("an admin opens it ({})", opened["state"]["plain"]));
    let plain = Http::new(&format!("http://{address}:{PLAIN}"), Duration::from_secs(10));
    let reply = bench.ask(&plain, "GET", "/healthz", &[])?;
    result.expect(reply.status == 200, format!("it answers the neighbour (status {})", reply.status));
    bench.root_ok(&["/usr/bin/systemctl", "restart", "warden-agent.service"])?;
    let reply = bench.ask(&plain, "GET", "/healthz", &[])?;
    result.expect(reply.status == 200, format!("it answers after a restart of the agent (status {})", reply.status));
    let shut = set(false)?.json();
    result.expect(shut["state"]["plain"]["state"] == "closed", format!("an admin shuts it ({})", shut["state"]["plain"]));
    let within = inside(bench, || Ok(connects((Ipv4Addr::LOCALHOST, PLAIN).into())))?;
    result.expect(!within && !reached(bench, address, PLAIN)?, "nobody listens there any more, inside or outside");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listening_sockets_count_as_open() {
        let listens = "   0: 00000000:01BB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0";
        assert_eq!(open_port(listens), Some(443));
        assert_eq!(open_port(&listens.replace(" 0A ", " 01 ")), None);
        assert_eq!(open_port(""), None);
    }

    #[test]
    fn the_address_is_found_in_an_answer_and_not_in_a_question() {
        let mut packet =
            b"\x00\x00\x84\x00\x00\x00\x00\x01\x00\x00\x00\x00\x06warden\x05local\x00\x00\x01\x80\x01\x00\x00\x00\x78\x00\x04\x0a\x4d\x00\x02"
                .to_vec();
        assert_eq!(answer(&packet), Some(Ipv4Addr::new(10, 77, 0, 2)));
        packet[2] = 0;
        assert_eq!(answer(&packet), None);
    }
}
