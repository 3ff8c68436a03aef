//! How often new addresses may make a new certificate. Moments in, yes or no out. Pure.
//!
//! Whoever sends router announcements on the network gives the box addresses as he likes. A few at once are usual; somebody who never
//! stops shall not have the box sign and write to its disk for ever.

use std::time::{Duration, Instant};

/// So many come at once without waiting.
const AT_ONCE: u32 = 10;
/// After that one more in this time.
const ONE_MORE: Duration = Duration::from_secs(60);

/// What is left of the allowance.
#[derive(Debug)]
pub(crate) struct Pace {
    left: u32,
    since: Instant,
}

impl Pace {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { left: AT_ONCE, since: now }
    }

    /// Takes one; false when none is left at the moment.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let gained = now.saturating_duration_since(self.since).as_secs() / ONE_MORE.as_secs();
        let gained = u32::try_from(gained).unwrap_or(AT_ONCE).min(AT_ONCE);
        if gained > 0 {
            self.left = AT_ONCE.min(self.left + gained);
            self.since = now;
        }
        if self.left == 0 {
            return false;
        }
        if self.left == AT_ONCE {
            self.since = now;
        }
        self.left -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_addresses_come_at_once_and_an_endless_stream_of_them_once_a_minute() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let mut made = 0;
        for second in (0..3600).step_by(2) {
            made += u32::from(pace.take(start + Duration::from_secs(second)));
        }
        assert!((AT_ONCE + 50..=AT_ONCE + 60).contains(&made), "{made}");
        let quiet = start + Duration::from_secs(3600 + 600);
        assert!((0..AT_ONCE).all(|_| pace.take(quiet)), "after a quiet time all is as before");
    }
}
