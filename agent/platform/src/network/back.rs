//! Going back to the old settings, also when the network service cannot do it any more: its checkpoints live in its memory, but a new
//! profile outlives a restart of it. What it called an object before a restart it may call something else by afterwards, so that
//! profiles are found again by their UUID and ports by their name.

use warden_domain::Problem;

use super::{NetworkRoom, Trial, observe, proxies::Objects};

impl NetworkRoom {
    /// Goes back now: by the checkpoint, and without one by taking the new profile away.
    pub(super) async fn go_back(&self, trial: &Trial) -> Result<(), Problem> {
        let Err(problem) = self.driver.roll_back(&trial.checkpoint).await else { return Ok(()) };
        if self.lost(trial).await { self.put_back(&trial.uuid, trial.old_uuid.as_deref(), &trial.interface).await } else { Err(problem) }
    }

    /// Whether the network service knows nothing of the trial's checkpoint; not while it does not answer.
    pub(super) async fn lost(&self, trial: &Trial) -> bool {
        self.driver.objects().await.is_ok_and(|objects| !observe::checkpoints(&objects).contains(&trial.checkpoint))
    }

    /// Takes the new profile away, if it is there, and puts the old one into use.
    pub(super) async fn put_back(&self, new: &str, old: Option<&str>, interface: &str) -> Result<(), Problem> {
        let objects = self.driver.objects().await?;
        let Some(profile) = self.driver.find_profile(&objects, new).await? else { return Ok(()) };
        self.driver.delete(&profile).await?;
        tracing::warn!(interface, "a network change was undone without the network service's checkpoint");
        let old = match old {
            Some(uuid) => self.driver.find_profile(&objects, uuid).await?,
            None => None,
        };
        if let (Some(old), Some(device)) = (old, device(&objects, interface)) {
            // Without this call it comes back as well, as the next best profile of the port; only later.
            self.driver.begin(&old, &device).await?;
        }
        Ok(())
    }
}

fn device(objects: &Objects, interface: &str) -> Option<zbus::OwnedObjectPath> {
    observe::ports(objects).into_iter().find(|port| port.interface.name == interface).map(|port| port.device)
}
