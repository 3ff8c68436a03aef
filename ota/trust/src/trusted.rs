//! What a box trusts, and how it comes to trust more: the rules of `design/ota.md` over root chain, timestamp and release.
//!
//! [`Trusted`] is one small document that the updater keeps in the state partition and replaces (written, synced, renamed) by the one in
//! [`Accepted`] before it acts on it. Each rule takes the old state and gives a new one; a refused set changes nothing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::digest::Digest;
use crate::refusal::{Document, Refusal};
use crate::release::{Entry, Kind, Release, Revoked};
use crate::root::{ROOT_CHAIN_MAX, Role, Root};
use crate::timestamp::TimestampDoc;
use crate::version::Version;

/// What the box is and follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The product, as in RAUC's `compatible`.
    pub compatible: String,
    /// The channel its owner chose.
    pub channel: String,
    /// True on development images only: takes development keys.
    pub development: bool,
}

/// By which way metadata came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the channel's server: freshness counts.
    OverTheAir,
    /// From a bundle or stick a person brought: the timestamp only pins the release, its age and version are not looked at.
    Offline,
}

/// A set of metadata as it came, unbelieved.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// Root files in order; any that the box already has may be among them.
    pub roots: Vec<Vec<u8>>,
    /// `timestamp.json`.
    pub timestamp: Vec<u8>,
    /// `release.json`.
    pub release: Vec<u8>,
}

/// The highest a box has seen in a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Release version.
    pub release: u64,
    /// Digest of that release file.
    pub release_digest: Option<Digest>,
    /// Timestamp version.
    pub timestamp: u64,
    /// Newest moment at which believed metadata was made.
    pub issued: Timestamp,
}

impl Default for Seen {
    fn default() -> Self {
        Self { release: 0, release_digest: None, timestamp: 0, issued: Timestamp::UNIX_EPOCH }
    }
}

/// What the box trusts. Serialise it as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trusted {
    /// The newest root.
    pub root: Root,
    /// Per channel.
    #[serde(default)]
    pub seen: BTreeMap<String, Seen>,
    /// The oldest OS that may still run here; it goes down only with the keys that raised it.
    pub os_floor: Version,
    /// Everything ever withdrawn.
    #[serde(default)]
    pub revoked: Revoked,
    /// The last confirmed wall clock.
    pub last_time: Timestamp,
}

/// Whether the channel is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The timestamp is within its time, or its time does not matter on this way.
    Fresh {
        /// When its time ends.
        until: Timestamp,
    },
    /// Past its time; automatic updates stop, a person may still install.
    Stale {
        /// When its time ended.
        expires: Timestamp,
        /// The moment it was judged by.
        now: Timestamp,
    },
}

/// Metadata that passed every rule.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// What the box trusts from now on; store it before acting.
    pub trusted: Trusted,
    /// The release.
    pub release: Release,
    /// Digest of the release file.
    pub release_digest: Digest,
    /// Whether the channel is alive.
    pub freshness: Freshness,
}

/// What runs on the box; what targets are weighed against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Version of the running OS.
    pub os: Version,
    /// GPU driver; `None` without one.
    pub driver: Option<Version>,
    /// The lowest data format that an OS must know to read this box's data.
    pub data_needs: u32,
}

/// Which way an OS leads from the running one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A higher version; the only one that is taken by itself.
    Newer,
    /// The same version.
    Same,
    /// A lower one that is still allowed; a person must ask for it.
    Older,
    /// Not an OS.
    Addition,
}

impl Trusted {
    /// The first state of a box, from the root file built into its verified image. Its expiry is not looked at: an image may lie on a shelf.
    ///
    /// # Errors
    /// The file is damaged, not signed by its own keys, for another product, or for developers.
    pub fn begin(root: &[u8], identity: &Identity, build_epoch: Timestamp) -> Result<Self, Refusal> {
        let (root, envelope) = Root::read(root)?;
        envelope.demand(&root, Role::Root, &Default::default())?;
        belongs(&root, identity)?;
        Ok(Self { root, seen: BTreeMap::new(), os_floor: Version::zero(), revoked: Revoked::default(), last_time: build_epoch })
    }

    /// Takes over a newer root that a newer image brings along; the image was verified as a whole. An older one changes nothing.
    ///
    /// # Errors
    /// As [`Trusted::begin`].
    pub fn with_builtin(self, root: &[u8], identity: &Identity) -> Result<Self, Refusal> {
        let fresh = Self::begin(root, identity, self.last_time)?;
        Ok(if fresh.root.version > self.root.version { self.rotated(fresh.root) } else { self })
    }

    /// Remembers a confirmed wall clock; it never goes back this way.
    #[must_use]
    pub fn with_time(mut self, clock: &Clock) -> Self {
        if clock.confirmed {
            self.last_time = self.last_time.max(clock.wall);
        }
        self
    }

    /// A person says what time it is: what was remembered may have been wrong.
    #[must_use]
    pub fn with_time_by_hand(mut self, wall: Timestamp) -> Self {
        self.last_time = wall;
        self
    }

    /// Walks a root chain. Files of versions the box already has are passed over, except that the current version must be the same one.
    ///
    /// # Errors
    /// A gap, a fork, too few signatures of the old or the new keys, another product, development keys, a file that cannot be read.
    pub fn walk(&self, chain: &[Vec<u8>], identity: &Identity) -> Result<Self, Refusal> {
        if chain.len() > ROOT_CHAIN_MAX {
            return Err(Refusal::RootChainTooLong { count: chain.len(), limit: ROOT_CHAIN_MAX });
        }
        let none = Default::default();
        let mut now = self.clone();
        for bytes in chain {
            let (next, envelope) = Root::read(bytes)?;
            if next.version < now.root.version {
                continue;
            }
            if next.version == now.root.version {
                if next != now.root {
                    return Err(Refusal::RootForked { version: next.version });
                }
                envelope.demand(&now.root, Role::Root, &none)?;
                continue;
            }
            if next.version != now.root.version + 1 {
                return Err(Refusal::RootGap { have: now.root.version, found: next.version });
            }
            envelope.demand(&now.root, Role::Root, &none)?;
            envelope.demand(&next, Role::Root, &none)?;
            belongs(&next, identity)?;
            now = now.rotated(next);
        }
        Ok(now)
    }

    /// A new root takes the place of the old one. Roles it counts anew forget what was seen of them.
    fn rotated(mut self, next: Root) -> Self {
        let (release, timestamp) = (self.root.recounts(&next, Role::Release), self.root.recounts(&next, Role::Timestamp));
        for seen in self.seen.values_mut() {
            if release {
                (seen.release, seen.release_digest) = (0, None);
            }
            if timestamp {
                seen.timestamp = 0;
            }
            if release || timestamp {
                seen.issued = Timestamp::UNIX_EPOCH;
            }
        }
        if release {
            // A thief's floor would refuse every image for ever; the next release of the new keys says it anew, before anything is taken.
            self.os_floor = Version::zero();
        }
        self.root = next;
        self
    }

    /// Judges a whole set.
    ///
    /// # Errors
    /// The first rule that is broken; see [`Refusal`].
    pub fn accept(&self, metadata: &Metadata, way: Way, identity: &Identity, clock: &Clock) -> Result<Accepted, Refusal> {
        let mut trusted = self.clone().with_time(clock).walk(&metadata.roots, identity)?;
        let seen = trusted.seen.get(&identity.channel).cloned().unwrap_or_default();

        let (timestamp, timestamp_envelope) = TimestampDoc::read(&metadata.timestamp)?;
        timestamp_envelope.demand(&trusted.root, Role::Timestamp, &trusted.revoked.key_ids)?;
        fits(Document::Timestamp, (&timestamp.compatible, &timestamp.channel), identity)?;
        let oldest = trusted.root.role(Role::Timestamp).from_version.max(seen.timestamp);
        if way == Way::OverTheAir && timestamp.version < oldest {
            return Err(Refusal::OlderThanSeen { document: Document::Timestamp, found: timestamp.version, seen: oldest });
        }

        let release_digest = pinned(&timestamp, &metadata.release)?;
        let (release, envelope) = Release::read(&metadata.release)?;
        let mut revoked = trusted.revoked.key_ids.clone();
        revoked.extend(&release.revoked.key_ids);
        envelope.demand(&trusted.root, Role::Release, &revoked)?;
        timestamp_envelope.demand(&trusted.root, Role::Timestamp, &revoked)?;
        fits(Document::Release, (&release.compatible, &release.channel), identity)?;
        if release.version != timestamp.release.version {
            return Err(Refusal::NotPinned { detail: format!("version {} instead of {}", release.version, timestamp.release.version) });
        }
        let oldest = trusted.root.role(Role::Release).from_version.max(seen.release);
        if release.version < oldest {
            return Err(Refusal::OlderThanSeen { document: Document::Release, found: release.version, seen: oldest });
        }
        if release.version == seen.release && seen.release_digest.is_some_and(|digest| digest != release_digest) {
            return Err(Refusal::SameVersionOtherContent { document: Document::Release, version: release.version });
        }

        let floor = trusted.last_time.max(seen.issued).max(timestamp.issued).max(release.issued).max(trusted.root.issued);
        let proven = clock.proven(floor);
        in_time(Document::Root, trusted.root.expires, proven)?;
        in_time(Document::Release, release.expires, proven)?;
        let latest = clock.latest(floor);
        let stale = way == Way::OverTheAir && timestamp.expires <= latest;
        let freshness =
            if stale { Freshness::Stale { expires: timestamp.expires, now: latest } } else { Freshness::Fresh { until: timestamp.expires } };

        trusted.os_floor = trusted.os_floor.max(release.floor.clone());
        trusted.revoked.digests.extend(&release.revoked.digests);
        trusted.revoked.key_ids = revoked;
        let seen = Seen {
            release: release.version,
            release_digest: Some(release_digest),
            timestamp: seen.timestamp.max(timestamp.version),
            issued: seen.issued.max(timestamp.issued).max(release.issued),
        };
        trusted.seen.insert(identity.channel.clone(), seen);
        Ok(Accepted { trusted, release, release_digest, freshness })
    }
}

impl Accepted {
    /// Whether the schedule may act on this release without a person.
    ///
    /// # Errors
    /// [`Refusal::Stale`].
    pub const fn automatic(&self) -> Result<(), Refusal> {
        match self.freshness {
            Freshness::Fresh { .. } => Ok(()),
            Freshness::Stale { expires, now } => Err(Refusal::Stale { expires, now }),
        }
    }

    /// The entry of a target that is to be installed on this box, and which way it leads.
    ///
    /// # Errors
    /// It is not listed, was withdrawn, is below the floor, or this box does not meet its demands.
    pub fn admit(&self, digest: &Digest, installed: &Installed) -> Result<(&Entry, Direction), Refusal> {
        let entry = self.release.entry(digest).ok_or(Refusal::NotListed { digest: *digest, release: self.release.version })?;
        let subject = entry.subject();
        if self.trusted.revoked.digests.contains(digest) {
            return Err(Refusal::RevokedTarget { subject });
        }
        let direction = match (entry.kind, entry.number()) {
            (Kind::Os, Some(found)) => {
                if found < self.trusted.os_floor {
                    return Err(Refusal::BelowFloor { found, floor: self.trusted.os_floor.clone() });
                }
                match found.cmp(&installed.os) {
                    std::cmp::Ordering::Less => Direction::Older,
                    std::cmp::Ordering::Equal => Direction::Same,
                    std::cmp::Ordering::Greater => Direction::Newer,
                }
            }
            _ => Direction::Addition,
        };
        if let Some(needs) = entry.requires.min_from.clone().filter(|needs| *needs > installed.os) {
            return Err(Refusal::FromTooOld { subject, needs, have: installed.os.clone() });
        }
        if let Some(needs) = entry.requires.agent.clone().filter(|needs| *needs > installed.os) {
            return Err(Refusal::NeedsNewerAgent { subject, needs, have: installed.os.clone() });
        }
        if let Some(needs) = entry.requires.driver.clone().filter(|needs| installed.driver.as_ref().is_none_or(|have| needs > have)) {
            return Err(Refusal::NeedsNewerDriver { subject, needs, have: installed.driver.clone() });
        }
        if let Some(reads) = entry.data_schema.filter(|reads| *reads < installed.data_needs) {
            return Err(Refusal::DataTooNew { subject, reads, needs: installed.data_needs });
        }
        Ok((entry, direction))
    }

    /// The newest OS of this release that may be installed on this box, and which way it leads; `None` when there is none.
    #[must_use]
    pub fn best_os(&self, installed: &Installed) -> Option<(&Entry, Direction)> {
        let entries = self.release.entries.iter().filter(|e| e.kind == Kind::Os);
        entries.filter_map(|e| self.admit(&e.sha256, installed).ok()).max_by_key(|(e, _)| e.number())
    }
}

fn belongs(root: &Root, identity: &Identity) -> Result<(), Refusal> {
    if root.compatible != identity.compatible {
        let (found, expected) = (root.compatible.clone(), identity.compatible.clone());
        return Err(Refusal::OtherProduct { document: Document::Root, found, expected });
    }
    if root.development && !identity.development { Err(Refusal::DevelopmentRoot) } else { Ok(()) }
}

fn fits(document: Document, (compatible, channel): (&str, &str), identity: &Identity) -> Result<(), Refusal> {
    if compatible != identity.compatible {
        return Err(Refusal::OtherProduct { document, found: compatible.to_owned(), expected: identity.compatible.clone() });
    }
    if channel != identity.channel {
        return Err(Refusal::OtherChannel { document, found: channel.to_owned(), expected: identity.channel.clone() });
    }
    Ok(())
}

/// The digest of a release file, which must be the one the timestamp names. Its length is compared before anything else.
fn pinned(timestamp: &TimestampDoc, release: &[u8]) -> Result<Digest, Refusal> {
    let pin = &timestamp.release;
    if release.len() as u64 != pin.bytes {
        return Err(Refusal::NotPinned { detail: format!("{} bytes instead of {}", release.len(), pin.bytes) });
    }
    let digest = Digest::of(release);
    if digest == pin.sha256 { Ok(digest) } else { Err(Refusal::NotPinned { detail: "its checksum differs".to_owned() }) }
}

fn in_time(document: Document, expires: Timestamp, now: Timestamp) -> Result<(), Refusal> {
    if expires <= now { Err(Refusal::Expired { document, expires, now }) } else { Ok(()) }
}
