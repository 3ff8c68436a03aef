//! What answers requests: every room once, and the front door to their routes.

use std::{net::IpAddr, sync::Arc};

use warden_access::{Access, http::HostRules};
use warden_domain::{change::Changes, engine::Engines, front::Front, gpu::Gpus, machine::Machine};
use warden_gateway::{FlightTable, Gateway};
use warden_models::Models;
use warden_monitor::Monitor;
use warden_serving::ServingRoom;
use warden_tls::FrontRoom;
use warden_updater::UpdateRoom;

use crate::{by_name::ByName, config::Profile, disks::Disks, front_door::FrontDoor, place::Place, status};

/// The rooms behind the routes.
pub(crate) struct Rooms {
    /// For which machine.
    pub(crate) profile: Profile,
    /// Accounts, sessions, keys.
    pub(crate) access: Arc<Access>,
    /// Power and reset.
    pub(crate) machine: Arc<dyn Machine>,
    /// The registry.
    pub(crate) models: Arc<Models>,
    /// Replicas.
    pub(crate) serving: Arc<ServingRoom>,
    /// Engine packs and runners.
    pub(crate) engines: Arc<dyn Engines>,
    /// GPU cards.
    pub(crate) gpus: Arc<dyn Gpus>,
    /// Issues and alerts.
    pub(crate) monitor: Arc<Monitor>,
    /// News for pages.
    pub(crate) changes: Changes,
    /// The data plane.
    pub(crate) gateway: Arc<Gateway>,
    /// Requests under way.
    pub(crate) flights: Arc<FlightTable>,
    /// Network, name, clock.
    pub(crate) place: Place,
    /// Names and certificates.
    pub(crate) front: Arc<FrontRoom>,
    /// Model disks and imports.
    pub(crate) disks: Disks,
    /// The hub of models and downloads from it.
    pub(crate) by_name: ByName,
    /// The updater.
    pub(crate) updates: Arc<UpdateRoom>,
    /// Version of the running system, as shown everywhere.
    pub(crate) version: &'static str,
}

impl Rooms {
    /// All routes: inference, API, pages.
    pub(crate) fn front_door(&self) -> FrontDoor {
        let api = warden_api::router(warden_api::ApiParts {
            accounts: self.access.clone(),
            recovery: self.access.clone(),
            audit: self.access.clone(),
            machine: self.machine.clone(),
            keys: self.access.clone(),
            registry: self.models.clone(),
            serving: self.serving.clone(),
            routing: self.gateway.clone(),
            engines: self.engines.clone(),
            gpus: self.gpus.clone(),
            issues: self.monitor.clone(),
            alerts: self.monitor.clone(),
            front: self.front.clone(),
            storage: self.disks.storage.clone(),
            disks: self.disks.disks.clone(),
            imports: self.disks.imports.clone(),
            hub: self.by_name.hub.clone(),
            downloads: self.by_name.downloads.clone(),
            tasks: self.disks.tasks.clone(),
            updates: self.updates.clone(),
            changes: self.changes.clone(),
            gateway: self.gateway.clone(),
            network: self.place.network.clone(),
            names: self.place.names.clone(),
            time: self.place.time.clone(),
            version: self.version,
        });
        let web = warden_web::router(warden_web::WebParts {
            accounts: self.access.clone(),
            recovery: self.access.clone(),
            audit: self.access.clone(),
            machine: self.machine.clone(),
            keys: self.access.clone(),
            registry: self.models.clone(),
            serving: self.serving.clone(),
            routing: self.gateway.clone(),
            engines: self.engines.clone(),
            storage: self.disks.storage.clone(),
            disks: self.disks.disks.clone(),
            imports: self.disks.imports.clone(),
            hub: self.by_name.hub.clone(),
            downloads: self.by_name.downloads.clone(),
            tasks: self.disks.tasks.clone(),
            updates: self.updates.clone(),
            flights: self.flights.clone(),
            gpus: self.gpus.clone(),
            issues: self.monitor.clone(),
            alerts: self.monitor.clone(),
            front: self.front.clone(),
            changes: self.changes.clone(),
            version: self.version,
            network: self.place.network.clone(),
            names: self.place.names.clone(),
            time: self.place.time.clone(),
            dev: cfg!(debug_assertions),
            profile: match self.profile {
                Profile::Dev => warden_web::Profile::Dev,
                Profile::Appliance => warden_web::Profile::Appliance,
            },
        });
        let console = warden_access::http::protect(api.merge(web), self.access.clone(), hosts(&self.front));
        FrontDoor::new(self.gateway.clone(), console)
    }
}

/// Which Host headers are answered.
pub(crate) fn hosts(front: &Arc<FrontRoom>) -> HostRules {
    let front = Arc::clone(front);
    HostRules {
        own_names: Arc::new(move |name| front.is_own_name(name)),
        any_loopback: true,
        own_addresses: Arc::new(|ip: IpAddr| ip.is_loopback() || status::own_addresses().contains(&ip)),
    }
}
