//! A box on a network of its own: a container with the image's root, one cable, a router, and a client behind that router.
//!
//! The box begins with a fixed address, as an installation would have left it. Its state outlives a power cut (the container is killed
//! and booted again with the same state folder).

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use warden_vm::{Container, ContainerSpec, Lan, Ran, VmError};

use super::client::Client;
use crate::log::CaseLog;
use crate::stage::{Stage, Task};

/// The box's port, inside.
pub const PORT: &str = "lan0";
/// The address the box begins with.
pub const OLD: &str = "10.77.0.20";
/// The router.
pub const ROUTER: &str = "10.77.0.1";
/// An address in the box's network that another machine has.
pub const TAKEN: &str = "10.77.0.99";
/// An address in a network the box is not in, that another machine has.
pub const TAKEN_FAR: &str = "10.79.0.99";

/// The client's address lies behind the router: a wrong gateway therefore cuts it off.
const CLIENT: &str = "10.88.0.5";
const UP: Duration = Duration::from_secs(120);

/// The box, its network and its state.
pub struct Bench {
    container: Option<Container>,
    /// The network.
    pub lan: Lan,
    folder: tempfile::TempDir,
    spec: ContainerSpec,
    log: CaseLog,
}

impl Bench {
    /// Boots the box.
    pub fn new(stage: &mut Stage, task: &Task) -> Result<Self, String> {
        let root = match std::env::var_os("WARDEN_NSPAWN_ROOT") {
            Some(root) => PathBuf::from(root),
            None => {
                let (images, places) = stage.images();
                images.production_root(places, &task.log)?
            }
        };
        let folder = tempfile::Builder::new().prefix("wardn").tempdir_in("/tmp").map_err(|e| format!("no temporary folder: {e}"))?;
        let said = |e: std::io::Error| format!("the box's folders: {e}");
        let profiles = folder.path().join("state/network/connections");
        std::fs::create_dir_all(&profiles).map_err(said)?;
        std::fs::create_dir_all(folder.path().join("data/models")).map_err(said)?;
        mode(folder.path(), 0o755)?;
        let first = profiles.join("first.nmconnection");
        std::fs::write(&first, first_profile()).map_err(said)?;
        mode(&first, 0o600)?;
        // For work in progress: another agent than the one in the root.
        let binds =
            std::env::var_os("WARDEN_AGENT").map(|agent| (PathBuf::from(agent), "/usr/lib/warden/warden-agent".to_owned())).into_iter().collect();
        let spec = ContainerSpec { root, run_dir: folder.path().to_path_buf(), binds };
        let lan = Lan::new().map_err(|e| e.to_string())?;
        let mut bench = Self { container: None, lan, folder, spec, log: task.log.clone() };
        bench.power_on()?;
        Ok(bench)
    }

    /// Boots with the state that is there.
    pub fn power_on(&mut self) -> Result<(), String> {
        let cable = [(self.lan.cable(), PORT)];
        let plug = || {
            let (router, taken, far) = (format!("{ROUTER}/24"), format!("{TAKEN}/24"), format!("{TAKEN_FAR}/24"));
            self.lan.plug(&[&router, &taken, &far], Duration::from_secs(20))?;
            self.lan.ip(&["addr", "replace", &format!("{CLIENT}/32"), "dev", "lo"])?;
            self.lan.ip(&["route", "replace", "10.77.0.0/24", "dev", "CABLE", "src", CLIENT])
        };
        let container = Container::boot_plugged(&self.spec, &cable, UP, plug).map_err(|e: VmError| e.to_string())?;
        self.log.line(format!("the box is up after {:.1} s", container.age().as_secs_f64()));
        self.container = Some(container);
        Ok(())
    }

    /// Pulls the plug: everything inside is killed at once.
    pub fn power_cut(&mut self) {
        self.container = None;
        self.log.line("the power is cut");
    }

    fn inside(&self) -> Result<&Container, String> {
        self.container.as_ref().ok_or_else(|| "the box is off".to_owned())
    }

    /// A client that speaks to an address of the box.
    pub fn client(&self, address: &str) -> Client<'_> {
        Client::new(&self.lan, address, &self.log)
    }

    /// A client at the old address that is the administrator; claims the box on first use.
    pub fn admin(&self) -> Result<Client<'_>, String> {
        self.admin_at(OLD)
    }

    /// The same at another address.
    pub fn admin_at(&self, address: &str) -> Result<Client<'_>, String> {
        let mut client = self.client(address);
        client.wait(UP).ok_or_else(|| format!("the box does not answer at {address}; its addresses are {:?}", self.addresses()))?;
        match self.claim_code()? {
            Some(code) => client.claim(&code)?,
            None => client.login()?,
        }
        // The kernel answers a moment before the network service calls the port connected.
        for _ in 0..60 {
            if client.get("/api/network")?["interfaces"][0]["state"]["state"] == "connected" {
                break;
            }
            std::thread::sleep(Duration::from_millis(250));
        }
        Ok(client)
    }

    /// The claim code of the local screen; `None` once the box is claimed.
    fn claim_code(&self) -> Result<Option<String>, String> {
        let socket = format!("/proc/{}/root/run/warden-agent/console.sock", self.inside()?.init_pid());
        let argv = ["curl", "--silent", "--show-error", "--max-time", "10", "--unix-socket", &socket, "http://box/console/status"];
        let output = self.lan.run(&argv, b"").map_err(|e| e.to_string())?;
        let status: Value = serde_json::from_slice(&output.stdout).map_err(|e| format!("the local screen's socket did not answer: {e}"))?;
        Ok(status["claim_code"].as_str().map(str::to_owned))
    }

    /// Runs a program inside as root.
    pub fn root(&self, argv: &[&str]) -> Result<Ran, String> {
        let ran = self.inside()?.run_as("root", argv).map_err(|e| e.to_string())?;
        self.log.line(format!("root $ {}\n{}{}(exit {:?})", argv.join(" "), ran.stdout, ran.stderr, ran.status));
        Ok(ran)
    }

    /// IPv4 addresses of the box's port, as its kernel has them.
    pub fn addresses(&self) -> Result<Vec<String>, String> {
        let pid = self.inside()?.init_pid().to_string();
        let argv = ["nsenter", "--target", &pid, "--net", "ip", "-4", "-o", "addr", "show", "dev", PORT];
        let output = self.lan.run(&argv, b"").map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let found: Vec<String> = text.split_whitespace().skip_while(|w| *w != "inet").filter(|w| w.contains('/')).map(str::to_owned).collect();
        self.log.line(format!("the kernel's addresses on {PORT}: {found:?}"));
        Ok(found)
    }

    /// Checkpoints the network service holds.
    pub fn checkpoints(&self) -> Result<Vec<String>, String> {
        let manager = ["org.freedesktop.NetworkManager", "/org/freedesktop/NetworkManager", "org.freedesktop.NetworkManager"];
        let mut argv = vec!["/usr/bin/busctl", "get-property"];
        argv.extend(manager);
        argv.push("Checkpoints");
        let ran = self.root(&argv)?;
        Ok(ran.stdout.split('"').filter(|part| part.starts_with('/')).map(str::to_owned).collect())
    }

    /// Takes a checkpoint's end away behind the agent's back, so that nothing is undone: the deliberate break.
    pub fn stop_checkpoint(&self, path: &str) -> Result<(), String> {
        let name = "org.freedesktop.NetworkManager";
        let call = ["/usr/bin/busctl", "call", name, "/org/freedesktop/NetworkManager", name, "CheckpointAdjustRollbackTimeout", "ou", path, "0"];
        let ran = self.root(&call)?;
        if ran.status == Some(0) { Ok(()) } else { Err(format!("the time of the checkpoint {path} could not be taken away: {}", ran.stderr)) }
    }

    /// Profiles that lie on the disk.
    pub fn profiles(&self) -> Result<Vec<String>, String> {
        let folder = self.folder.path().join("state/network/connections");
        let mut names: Vec<String> = std::fs::read_dir(&folder)
            .map_err(|e| format!("{}: {e}", folder.display()))?
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        Ok(names)
    }

    /// The journal of a unit, into the log: for failures.
    pub fn keep_journal(&self) {
        for unit in ["NetworkManager.service", "warden-agent.service"] {
            let _only_for_the_log = self.root(&["/usr/bin/journalctl", "--no-pager", "--lines=60", "--unit", unit]);
        }
    }
}

/// Wanted settings with a fixed IPv4 address.
#[must_use]
pub fn fixed(address: &str, prefix: u8, gateway: Option<&str>) -> Value {
    json!({"ipv4": {"method": "static", "address": address, "prefix": prefix, "gateway": gateway}, "ipv6": {"method": "off"}, "dns": [ROUTER]})
}

fn first_profile() -> String {
    format!(
        "[connection]\nid=first\nuuid=5e3a8f5c-0b1d-4a53-9c0e-7f0a3f1c2b4d\ntype=ethernet\ninterface-name={PORT}\n\n\
         [ipv4]\nmethod=manual\naddress1={OLD}/24,{ROUTER}\n\n[ipv6]\nmethod=disabled\n"
    )
}

fn mode(path: &Path, bits: u32) -> Result<(), String> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(bits)).map_err(|e| format!("{}: {e}", path.display()))
}
