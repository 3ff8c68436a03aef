//! The arms: the engine alone, the bare proxy, ours, the other gateways.

use std::{collections::BTreeMap, fs, net::SocketAddr, path::Path, process::Command};

use crate::{
    load::Target,
    peers::{Peer, Server},
    report::{BARE, COLLECTED, DIRECT},
};

/// One way to the engine.
pub struct Arm {
    /// Whom to ask.
    pub target: Target,
    /// Which gateway of somebody else it is, if it is one.
    pub peer: Option<Peer>,
}

/// All that are measured, up and answering. They end when this is dropped; ours does not.
pub struct Arms {
    /// In the order of the table.
    pub all: Vec<Arm>,
    versions: BTreeMap<String, String>,
    _servers: Vec<Server>,
    _folder: Folder,
}

impl Arms {
    /// Starts everything but ours. `collected`: a second model of ours, whose engine streams always. `only`: names of the arms wanted;
    /// empty: all.
    ///
    /// # Errors
    /// A sentence when one does not come up.
    pub fn start(ours: &Target, collected: Option<&str>, peers: Option<&Path>, only: &[String]) -> Result<Self, String> {
        let folder = Folder::new()?;
        let model = ours.model.clone();
        let wanted = |name: &str| only.is_empty() || only.iter().any(|o| o == name);
        let itself = std::env::current_exe().map_err(|e| format!("this program does not know where it lies: {e}"))?;
        let mut engine = Command::new(&itself);
        engine.args(["engine", "--host", "127.0.0.1", "--port", "0", "--alias", &model]);
        let engine = Server::start(engine, &folder.0.join("engine.log"))?;
        let address = engine.told_address()?;
        let target = |name: &str, address: SocketAddr, pid| Target {
            name: name.to_owned(),
            address,
            model: model.clone(),
            key: None,
            pid,
            with_children: false,
        };

        let mut all = vec![Arm { target: target(DIRECT, address, None), peer: None }];
        let (mut servers, mut versions) = (vec![engine], BTreeMap::new());
        if wanted(BARE) {
            let mut proxy = Command::new(&itself);
            proxy.args(["proxy", "--listen", "127.0.0.1:0", "--engine", &address.to_string()]);
            let proxy = Server::start(proxy, &folder.0.join("proxy.log"))?;
            all.push(Arm { target: target(BARE, proxy.told_address()?, Some(proxy.pid())), peer: None });
            servers.push(proxy);
        }
        all.push(Arm { target: ours.clone(), peer: None });
        if let Some(model) = collected.filter(|_| wanted(COLLECTED)) {
            all.push(Arm { target: Target { name: COLLECTED.to_owned(), model: model.to_owned(), ..ours.clone() }, peer: None });
        }
        for peer in Peer::ALL.into_iter().filter(|peer| wanted(peer.name())) {
            let programs = peers.ok_or("where the other gateways are installed was not said (--peers)")?;
            println!("bench: starting {}", peer.name());
            let (server, target) = peer.start(programs, address, &model, &folder.0)?;
            servers.push(server);
            versions
                .insert(peer.name().to_owned(), fs::read_to_string(programs.join(peer.name()).join("version")).unwrap_or_default().trim().to_owned());
            all.push(Arm { target, peer: Some(peer) });
        }
        Ok(Self { all, versions, _servers: servers, _folder: folder })
    }

    /// Versions of the other gateways.
    pub fn versions(&self) -> BTreeMap<String, String> {
        self.versions.clone()
    }

    /// Names of the other gateways.
    pub fn peer_names(&self) -> Vec<&'static str> {
        self.all.iter().filter_map(|arm| arm.peer).map(Peer::name).collect()
    }
}

/// A folder for logs and configurations that goes with the measurement.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("warden-bench-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _stays_then = fs::remove_dir_all(&self.0);
    }
}
