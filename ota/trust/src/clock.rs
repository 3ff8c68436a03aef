//! What time it may be. A box may have a dead clock battery (1990), a wrong one (2050) and no network, and must still take an offline
//! update; so the wall clock alone is never a reason to refuse. It counts as evidence only when a time server or a person confirmed it.

use jiff::Timestamp;

/// What the caller knows about the present moment; read once per evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The wall clock.
    pub wall: Timestamp,
    /// True when a time server or a person set it since boot.
    pub confirmed: bool,
    /// When the running image was built; it cannot be earlier.
    pub build_epoch: Timestamp,
}

impl Clock {
    /// The moment expiry is judged by: never before `floor` or the build, and the wall clock only when it is confirmed.
    #[must_use]
    pub fn proven(&self, floor: Timestamp) -> Timestamp {
        let floor = floor.max(self.build_epoch);
        if self.confirmed { floor.max(self.wall) } else { floor }
    }

    /// The moment freshness is judged by: the wall clock, but never before `floor` or the build. A wrong clock makes a channel look stale
    /// here, which stops automatic updates only.
    #[must_use]
    pub fn latest(&self, floor: Timestamp) -> Timestamp {
        self.wall.max(floor).max(self.build_epoch)
    }
}
