//! What the reader knows at this moment, and what it says of it: a pure decision over facts, the call under way, and the clock.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use warden_domain::gpu::{GpuCard, GpuNotice, GpuReading, GpuSnapshot, STALE_AFTER};

use crate::wire::Frame;

/// A call that takes longer than this hangs, as far as listeners are concerned.
const STUCK_AFTER: Duration = Duration::from_secs(2);

/// All that one round of reading brought.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Version of the driver.
    pub driver: Option<String>,
    /// The library calls itself simulated.
    pub simulated: bool,
    /// The cards.
    pub cards: Vec<GpuCard>,
    /// What no figure shows.
    pub notices: Vec<GpuNotice>,
}

#[derive(Debug, Default)]
enum Stand {
    #[default]
    Opening,
    Reading,
    NoLibrary(String),
    Failed(String),
}

/// A call into the library that has not returned.
#[derive(Debug)]
struct Call {
    name: &'static str,
    card: Option<u32>,
    since: Instant,
    patience: Duration,
}

#[derive(Debug, Default)]
struct Known {
    stand: Stand,
    call: Option<Call>,
    last: Option<(Facts, Instant)>,
    rounds: u64,
}

/// The board.
#[derive(Debug, Default)]
pub struct Board {
    known: Mutex<Known>,
    news: Condvar,
}

impl Board {
    /// Makes a call into the library, and notes it for as long as it lasts.
    pub fn during<T>(&self, name: &'static str, card: Option<u32>, call: impl FnOnce() -> T) -> T {
        self.noted(Call { name, card, since: Instant::now(), patience: STUCK_AFTER }, call)
    }

    /// The same for opening the library, which takes its time where no other program keeps the driver awake.
    pub fn during_opening<T>(&self, name: &'static str, call: impl FnOnce() -> T) -> T {
        self.noted(Call { name, card: None, since: Instant::now(), patience: STALE_AFTER * 4 }, call)
    }

    fn noted<T>(&self, noted: Call, call: impl FnOnce() -> T) -> T {
        self.known().call = Some(noted);
        let out = call();
        self.known().call = None;
        out
    }

    /// A round was read.
    pub fn post(&self, facts: Facts) {
        self.change(|known| {
            known.stand = Stand::Reading;
            known.last = Some((facts, Instant::now()));
        });
    }

    /// There is no library.
    pub fn no_library(&self, detail: String) {
        self.change(|known| known.stand = Stand::NoLibrary(detail));
    }

    /// The library refuses.
    pub fn failed(&self, cause: String) {
        self.change(|known| known.stand = Stand::Failed(cause));
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        {
            let mut known = self.known();
            change(&mut known);
            known.rounds += 1;
        }
        self.news.notify_all();
    }

    /// What to say now, and the number of the last news in it.
    pub fn frame(&self) -> (Frame, u64) {
        let known = self.known();
        (known.frame(Instant::now()), known.rounds)
    }

    /// Waits until there is news after the one of that number, or the time is over.
    pub fn wait(&self, after: u64, limit: Duration) {
        drop(self.news.wait_timeout_while(self.known(), limit, |known| known.rounds == after));
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn frame(&self, now: Instant) -> Frame {
        let age = self.last.as_ref().map(|(_, at)| now.saturating_duration_since(*at));
        let (facts, notices) = match &self.last {
            Some((facts, _)) => (facts.clone(), facts.notices.clone()),
            None => (Facts::default(), Vec::new()),
        };
        let snapshot = GpuSnapshot { reading: self.reading(age, now), driver: facts.driver, simulated: facts.simulated, cards: facts.cards };
        Frame { snapshot, age_s: age.map(|age| age.as_secs_f64()), notices }
    }

    fn reading(&self, age: Option<Duration>, now: Instant) -> GpuReading {
        if let Some(call) = &self.call {
            let lasts = now.saturating_duration_since(call.since);
            if lasts >= call.patience {
                let card = call.card.map(|index| format!(" for card {index}")).unwrap_or_default();
                return GpuReading::Stale { since_s: lasts.as_secs_f64(), cause: format!("The driver has not returned from {}{card}.", call.name) };
            }
        }
        match (&self.stand, age) {
            (Stand::NoLibrary(detail), _) => GpuReading::NoLibrary { detail: detail.clone() },
            (Stand::Failed(cause), _) => GpuReading::Failed { cause: cause.clone() },
            (Stand::Opening, _) | (Stand::Reading, None) => GpuReading::Starting,
            (Stand::Reading, Some(age)) if age > STALE_AFTER => GpuReading::Stale {
                since_s: age.as_secs_f64(),
                cause: "The driver answers each call, but so slowly that no round is finished.".to_owned(),
            },
            (Stand::Reading, Some(_)) => GpuReading::Live,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    #[test]
    fn a_call_that_hangs_is_named_with_its_card_and_the_last_facts_stay() {
        let board = Board::default();
        board.post(Facts { driver: Some("1".to_owned()), ..Facts::default() });
        board.during("nvmlDeviceGetTemperature", Some(3), || {
            assert_eq!(board.known().frame(later(1)).snapshot.reading, GpuReading::Live);
            let frame = board.known().frame(later(60));
            let GpuReading::Stale { since_s, cause } = frame.snapshot.reading else { panic!("{frame:?}") };
            assert!((59.0..62.0).contains(&since_s), "{since_s}");
            assert_eq!(cause, "The driver has not returned from nvmlDeviceGetTemperature for card 3.");
            assert_eq!(frame.snapshot.driver.as_deref(), Some("1"));
            assert!(frame.age_s.is_some_and(|age| age > 59.0));
        });
        assert_eq!(board.frame().0.snapshot.reading, GpuReading::Live);
    }

    #[test]
    fn a_slow_opening_is_no_hang_yet() {
        let board = Board::default();
        board.during_opening("nvmlInit", || {
            assert_eq!(board.known().frame(later(10)).snapshot.reading, GpuReading::Starting);
            assert!(matches!(board.known().frame(later(30)).snapshot.reading, GpuReading::Stale { .. }));
        });
    }

    #[test]
    fn rounds_that_never_finish_are_told_although_no_single_call_hangs() {
        let board = Board::default();
        board.post(Facts::default());
        assert!(matches!(board.known().frame(later(6)).snapshot.reading, GpuReading::Stale { .. }));
    }

    #[test]
    fn a_driver_that_begins_to_refuse_leaves_the_last_known_cards_on_the_board() {
        let board = Board::default();
        board.post(Facts { driver: Some("1".to_owned()), ..Facts::default() });
        board.failed("why".to_owned());
        let frame = board.frame().0;
        assert_eq!(frame.snapshot.reading, GpuReading::Failed { cause: "why".to_owned() });
        assert_eq!(frame.snapshot.driver.as_deref(), Some("1"));
    }
}
