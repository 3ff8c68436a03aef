//! Joins the box's place on a network: ports, name, clock.

use std::sync::Arc;

use warden_domain::{change::Changes, names::Names};
use warden_platform::{
    bus::Bus,
    names::NamesRoom,
    network::{NetworkParts, NetworkRoom},
    time::TimeRoom,
};
use warden_store::Store;

use crate::{config::Config, status};

/// The box's place on a network: ports, name, clock.
pub(crate) struct Place {
    /// The system bus.
    pub(crate) bus: Arc<Bus>,
    pub(crate) network: Arc<NetworkRoom>,
    pub(crate) names: Arc<NamesRoom>,
    pub(crate) time: Arc<TimeRoom>,
}

impl Place {
    /// Starts the three rooms; `port` and `encrypted` say how the console is reached at an address.
    pub(crate) fn start(config: &Config, store: &Store, changes: &Changes, port: u16, encrypted: bool) -> Self {
        let bus = Arc::new(Bus::default());
        Self {
            network: NetworkRoom::start(NetworkParts {
                bus: bus.clone(),
                store: store.clone(),
                changes: changes.clone(),
                state_dir: config.state_dir.clone(),
                console_url: Arc::new(move |ip| status::url(ip, port, encrypted)),
            }),
            names: NamesRoom::start(bus.clone(), store.clone(), changes.clone(), status::host_name()),
            time: TimeRoom::start(bus.clone(), store.clone(), changes.clone()),
            bus,
        }
    }

    /// What the system calls the box. The agent's unit has a name space of its own, so that its kernel's answer would be the one of its
    /// start.
    pub(crate) fn called(&self) -> Arc<dyn Fn() -> String + Send + Sync> {
        let names = self.names.clone();
        Arc::new(move || names.present())
    }
}
