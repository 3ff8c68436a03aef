//! The network as a document: what each wired port is told to do, what it does, and a change that undoes itself.
//!
//! A change is tried first: the port takes the new settings, and whoever asked for them has some seconds to confirm from the new
//! address with a one-time token. Silence brings the old settings back, whatever happens to the agent meanwhile.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Problem, Secret, ids::AccountId};

/// Shortest and longest time, in seconds, in which a change can be confirmed.
pub const CONFIRM_SECONDS: std::ops::RangeInclusive<u64> = 15..=600;
/// The time that is given when nobody says another.
pub const CONFIRM_DEFAULT: Duration = Duration::from_secs(60);

/// How a port gets its IPv4 address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "snake_case", deny_unknown_fields)]
pub enum Ipv4Config {
    /// From the DHCP server.
    Dhcp,
    /// As given.
    Static {
        /// The address.
        address: Ipv4Addr,
        /// Length of the network part, in bits.
        prefix: u8,
        /// The way to other networks; none = only this network is reached.
        #[serde(default)]
        gateway: Option<Ipv4Addr>,
    },
    /// None.
    Off,
}

/// How a port gets its IPv6 address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "snake_case", deny_unknown_fields)]
pub enum Ipv6Config {
    /// From the router's announcements, with DHCPv6 where they say so.
    Auto,
    /// As given.
    Static {
        /// The address.
        address: Ipv6Addr,
        /// Length of the network part, in bits.
        prefix: u8,
        /// The way to other networks.
        #[serde(default)]
        gateway: Option<Ipv6Addr>,
    },
    /// None.
    Off,
}

/// What an admin wants of one port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceConfig {
    /// IPv4.
    #[serde(default = "dhcp")]
    pub ipv4: Ipv4Config,
    /// IPv6.
    #[serde(default = "auto")]
    pub ipv6: Ipv6Config,
    /// Name servers; empty = those that DHCP or the router names.
    #[serde(default)]
    pub dns: Vec<IpAddr>,
    /// Domains in which short names are looked up.
    #[serde(default)]
    pub search: Vec<String>,
}

const fn dhcp() -> Ipv4Config {
    Ipv4Config::Dhcp
}

const fn auto() -> Ipv6Config {
    Ipv6Config::Auto
}

impl Default for InterfaceConfig {
    fn default() -> Self {
        Self { ipv4: Ipv4Config::Dhcp, ipv6: Ipv6Config::Auto, dns: Vec::new(), search: Vec::new() }
    }
}

impl InterfaceConfig {
    /// The fixed addresses it asks for.
    #[must_use]
    pub fn fixed(&self) -> Vec<IpAddr> {
        let mut fixed = Vec::new();
        if let Ipv4Config::Static { address, .. } = self.ipv4 {
            fixed.push(IpAddr::V4(address));
        }
        if let Ipv6Config::Static { address, .. } = self.ipv6 {
            fixed.push(IpAddr::V6(address));
        }
        fixed
    }
}

/// An address with the length of its network part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Assigned {
    /// The address.
    pub address: IpAddr,
    /// Bits of the network part.
    pub prefix: u8,
}

impl std::fmt::Display for Assigned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Where a port stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// It has its settings.
    Connected,
    /// It is getting them.
    Connecting,
    /// No cable, or nobody at its other end.
    NoCable,
    /// A cable, but no settings in use.
    Disconnected,
    /// The last settings could not be used.
    Failed,
    /// The network service leaves it alone; nothing can be changed here.
    Unmanaged,
    /// The network service did not say.
    Unknown,
}

impl LinkState {
    /// Its word in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Connecting => "connecting",
            Self::NoCable => "no_cable",
            Self::Disconnected => "disconnected",
            Self::Failed => "failed",
            Self::Unmanaged => "unmanaged",
            Self::Unknown => "unknown",
        }
    }
}

/// One wired port as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// The kernel's name, such as `enp3s0`.
    pub name: String,
    /// Hardware address.
    pub mac: Option<String>,
    /// Where it stands.
    pub state: LinkState,
    /// Link speed in Mbit/s.
    pub speed_mbit: Option<u32>,
    /// Addresses in use, without link-local ones.
    pub addresses: Vec<Assigned>,
    /// Gateways in use.
    pub gateways: Vec<IpAddr>,
    /// Name servers in use.
    pub dns: Vec<IpAddr>,
    /// Search domains in use.
    pub search: Vec<String>,
    /// What it is told to do; `None` when its settings cannot be read or are not of a kind this document knows.
    pub config: Option<InterfaceConfig>,
}

/// A change that waits for its confirmation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pending {
    /// The port.
    pub interface: String,
    /// Where the console is while the change is tried; empty while DHCP has not answered.
    pub console_urls: Vec<String>,
    /// Seconds until it is undone.
    pub seconds_left: u64,
}

/// How the last change ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastChange {
    /// The port.
    pub interface: String,
    /// When it ended.
    pub at: Timestamp,
    /// True when it was confirmed and kept.
    pub kept: bool,
    /// What happened, with the way out.
    pub sentence: String,
}

/// The whole document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NetworkDocument {
    /// Why nothing can be read or changed here, with the way out; `None` when all is well.
    pub unavailable: Option<String>,
    /// Wired ports by name.
    pub interfaces: Vec<Interface>,
    /// The change under trial.
    pub pending: Option<Pending>,
    /// How the one before ended.
    pub last: Option<LastChange>,
}

/// What a change would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NetworkPlan {
    /// One sentence per thing that changes; empty when nothing does.
    pub changes: Vec<String>,
    /// What to think of before; none of it stands in the way.
    pub warnings: Vec<String>,
    /// Where the console will be, each ending in `/ui/`; empty when only the DHCP server knows.
    pub console_urls: Vec<String>,
}

/// A change as it is asked for.
#[derive(Clone, Debug)]
pub struct ChangeRequest {
    /// The port.
    pub interface: String,
    /// What is wanted of it.
    pub wanted: InterfaceConfig,
    /// How long to wait for the confirmation.
    pub window: Duration,
    /// The address of this box on which the request came in; `None` when unknown.
    pub arrived_on: Option<IpAddr>,
    /// Who asks.
    pub account: AccountId,
}

/// A change that has begun.
#[derive(Clone, Debug)]
pub struct Begun {
    /// What it does.
    pub plan: NetworkPlan,
    /// Confirms it, once.
    pub token: Secret<String>,
    /// Time for the confirmation.
    pub window: Duration,
}

impl Begun {
    /// The page on the new address that confirms the change, for each address that is known beforehand.
    #[must_use]
    pub fn confirm_urls(&self) -> Vec<String> {
        self.plan.console_urls.iter().map(|url| format!("{url}network/confirm?token={}", self.token.expose())).collect()
    }
}

/// The network room.
#[async_trait]
pub trait Network: Send + Sync {
    /// Everything as it is. A missing network service is part of the document, not an error.
    async fn document(&self) -> NetworkDocument;

    /// Checks wanted settings and says what they would do.
    ///
    /// # Errors
    /// A sentence that names what is wrong with them, or why nothing can be changed.
    async fn plan(&self, interface: &str, wanted: &InterfaceConfig) -> Result<NetworkPlan, Problem>;

    /// Tries new settings. Returns before the port is touched, so that the answer still gets out.
    ///
    /// # Errors
    /// As `plan`; `Conflict` while another change is under trial.
    async fn change(&self, request: ChangeRequest) -> Result<Begun, Problem>;

    /// Keeps the settings under trial. `arrived_on` is the address of this box on which the confirmation came in.
    ///
    /// # Errors
    /// `NotFound` for a token that is not (or no longer) valid; `Conflict` when it came in on another address.
    async fn confirm(&self, token: &str, arrived_on: Option<IpAddr>) -> Result<LastChange, Problem>;

    /// Undoes the change under trial at once.
    ///
    /// # Errors
    /// `NotFound` when none is under trial.
    async fn undo(&self) -> Result<LastChange, Problem>;
}
