//! The checks: one small file each. A file holds the decision, a function from facts to findings with its tests, and the few lines
//! that fetch the facts. Adding a check: a row in `domain::issue::codes!`, a file here, its place in `all`, a row in `docs/issues.md`,
//! its words in the message catalogue.

mod certificate;
mod data_disk;
mod delivery;
mod engines;
mod failed_units;
mod model_files;
mod models;
mod network;
mod secure_boot;
mod state_disk;
mod time_service;
mod time_sync;

use std::{net::IpAddr, path::PathBuf, sync::Arc};

use warden_domain::{
    engine::Engines,
    front::Front,
    issue::{Check, Looked},
    model::Registry,
    replica::Serving,
    time::Time,
};
use warden_store::Store;

use crate::facts::{boot::SECURE_BOOT, units::Units};

/// Whether this is the appliance, with services and firmware of its own to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appliance {
    /// The appliance image.
    Yes,
    /// A development machine: its services, clock and firmware are its owner's business.
    No,
}

/// What the checks look at.
pub(crate) struct Sources {
    pub(crate) appliance: Appliance,
    pub(crate) data_dir: PathBuf,
    pub(crate) state_dir: PathBuf,
    /// Addresses others can reach this host by.
    pub(crate) addresses: Arc<dyn Fn() -> Vec<IpAddr> + Send + Sync>,
    /// True when only loopback is listened on: the network is then nobody's need.
    pub(crate) loopback_only: bool,
    pub(crate) registry: Arc<dyn Registry>,
    pub(crate) serving: Arc<dyn Serving>,
    pub(crate) engines: Arc<dyn Engines>,
    pub(crate) store: Store,
    pub(crate) units: Arc<dyn Units>,
    pub(crate) time: Arc<dyn Time>,
    pub(crate) front: Arc<dyn Front>,
}

/// All checks of this room.
pub(crate) fn all(sources: Sources) -> Vec<Arc<dyn Check>> {
    let Sources { appliance, data_dir, state_dir, addresses, loopback_only, registry, serving, engines, store, units, time, front } = sources;
    let watched = appliance == Appliance::Yes || !loopback_only;
    vec![
        Arc::new(data_disk::DataDisk::new(data_dir)),
        Arc::new(state_disk::StateDisk::new(state_dir)),
        Arc::new(models::Models { registry: registry.clone(), serving: serving.clone(), engines: engines.clone() }),
        Arc::new(model_files::ModelFiles { registry: registry.clone() }),
        Arc::new(engines::EnginePacks { registry, engines }),
        Arc::new(network::Network { addresses, watched }),
        Arc::new(failed_units::FailedUnits { appliance, units: units.clone() }),
        Arc::new(time_service::TimeService { appliance, units, time: time.clone() }),
        Arc::new(time_sync::TimeSync { appliance, mark: time_sync::MARK.into(), time }),
        Arc::new(secure_boot::SecureBoot { appliance, variable: SECURE_BOOT.into() }),
        Arc::new(certificate::Certificate { front }),
        Arc::new(delivery::Deliveries { store }),
    ]
}

/// The answer of a check that only the appliance can give.
fn not_the_appliance() -> Looked {
    Looked::NotChecked("This is not the appliance: its system belongs to somebody else.".to_owned())
}

/// Runs a blocking look off the async workers, for at most five seconds: a disk that hangs must not hold up the others.
async fn off_thread<T: Send + 'static>(what: &str, work: impl FnOnce() -> Result<T, std::io::Error> + Send + 'static) -> Result<T, String> {
    match tokio::time::timeout(std::time::Duration::from_secs(5), tokio::task::spawn_blocking(work)).await {
        Ok(Ok(Ok(value))) => Ok(value),
        Ok(Ok(Err(cause))) => Err(format!("{what} cannot be looked at: {cause}.")),
        Ok(Err(_)) => Err(format!("Looking at {what} broke off.")),
        Err(_) => Err(format!("{what} did not answer within 5 s.")),
    }
}
