//! Whether something still moves, and since when it does not. Pure.
//!
//! Marks in (something changed, time spent on processors), a duration of rest out. Processor time counts as movement only above a share
//! of one core: asking an engine for its health costs it a little as well, and that must not keep a dead load alive.

use std::time::{Duration, Instant};

/// Processor time is compared over at least this long: the system counts it coarsely.
const WINDOW: Duration = Duration::from_secs(2);

/// What is known of a movement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Motion {
    moved: Instant,
    /// The last moment of which it is known whether it moved by then.
    known: Instant,
    window: Option<(Instant, Duration)>,
    told: bool,
}

impl Motion {
    /// As if it moved just now.
    pub(crate) const fn new(now: Instant) -> Self {
        Self { moved: now, known: now, window: None, told: false }
    }

    /// Something that only movement changes did change.
    pub(crate) const fn mark(&mut self, now: Instant) {
        (self.moved, self.known) = (now, now);
    }

    /// It was looked, and nothing changed.
    pub(crate) const fn looked(&mut self, now: Instant) {
        self.known = now;
    }

    /// So much processor time was used so far. At least `share` of one core since the look before counts as movement.
    pub(crate) fn worked(&mut self, now: Instant, processor: Duration, share: f64) {
        self.told = true;
        let Some((at, before)) = self.window else {
            self.window = Some((now, processor));
            return;
        };
        let elapsed = now.saturating_duration_since(at);
        if elapsed < WINDOW {
            return;
        }
        if processor.saturating_sub(before).as_secs_f64() >= share * elapsed.as_secs_f64() {
            self.moved = now;
        }
        self.known = now;
        self.window = Some((now, processor));
    }

    /// For how long nothing moved, as far as that is known: time in which nobody looked is no rest.
    pub(crate) fn rest(&self) -> Duration {
        self.known.saturating_duration_since(self.moved)
    }

    /// Whether processor time was ever told; without, rest may be ignorance.
    pub(crate) const fn is_told(&self) -> bool {
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::s;

    #[test]
    fn a_little_work_for_answering_us_is_no_movement_and_real_work_is() {
        let begin = Instant::now();
        let mut motion = Motion::new(begin);
        for second in 0..30 {
            motion.worked(begin + s(second), Duration::from_millis(second * 10), 0.05);
        }
        assert_eq!(motion.rest(), s(28));
        motion.worked(begin + s(32), s(2), 0.05);
        assert_eq!(motion.rest(), s(0));
    }

    #[test]
    fn work_after_a_long_rest_counts_at_once() {
        let begin = Instant::now();
        let mut motion = Motion::new(begin);
        for second in [0, 100, 200, 300] {
            motion.worked(begin + s(second), s(1), 0.05);
        }
        assert_eq!(motion.rest(), s(300));
        motion.worked(begin + s(302), s(2), 0.05);
        assert_eq!(motion.rest(), s(0));
    }

    #[test]
    fn time_in_which_nobody_looked_is_no_rest() {
        let begin = Instant::now();
        let mut motion = Motion::new(begin);
        motion.worked(begin, s(0), 0.05);
        motion.worked(begin + s(1), s(1), 0.05);
        assert_eq!(motion.rest(), s(0), "the window is not over");
        motion.worked(begin + s(60), s(10), 0.05);
        assert_eq!(motion.rest(), s(0), "a late look finds the work");
    }

    #[test]
    fn a_process_that_ended_and_took_its_time_along_is_no_fault() {
        let begin = Instant::now();
        let mut motion = Motion::new(begin);
        motion.worked(begin, s(50), 0.05);
        motion.worked(begin + s(3), s(1), 0.05);
        motion.worked(begin + s(6), s(3), 0.05);
        assert_eq!(motion.rest(), s(0));
    }
}
