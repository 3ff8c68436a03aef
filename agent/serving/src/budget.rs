//! How often an engine that died is started again by itself. Pure.
//!
//! Restarts are not given back by time alone: a large model that needs ten minutes to load and dies at its first request would be started
//! for ever. Only a replica that answered for a whole window without a break has them back.

use std::time::{Duration, Instant};

use crate::rules::ServingRules;

/// The code of a model whose restarts are used up.
pub(crate) const USED_UP: &str = "restarts_used_up";

/// Restarts of one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Budget {
    used: u32,
    /// It answers since then, without a break.
    answers_since: Option<Instant>,
}

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
    pub(crate) fn take(&mut self, rules: &ServingRules) -> Left {
        self.answers_since = None;
        if self.used >= rules.restarts {
            return Left::Nothing;
        }
        self.used += 1;
        let pause = rules.restart_pause.saturating_mul(4u32.saturating_pow(self.used - 1));
        Left::Again { pause, number: self.used, of: rules.restarts }
    }

    /// It was seen to answer.
    pub(crate) fn answers(&mut self, now: Instant, rules: &ServingRules) {
        let since = *self.answers_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= rules.restart_window {
            self.used = 0;
        }
    }

    /// It was seen not to answer.
    pub(crate) const fn breaks(&mut self) {
        self.answers_since = None;
    }

    /// Gives all of it back.
    pub(crate) const fn reset(&mut self) {
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::s;

    fn numbers(budget: &mut Budget, rules: &ServingRules) -> Option<u32> {
        match budget.take(rules) {
            Left::Again { number, .. } => Some(number),
            Left::Nothing => None,
        }
    }

    #[test]
    fn pauses_grow_until_nothing_is_left_and_a_load_by_hand_gives_it_back() {
        let rules = ServingRules::default();
        let mut budget = Budget::default();
        for (number, pause) in [(1, 2), (2, 8), (3, 32)] {
            assert_eq!(budget.take(&rules), Left::Again { pause: s(pause), number, of: 3 });
        }
        assert_eq!(budget.take(&rules), Left::Nothing);
        budget.reset();
        assert_eq!(budget.take(&rules), Left::Again { pause: s(2), number: 1, of: 3 });
    }

    #[test]
    fn a_model_that_loads_longer_than_the_window_and_dies_at_its_first_request_is_not_started_for_ever() {
        let (rules, begin) = (ServingRules::default(), Instant::now());
        let mut budget = Budget::default();
        // Eleven minutes of loading, two seconds of answers, dead; and so on.
        let lives: Vec<_> = (0..5u64)
            .map(|life| {
                let up = begin + s(life * 662 + 660);
                (0..2).for_each(|second| budget.answers(up + s(second), &rules));
                numbers(&mut budget, &rules)
            })
            .collect();
        assert_eq!(lives, [Some(1), Some(2), Some(3), None, None]);
    }

    #[test]
    fn a_load_that_gets_stuck_again_and_again_uses_it_up_too() {
        let rules = ServingRules::default();
        let mut budget = Budget::default();
        // Nothing ever answers, however long each attempt takes.
        assert_eq!([(); 4].map(|()| numbers(&mut budget, &rules)), [Some(1), Some(2), Some(3), None]);
    }

    #[test]
    fn a_window_of_answers_without_a_break_gives_it_back_and_one_with_a_break_does_not() {
        let (rules, begin) = (ServingRules::default(), Instant::now());
        let mut budget = Budget::default();
        let mut used = |from: u64, to: u64, silent_at: u64| {
            for second in from..=to {
                if second == silent_at {
                    budget.breaks();
                } else {
                    budget.answers(begin + s(second), &rules);
                }
            }
            numbers(&mut budget, &rules)
        };
        assert_eq!(used(0, 10, 99), Some(1));
        assert_eq!(used(100, 699, 9999), Some(2), "599 s are too few");
        assert_eq!(used(1000, 1700, 1350), Some(3), "it was silent in between");
        assert_eq!(used(2000, 2600, 9999), Some(1), "a whole window");
    }

    #[test]
    fn a_budget_of_none_restarts_nothing() {
        let rules = ServingRules { restarts: 0, ..ServingRules::default() };
        assert_eq!(Budget::default().take(&rules), Left::Nothing);
    }
}
