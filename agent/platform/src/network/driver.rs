//! The calls to NetworkManager, each with its meaning and its failure as a sentence. No decision is made here.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::StreamExt;
use warden_domain::{Problem, ProblemKind};
use zbus::{Connection, ObjectPath, OwnedObjectPath};

use super::{
    observe,
    profile::Identity,
    proxies::{
        DeviceProxy, IN_MEMORY_BLOCKED, ManagerProxy, ObjectManagerProxy, Objects, ProfileProxy, ProfilesProxy, ROLLBACK_DELETES_NEW, Settings,
        TO_DISK,
    },
};
use crate::bus::{Bus, said};

const NAME: &str = "NetworkManager";
const LOOK: Duration = Duration::from_millis(200);
/// The signal of a failure comes within this; without one the listing of objects decides.
const GRACE: Duration = Duration::from_secs(1);

/// Why a device could not use its settings, by the service's number.
const REASONS: &[(u32, &str)] = &[
    (4, "the settings could not be prepared"),
    (5, "the address could not be had: another machine owns it, or DHCP gave none"),
    (6, "the lease of the address ended"),
    (15, "the DHCP client did not start"),
    (16, "the DHCP client broke down"),
    (17, "no DHCP server answered, or it gave no address"),
    (40, "the cable is out"),
];

/// Speaks to the service.
pub struct Driver {
    bus: Arc<Bus>,
}

impl Driver {
    /// Over a bus.
    pub const fn new(bus: Arc<Bus>) -> Self {
        Self { bus }
    }

    async fn manager(&self) -> Result<ManagerProxy<'static>, Problem> {
        ManagerProxy::new(&self.bus.get().await?).await.map_err(|e| said(NAME, "be reached", &e))
    }

    async fn profile(&self, bus: &Connection, path: &OwnedObjectPath) -> Result<ProfileProxy<'static>, Problem> {
        let built = async { ProfileProxy::builder(bus).path(path.clone()).build().await };
        built.await.map_err(|e| said(NAME, "be reached", &e))
    }

    /// All objects.
    pub async fn objects(&self) -> Result<Objects, Problem> {
        let bus = self.bus.get().await?;
        let asked = async { ObjectManagerProxy::new(&bus).await?.get_managed_objects().await };
        asked.await.map_err(|e| said(NAME, "show or change the network", &e))
    }

    /// The settings of a profile, without secrets.
    pub async fn settings(&self, path: &OwnedObjectPath) -> Result<Settings, Problem> {
        let bus = self.bus.get().await?;
        self.profile(&bus, path).await?.get_settings().await.map_err(|e| said(NAME, "read the settings in use", &e))
    }

    /// The profile of a UUID.
    pub async fn find_profile(&self, objects: &Objects, uuid: &str) -> Result<Option<OwnedObjectPath>, Problem> {
        for path in observe::profiles(objects) {
            if let Ok(settings) = self.settings(&path).await
                && Identity::of(&settings).uuid == uuid
            {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// A checkpoint of one device, undone by the service itself after `window`.
    pub async fn checkpoint(&self, device: &OwnedObjectPath, window: Duration) -> Result<OwnedObjectPath, Problem> {
        let seconds = u32::try_from(window.as_secs()).unwrap_or(u32::MAX);
        let devices: [ObjectPath<'_>; 1] = [device.as_ref()];
        match self.manager().await?.checkpoint_create(&devices, seconds, ROLLBACK_DELETES_NEW).await {
            Ok(path) => Ok(path),
            Err(zbus::Error::MethodError(name, ..)) if name.ends_with("Checkpoint.Error.Rollback") || name.contains("OutstandingTimeout") => {
                Err(busy())
            }
            Err(error) if error.to_string().contains("already included in checkpoint") => Err(busy()),
            Err(error) => Err(said(NAME, "remember the present settings, so nothing was changed", &error)),
        }
    }

    /// Goes back to a checkpoint now.
    pub async fn roll_back(&self, checkpoint: &OwnedObjectPath) -> Result<(), Problem> {
        let result = self.manager().await?.checkpoint_rollback(&checkpoint.as_ref()).await;
        let outcomes = result.map_err(|e| said(NAME, "go back to the old settings", &e))?;
        match outcomes.values().find(|outcome| **outcome != 0) {
            None => Ok(()),
            Some(outcome) => {
                Err(Problem::new(ProblemKind::SystemService, format!("{NAME} could not bring the old settings back (result {outcome})."))
                    .hint("Look at the addresses; the local screen can reset the network."))
            }
        }
    }

    /// Makes what is in use stay.
    pub async fn destroy_checkpoint(&self, checkpoint: &OwnedObjectPath) -> Result<(), Problem> {
        let done = self.manager().await?.checkpoint_destroy(&checkpoint.as_ref()).await;
        done.map_err(|e| said(NAME, "keep the new settings; their time may have been over", &e))
    }

    /// Waits until a checkpoint is no more.
    pub async fn wait_checkpoint_gone(&self, checkpoint: &OwnedObjectPath, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        loop {
            if self.objects().await.is_ok_and(|objects| !observe::checkpoints(&objects).contains(checkpoint)) {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Adds a profile in memory.
    pub async fn add(&self, settings: &Settings) -> Result<OwnedObjectPath, Problem> {
        let bus = self.bus.get().await?;
        let added = async { ProfilesProxy::new(&bus).await?.add_connection2(settings, IN_MEMORY_BLOCKED, &HashMap::new()).await };
        match added.await {
            Ok((path, _)) => Ok(path),
            Err(zbus::Error::MethodError(name, sentence, _)) if name.contains("InvalidProperty") || name.contains("InvalidSetting") => {
                let why = sentence.unwrap_or_default();
                Err(Problem::new(ProblemKind::Invalid, format!("{NAME} does not take these settings: {}.", why.trim_end_matches('.')))
                    .hint("Correct them; nothing was changed."))
            }
            Err(error) => Err(said(NAME, "take new settings", &error)),
        }
    }

    /// Puts a profile into use on a device and waits for the outcome.
    pub async fn activate(&self, profile: &OwnedObjectPath, device: &OwnedObjectPath, limit: Duration) -> Result<(), Problem> {
        let unreachable = |e: zbus::Error| said(NAME, "be reached", &e);
        let any = ObjectPath::try_from("/").map_err(unreachable)?;
        let bus = self.bus.get().await?;
        let watched = DeviceProxy::builder(&bus).path(device.clone()).build().await.map_err(unreachable)?;
        // A device that failed goes on to something else at once; only the signal says why, so it is listened to from before the call.
        let mut news = watched.receive_state_changed().await.map_err(unreachable)?;
        let begun = self.manager().await?.activate_connection(&profile.as_ref(), &device.as_ref(), &any).await;
        let active = begun.map_err(|e| said(NAME, "put the new settings into use", &e))?;
        let started = Instant::now();
        let until = started + limit;
        loop {
            if let Ok(Some(change)) = tokio::time::timeout(LOOK, news.next()).await
                && let Ok(args) = change.args()
                && args.new == observe::FAILED
            {
                return Err(unusable(args.reason));
            }
            let objects = self.objects().await?;
            let Some(port) = observe::ports(&objects).into_iter().find(|p| p.device == *device) else {
                return Err(Problem::new(ProblemKind::SystemService, "The port is gone while it was being changed.").hint("Check the adapter."));
            };
            match (port.state, port.active.as_ref() == Some(&active)) {
                (observe::ACTIVATED, true) => return Ok(()),
                (_, false) if !objects.contains_key(&active) && started.elapsed() > GRACE => return Err(unusable(port.reason)),
                _ => {}
            }
            if Instant::now() >= until {
                return Err(Problem::new(ProblemKind::SystemService, "The new settings were not in use in time.")
                    .hint("For DHCP, check that a server answers on this network."));
            }
        }
    }

    /// Writes a profile that is in memory to disk.
    pub async fn save(&self, path: &OwnedObjectPath) -> Result<(), Problem> {
        let bus = self.bus.get().await?;
        let saved = self.profile(&bus, path).await?.update2(&Settings::new(), TO_DISK, &HashMap::new()).await;
        saved.map(drop).map_err(|e| said(NAME, "save the new settings", &e))
    }

    /// Puts a profile into use on a device without waiting for the outcome.
    pub async fn begin(&self, profile: &OwnedObjectPath, device: &OwnedObjectPath) -> Result<(), Problem> {
        let any = ObjectPath::try_from("/").map_err(|e| said(NAME, "be reached", &e))?;
        let begun = self.manager().await?.activate_connection(&profile.as_ref(), &device.as_ref(), &any).await;
        begun.map(drop).map_err(|e| said(NAME, "put the old settings into use", &e))
    }

    /// Deletes a profile.
    pub async fn delete(&self, path: &OwnedObjectPath) -> Result<(), Problem> {
        let bus = self.bus.get().await?;
        self.profile(&bus, path).await?.delete().await.map_err(|e| said(NAME, "remove the settings", &e))
    }

    /// Deletes a profile that the agent made before; others stay, they are less preferred.
    pub async fn delete_if_ours(&self, path: &OwnedObjectPath) {
        let Ok(settings) = self.settings(path).await else { return };
        if !Identity::of(&settings).is_ours() {
            return;
        }
        if let Err(problem) = self.delete(path).await {
            tracing::warn!(%problem, "an old network profile stays");
        }
    }

    /// Of several profiles of ours for one port, which a power cut at the wrong moment leaves, only the newest stays.
    pub async fn remove_doubles(&self) -> Result<(), Problem> {
        let objects = self.objects().await?;
        let mut ours = Vec::new();
        for path in observe::profiles(&objects) {
            if let Ok(settings) = self.settings(&path).await {
                let identity = Identity::of(&settings);
                if identity.is_ours() {
                    ours.push((identity.interface.clone(), identity.priority, path));
                }
            }
        }
        ours.sort_by(|a, b| (&a.0, a.1, a.2.as_str()).cmp(&(&b.0, b.1, b.2.as_str())));
        for pair in ours.windows(2) {
            if let [(port, _, older), (same, _, _)] = pair
                && port == same
                && port.is_some()
            {
                self.delete_if_ours(older).await;
            }
        }
        Ok(())
    }
}

fn busy() -> Problem {
    Problem::new(ProblemKind::Conflict, "An earlier change of this port is still being undone.").hint("Try again in a minute.")
}

fn unusable(reason: u32) -> Problem {
    let known = REASONS.iter().find(|(number, _)| *number == reason).map(|(_, words)| (*words).to_owned());
    let words = known.unwrap_or_else(|| format!("the network service gives the reason {reason}"));
    Problem::new(ProblemKind::SystemService, format!("The new settings could not be used: {words}.")).hint("Correct them and apply again.")
}
