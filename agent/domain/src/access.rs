//! People: accounts, roles, sessions and the claim that makes the first admin.

use std::net::IpAddr;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Problem, Secret, ids::AccountId};

/// What an account may do. One admin exists for now; the other roles are in the schema from the first migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Everything.
    Admin,
    /// Load and unload models, read everything but accounts.
    Operator,
    /// Read only.
    Viewer,
}

impl Role {
    /// The word stored and sent for this role.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Operator => "operator",
            Self::Viewer => "viewer",
        }
    }

    /// Reads the stored word back; an unknown word is no role.
    #[must_use]
    pub fn from_stored(word: &str) -> Option<Self> {
        [Self::Admin, Self::Operator, Self::Viewer].into_iter().find(|r| r.as_str() == word)
    }
}

/// Who is asking on a control path, after the session was checked.
#[derive(Clone, Debug)]
pub struct Principal {
    /// The account.
    pub account: AccountId,
    /// Its user name.
    pub username: String,
    /// Its role.
    pub role: Role,
    /// The proof a changing cookie call must carry in `X-CSRF-Token`.
    pub csrf: Secret<String>,
}

/// Where a request came from, for slowing down guesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientAddr(pub IpAddr);

impl ClientAddr {
    /// The network that counts as one client: an IPv4 address, or the /64 of an IPv6 address, because one machine can have a whole /64.
    #[must_use]
    pub fn network(self) -> IpAddr {
        match self.0.to_canonical() {
            IpAddr::V6(v6) => {
                let s = v6.segments();
                std::net::Ipv6Addr::new(s[0], s[1], s[2], s[3], 0, 0, 0, 0).into()
            }
            v4 @ IpAddr::V4(_) => v4,
        }
    }
}

/// What the setup page needs to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetupState {
    /// True once an admin exists; setup is then closed for ever.
    pub done: bool,
    /// `claim` (make the admin) or `done`.
    pub step: String,
}

/// A fresh session; the cookie value leaves the agent once, in `Set-Cookie`.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// The cookie value.
    pub cookie: Secret<String>,
    /// When the session ends.
    pub expires_at: Timestamp,
    /// Who it belongs to.
    pub principal: Principal,
}

/// Accounts, claim and sessions, as the api and the pages use them.
#[async_trait]
pub trait Accounts: Send + Sync {
    /// Whether setup is still open.
    async fn setup_state(&self) -> Result<SetupState, Problem>;

    /// The claim code to show to whoever stands at the box; `None` once an admin exists.
    async fn claim_code(&self) -> Result<Option<Secret<String>>, Problem>;

    /// Makes the first admin. `Conflict` once one exists; `Forbidden` for a wrong code (counted: after 10 a new code replaces it);
    /// `Invalid` for a name or password that is not allowed (no try is counted then).
    async fn claim(&self, from: ClientAddr, code: &str, username: &str, password: &Secret<String>) -> Result<NewSession, Problem>;

    /// Checks name and password. Wrong guesses are slowed per client network, never locked out.
    async fn login(&self, from: ClientAddr, username: &str, password: &Secret<String>) -> Result<NewSession, Problem>;

    /// Ends the session of this cookie, if there is one.
    async fn logout(&self, cookie: &str) -> Result<(), Problem>;

    /// Who a cookie belongs to; `None` when unknown or expired.
    async fn session(&self, cookie: &str) -> Result<Option<Principal>, Problem>;
}
