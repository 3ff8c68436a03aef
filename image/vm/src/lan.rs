//! A local network for containers: a network space of its own on this machine, in which a test plays the router, other machines and
//! the clients. A container is plugged in by one end of a virtual cable.
//!
//! In go addresses; out come programs that run as if on a machine of that network. The space goes away with its owner.

use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::VmError;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A network.
#[derive(Debug)]
pub struct Lan {
    space: String,
    cable: String,
}

impl Lan {
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
}

impl Drop for Lan {
    fn drop(&mut self) {
        let _gone_already = ip(&["netns", "del", &self.space]);
        let _gone_already = ip(&["link", "del", &self.cable]);
    }
}

fn ip(arguments: &[&str]) -> Result<(), VmError> {
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output().map_err(|source| VmError::Start {
        program: "ip".into(),
        source,
        way_out: "install the Debian package iproute2 and run as root",
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(VmError::Failed { program: format!("ip {}", arguments.join(" ")), said: String::from_utf8_lossy(&output.stderr).trim().to_owned() })
}
