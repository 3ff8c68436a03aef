//! What is known of a launch between two looks: whether it ever answered, since when it is silent, its window.
//!
//! A look (alive or not, health) in, an observation out. The judgement is pure; the memory is one small map.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use warden_domain::{
    engine::{Answering, LoadView, Observation},
    units::Tokens,
};

use crate::probe::Health;

#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    last_answer: Option<Instant>,
    context: Option<Tokens>,
}

/// Memory of all launches that were looked at.
#[derive(Debug, Default)]
pub(crate) struct Outlook(Mutex<HashMap<String, Memory>>);

impl Outlook {
    /// The window told at an earlier look.
    pub(crate) fn context(&self, launch: &str) -> Option<Tokens> {
        self.lock().get(launch).and_then(|m| m.context)
    }

    /// Judges a look at a launch whose process lives. How far the load is, is only asked for a launch that never answered.
    pub(crate) fn judge(&self, launch: &str, health: Health, context: Option<Tokens>, now: Instant, load: impl FnOnce() -> LoadView) -> Observation {
        let mut map = self.lock();
        let memory = map.entry(launch.to_owned()).or_default();
        if health == Health::Ready {
            memory.last_answer = Some(now);
            memory.context = memory.context.or(context);
            return Observation::Ready(answering(memory.context));
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

fn answering(context: Option<Tokens>) -> Answering {
    Answering { context, ..Answering::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_answered_once_is_silent_and_not_starting_again() {
        let outlook = Outlook::default();
        let begin = Instant::now();
        let log = || LoadView { phase: Some("weights".to_owned()), ..LoadView::default() };
        assert!(matches!(outlook.judge("a", Health::Loading, None, begin, log), Observation::Starting(LoadView { phase: Some(_), .. })));
        assert_eq!(outlook.judge("a", Health::Ready, Some(Tokens(9)), begin, log), Observation::Ready(answering(Some(Tokens(9)))));
        assert_eq!(outlook.judge("a", Health::Ready, None, begin, log), Observation::Ready(answering(Some(Tokens(9)))));
        let later = begin + Duration::from_secs(7);
        assert_eq!(outlook.judge("a", Health::Silent, None, later, log), Observation::Silent { since: Duration::from_secs(7) });
        outlook.forget("a");
        assert!(matches!(outlook.judge("a", Health::Silent, None, later, log), Observation::Starting(_)));
    }
}
