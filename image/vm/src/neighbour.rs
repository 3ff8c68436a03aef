//! Another host on the network of a container: a network namespace joined to the container's by a cable (a veth pair). Whoever works
//! inside it sees the container as a neighbour does: through its addresses and its packet filter.
//!
//! In: a running container. Out: a place to run closures and programs in. The namespace ends with its handle, the cable with it.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

use nix::sched::{CloneFlags, setns, unshare};

use crate::{Container, VmError};

/// The container's end of the cable.
pub const INTERFACE: &str = "lan0";

/// A neighbour of a container.
#[derive(Debug)]
pub struct Neighbour {
    namespace: File,
}

impl Neighbour {
    /// The container's addresses on this network.
    pub const BOX_V4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
    /// The same for IPv6.
    pub const BOX_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);
    /// The neighbour's.
    pub const NEIGHBOUR_V4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

    /// Makes the namespace and the cable. Both ends are up; the neighbour has its addresses, and so has the container's end, unless
    /// `addressed` is false because something inside will set them.
    ///
    /// # Errors
    /// Not root, or the program `ip` (package iproute2) is missing or refuses.
    pub fn join(container: &Container, addressed: bool) -> Result<Self, VmError> {
        let made = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    unshare(CloneFlags::CLONE_NEWNET).map_err(io::Error::from)?;
                    File::open("/proc/thread-self/ns/net")
                })
                .join()
        });
        let namespace = made.unwrap_or_else(|_| Err(io::Error::other("the thread ended"))).map_err(VmError::io("cannot make a network", "netns"))?;
        let lan = Self { namespace };
        let pid = container.init_pid().to_string();
        lan.within(|| {
            ip(&["link", "set", "lo", "up"])?;
            ip(&["link", "add", "box0", "type", "veth", "peer", "name", INTERFACE, "netns", &pid])?;
            ip(&["addr", "add", &format!("{}/24", Self::NEIGHBOUR_V4), "dev", "box0"])?;
            ip(&["addr", "add", "fd77::1/64", "dev", "box0", "nodad"])?;
            ip(&["link", "set", "box0", "up"])?;
            ip(&["route", "add", "224.0.0.0/4", "dev", "box0"])
        })?;
        if addressed {
            container.add_address(INTERFACE, &format!("{}/24", Self::BOX_V4))?;
            container.add_address(INTERFACE, &format!("{}/64", Self::BOX_V6))?;
        }
        container.ip(&["link", "set", INTERFACE, "up"])?;
        Ok(lan)
    }

    /// Runs a closure as the neighbour: sockets that it opens and programs that it starts are on that host. They run in a thread of
    /// their own; threads that the closure starts are on that host too.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> Result<T, VmError> + Send) -> Result<T, VmError> {
        within(&self.namespace, work)
    }
}

fn within<T: Send>(namespace: &File, work: impl FnOnce() -> Result<T, VmError> + Send) -> Result<T, VmError> {
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            setns(namespace, CloneFlags::CLONE_NEWNET)
                .map_err(|error| VmError::io("cannot enter a network", "netns")(error.into()))
                .and_then(|()| work())
        });
        worker.join().unwrap_or_else(|_| Err(VmError::io("the work ended early in", "netns")(io::Error::other("it panicked"))))
    })
}

impl Container {
    /// Runs a closure in the container's own network: sockets that it opens belong to the container.
    ///
    /// # Errors
    /// The container is gone, or what the closure says.
    pub fn within_network<T: Send>(&self, work: impl FnOnce() -> Result<T, VmError> + Send) -> Result<T, VmError> {
        let path = format!("/proc/{}/ns/net", self.init_pid());
        within(&File::open(&path).map_err(VmError::io("cannot open a network", &path))?, work)
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
        run(command, words)
    }
}

fn ip(words: &[&str]) -> Result<(), VmError> {
    let mut command = Command::new("ip");
    command.args(words);
    run(command, words)
}

fn run(mut command: Command, words: &[&str]) -> Result<(), VmError> {
    let output = command.output().map_err(|source| VmError::Start {
        program: "ip".into(),
        source,
        way_out: "install the Debian packages iproute2 and util-linux and run as root",
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(VmError::Failed { program: format!("ip {}", words.join(" ")), said })
}
