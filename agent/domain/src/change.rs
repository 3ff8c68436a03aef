//! News from the rooms: which resource changed. Pages and event streams listen and then read the resource itself, so losing a
//! message loses nothing but a moment.

use serde::Serialize;
use tokio::sync::broadcast;

/// What kind of resource changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Topic {
    /// Models and their replicas: registered, removed, state, phase.
    Models,
    /// Inference keys and their usage.
    Keys,
    /// Engine packs: installed, building, ready.
    Engines,
    /// Setup was completed.
    Setup,
    /// Addresses, name, clock: changed, tried, undone.
    Network,
    /// Issues: found, resolved, dismissed; alerts and their deliveries.
    Issues,
    /// The front door: certificate, names, plain port.
    Front,
    /// Disks: plugged in, gone, adopted, mounted.
    Storage,
    /// Long work: begun, further, over.
    Tasks,
    /// Updates: offered, fetched, installed, tried.
    Updates,
    /// GPU cards: came, went, reader silent. Figures that move all the time are no news.
    Gpus,
}

/// The bulletin board of the agent; cheap to clone.
#[derive(Clone, Debug)]
pub struct Changes(broadcast::Sender<Topic>);

impl Default for Changes {
    fn default() -> Self {
        Self::new()
    }
}

impl Changes {
    /// An empty board.
    #[must_use]
    pub fn new() -> Self {
        Self(broadcast::channel(256).0)
    }

    /// Tells whoever listens; nobody listening is fine.
    pub fn publish(&self, topic: Topic) {
        let _ = self.0.send(topic);
    }

    /// Listens from now on. A slow listener gets `Lagged` and should then read everything again.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Topic> {
        self.0.subscribe()
    }
}
