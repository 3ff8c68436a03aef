//! Signed update metadata and its rules: what a box may believe about a release before it fetches, unpacks or installs a byte of it.
//!
//! In go bytes (root chain, timestamp, release), what the box already trusts ([`Trusted`]), what it is ([`Identity`]) and what time it
//! may assume ([`Clock`]); out comes an [`Accepted`] set with the next trusted state to store, or one typed [`Refusal`] whose text says
//! cause, subject and way out. Everything is a pure function: no clock, no disk, no network, no global. `design/ota.md` holds the table
//! of attacks; `tests/attacks.rs` has a test per row.
//!
//! The order of use: [`Trusted::begin`] once from the image's built-in root, [`Trusted::accept`] for each metadata set that arrives,
//! [`Accepted::admit`] for a target that is to be installed, [`PartCheck`] for its bytes.

mod canonical;
mod clock;
mod digest;
mod envelope;
mod key;
mod quarantine;
mod refusal;
mod release;
mod rollout;
mod root;
mod target;
mod timestamp;
mod trusted;
mod version;

pub use canonical::canonical;
pub use clock::Clock;
pub use digest::Digest;
pub use envelope::{Envelope, MAX_SIGNATURES, Signature, Signer, add_signature, seal};
pub use key::{KeyId, PublicKey, SeedKey};
pub use quarantine::{Asked, Quarantine, Quarantined};
pub use refusal::{Document, Refusal};
pub use release::{Entry, Kind, MAX_PART, MIN_PART, RELEASE_MAX, Release, Requires, Revoked, Wave};
pub use rollout::{Reach, reach};
pub use root::{ROOT_CHAIN_MAX, ROOT_MAX, Role, RoleKeys, Roles, Root, RootKey};
pub use target::{Pace, PartCheck};
pub use timestamp::{Pin, TIMESTAMP_MAX, TimestampDoc};
pub use trusted::{Accepted, Direction, Freshness, Identity, Installed, Metadata, Seen, Trusted, Way};
pub use version::Version;

/// The metadata format this crate speaks; a document of another format is refused.
pub const SPEC: u64 = 1;
