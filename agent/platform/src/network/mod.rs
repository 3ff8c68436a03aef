//! The network room over NetworkManager: reads all ports in one call, tries changes under a checkpoint, keeps what was confirmed.
//!
//! A change never touches the profile in use. It adds a second one in memory, after the checkpoint was made; the network service itself
//! takes it away again and activates the old one when the checkpoint's time is up, whatever happened to the agent. Only a confirmation
//! writes the new profile to disk, and then removes the old.

mod back;
mod check;
mod course;
mod driver;
mod duplicate;
mod observe;
mod plan;
mod port;
mod profile;
mod proxies;
mod trial;

use std::{
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use tokio::sync::OnceCell;
use warden_domain::{
    Problem, ProblemKind,
    change::{Changes, Topic},
    clock,
    ids::AccountId,
    network::{Interface, InterfaceConfig, LastChange, NetworkPlan},
};
use warden_store::{
    Store,
    audit::{self, AuditRow},
    settings,
};

use crate::bus::Bus;
use course::Trial;
use driver::Driver;
use trial::{Found, Leftover, TrialRecord};

/// The store's name for the change under trial.
const TRIAL: &str = "network.trial";
/// The store's name for how the last one ended.
const LAST: &str = "network.last";
/// How often a starting agent looks for the network service.
const RETRY: Duration = Duration::from_secs(3);

/// The console's address at an IP address of this box.
pub type ConsoleUrl = Arc<dyn Fn(IpAddr) -> String + Send + Sync>;

/// What the room needs.
pub struct NetworkParts {
    /// The system bus.
    pub bus: Arc<Bus>,
    /// For what must survive.
    pub store: Store,
    /// News for pages.
    pub changes: Changes,
    /// A folder on the file system on which the network service keeps its profiles.
    pub state_dir: PathBuf,
    /// Where the console is at an address.
    pub console_url: ConsoleUrl,
}

/// Settings that may be tried.
struct Checked {
    port: observe::Seen,
    plan: NetworkPlan,
    /// Addresses of the ports that do not change.
    others: Vec<IpAddr>,
}

/// The room.
pub struct NetworkRoom {
    driver: Driver,
    store: Store,
    changes: Changes,
    state_dir: PathBuf,
    console_url: ConsoleUrl,
    trial: Mutex<Option<Arc<Trial>>>,
    /// Itself, for the task that follows a trial.
    me: Weak<Self>,
    /// One change, confirmation or undoing at a time.
    turn: tokio::sync::Mutex<()>,
    /// Filled once what an agent before this one left was ended. Nothing begins before: the two would look alike.
    cleared: OnceCell<()>,
}

impl NetworkRoom {
    /// Opens the room and begins to clear up what an agent before this one left. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(parts: NetworkParts) -> Arc<Self> {
        let room = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            driver: Driver::new(parts.bus),
            store: parts.store,
            changes: parts.changes,
            state_dir: parts.state_dir,
            console_url: parts.console_url,
            trial: Mutex::new(None),
            turn: tokio::sync::Mutex::new(()),
            cleared: OnceCell::new(),
        });
        let clearing = room.clone();
        tokio::spawn(async move {
            while let Err(problem) = clearing.cleared().await {
                tracing::debug!(%problem, "the network service is not there yet");
                tokio::time::sleep(RETRY).await;
            }
        });
        room
    }

    fn under_trial(&self) -> Option<Arc<Trial>> {
        let held = self.trial.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        held.clone()
    }

    fn set_trial(&self, trial: Option<Arc<Trial>>) {
        *self.trial.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = trial;
        self.changes.publish(Topic::Network);
    }

    async fn kept<T: serde::de::DeserializeOwned>(&self, name: &'static str) -> Result<Option<T>, Problem> {
        let text = self.store.read(move |db| settings::get(db, name)).await?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    async fn end(&self, last: &LastChange, account: Option<AccountId>, action: &'static str) -> Result<(), Problem> {
        let text = serde_json::to_string(last).map_err(|cause| Problem::internal(format!("the end of a change cannot be written: {cause}.")))?;
        let (subject, kept) = (last.interface.clone(), last.kept);
        self.store
            .write(move |tx| {
                settings::set(tx, LAST, &text)?;
                settings::remove(tx, TRIAL)?;
                let outcome = if kept { "ok" } else { "undone" };
                audit::insert(tx, &AuditRow { at: clock::now(), account: account.clone(), action, subject: Some(subject.clone()), outcome })
            })
            .await?;
        self.changes.publish(Topic::Network);
        Ok(())
    }

    /// Understands and ends what an agent before this one began, and removes doubles that a power cut left.
    async fn clear_up(&self) -> Result<(), Problem> {
        let objects = self.driver.objects().await?;
        if let Some(record) = self.kept::<TrialRecord>(TRIAL).await? {
            let checkpoint = observe::checkpoints(&objects).into_iter().find(|path| path.as_str() == record.checkpoint);
            let profile = self.driver.find_profile(&objects, &record.uuid).await?;
            let saved = profile.as_ref().is_some_and(|path| observe::saved(&objects, path));
            let (checkpoint_there, profile) = (checkpoint.is_some(), profile.is_some());
            let what = trial::leftover(Found { same_boot: record.boot == boot_id(), checkpoint: checkpoint_there, profile, saved });
            match (what, &checkpoint) {
                (Leftover::Undo, Some(path)) => self.driver.roll_back(path).await?,
                (Leftover::Undo, None) => self.put_back(&record.uuid, None, &record.interface).await?,
                _ => {}
            }
            tracing::info!(interface = record.interface, ?what, "a network change of an agent before this one was ended");
            self.end(&trial::ending(&record, what, clock::now()), None, "network.leftover").await?;
        }
        self.driver.remove_doubles().await
    }

    async fn cleared(&self) -> Result<(), Problem> {
        self.cleared.get_or_try_init(|| self.clear_up()).await.map(drop)
    }

    async fn seen(&self) -> Result<Vec<observe::Seen>, Problem> {
        let objects = self.driver.objects().await?;
        let mut ports = observe::ports(&objects);
        for port in &mut ports {
            port.interface.config = match &port.profile {
                Some(profile) => self.driver.settings(profile).await.ok().as_ref().and_then(profile::read),
                None => None,
            };
        }
        Ok(ports)
    }

    async fn checked(&self, interface: &str, wanted: &InterfaceConfig) -> Result<Checked, Problem> {
        let ports = self.seen().await?;
        let all: Vec<Interface> = ports.iter().map(|p| p.interface.clone()).collect();
        let Some(port) = ports.into_iter().find(|p| p.interface.name == interface) else {
            return Err(
                Problem::new(ProblemKind::NotFound, format!("This box has no wired port {interface:?}.")).hint("GET /api/network lists its ports.")
            );
        };
        if port.state == observe::UNMANAGED {
            return Err(Problem::new(ProblemKind::Conflict, format!("The network service leaves {interface} alone, so it cannot be changed here."))
                .hint("On a development machine tell NetworkManager to manage it; on the appliance report this as a fault."));
        }
        let warnings = check::check(interface, wanted, &all)?;
        let plan = plan::plan(&port.interface, wanted, warnings, &*self.console_url);
        let others = all.iter().filter(|other| other.name != interface).flat_map(|other| other.addresses.iter().map(|a| a.address)).collect();
        Ok(Checked { port, plan, others })
    }

    /// Refuses an address that another machine answers for.
    async fn nobody_has(&self, port: &observe::Seen, wanted: &InterfaceConfig) -> Result<(), Problem> {
        for address in wanted.fixed() {
            let IpAddr::V4(v4) = address else { continue };
            if port.interface.addresses.iter().any(|own| own.address == address) {
                continue;
            }
            if let Some(mac) = duplicate::owner(v4).await {
                return Err(Problem::new(
                    ProblemKind::Conflict,
                    format!("{address} is in use: the machine with the hardware address {mac} answers for it."),
                )
                .hint("Give a free address, or take it from the other machine first.")
                .param("ipv4.address"));
            }
        }
        Ok(())
    }
}

/// Names this start of the system.
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}
