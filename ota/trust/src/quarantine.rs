//! Which OS images failed on this box. One automatic try per image; after a fall-back it is not taken again by itself, nor is anything that
//! is not newer, until a person asks. Kept by the updater across slots, next to the trusted state.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::refusal::Refusal;
use crate::version::Version;

/// Who wants the install.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nobody: the schedule.
    Automatic,
    /// A person who chose this version, knowing that it failed.
    ByPerson,
}

/// A failed image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantined {
    /// Its OS version.
    pub version: Version,
    /// Why it fell back, as one sentence with a full stop.
    pub reason: String,
    /// When.
    pub at: Timestamp,
    /// How many times by now.
    pub falls: u32,
}

/// All failed images of this box.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    failed: BTreeMap<Digest, Quarantined>,
}

impl Quarantine {
    /// Records a fall-back.
    #[must_use]
    pub fn with(mut self, digest: Digest, version: Version, reason: &str, at: Timestamp) -> Self {
        let falls = self.failed.get(&digest).map_or(0, |q| q.falls).saturating_add(1);
        self.failed.insert(digest, Quarantined { version, reason: reason.to_owned(), at, falls });
        self
    }

    /// Drops an image that was confirmed after all, and every one that is older than it.
    #[must_use]
    pub fn confirmed(mut self, version: &Version) -> Self {
        self.failed.retain(|_, q| q.version > *version);
        self
    }

    /// The failed images, for pages.
    pub fn list(&self) -> impl Iterator<Item = (&Digest, &Quarantined)> {
        self.failed.iter()
    }

    /// Whether an image may be tried now.
    ///
    /// # Errors
    /// [`Refusal::Quarantined`]: it failed here, or it is not newer than one that did, and nobody asked for it.
    pub fn may_try(&self, digest: &Digest, version: &Version, asked: Asked) -> Result<(), Refusal> {
        if asked == Asked::ByPerson {
            return Ok(());
        }
        let worst = self.failed.get(digest).or_else(|| self.failed.values().find(|q| q.version >= *version));
        match worst {
            Some(q) => Err(Refusal::Quarantined { version: q.version.clone(), reason: q.reason.clone() }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v(text: &str) -> Version {
        text.parse().unwrap()
    }

    fn after_a_fall() -> Quarantine {
        Quarantine::default().with(Digest::of(b"bad"), v("1.3"), "The console did not answer.", Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn an_image_that_fell_back_is_not_taken_again_by_itself() {
        let refused = after_a_fall().may_try(&Digest::of(b"bad"), &v("1.3"), Asked::Automatic).unwrap_err();
        assert!(refused.to_string().contains("The console did not answer."), "{refused}");
        assert!(after_a_fall().may_try(&Digest::of(b"rebuilt"), &v("1.3"), Asked::Automatic).is_err(), "the same version built again");
    }

    #[test]
    fn a_newer_version_or_a_person_may_try() {
        assert!(after_a_fall().may_try(&Digest::of(b"good"), &v("1.3.1"), Asked::Automatic).is_ok());
        assert!(after_a_fall().may_try(&Digest::of(b"bad"), &v("1.3"), Asked::ByPerson).is_ok());
    }

    #[test]
    fn a_confirmed_version_ends_the_quarantine_of_older_ones() {
        assert_eq!(after_a_fall().confirmed(&v("1.4")).list().count(), 0);
        assert_eq!(after_a_fall().confirmed(&v("1.2")).list().count(), 1);
    }
}
