//! GPU cards as the reader saw them last, and the port through which rooms ask for them. What a card or its driver does not tell is `None`.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{
    ids::GpuId,
    units::{Bytes, Celsius, MilliWatts},
};

/// A PCIe link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PcieLink {
    /// Lanes in use now.
    pub width_now: Option<u32>,
    /// Lanes that card and slot could use.
    pub width_max: Option<u32>,
    /// Generation in use now; cards at rest lower it.
    pub generation_now: Option<u32>,
    /// Highest generation of card and slot.
    pub generation_max: Option<u32>,
}

impl PcieLink {
    /// Whether fewer lanes are in use than could be; `None` where that is unknown.
    #[must_use]
    pub fn narrow(&self) -> Option<bool> {
        Some(self.width_now? < self.width_max?)
    }
}

/// A process that holds memory of a card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuHolder {
    /// Process id.
    pub pid: u32,
    /// Name of the program.
    pub name: Option<String>,
    /// What it holds.
    pub memory: Option<Bytes>,
}

/// One card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuCard {
    /// Its place in the library's list, for people only: it may change at a restart.
    pub index: u32,
    /// Its identity, such as `GPU-9f…`.
    pub id: GpuId,
    /// The number of its device file (`/dev/nvidia3`); by it an engine's sandbox is given the card. May change at a restart.
    #[serde(default)]
    pub minor: Option<u32>,
    /// Product name.
    pub name: Option<String>,
    /// Address on the PCI bus.
    pub pci: Option<String>,
    /// All of its memory.
    pub memory_total: Option<Bytes>,
    /// Of that, in use by anybody.
    pub memory_used: Option<Bytes>,
    /// Share of time in which it computed, 0..1.
    pub utilisation_ratio: Option<f64>,
    /// Its temperature.
    pub temperature: Option<Celsius>,
    /// The temperature at which this very card slows itself down.
    pub temperature_limit: Option<Celsius>,
    /// What it draws.
    pub power: Option<MilliWatts>,
    /// What it may draw.
    pub power_cap: Option<MilliWatts>,
    /// Its link to the host.
    pub link: PcieLink,
    /// Who holds its memory; `None` when the driver does not tell.
    pub holders: Option<Vec<GpuHolder>>,
}

/// How far the snapshot may be trusted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum GpuReading {
    /// The reader has not answered yet since the start.
    Starting,
    /// It answers; the cards are as of a moment ago.
    Live,
    /// It does not answer; the cards are the last known ones.
    Stale {
        /// For how long, in seconds.
        since_s: f64,
        /// What it was doing, or why it is gone.
        cause: String,
    },
    /// There is no NVML library on this machine: no NVIDIA driver, no cards.
    NoLibrary {
        /// What was looked for.
        detail: String,
    },
    /// The library is there and refuses.
    Failed {
        /// What it said.
        cause: String,
    },
}

impl GpuReading {
    /// The word of the state.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Live => "live",
            Self::Stale { .. } => "stale",
            Self::NoLibrary { .. } => "no_library",
            Self::Failed { .. } => "failed",
        }
    }

    /// Why the cards are not as of now, in a sentence; `None` while they are.
    #[must_use]
    pub fn cause(&self) -> Option<&str> {
        match self {
            Self::Starting | Self::Live => None,
            Self::Stale { cause, .. } | Self::Failed { cause } => Some(cause),
            Self::NoLibrary { detail } => Some(detail),
        }
    }
}

/// All cards at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuSnapshot {
    /// How far to trust it.
    #[serde(flatten)]
    pub reading: GpuReading,
    /// Version of the driver.
    pub driver: Option<String>,
    /// True when the library is a simulation for development; shown wherever cards are.
    pub simulated: bool,
    /// The cards by index; empty when none are known.
    pub cards: Vec<GpuCard>,
}

impl GpuSnapshot {
    /// Before the first answer.
    #[must_use]
    pub const fn starting() -> Self {
        Self { reading: GpuReading::Starting, driver: None, simulated: false, cards: Vec::new() }
    }

    /// A card by its identity.
    #[must_use]
    pub fn card(&self, id: &GpuId) -> Option<&GpuCard> {
        self.cards.iter().find(|card| card.id == *id)
    }
}

/// Something about the cards that no figure shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum GpuNotice {
    /// A card that was there is not in the library's list any more, or fell off its bus.
    Gone {
        /// Its identity.
        id: GpuId,
        /// Its place when it was there.
        index: u32,
        /// Product name.
        name: Option<String>,
    },
    /// An entry that tells the identity of an earlier one. It is left out, because nobody could address it.
    Doubled {
        /// The identity that came twice.
        id: GpuId,
        /// Place of the entry left out.
        index: u32,
    },
    /// An entry that does not tell its identity. It is left out for the same reason.
    Unnamed {
        /// Its place.
        index: u32,
        /// What the library said.
        cause: String,
    },
}

/// A snapshot with what people want to know around it.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuReport {
    /// Cards and how far to trust them.
    pub snapshot: Arc<GpuSnapshot>,
    /// When the cards were read; `None` when they never were.
    pub read_at: Option<Timestamp>,
    /// What no figure shows.
    pub notices: Vec<GpuNotice>,
}

impl GpuReport {
    /// Since when the reader has been silent, or the driver has been inside one call.
    #[must_use]
    pub fn since(&self, now: Timestamp) -> Option<Timestamp> {
        let GpuReading::Stale { since_s, .. } = &self.snapshot.reading else { return None };
        now.checked_sub(SignedDuration::try_from_secs_f64(*since_s).ok()?).ok()
    }
}

/// The cards of this machine.
pub trait Gpus: Send + Sync {
    /// The last snapshot. Never waits, whatever the driver does.
    fn snapshot(&self) -> Arc<GpuSnapshot>;

    /// The last snapshot with the time of its reading and notices. Never waits either.
    fn report(&self) -> GpuReport {
        GpuReport { snapshot: self.snapshot(), read_at: None, notices: Vec::new() }
    }
}

/// A machine without cards, for tests and for places that have no reader.
#[derive(Debug)]
pub struct NoGpus;

impl Gpus for NoGpus {
    fn snapshot(&self) -> Arc<GpuSnapshot> {
        let reading = GpuReading::NoLibrary { detail: "no GPU reader runs here".to_owned() };
        Arc::new(GpuSnapshot { reading, driver: None, simulated: false, cards: Vec::new() })
    }
}

/// A reader that is silent for so long is stale.
pub const STALE_AFTER: Duration = Duration::from_secs(5);
