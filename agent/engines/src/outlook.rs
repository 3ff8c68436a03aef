//! What is known of a launch between two looks: whether it ever answered, since when it is silent, what it said of itself.
//!
//! A look (alive or not, health) in, an observation out. The judgement is pure; the memory is one small map.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use warden_domain::engine::{Answering, Capacity, LoadView, Observation};

use crate::probe::Health;

#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    last_answer: Option<Instant>,
    told: Answering,
}

/// Memory of all launches that were looked at.
#[derive(Debug, Default)]
pub(crate) struct Outlook(Mutex<HashMap<String, Memory>>);

impl Outlook {
    /// Whether it said at an earlier look all that it can say of itself.
    pub(crate) fn told_all(&self, launch: &str) -> bool {
        self.lock().get(launch).is_some_and(|memory| memory.told.context.is_some() && memory.told.capacity != Capacity::Unknown)
    }

    /// Whether it ever answered.
    pub(crate) fn answered(&self, launch: &str) -> bool {
        self.lock().get(launch).is_some_and(|memory| memory.last_answer.is_some())
    }

    /// Judges a look at a launch whose process lives. `told` is what it said of itself just now, where it was asked. How far its load is
    /// counts for a launch that never answered.
    pub(crate) fn judge(&self, launch: &str, health: Health, told: Answering, now: Instant, load: impl FnOnce() -> LoadView) -> Observation {
        let mut map = self.lock();
        let memory = map.entry(launch.to_owned()).or_default();
        if health == Health::Ready {
            memory.last_answer = Some(now);
            memory.told = Answering {
                context: memory.told.context.or(told.context),
                capacity: if memory.told.capacity == Capacity::Unknown { told.capacity } else { memory.told.capacity },
                images: memory.told.images.or(told.images),
            };
            return Observation::Ready(memory.told);
        }
        if let Some(last) = memory.last_answer {
            return Observation::Silent { since: now.saturating_duration_since(last).max(Duration::from_millis(1)) };
        }
        drop(map);
        Observation::Starting(load())
    }

    /// Forgets a launch that is gone.
    pub(crate) fn forget(&self, launch: &str) {
        self.lock().remove(launch);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Memory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use warden_domain::units::Tokens;

    use super::*;

    #[test]
    fn an_engine_that_answered_once_is_silent_and_not_starting_again() {
        let outlook = Outlook::default();
        let begin = Instant::now();
        let load = || LoadView { phase: Some("weights".to_owned()), ..LoadView::default() };
        let unknown = Answering::default();
        let told = Answering { context: Some(Tokens(9)), capacity: Capacity::Slots(2), images: Some(true) };
        assert_eq!(outlook.judge("a", Health::Loading, unknown, begin, load), Observation::Starting(load()));
        assert_eq!(outlook.judge("a", Health::Ready, unknown, begin, load), Observation::Ready(unknown));
        assert!(!outlook.told_all("a"));
        assert_eq!(outlook.judge("a", Health::Ready, told, begin, load), Observation::Ready(told));
        assert_eq!(outlook.judge("a", Health::Ready, unknown, begin, load), Observation::Ready(told));
        assert!(outlook.told_all("a"));
        let later = begin + Duration::from_secs(7);
        assert_eq!(outlook.judge("a", Health::Silent, unknown, later, load), Observation::Silent { since: Duration::from_secs(7) });
        outlook.forget("a");
        assert!(matches!(outlook.judge("a", Health::Silent, unknown, later, load), Observation::Starting(_)));
    }
}
