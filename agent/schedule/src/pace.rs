//! How long requests take, learned from those that ended; unknown until the first did.

use std::time::Duration;

/// Weight of the newest observation.
const NEWEST: f64 = 0.2;

/// A running mean.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    seconds: Option<f64>,
}

impl Pace {
    /// Takes one observation in.
    pub(crate) fn saw(&mut self, took: Duration) {
        let new = took.as_secs_f64();
        self.seconds = Some(self.seconds.map_or(new, |old| old + NEWEST * (new - old)));
    }

    /// The mean.
    pub(crate) fn mean(&self) -> Option<Duration> {
        self.seconds.map(Duration::from_secs_f64)
    }

    /// When somebody starts who has `ahead` others before him and `places` that become free again and again.
    pub(crate) fn start_behind(&self, ahead: usize, places: u64) -> Option<Duration> {
        let mean = self.seconds?;
        let rounds = (ahead as f64 + 1.0) / places.max(1) as f64;
        Duration::try_from_secs_f64(mean * rounds).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_expected_before_anything_was_seen() {
        let mut pace = Pace::default();
        assert_eq!((pace.mean(), pace.start_behind(0, 4)), (None, None));
        pace.saw(Duration::from_secs(8));
        assert_eq!(pace.start_behind(0, 4), Some(Duration::from_secs(2)));
        assert_eq!(pace.start_behind(7, 4), Some(Duration::from_secs(16)));
        for _ in 0..50 {
            pace.saw(Duration::from_secs(1));
        }
        assert!(pace.mean().unwrap() < Duration::from_millis(1010));
    }
}
