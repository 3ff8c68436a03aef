//! The box's front door: its own certificates, the names it answers to, whether the plain port is open.

use std::net::IpAddr;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Problem, ids::AccountId};

/// What an admin decides about the front door.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrontConfig {
    /// DNS names, besides the host name, under which the box may be reached; lower case, no port.
    #[serde(default)]
    pub names: Vec<String>,
    /// Whether unencrypted HTTP is answered on its own port.
    #[serde(default)]
    pub plain_http: bool,
}

/// The certificates in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificates {
    /// The box's own authority as PEM; this is what browsers are told to trust.
    pub authority_pem: String,
    /// The same as DER.
    pub authority_der: Vec<u8>,
    /// SHA-256 of the authority's certificate: pairs of upper-case hexadecimal digits with colons.
    pub authority_fingerprint: String,
    /// SHA-256 of the certificate that port 443 shows.
    pub leaf_fingerprint: String,
    /// Names the certificate is for.
    pub names: Vec<String>,
    /// Addresses it is for.
    pub addresses: Vec<IpAddr>,
    /// When it was made.
    pub issued_at: Timestamp,
    /// When it ends; a new one is made well before.
    pub valid_until: Timestamp,
}

/// The plain port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlainPort {
    /// This agent has no other port (a development machine): the setting changes nothing.
    Only,
    /// Nobody answers on it.
    Closed,
    /// It answers.
    Open,
    /// It should be open and is not; the sentence says why.
    Failed(String),
}

/// What is observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontState {
    /// The certificates; `None` where the agent speaks plain HTTP only (a development machine).
    pub certificates: Option<Certificates>,
    /// Every name the box answers to now.
    pub names: Vec<String>,
    /// The plain port.
    pub plain: PlainPort,
}

/// The front door, as api, pages and the local screen see it.
#[async_trait]
pub trait Front: Send + Sync {
    /// What the admin decided.
    fn config(&self) -> FrontConfig;

    /// What is observed now. Never waits.
    fn state(&self) -> FrontState;

    /// Whether a DNS name is one of this box. Upper and lower case are the same; never waits.
    fn is_own_name(&self, name: &str) -> bool;

    /// Takes a new decision: kept first, then applied. The certificate follows within moments.
    ///
    /// `Invalid` for a name that is none or a list that is too long; `SystemService` when the port cannot be opened or closed (the
    /// decision is then kept and tried again at the next start).
    async fn configure(&self, by: &AccountId, config: FrontConfig) -> Result<(), Problem>;
}

/// Opens and closes the plain port. Both may be asked for again.
#[async_trait]
pub trait PlainDoor: Send + Sync {
    /// Lets others in on the plain port.
    async fn open(&self) -> Result<(), Problem>;

    /// Shuts it; connections that are open may end what they do.
    async fn close(&self) -> Result<(), Problem>;
}
