//! A box on a network of two: a container with the image's root, its agent running, and a neighbour from which it is looked at.
//!
//! In: the stage. Out: the neighbour's view (a console over TLS, plain requests, any closure), the claim code as the local screen would
//! get it, root's tools inside. The box is new and unclaimed; everything ends with the bench.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use warden_vm::{Container, ContainerSpec, Lan, Ran};

use super::shake::shake;
use crate::console::Console;
use crate::evidence::MachineEvidence;
use crate::front_door::FrontDoor;
use crate::http::{Http, Reply};
use crate::log::CaseLog;
use crate::stage::{Stage, Task};

const UP: Duration = Duration::from_secs(120);
/// The profile with which the network manager gives the box its address, as an owner would have set it.
const PROFILE: &str = "[connection]\nid=lan\nuuid=6f1d3c1e-3f52-4c86-9a35-5f9a3c6d7e21\ntype=ethernet\ninterface-name=lan0\n\n\
    [ipv4]\nmethod=manual\naddress1=10.77.0.2/24\n\n[ipv6]\nmethod=manual\naddress1=fd77::2/64\naddr-gen-mode=eui64\n";

/// The box and its neighbour.
pub struct Bench {
    /// The box.
    pub container: Container,
    /// The neighbour.
    pub lan: Lan,
    folder: tempfile::TempDir,
    log: CaseLog,
}

impl Bench {
    /// Boots a new box and waits until its agent shows a certificate to the neighbour. `fill` lays out its data folder first.
    pub fn boot(stage: &mut Stage, task: &Task, fill: impl FnOnce(&std::path::Path) -> Result<(), String>) -> Result<Self, String> {
        let root = root(stage, task)?;
        let folder = tempfile::Builder::new().prefix("wardt").tempdir_in("/tmp").map_err(|e| format!("no temporary folder: {e}"))?;
        let said = |e: std::io::Error| format!("the box's folders: {e}");
        for name in ["state/network/connections", "data/models", "data/packs"] {
            std::fs::create_dir_all(folder.path().join(name)).map_err(said)?;
        }
        private(&folder.path().join("state/network/connections/lan.nmconnection"), PROFILE).map_err(said)?;
        fill(&folder.path().join("data"))?;
        open_to_all(folder.path()).map_err(said)?;
        let spec = ContainerSpec { root: root.clone(), run_dir: folder.path().to_path_buf(), binds: Vec::new() };
        let container = Container::boot(&spec, UP).map_err(|e| e.to_string())?;
        let lan = Lan::beside(&container).map_err(|e| e.to_string())?;
        task.log.line(format!("a box with {} is up after {:.1} s", root.display(), container.age().as_secs_f64()));
        stage.machine_took_part(MachineEvidence {
            flavour: "container".to_owned(),
            boot_id: format!("container on process {}", container.init_pid()),
            hashes: std::collections::BTreeMap::new(),
            serial_log: None,
        });
        let bench = Self { container, lan, folder, log: task.log.clone() };
        // A container is called like its machine; an appliance has the name of its os-release.
        bench.rename("warden")?;
        if let Err(cause) = bench.wait_up() {
            let _for_the_log = bench.run("root", &["/usr/bin/systemctl", "--no-pager", "--failed"]);
            let _for_the_log = bench.run("root", &["/usr/bin/journalctl", "--no-pager", "-n", "80"]);
            return Err(cause);
        }
        Ok(bench)
    }

    fn wait_up(&self) -> Result<(), String> {
        let started = Instant::now();
        loop {
            let named = |authority: String| shake((Lan::BOX_V4, 443).into(), "warden.local", &authority, &[]);
            match self.within(|| door().authority().and_then(named)) {
                Ok(_) => return Ok(()),
                Err(last) if started.elapsed() > UP => return Err(format!("the neighbour sees no certificate for warden.local; last: {last}")),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Gives the box another host name.
    pub fn rename(&self, name: &str) -> Result<(), String> {
        const HOST: &str = "org.freedesktop.hostname1";
        self.root_ok(&["/usr/bin/busctl", "call", HOST, "/org/freedesktop/hostname1", HOST, "SetHostname", "sb", name, "false"]).map(drop)
    }

    /// Runs a closure on the neighbour.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
        self.lan.within(|| Ok(work())).map_err(|e| e.to_string())?
    }

    /// The authority as the neighbour gets it.
    pub fn authority(&self) -> Result<String, String> {
        self.within(|| door().authority())
    }

    /// A client on the neighbour's side that trusts the box's authority. Its requests must be made inside [`Bench::within`].
    pub fn trusting(&self, limit: Duration) -> Result<Http, String> {
        Http::trusting(&door().encrypted, &self.authority()?, limit)
    }

    /// A visitor who has claimed the box. Its calls must be made inside [`Bench::within`].
    pub fn claimed(&self) -> Result<Console, String> {
        let code = self.local_status()?["claim_code"].as_str().map(str::to_owned).ok_or("the local status shows no claim code")?;
        let mut console = Console::over(self.trusting(Duration::from_secs(60))?, &self.log);
        self.within(move || {
            console.claim(&code)?;
            Ok(console)
        })
    }

    /// One request over TLS from the neighbour.
    pub fn ask(&self, http: &Http, method: &str, path: &str, headers: &[(&str, &str)]) -> Result<Reply, String> {
        let body: Option<&[u8]> = if matches!(method, "POST" | "PUT") { Some(b"") } else { None };
        let reply = self.within(|| http.send(method, path, headers, body))?;
        self.log.line(format!("{method} {}{path} {headers:?} -> {} {:?}", http.base(), reply.status, reply.header("location")));
        Ok(reply)
    }

    /// The document of the agent's local socket.
    pub fn local_status(&self) -> Result<Value, String> {
        let path = self.seen("/run/warden-agent/console.sock");
        let said = |e: std::io::Error| format!("the local socket {}: {e}", path.display());
        let mut stream = UnixStream::connect(&path).map_err(said)?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).map_err(said)?;
        stream.write_all(b"GET /console/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").map_err(said)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(said)?;
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
        serde_json::from_str(body).map_err(|e| format!("the local socket's answer is not JSON ({e}): {answer}"))
    }

    /// Runs a program inside as a user.
    pub fn run(&self, user: &str, argv: &[&str]) -> Result<Ran, String> {
        let ran = self.container.run_as(user, argv).map_err(|e| e.to_string())?;
        self.log.line(format!("{user} $ {}\n{}{}(exit {:?})", argv.join(" "), ran.stdout, ran.stderr, ran.status));
        Ok(ran)
    }

    /// Runs a program inside as root and demands success.
    pub fn root_ok(&self, argv: &[&str]) -> Result<String, String> {
        let ran = self.run("root", argv)?;
        if ran.status == Some(0) { Ok(ran.stdout) } else { Err(format!("`{}` ended with {:?}: {}", argv.join(" "), ran.status, ran.stderr)) }
    }

    /// A path of the box as the host sees it.
    pub fn seen(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.container.init_pid()))
    }

    /// The box's state folder on the host.
    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// The log of the case.
    pub fn log(&self) -> &CaseLog {
        &self.log
    }
}

/// The box's addresses as the neighbour uses them.
pub fn door() -> FrontDoor {
    FrontDoor { encrypted: format!("https://{}", Lan::BOX_V4), plain: format!("http://{}", Lan::BOX_V4) }
}

/// The image's root tree.
pub fn root(stage: &mut Stage, task: &Task) -> Result<PathBuf, String> {
    if let Some(root) = std::env::var_os("WARDEN_NSPAWN_ROOT") {
        return Ok(PathBuf::from(root));
    }
    let (images, places) = stage.images();
    images.production_root(places, &task.log)
}

fn private(path: &std::path::Path, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}

fn open_to_all(path: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}
