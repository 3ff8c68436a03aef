//! What the updater needs of the machine and the other rooms; implemented where they are wired together.

use std::net::IpAddr;
use std::path::PathBuf;

use async_trait::async_trait;
use jiff::Timestamp;
use rauc_client::Rauc;
use serde::Deserialize;
use warden_domain::Problem;
use warden_trust::{Identity, Version};
use warden_update_record::{ServedModel, Slot};

/// Facts the image was built with: `build.json` beside the root file.
#[derive(Clone, Debug, Deserialize)]
pub struct Build {
    /// When it was built: a moment, or seconds since 1970.
    #[serde(deserialize_with = "moment")]
    pub build_epoch: Timestamp,
    /// The product.
    pub compatible: String,
    /// The channel it follows unless an admin chose another one.
    pub channel: String,
    /// True for a development image.
    pub development: bool,
    /// The data format it writes.
    pub data_schema: u32,
}

fn moment<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Seconds(i64),
        Moment(Timestamp),
    }
    match Either::deserialize(from)? {
        Either::Seconds(seconds) => Timestamp::from_second(seconds).map_err(serde::de::Error::custom),
        Either::Moment(moment) => Ok(moment),
    }
}

/// Where the updater reads and writes.
#[derive(Clone, Debug)]
pub struct Places {
    /// Record, trusted state, settings, history: `/state/update`.
    pub state: PathBuf,
    /// The health gate's folder: `/state/health`.
    pub health: PathBuf,
    /// The initrd's folder: `/state/boot`.
    pub boot: PathBuf,
    /// Files that are fetched or uploaded: `/data/warden/updates`.
    pub files: PathBuf,
    /// Engine packs: `/data/packs`.
    pub packs: PathBuf,
    /// Models: `/data/models`.
    pub models: PathBuf,
    /// `root.json` and `build.json`: `/usr/lib/warden/update`.
    pub trust: PathBuf,
}

/// What this machine is.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Version of the running system.
    pub version: String,
    /// The slot it runs from; `None` where there are no slots.
    pub slot: Option<Slot>,
    /// This boot.
    pub boot_id: String,
    /// Whether the boot loader counts this start.
    pub counted: bool,
    /// A stable id of the box.
    pub id: String,
    /// The lowest data format that a system must know to read this box's data.
    pub data_needs: u32,
}

/// How the box is right before a restart into a trial.
#[derive(Clone, Debug, Default)]
pub struct BeforeFacts {
    /// Addresses the console answers on.
    pub management_addresses: Vec<IpAddr>,
    /// Its port.
    pub console_port: u16,
    /// UUID of the data volume's file system.
    pub data_uuid: Option<String>,
    /// Models that serve.
    pub served_models: Vec<ServedModel>,
    /// GPUs.
    pub gpu_count: Option<u32>,
    /// Version of their driver.
    pub gpu_driver: Option<String>,
}

/// The machine and the other rooms.
#[async_trait]
pub trait Host: Send + Sync {
    /// Why nothing can be installed on this machine; `None` where RAUC is.
    fn cannot_install(&self) -> Option<String>;

    /// Whether this system is the appliance's own, also where it was started without a slot.
    fn is_appliance(&self) -> bool {
        self.cannot_install().is_none()
    }

    /// RAUC. `SystemService` when it cannot be reached.
    async fn rauc(&self) -> Result<Rauc, Problem>;

    /// Whether a time server has set the clock since the start.
    async fn clock_confirmed(&self) -> bool;

    /// How the box is now.
    async fn before(&self) -> BeforeFacts;

    /// Requests that are being answered.
    fn in_flight(&self) -> usize;

    /// Restarts the machine; returns before it happens.
    async fn restart(&self) -> Result<(), Problem>;

    /// Makes the other slot the next one to start.
    async fn other_slot_next(&self) -> Result<(), Problem>;

    /// Keeps the other slot from being started: what was installed there is taken back.
    async fn other_slot_never(&self) -> Result<(), Problem>;

    /// Makes the copy of the box's data that the running system opens again if the trial fails.
    async fn keep_data(&self) -> Result<(), Problem>;

    /// The running system was confirmed: what waited for that may be done.
    async fn confirmed(&self);
}

impl Build {
    /// What the box is, following `channel`.
    #[must_use]
    pub fn identity(&self, channel: &str) -> Identity {
        Identity { compatible: self.compatible.clone(), channel: channel.to_owned(), development: self.development }
    }
}

/// A version as a number; what is none counts as the oldest, so that nothing is held back by it and anything is newer.
pub(crate) fn number(version: &str) -> Version {
    version.parse().unwrap_or_else(|_| Version::zero())
}
