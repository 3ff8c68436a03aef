//! From many looks to one verdict: all checks must pass without a break for the dwell time, before one deadline. Times and outcomes in,
//! what to do next out.

use std::time::Duration;

use warden_update_record::{Check, Reason};

use crate::checks;
use crate::times::Times;

/// What follows from the last look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Look again.
    Look,
    /// The slot is good.
    Good,
    /// The slot is bad, and why.
    Bad(Reason),
}

/// The watch over one trial.
#[derive(Debug)]
pub struct Watch {
    times: Times,
    passing_since: Option<Duration>,
    restarts: Option<u32>,
    last: Option<Reason>,
}

impl Watch {
    /// A fresh one.
    #[must_use]
    pub fn new(times: Times) -> Self {
        Self { times, passing_since: None, restarts: None, last: None }
    }

    /// Takes one look, made `now` after the gate's first start. `restarts` counts the agent's; one more breaks the dwell even if every
    /// single look found it up.
    pub fn take(&mut self, now: Duration, checks: &[Check], restarts: Option<u32>) -> Next {
        if let Some(reason) = checks::reason(checks) {
            self.passing_since = None;
            self.last = Some(reason);
        } else if self.passing_since.is_some() && self.restarts != restarts {
            self.passing_since = Some(now);
            self.last = Some(unsteady(restarts));
        }
        self.restarts = restarts;
        if checks::reason(checks).is_none() {
            let since = *self.passing_since.get_or_insert(now);
            if now.saturating_sub(since) >= self.times.dwell {
                return Next::Good;
            }
        }
        if now >= self.times.deadline { Next::Bad(self.overdue()) } else { Next::Look }
    }

    /// The reason when the deadline came: the last failure, or that the looking itself did not end.
    #[must_use]
    pub fn overdue(&self) -> Reason {
        self.last.clone().unwrap_or_else(|| Reason {
            code: "deadline".to_owned(),
            sentence: format!("The checks did not end within {} seconds.", self.times.deadline.as_secs()),
        })
    }
}

fn unsteady(restarts: Option<u32>) -> Reason {
    let times = restarts.map_or_else(|| "an unknown number of".to_owned(), |count| count.to_string());
    Reason { code: "agent".to_owned(), sentence: format!("The agent does not stay up: it was started again {times} times.") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warden_update_record::CheckOutcome;

    fn times() -> Times {
        Times { dwell: Duration::from_secs(10), deadline: Duration::from_secs(120), model: Duration::from_secs(5) }
    }

    fn look(outcome: CheckOutcome) -> Vec<Check> {
        vec![Check { code: "console".into(), outcome, sentence: "It is so.".into() }]
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_slot_is_good_after_an_unbroken_dwell_and_not_before() {
        let mut watch = Watch::new(times());
        assert_eq!(watch.take(at(20), &look(CheckOutcome::Failed), Some(0)), Next::Look);
        assert_eq!(watch.take(at(21), &look(CheckOutcome::Passed), Some(0)), Next::Look);
        assert_eq!(watch.take(at(30), &look(CheckOutcome::Passed), Some(0)), Next::Look);
        assert_eq!(watch.take(at(31), &look(CheckOutcome::NotApplicable), Some(0)), Next::Good);
    }

    #[test]
    fn one_failure_begins_the_dwell_anew() {
        let mut watch = Watch::new(times());
        watch.take(at(21), &look(CheckOutcome::Passed), Some(0));
        watch.take(at(29), &look(CheckOutcome::Failed), Some(0));
        assert_eq!(watch.take(at(31), &look(CheckOutcome::Passed), Some(0)), Next::Look);
        assert_eq!(watch.take(at(41), &look(CheckOutcome::Passed), Some(0)), Next::Good);
    }

    #[test]
    fn an_agent_that_dies_between_the_looks_is_never_steady() {
        let mut watch = Watch::new(times());
        for second in 0..60 {
            assert_eq!(watch.take(at(second * 2), &look(CheckOutcome::Passed), u32::try_from(second).ok()), Next::Look, "{second}");
        }
        let Next::Bad(reason) = watch.take(at(120), &look(CheckOutcome::Passed), Some(60)) else { panic!("it was found good") };
        assert_eq!(reason.code, "agent");
        assert!(reason.sentence.contains("60 times"));
    }

    #[test]
    fn the_deadline_is_one_and_tells_the_last_failure() {
        let mut watch = Watch::new(times());
        assert_eq!(watch.take(at(119), &look(CheckOutcome::Failed), None), Next::Look);
        let Next::Bad(reason) = watch.take(at(120), &look(CheckOutcome::Failed), None) else { panic!("it was not found bad") };
        assert_eq!((reason.code.as_str(), reason.sentence.as_str()), ("console", "It is so."));
    }

    #[test]
    fn a_dwell_that_ends_with_the_deadline_counts() {
        let mut watch = Watch::new(times());
        watch.take(at(110), &look(CheckOutcome::Passed), Some(0));
        assert_eq!(watch.take(at(120), &look(CheckOutcome::Passed), Some(0)), Next::Good);
    }

    #[test]
    fn checks_that_never_end_are_a_reason_too() {
        assert_eq!(Watch::new(times()).overdue().code, "deadline");
    }
}
