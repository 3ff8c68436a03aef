//! How often an engine that died is started again by itself. Pure.

use std::time::{Duration, Instant};

use crate::rules::ServingRules;

/// Restarts of one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Budget(Vec<Instant>);

/// What is left for one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Start it again after this pause; it is the so-many-th of so many.
    Again { pause: Duration, number: u32, of: u32 },
    /// Used up.
    Nothing,
}

impl Budget {
    /// Takes one restart, if one is left.
    pub(crate) fn take(&mut self, now: Instant, rules: &ServingRules) -> Left {
        self.0.retain(|moment| now.saturating_duration_since(*moment) < rules.restart_window);
        let used = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        if used >= rules.restarts {
            return Left::Nothing;
        }
        self.0.push(now);
        Left::Again { pause: rules.restart_pause.saturating_mul(4u32.saturating_pow(used)), number: used + 1, of: rules.restarts }
    }

    /// Gives all of it back.
    pub(crate) fn reset(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::s;

    #[test]
    fn pauses_grow_until_nothing_is_left_and_time_gives_it_back() {
        let (rules, begin) = (ServingRules::default(), Instant::now());
        let mut budget = Budget::default();
        for (number, pause) in [(1, 2), (2, 8), (3, 32)] {
            assert_eq!(budget.take(begin + s(u64::from(number)), &rules), Left::Again { pause: s(pause), number, of: 3 });
        }
        assert_eq!(budget.take(begin + s(100), &rules), Left::Nothing);
        assert_eq!(budget.take(begin + s(601), &rules), Left::Again { pause: s(32), number: 3, of: 3 });
        budget.reset();
        assert!(matches!(budget.take(begin + s(603), &rules), Left::Again { number: 1, .. }));
    }

    #[test]
    fn a_budget_of_none_restarts_nothing() {
        let rules = ServingRules { restarts: 0, ..ServingRules::default() };
        assert_eq!(Budget::default().take(Instant::now(), &rules), Left::Nothing);
    }
}
