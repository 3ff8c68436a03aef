//! A network for programs that must reach the agent and nothing else: a namespace with loopback, and one door in it.
//!
//! In: the agent's port on this machine. Out: programs started inside, for whom `127.0.0.1` and that port lead to the agent and every
//! other address is unreachable. The namespace ends with its last program. Needs root, as the images do.

use std::fs::File;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, setns, unshare};

use crate::command::Running;
use crate::log::CaseLog;

/// How often the door looks whether it is still wanted, and whether somebody is at it.
const LOOK: Duration = Duration::from_millis(2);

/// The network.
pub struct Alone {
    network: File,
    over: Arc<AtomicBool>,
    connections: Arc<AtomicUsize>,
}

impl Alone {
    /// Makes it, with a door to `127.0.0.1:port` of this machine under the same port.
    ///
    /// # Errors
    /// A sentence when this user may not make one, or `ip` (Debian package iproute2) is missing.
    pub fn with_door(port: u16) -> Result<Self, String> {
        // A namespace belongs to a thread: this one makes it and ends; sockets and programs made in it stay there.
        let made = thread::spawn(move || -> Result<(File, TcpListener), String> {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|e| format!("no network of its own for a client: {e}. Run this list as root."))?;
            let network = File::open("/proc/thread-self/ns/net").map_err(|e| format!("/proc/thread-self/ns/net: {e}"))?;
            let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
            if !up.map_err(|e| format!("ip cannot be started: {e}. Install the package iproute2."))?.success() {
                return Err("loopback of a new network namespace cannot be switched on".to_owned());
            }
            let door = TcpListener::bind(("127.0.0.1", port)).map_err(|e| format!("127.0.0.1:{port} in a network of its own: {e}"))?;
            door.set_nonblocking(true).map_err(|e| format!("the door of a network of its own: {e}"))?;
            Ok((network, door))
        });
        let (network, door) = made.join().map_err(|_| "the thread that makes a network broke".to_owned())??;
        let (over, connections) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (wanted, count) = (over.clone(), connections.clone());
        thread::spawn(move || keep_door(&door, port, &wanted, &count));
        Ok(Self { network, over, connections })
    }

    /// Starts a program inside.
    ///
    /// # Errors
    /// A sentence naming the program when it cannot be started.
    pub fn start(&self, command: Command, log: &CaseLog) -> Result<Running, String> {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                setns(&self.network, CloneFlags::CLONE_NEWNET).map_err(|e| format!("a client's network cannot be entered: {e}"))?;
                Running::start(command, log)
            });
            inside.join().map_err(|_| "the thread that starts a client broke".to_owned())?
        })
    }

    /// Connections made through the door so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Lets everybody through who knocks. Runs on this machine's side: connections to the agent are made here.
fn keep_door(door: &TcpListener, port: u16, over: &AtomicBool, count: &AtomicUsize) {
    while !over.load(Ordering::Relaxed) {
        let Ok((client, _)) = door.accept() else {
            thread::sleep(LOOK);
            continue;
        };
        count.fetch_add(1, Ordering::Relaxed);
        thread::spawn(move || pass(&client, port));
    }
}

/// Carries bytes both ways. An end on either side is an end on the other, at the same byte.
fn pass(client: &TcpStream, port: u16) {
    let Ok(agent) = TcpStream::connect(("127.0.0.1", port)) else { return };
    let _slower_at_worst = (client.set_nonblocking(false), client.set_nodelay(true), agent.set_nodelay(true));
    thread::scope(|scope| {
        scope.spawn(|| {
            let _either_end_may_leave = io::copy(&mut &*client, &mut &agent);
            let _gone_already = agent.shutdown(Shutdown::Write);
        });
        let _either_end_may_leave = io::copy(&mut &agent, &mut &*client);
        let _gone_already = (client.shutdown(Shutdown::Both), agent.shutdown(Shutdown::Both));
    });
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn who_is_alone_reaches_the_agent_and_nothing_else() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let (agent, other) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let port = agent.local_addr().unwrap().port();
        thread::spawn(move || agent.incoming().flatten().for_each(|mut c| c.write_all(b"hello\n").unwrap()));
        let alone = Alone::with_door(port).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let log = CaseLog::create(dir.path(), "t").unwrap();
        let mut command = Command::new("bash");
        let away = other.local_addr().unwrap().port();
        command.args(["-c", &format!("cat </dev/tcp/127.0.0.1/{port}; cat </dev/tcp/127.0.0.1/{away} || echo no {away}")]);
        let said = alone.start(command, &log).unwrap().wait(Duration::from_secs(10)).unwrap().text();
        assert!(said.contains("hello") && said.contains(&format!("no {away}")), "{said}");
        assert_eq!(alone.connections(), 1);
    }
}
