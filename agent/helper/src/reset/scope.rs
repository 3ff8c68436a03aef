//! What can be reset, and who may ask for it. Words of a call go in, a scope or a refusal comes out.

use serde::{Deserialize, Serialize};

use crate::verb::Refusal;

/// What a reset is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scope", rename_all = "lowercase")]
pub enum Scope {
    /// The network profiles go; every wired port asks for an address again.
    Network,
    /// The passwords of all admins stop working; a code on the local screen opens a new one.
    Admin,
    /// Everything the owner made goes; the machine is claimed anew.
    Factory {
        /// Whether the model files stay.
        keep_models: bool,
    },
}

impl Scope {
    /// Reads the words of a call. `keep_models` counts for `factory` alone.
    ///
    /// # Errors
    /// A word that is no scope.
    pub fn read(word: &str, keep_models: bool) -> Result<Self, Refusal> {
        match word {
            "network" => Ok(Self::Network),
            "admin" => Ok(Self::Admin),
            "factory" => Ok(Self::Factory { keep_models }),
            other => Err(Refusal::BadScope(other.chars().take(40).collect())),
        }
    }

    /// The scope's own word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Admin => "admin",
            Self::Factory { .. } => "factory",
        }
    }
}

/// Who asks, by the user behind a connection to the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Asker {
    /// The local screen: somebody stands at the machine.
    Screen,
    /// The agent, for a signed-in admin.
    Agent,
}

/// The user numbers behind the two askers; fixed in the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Askers {
    /// User of the local screen.
    pub screen: u32,
    /// User of the agent.
    pub agent: u32,
}

impl Askers {
    /// The numbers of `sysusers.d/warden.conf`.
    pub const APPLIANCE: Self = Self { screen: 701, agent: 700 };

    /// Whom a user number stands for.
    ///
    /// # Errors
    /// Any other user.
    pub fn who(self, uid: u32) -> Result<Asker, Refusal> {
        if uid == self.screen {
            Ok(Asker::Screen)
        } else if uid == self.agent {
            Ok(Asker::Agent)
        } else {
            Err(Refusal::NotYours("asking for a reset"))
        }
    }
}

/// Whether this asker may have this reset. Whoever stands at the machine may have all of them. The agent may pass on a factory reset
/// that an admin confirmed, and nothing else: an agent in wrong hands must not be able to open a way around the admin's password.
///
/// # Errors
/// With the place where it may be asked for.
pub fn allow(asker: Asker, scope: Scope) -> Result<(), Refusal> {
    match (asker, scope) {
        (Asker::Screen, _) | (Asker::Agent, Scope::Factory { .. }) => Ok(()),
        (Asker::Agent, other) => Err(Refusal::ScreenOnly(other.word())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_in_wrong_hands_cannot_open_the_admin_s_password() {
        assert_eq!(allow(Asker::Agent, Scope::Admin), Err(Refusal::ScreenOnly("admin")));
        assert_eq!(allow(Asker::Agent, Scope::Network), Err(Refusal::ScreenOnly("network")));
        assert_eq!(allow(Asker::Agent, Scope::Factory { keep_models: true }), Ok(()));
    }

    #[test]
    fn whoever_stands_at_the_machine_may_reset_everything() {
        for scope in [Scope::Admin, Scope::Network, Scope::Factory { keep_models: false }] {
            assert_eq!(allow(Asker::Screen, scope), Ok(()));
        }
    }

    #[test]
    fn no_other_user_counts_not_even_root() {
        assert_eq!(Askers::APPLIANCE.who(701), Ok(Asker::Screen));
        assert_eq!(Askers::APPLIANCE.who(700), Ok(Asker::Agent));
        for uid in [0, 1, 702, 65_534] {
            assert!(Askers::APPLIANCE.who(uid).is_err(), "{uid}");
        }
    }

    #[test]
    fn a_scope_is_one_of_three_words() {
        assert_eq!(Scope::read("factory", true), Ok(Scope::Factory { keep_models: true }));
        assert_eq!(Scope::read("network", true), Ok(Scope::Network));
        for word in ["", "Factory", "all", "../x"] {
            assert!(matches!(Scope::read(word, false), Err(Refusal::BadScope(_))), "{word:?}");
        }
    }
}
