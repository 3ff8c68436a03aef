//! Identities. Every account, key, model, launch and request has one; none is a bare name or a time.
//!
//! They are handed on with every request, so a copy is one more owner of the same text.
//! Ids are short prefixed random strings (`key_4f…`), safe in URLs, file names and logs. They say nothing and are not secrets.

use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

/// 20 random bytes as lower-case hex would be long; 12 bytes (96 bits) cannot collide in the life of a box.
const ID_BYTES: usize = 12;

/// Fills a buffer from the operating system's random source.
///
/// # Panics
/// Never on Linux after boot: `getrandom` cannot fail once the pool is seeded. A failure ends the process, because going on
/// with predictable ids or secrets would be worse.
#[must_use]
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0u8; N];
    if let Err(cause) = getrandom::fill(&mut bytes) {
        eprintln!("the operating system's random source failed: {cause}; stopping, because ids and secrets would be predictable");
        std::process::abort();
    }
    bytes
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// A fresh random id.
            #[must_use]
            pub fn random() -> Self {
                Self(format!(concat!($prefix, "{}"), hex::encode(random_bytes::<ID_BYTES>())).into())
            }

            /// Takes an id read back from the store or from a request as it stands; look-ups decide whether it exists.
            #[must_use]
            pub fn from_stored(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&self.0)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// A person's account.
    AccountId, "acc_"
);
id!(
    /// An inference key (`vw_…` is its secret; this is its public identity).
    KeyId, "key_"
);
id!(
    /// A registered model.
    ModelId, "mdl_"
);
id!(
    /// One request on the data plane; goes out as `x-request-id`.
    RequestId, "req_"
);
id!(
    /// A GPU card, as its library names it (`GPU-…`).
    GpuId, "GPU-"
);
id!(
    /// One attempt to run a replica, made before the launch and written into its launch spec.
    GenerationId, "gen_"
);
id!(
    /// One appearance of an issue.
    IssueId, "iss_"
);
id!(
    /// One alert on its way to a receiver; the same over all tries.
    DeliveryId, "dlv_"
);

id!(
    /// A disk recorded as model storage.
    DiskId, "dsk_"
);
id!(
    /// A download of a model.
    DownloadId, "dow_"
);
id!(
    /// A piece of long work.
    TaskId, "tsk_"
);

impl RequestId {
    /// A fresh id that begins with a moment (milliseconds), so that rows of requests are written one behind the other: with ids in no order
    /// each row would touch another page of the database, and writing them would cost more than anything else about a small request.
    #[must_use]
    pub fn at(moment: jiff::Timestamp) -> Self {
        let ms = u64::try_from(moment.as_millisecond()).unwrap_or(0);
        Self(format!("req_{:012x}{}", ms & 0xffff_ffff_ffff, hex::encode(random_bytes::<{ ID_BYTES - 6 }>())).into())
    }
}

/// The stable name of one replica of a model: `[a-z0-9-]{1,64}`. Part of unit names and paths, so it is validated when made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ReplicaId(Arc<str>);

impl ReplicaId {
    /// Accepts `[a-z0-9-]{1,64}`, refuses everything else with a sentence.
    ///
    /// # Errors
    /// `BadReplicaId` when empty, longer than 64, or with any other character.
    pub fn new(text: impl Into<String>) -> Result<Self, BadReplicaId> {
        let text = text.into();
        let fine = !text.is_empty() && text.len() <= 64 && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if fine { Ok(Self(text.into())) } else { Err(BadReplicaId(text)) }
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text that is no replica id.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a replica id: 1 to 64 of a-z, 0-9 and '-' are allowed")]
pub struct BadReplicaId(String);

impl TryFrom<String> for ReplicaId {
    type Error = BadReplicaId;
    fn try_from(text: String) -> Result<Self, BadReplicaId> {
        Self::new(text)
    }
}

impl From<ReplicaId> for String {
    fn from(id: ReplicaId) -> Self {
        Self::from(&*id.0)
    }
}

impl std::fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_requests_follow_the_clock_and_differ_within_a_moment() {
        let at = |ms| RequestId::at(jiff::Timestamp::from_millisecond(ms).unwrap());
        let (first, second, later) = (at(1_800_000_000_000), at(1_800_000_000_000), at(1_800_000_000_001));
        assert!(first != second && first < later && second < later);
        assert_eq!(first.as_str().len(), RequestId::random().as_str().len());
    }

    #[test]
    fn a_replica_id_that_could_leave_its_folder_is_refused() {
        for bad in ["", "..", "a/b", "A", "a b", "a.service", "ä", &"a".repeat(65)] {
            assert!(ReplicaId::new(bad).is_err(), "{bad:?}");
        }
        assert!(ReplicaId::new("tiny-1").is_ok());
    }

    #[test]
    fn ids_do_not_repeat() {
        assert_ne!(KeyId::random(), KeyId::random());
        assert!(KeyId::random().as_str().starts_with("key_"));
    }
}
