//! A local network for containers: a network space of its own on this machine, in which a test plays the router, other machines and
//! the clients. A container is plugged in by one end of a virtual cable, as it starts ([`Lan::plug`]) or while it runs ([`Lan::beside`]).
//!
//! In go addresses; out come closures and programs that run as if on a machine of that network, and so see the container through its
//! addresses and its packet filter. The space goes away with its owner, the cable with it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};

use crate::{Container, VmError};

/// The container's end of a cable that was put in while it ran.
pub const INTERFACE: &str = "lan0";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A network.
#[derive(Debug)]
pub struct Lan {
    space: String,
    cable: String,
}

impl Lan {
    /// The container's addresses on a network of [`Lan::beside`].
    pub const BOX_V4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
    /// The same for IPv6.
    pub const BOX_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);
    /// The neighbour's.
    pub const NEIGHBOUR_V4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

    /// An empty network.
    ///
    /// # Errors
    /// When `ip` is missing or network spaces cannot be made.
    pub fn new() -> Result<Self, VmError> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let pid = std::process::id();
        // Names of interfaces hold at most 15 letters.
        let lan = Self { space: format!("wardn-{pid}-{number}"), cable: format!("wl{:x}n{number:x}", pid & 0xff_ffff) };
        ip(&["netns", "add", &lan.space])?;
        ip(&["-n", &lan.space, "link", "set", "lo", "up"])?;
        Ok(lan)
    }

    /// A network of two with a running container: both ends of the cable are up and the neighbour has its addresses. Those of the container
    /// are set by what is inside.
    ///
    /// # Errors
    /// As [`Lan::new`].
    pub fn beside(container: &Container) -> Result<Self, VmError> {
        let lan = Self::new()?;
        lan.ip(&["link", "add", "CABLE", "type", "veth", "peer", "name", INTERFACE, "netns", &container.init_pid().to_string()])?;
        lan.ip(&["addr", "add", &format!("{}/24", Self::NEIGHBOUR_V4), "dev", "CABLE"])?;
        lan.ip(&["addr", "add", "fd77::1/64", "dev", "CABLE", "nodad"])?;
        lan.ip(&["link", "set", "CABLE", "up"])?;
        lan.ip(&["route", "add", "224.0.0.0/4", "dev", "CABLE"])?;
        container.ip(&["link", "set", INTERFACE, "up"])?;
        Ok(lan)
    }

    /// Name of the cable's outer end while a container has just been started with it.
    pub fn cable(&self) -> &str {
        &self.cable
    }

    /// Takes the outer end of the cable into the network and gives it addresses (with their prefixes); the first container that was
    /// started with [`Lan::cable`] is then connected. Call it again after each start.
    ///
    /// # Errors
    /// When the cable does not appear within `timeout`.
    pub fn plug(&self, addresses: &[&str], timeout: Duration) -> Result<(), VmError> {
        let end = Instant::now() + timeout;
        while let Err(error) = ip(&["link", "set", &self.cable, "netns", &self.space]) {
            if Instant::now() >= end {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        for address in addresses {
            ip(&["-n", &self.space, "addr", "replace", address, "dev", &self.cable])?;
        }
        ip(&["-n", &self.space, "link", "set", &self.cable, "up"])
    }

    /// A further setting of the network by the arguments of `ip`, `CABLE` standing for the cable's outer end.
    ///
    /// # Errors
    /// With what `ip` said.
    pub fn ip(&self, arguments: &[&str]) -> Result<(), VmError> {
        let mut all = vec!["-n", self.space.as_str()];
        all.extend(arguments.iter().map(|a| if *a == "CABLE" { self.cable.as_str() } else { a }));
        ip(&all)
    }

    /// Runs a program on the network. One that fails is an answer, not an error.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run<S: AsRef<OsStr>>(&self, argv: &[S], input: &[u8]) -> Result<Output, VmError> {
        let start =
            |source| VmError::Start { program: "ip netns exec".into(), source, way_out: "install the Debian package iproute2 and run as root" };
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.space])
            .args(argv)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(start)?;
        if let Some(mut pipe) = child.stdin.take() {
            let _closed_early_is_its_own_business = std::io::Write::write_all(&mut pipe, input);
        }
        child.wait_with_output().map_err(start)
    }

    /// Runs a closure on the network: sockets that it opens and programs that it starts are on the neighbour. It runs in a thread of its own;
    /// threads that the closure starts are on that host too.
    ///
    /// # Errors
    /// The network is gone, or what the closure says.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> Result<T, VmError> + Send) -> Result<T, VmError> {
        within(&format!("/run/netns/{}", self.space), work)
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        let _gone_already = ip(&["netns", "del", &self.space]);
        let _gone_already = ip(&["link", "del", &self.cable]);
    }
}

fn within<T: Send>(network: &str, work: impl FnOnce() -> Result<T, VmError> + Send) -> Result<T, VmError> {
    let namespace = File::open(network).map_err(VmError::io("cannot open a network", network))?;
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            setns(&namespace, CloneFlags::CLONE_NEWNET)
                .map_err(|error| VmError::io("cannot enter a network", network)(error.into()))
                .and_then(|()| work())
        });
        worker.join().unwrap_or_else(|_| Err(VmError::io("the work ended early in", network)(io::Error::other("it panicked"))))
    })
}

impl Container {
    /// Runs a closure in the container's own network: sockets that it opens belong to the container.
    ///
    /// # Errors
    /// The container is gone, or what the closure says.
    pub fn within_network<T: Send>(&self, work: impl FnOnce() -> Result<T, VmError> + Send) -> Result<T, VmError> {
        within(&format!("/proc/{}/ns/net", self.init_pid()), work)
    }

    /// Gives an interface of the container an address (`10.0.0.2/24`).
    ///
    /// # Errors
    /// `ip` is missing or refuses.
    pub fn add_address(&self, interface: &str, address: &str) -> Result<(), VmError> {
        let family: Result<IpAddr, _> = address.split('/').next().unwrap_or_default().parse();
        let mut words = vec!["addr", "add", address, "dev", interface];
        if matches!(family, Ok(IpAddr::V6(_))) {
            words.push("nodad");
        }
        self.ip(&words)
    }

    /// Runs the host's `ip` in the container's network.
    ///
    /// # Errors
    /// `ip` is missing or refuses.
    pub fn ip(&self, words: &[&str]) -> Result<(), VmError> {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init_pid().to_string(), "--net", "--", "ip"]).args(words);
        done(command, words)
    }
}

fn ip(arguments: &[&str]) -> Result<(), VmError> {
    let mut command = Command::new("ip");
    command.args(arguments);
    done(command, arguments)
}

fn done(mut command: Command, words: &[&str]) -> Result<(), VmError> {
    let output = command.stdin(Stdio::null()).output().map_err(|source| VmError::Start {
        program: "ip".into(),
        source,
        way_out: "install the Debian packages iproute2 and util-linux and run as root",
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(VmError::Failed { program: format!("ip {}", words.join(" ")), said: String::from_utf8_lossy(&output.stderr).trim().to_owned() })
}
