//! What was seen in one look at the system. Values only; a fact that could not be read is a sentence why.

use std::net::IpAddr;

use warden_update_record::Slot;

/// A fact, or why it is not known.
pub type Told<T> = Result<T, String>;

/// The state of one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// `active`, `activating`, `failed`, …
    pub state: String,
    /// How often the system manager started it again by itself.
    pub restarts: u32,
}

/// What one address of the box answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Console {
    /// The address.
    pub address: IpAddr,
    /// The version `/healthz` names, over a certificate of the box's own authority.
    pub version: Told<String>,
    /// Whether the door of the console is a page with a form.
    pub form: Told<bool>,
}

/// GPUs as their driver shows them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gpus {
    /// How many.
    pub count: u32,
    /// Version of the driver; nothing when none is loaded.
    pub driver: Option<String>,
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// The name clients ask for.
    pub name: String,
    /// Whether it gave a token.
    pub token: Told<()>,
}

/// One look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The slot on the kernel command line.
    pub slot: Option<Slot>,
    /// Whether the root file system is a verified device.
    pub verity: Told<bool>,
    /// Whether the state partition is mounted.
    pub state: Told<bool>,
    /// File system UUID of what is mounted as data; nothing when nothing is.
    pub data: Told<Option<String>>,
    /// The agent's unit.
    pub agent: Told<Unit>,
    /// Units that failed.
    pub failed: Told<Vec<String>>,
    /// Names on the system bus: those owned, and those that can be started.
    pub bus: Told<BusNames>,
    /// Addresses the box has, without loopback and link-local ones.
    pub addresses: Told<Vec<IpAddr>>,
    /// What each asked address answered.
    pub consoles: Vec<Console>,
    /// GPUs.
    pub gpus: Told<Gpus>,
    /// What each asked model answered.
    pub models: Vec<Model>,
}

/// Names on the bus.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BusNames {
    /// Somebody owns them.
    pub owned: Vec<String>,
    /// A call would start their service.
    pub activatable: Vec<String>,
}
