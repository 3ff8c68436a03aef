//! Whether an engine that runs must be given up: silent for too long, or working on requests without getting anywhere. Pure.
//!
//! Readings of an engine in, a fault with its sentence or nothing out. An engine that computes a long prompt makes no token and may even
//! answer late; the processor time it takes tells it from one that hangs.

use std::time::{Duration, Instant};

use warden_domain::{
    engine::{Activity, ReplicaSample},
    model::StateReason,
};

use crate::{motion::Motion, rules::ServingRules};

/// Share of one core above which an engine with requests counts as computing.
const SHARE: f64 = 0.2;
/// However much an engine computes: without a token for so many times the limit it hangs in a circle.
const IN_CIRCLES: u32 = 10;

/// What is known of a running engine between two looks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Watch {
    tokens: Motion,
    work: Motion,
    counters: Option<[Option<u64>; 4]>,
    busy: bool,
}

impl Watch {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { tokens: Motion::new(now), work: Motion::new(now), counters: None, busy: false }
    }

    /// Takes in one reading. `in_flight` are the requests sent to it that are not finished; they count where it does not tell its own.
    pub(crate) fn read(&mut self, now: Instant, in_flight: usize, sample: Option<&ReplicaSample>, activity: Option<Activity>) {
        // An engine that says it has nothing to do has nothing to do: a client may read its finished answer for as long as it likes.
        self.busy = match sample.and_then(|sample| Some((sample.running?, sample.waiting.unwrap_or(0)))) {
            Some((running, waiting)) => running > 0 || waiting > 0,
            None => in_flight > 0,
        };
        if !self.busy {
            self.tokens.mark(now);
            self.work.mark(now);
        }
        self.tokens.looked(now);
        if let Some(sample) = sample {
            let [generated, prompt, cached] = [sample.generated_total, sample.prompt_total, sample.cached_total].map(|tokens| tokens.map(|t| t.0));
            let counters = [generated, prompt, cached, sample.steps_total];
            if self.counters.is_some_and(|before| before != counters) {
                self.tokens.mark(now);
            }
            self.counters = Some(counters);
        }
        match activity {
            Some(activity) => self.work.worked(now, activity.processor, SHARE),
            None => self.work.looked(now),
        }
    }

    /// What is wrong with it, if anything is. `silent` = it does not answer, for so long.
    pub(crate) fn fault(&self, silent: Option<Duration>, rules: &ServingRules) -> Option<StateReason> {
        let computing = self.work.is_told() && self.work.rest() < rules.silent_after;
        if let Some(silent) = silent {
            let patience = if computing && self.busy { rules.silent_after.saturating_mul(IN_CIRCLES) } else { rules.silent_after };
            if silent > patience {
                return Some(told("engine_silent", format!("The engine's process is there, and it has not answered for {} s.", silent.as_secs())));
            }
        }
        if !self.busy {
            return None;
        }
        let (tokens, work) = (self.tokens.rest(), self.work.rest());
        let stands =
            tokens > rules.hang_after && (if self.work.is_told() { work > rules.hang_after } else { tokens > rules.hang_after.saturating_mul(3) });
        let circles = self.counters.is_some() && tokens > rules.hang_after.saturating_mul(IN_CIRCLES);
        (stands || circles)
            .then(|| told("engine_hangs", format!("The engine has requests, and it has not computed a token for {} s.", tokens.as_secs())))
    }
}

fn told(code: &str, message: String) -> StateReason {
    StateReason { code: code.to_owned(), message, hint: None }
}

#[cfg(test)]
mod tests {
    use warden_domain::units::Tokens;

    use super::*;
    use crate::samples::s;

    const RULES: fn() -> ServingRules = || ServingRules { silent_after: s(30), hang_after: s(120), ..ServingRules::default() };

    fn sample(generated: u64) -> ReplicaSample {
        ReplicaSample { generated_total: Some(Tokens(generated)), ..ReplicaSample::default() }
    }

    fn used(seconds: u64) -> Option<Activity> {
        Some(Activity { processor: s(seconds), ..Activity::default() })
    }

    /// Reads once a second: requests, tokens and processor seconds by the second. The second of the first fault.
    fn first_fault(seconds: u64, each: impl Fn(u64) -> (usize, u64, u64)) -> Option<(u64, String)> {
        let begin = Instant::now();
        let mut watch = Watch::new(begin);
        (0..seconds).find_map(|second| {
            let (in_flight, tokens, processor) = each(second);
            watch.read(begin + s(second), in_flight, Some(&sample(tokens)), used(processor));
            watch.fault(None, &RULES()).map(|reason| (second, reason.code))
        })
    }

    #[test]
    fn requests_without_tokens_and_without_work_are_a_hang() {
        assert_eq!(first_fault(1000, |_| (1, 7, 0)), Some((122, "engine_hangs".to_owned())));
    }

    #[test]
    fn a_long_prompt_that_is_computed_is_none() {
        assert_eq!(first_fault(1000, |second| (1, 7, second)), None);
        assert_eq!(first_fault(2000, |second| (1, 7, second)), Some((1201, "engine_hangs".to_owned())), "but not for ever");
    }

    #[test]
    fn a_long_answer_whose_tokens_are_counted_at_its_end_gets_on_by_its_steps() {
        let begin = Instant::now();
        let mut watch = Watch::new(begin);
        let answers = |steps| ReplicaSample { running: Some(1), steps_total: Some(steps), ..sample(7) };
        for second in 0..3000 {
            watch.read(begin + s(second), 1, Some(&answers(second / 5)), used(second));
            assert_eq!(watch.fault(None, &RULES()), None, "after {second} s");
        }
        for second in 3000..4210 {
            watch.read(begin + s(second), 1, Some(&answers(600)), used(second));
        }
        assert_eq!(watch.fault(None, &RULES()).map(|reason| reason.code).as_deref(), Some("engine_hangs"), "without a step it turns in circles");
    }

    #[test]
    fn tokens_are_progress_however_little_the_processors_do_and_idle_is_no_hang() {
        assert_eq!(first_fault(1000, |second| (1, second / 60, 0)), None);
        assert_eq!(first_fault(1000, |_| (0, 7, 0)), None);
    }

    #[test]
    fn the_time_before_a_request_does_not_count_against_it() {
        let found = first_fault(1000, |second| (usize::from(second >= 500), 7, 0));
        assert_eq!(found, Some((620, "engine_hangs".to_owned())));
    }

    #[test]
    fn an_engine_that_waits_for_a_slow_reader_is_no_hang() {
        let begin = Instant::now();
        let mut watch = Watch::new(begin);
        let says = |running, waiting| ReplicaSample { running: Some(running), waiting, ..sample(7) };
        for second in 0..2000 {
            watch.read(begin + s(second), 3, Some(&says(0, Some(0).filter(|_| second % 2 == 0))), used(0));
            assert_eq!(watch.fault(None, &RULES()), None, "after {second} s");
        }
        for second in 2000..2200 {
            watch.read(begin + s(second), 3, Some(&says(0, Some(1))), used(0));
        }
        assert!(watch.fault(None, &RULES()).is_some(), "a request that the engine keeps waiting counts");
    }

    #[test]
    fn an_engine_whose_figures_cannot_be_read_gets_more_time() {
        let begin = Instant::now();
        let mut watch = Watch::new(begin);
        watch.read(begin + s(300), 1, None, None);
        assert_eq!(watch.fault(None, &RULES()), None);
        watch.read(begin + s(361), 1, None, None);
        assert!(watch.fault(None, &RULES()).is_some());
    }

    #[test]
    fn silence_is_a_fault_unless_a_long_prompt_keeps_it_from_answering() {
        let begin = Instant::now();
        let mut watch = Watch::new(begin);
        for second in 0..40 {
            watch.read(begin + s(second), 1, None, used(second));
        }
        assert_eq!(watch.fault(Some(s(35)), &RULES()), None);
        assert_eq!(watch.fault(Some(s(301)), &RULES()).unwrap().code, "engine_silent");
        assert_eq!(Watch::new(begin).fault(Some(s(31)), &RULES()).unwrap().code, "engine_silent");
        assert_eq!(Watch::new(begin).fault(Some(s(29)), &RULES()), None);
    }
}
