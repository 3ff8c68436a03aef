//! How the box was right before it restarted into a trial. The health gate of the new system compares itself with it.

use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::file::Document;
use crate::record::TransactionId;
use warden_bootslot::entry::Slot;

/// A model that served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedModel {
    /// Under which name clients ask for it.
    pub name: String,
    /// How long its last load took until it answered, in seconds; `None` when nobody measured it.
    #[serde(default)]
    pub ready_after_s: Option<u64>,
}

/// The box before the restart. What nobody knew is absent, and is then no reason to fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// Of the attempt.
    pub transaction: TransactionId,
    /// The slot that ran.
    pub slot: Slot,
    /// The version that ran.
    pub version: String,
    /// The slot that is to be tried.
    pub target_slot: Slot,
    /// The version in it.
    pub target_version: String,
    /// Addresses at which the console was reachable.
    #[serde(default)]
    pub management_addresses: Vec<IpAddr>,
    /// The console's port there.
    pub console_port: u16,
    /// UUID of the data volume's file system.
    #[serde(default)]
    pub data_uuid: Option<String>,
    /// Models that served.
    #[serde(default)]
    pub served_models: Vec<ServedModel>,
    /// GPUs that were there.
    #[serde(default)]
    pub gpu_count: Option<u32>,
    /// Version of their driver.
    #[serde(default)]
    pub gpu_driver: Option<String>,
    /// When this was written.
    #[serde(default)]
    pub at: Option<Timestamp>,
}

impl Document for Before {
    const FILE: &'static str = "before.json";
}
