//! `root.json`: which keys may sign what. Each version is signed by enough root keys of the version before and of itself, so that a box
//! that slept through several rotations walks the chain.

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::envelope::{Envelope, MAX_SIGNATURES};
use crate::key::{KeyId, PublicKey};
use crate::refusal::{Document, Refusal};

/// The most bytes of a root file.
pub const ROOT_MAX: usize = 64 * 1024;
/// The most root files in one chain.
pub const ROOT_CHAIN_MAX: usize = 256;

/// What a key may sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Root files; kept offline.
    Root,
    /// Releases.
    Release,
    /// Timestamps; online.
    Timestamp,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Root, Self::Release, Self::Timestamp];

    /// Its name in files and commands.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Release => "release",
            Self::Timestamp => "timestamp",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A key of a root file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootKey {
    /// SHA-256 of `public`.
    pub key_id: KeyId,
    /// The raw public key.
    pub public: PublicKey,
}

/// The keys of one role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleKeys {
    /// Distinct keys of the root file.
    pub key_ids: Vec<KeyId>,
    /// How many of them must sign.
    pub threshold: u32,
    /// The lowest version of this role's files that counts. When a root takes a key out of the role and changes this number, boxes forget
    /// the highest version they have seen and start from this one: the way back after a thief signed a version near the end of the
    /// numbers. A rotation that leaves it alone forgets nothing, so old files cannot be replayed after it.
    #[serde(default)]
    pub from_version: u64,
}

/// The roles of a root file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roles {
    /// Who signs root files.
    pub root: RoleKeys,
    /// Who signs releases.
    pub release: RoleKeys,
    /// Who signs timestamps.
    pub timestamp: RoleKeys,
}

/// The content of a root file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// Always `root`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Format of the metadata.
    pub spec: u64,
    /// 1, 2, 3 without gaps.
    pub version: u64,
    /// The product these keys speak for.
    pub compatible: String,
    /// True for keys of developers; production boxes refuse them.
    pub development: bool,
    /// When it was made.
    pub issued: Timestamp,
    /// Until when it may be the newest.
    pub expires: Timestamp,
    /// All keys.
    pub keys: Vec<RootKey>,
    /// Who may sign what.
    pub roles: Roles,
}

impl Root {
    /// Reads a root file without believing it.
    ///
    /// # Errors
    /// It cannot be read, or contradicts itself.
    pub fn read(bytes: &[u8]) -> Result<(Self, Envelope), Refusal> {
        let envelope = Envelope::read(Document::Root, bytes, ROOT_MAX)?;
        let root: Self = envelope.content()?;
        root.check().map_err(|detail| Refusal::Contradiction { document: Document::Root, detail })?;
        Ok((root, envelope))
    }

    /// The keys of a role.
    #[must_use]
    pub const fn role(&self, role: Role) -> &RoleKeys {
        match role {
            Role::Root => &self.roles.root,
            Role::Release => &self.roles.release,
            Role::Timestamp => &self.roles.timestamp,
        }
    }

    /// A key by name.
    #[must_use]
    pub fn key(&self, key_id: &KeyId) -> Option<PublicKey> {
        self.keys.iter().find(|k| k.key_id == *key_id).map(|k| k.public)
    }

    /// What can be wrong with a root file in itself; `Ok` when nothing is.
    ///
    /// # Errors
    /// One sentence without a full stop.
    pub fn check(&self) -> Result<(), String> {
        if self.version == 0 {
            return Err("its version is 0, and versions begin at 1".to_owned());
        }
        if self.issued >= self.expires {
            return Err("it expires before it was issued".to_owned());
        }
        let mut names = BTreeSet::new();
        for key in &self.keys {
            if key.key_id != key.public.id() {
                return Err(format!("the key id {} is not the SHA-256 of its key", key.key_id));
            }
            if !key.public.is_usable() {
                return Err(format!("key {} is not a usable ed25519 key", key.key_id));
            }
            if !names.insert(key.key_id) {
                return Err(format!("key {} is listed twice", key.key_id));
            }
        }
        let mut given = BTreeSet::new();
        for role in Role::ALL {
            let keys = self.role(role);
            if keys.threshold == 0 || keys.threshold as usize > keys.key_ids.len() || keys.key_ids.len() > MAX_SIGNATURES {
                return Err(format!("the {role} role asks for {} signatures of {} keys", keys.threshold, keys.key_ids.len()));
            }
            for key_id in &keys.key_ids {
                if !names.contains(key_id) {
                    return Err(format!("the {role} role names key {key_id}, which is not listed"));
                }
                if !given.insert(*key_id) {
                    return Err(format!("key {key_id} is given to a role twice, or to two roles"));
                }
            }
        }
        Ok(())
    }

    /// True when `next` tells boxes to begin counting this role's versions anew: it takes a key out and names another first version.
    #[must_use]
    pub fn recounts(&self, next: &Self, role: Role) -> bool {
        let (old, new) = (self.role(role), next.role(role));
        old.from_version != new.from_version && old.key_ids.iter().any(|id| !new.key_ids.contains(id))
    }
}
