//! How one load goes: its phases with their times, what is typical of them, and whether it still advances. Pure.
//!
//! Looks in; phases for the page, times for the history, and how long nothing moved out.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use warden_domain::{engine::LoadView, model::LoadPhase, units::Millis};
use warden_store::loads::Phases;

use crate::motion::Motion;

/// Most phases told of one load; an engine that goes back and forth is not followed further.
const MOST: usize = 32;
/// Share of one core above which a load counts as advancing.
const SHARE: f64 = 0.05;
/// Without any figures of its processes a load gets so many times the patience.
const BLIND: u32 = 3;
/// However much a load writes and computes: without another phase or part for so many times the patience it turns in circles,
const IN_CIRCLES: u32 = 10;
/// unless the phase is known to be long: it gets at least so many times what is typical of it.
const TYPICAL: u64 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Phase {
    name: String,
    began: Timestamp,
    started: Instant,
    took: Option<Millis>,
    part: Option<(u64, u64)>,
}

/// One load, from its start to the first answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoadClock {
    phases: Vec<Phase>,
    motion: Motion,
    /// When it last came to another phase or part, and when that was last looked for.
    stepped: Instant,
    looked: Instant,
    seen: LoadView,
    /// Found under way, so its times are not known from the start.
    adopted: bool,
}

impl LoadClock {
    pub(crate) fn start(at: Timestamp, now: Instant, adopted: bool) -> Self {
        let mut clock = Self { phases: Vec::new(), motion: Motion::new(now), stepped: now, looked: now, seen: LoadView::default(), adopted };
        clock.enter("start", None, at, now);
        clock
    }

    /// Takes in a look.
    pub(crate) fn look(&mut self, view: LoadView, at: Timestamp, now: Instant) {
        self.looked = now;
        if let Some(name) = view.phase.as_deref().filter(|name| *name != "ready") {
            self.enter(name, view.part, at, now);
        }
        if view.part != self.seen.part {
            self.stepped = now;
        }
        let moved = view.phase != self.seen.phase || view.part != self.seen.part || view.last_line != self.seen.last_line;
        let wrote = matches!((view.activity, self.seen.activity), (Some(now), Some(then)) if now.log != then.log || now.read != then.read);
        if moved || wrote {
            self.motion.mark(now);
        }
        match view.activity {
            Some(activity) => self.motion.worked(now, activity.processor, SHARE),
            None => self.motion.looked(now),
        }
        self.seen = view;
    }

    fn enter(&mut self, name: &str, part: Option<(u64, u64)>, at: Timestamp, now: Instant) {
        if let Some(last) = self.phases.last_mut() {
            if last.name == name {
                last.part = part.or(last.part);
                return;
            }
            if self.phases.iter().any(|phase| phase.name == name) || self.phases.len() >= MOST {
                return;
            }
        }
        self.close(now);
        self.stepped = now;
        self.phases.push(Phase { name: name.to_owned(), began: at, started: now, took: None, part });
    }

    fn close(&mut self, now: Instant) {
        if let Some(last) = self.phases.last_mut() {
            last.took.get_or_insert_with(|| millis(now.saturating_duration_since(last.started)));
        }
    }

    /// The times of a load that just succeeded, for the history; `None` when its beginning was not seen.
    pub(crate) fn finish(&mut self, now: Instant) -> Option<Phases> {
        self.close(now);
        (!self.adopted).then(|| self.phases.iter().filter_map(|phase| Some((phase.name.clone(), phase.took?))).collect())
    }

    /// How long it goes on.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        self.phases.first().map_or(Duration::ZERO, |first| now.saturating_duration_since(first.started))
    }

    /// The phase it is in.
    pub(crate) fn phase(&self) -> Option<&str> {
        self.phases.last().map(|phase| phase.name.as_str())
    }

    /// The last line of its log.
    pub(crate) fn last_line(&self) -> Option<&str> {
        self.seen.last_line.as_deref()
    }

    /// For how long it has not advanced, once that is so long that it never will. `earlier` are the times of earlier loads.
    pub(crate) fn stuck(&self, limit: Duration, earlier: &[Phases]) -> Option<Duration> {
        let patience = if self.motion.is_told() { limit } else { limit.saturating_mul(BLIND) };
        let (rest, same) = (self.motion.rest(), self.looked.saturating_duration_since(self.stepped));
        let typical = self.phase().and_then(|phase| typical(earlier, phase)).map_or(0, |took| took.0.saturating_mul(TYPICAL));
        let circles = limit.saturating_mul(IN_CIRCLES).max(Duration::from_millis(typical));
        if rest > patience { Some(rest) } else { (same > circles).then_some(same) }
    }

    /// The phases for page and api: those seen, then those that earlier loads went through and this one has not reached.
    pub(crate) fn shown(&self, earlier: &[Phases]) -> Vec<LoadPhase> {
        let mut shown: Vec<LoadPhase> = self
            .phases
            .iter()
            .map(|phase| LoadPhase {
                name: phase.name.clone(),
                began: Some(phase.began),
                took: phase.took,
                typical: typical(earlier, &phase.name),
                part: phase.part,
            })
            .collect();
        for (name, _) in earlier.first().into_iter().flatten() {
            if !self.phases.iter().any(|phase| phase.name == *name) {
                shown.push(LoadPhase { name: name.clone(), began: None, took: None, typical: typical(earlier, name), part: None });
            }
        }
        shown
    }
}

/// The median of what a phase took in earlier loads; `None` when none went through it.
fn typical(earlier: &[Phases], name: &str) -> Option<Millis> {
    let mut times: Vec<u64> = earlier.iter().filter_map(|load| load.iter().find(|(phase, _)| phase == name)).map(|(_, took)| took.0).collect();
    times.sort_unstable();
    let middle = times.len() / 2;
    match times.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(Millis(times[middle])),
        _ => Some(Millis(times[middle - 1].midpoint(times[middle]))),
    }
}

fn millis(duration: Duration) -> Millis {
    Millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use warden_domain::{engine::Activity, units::Bytes};

    use super::*;
    use crate::samples::s;

    fn view(phase: &str, log: u64, processor: u64) -> LoadView {
        let activity = Activity { log: Bytes(log), read: Bytes(0), processor: s(processor) };
        LoadView { phase: Some(phase.to_owned()), activity: Some(activity), ..LoadView::default() }
    }

    fn load(phases: &[(&str, u64)]) -> Phases {
        phases.iter().map(|(name, took)| ((*name).to_owned(), Millis(*took))).collect()
    }

    #[test]
    fn each_phase_gets_its_own_time_and_the_history_all_of_them() {
        let (begin, at) = (Instant::now(), Timestamp::UNIX_EPOCH);
        let mut clock = LoadClock::start(at, begin, false);
        clock.look(view("weights", 1, 0), at, begin + s(2));
        clock.look(view("weights", 2, 0), at, begin + s(3));
        clock.look(view("warmup", 3, 0), at, begin + s(7));
        clock.look(view("ready", 4, 0), at, begin + s(8));
        assert_eq!(clock.phase(), Some("warmup"));
        assert_eq!(clock.finish(begin + s(8)), Some(load(&[("start", 2000), ("weights", 5000), ("warmup", 1000)])));
        assert_eq!(LoadClock::start(at, begin, true).finish(begin), None, "the times of an adopted load are not known");
    }

    #[test]
    fn the_first_load_has_nothing_typical_and_the_second_shows_what_is_to_come() {
        let clock = LoadClock::start(Timestamp::UNIX_EPOCH, Instant::now(), false);
        assert!(clock.shown(&[]).iter().all(|phase| phase.typical.is_none()));
        let shown = clock.shown(&[load(&[("start", 100), ("weights", 4000)])]);
        assert_eq!(shown.len(), 2);
        assert_eq!((shown[0].typical, shown[1].typical, shown[1].began), (Some(Millis(100)), Some(Millis(4000)), None));
    }

    #[test]
    fn one_slow_load_does_not_change_what_is_typical() {
        let earlier = [load(&[("weights", 90_000)]), load(&[("weights", 5000)]), load(&[("weights", 4000)])];
        assert_eq!(typical(&earlier, "weights"), Some(Millis(5000)));
        assert_eq!(typical(&earlier[1..], "weights"), Some(Millis(4500)));
        assert_eq!(typical(&earlier, "warmup"), None);
    }

    #[test]
    fn a_load_that_writes_reads_or_computes_is_not_stuck_and_one_that_does_nothing_is() {
        let (begin, at, limit) = (Instant::now(), Timestamp::UNIX_EPOCH, s(10));
        let mut clock = LoadClock::start(at, begin, false);
        for second in 0..40 {
            clock.look(view("weights", second, 0), at, begin + s(second));
            assert_eq!(clock.stuck(limit, &[]), None, "it writes");
        }
        for second in 40..80 {
            clock.look(view("weights", 39, second), at, begin + s(second));
            assert_eq!(clock.stuck(limit, &[]), None, "it computes");
        }
        for second in 80..100 {
            clock.look(view("weights", 39, 79), at, begin + s(second));
        }
        assert!(clock.stuck(limit, &[]).is_some());
    }

    /// Seconds after which a load is stuck that does something all the time.
    fn stuck_after(earlier: &[Phases], each: impl Fn(u64) -> LoadView) -> Option<u64> {
        let (begin, at) = (Instant::now(), Timestamp::UNIX_EPOCH);
        let mut clock = LoadClock::start(at, begin, false);
        (0..1000).find(|second| {
            clock.look(each(*second), at, begin + s(*second));
            clock.stuck(s(10), earlier).is_some()
        })
    }

    #[test]
    fn a_load_that_only_spins_or_writes_its_log_is_stuck_in_the_end() {
        assert_eq!(stuck_after(&[], |second| view("weights", 1, second)), Some(101), "it spins");
        assert_eq!(stuck_after(&[], |second| view("weights", second, 0)), Some(101), "it writes the same again and again");
        let back_and_forth = |second| view(if second % 2 == 0 { "weights" } else { "warmup" }, second, 0);
        assert_eq!(stuck_after(&[], back_and_forth), Some(102), "a phase that it was in before is no step");
    }

    #[test]
    fn a_phase_that_is_long_by_its_nature_and_one_that_counts_its_parts_are_left_alone() {
        let spins = |second| view("weights", 1, second);
        assert_eq!(stuck_after(&[load(&[("weights", 60_000)])], spins), Some(181), "three times what is typical");
        assert_eq!(stuck_after(&[load(&[("weights", 5000)])], spins), Some(101), "a short one does not shorten the limit");
        assert_eq!(stuck_after(&[], |second| LoadView { part: Some((second / 90, 99)), ..view("weights", second, second) }), None);
    }

    #[test]
    fn what_cannot_be_told_is_not_taken_for_rest_at_once() {
        let (begin, at) = (Instant::now(), Timestamp::UNIX_EPOCH);
        let mut clock = LoadClock::start(at, begin, false);
        clock.look(LoadView::default(), at, begin + s(12));
        assert_eq!(clock.stuck(s(10), &[]), None);
        clock.look(LoadView::default(), at, begin + s(31));
        assert_eq!(clock.stuck(s(10), &[]), Some(s(31)));
    }
}
