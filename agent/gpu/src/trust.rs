//! What the agent says of the cards, from what the reader said last and how long it has been silent. Pure.

use std::{sync::Arc, time::Duration};

use warden_domain::gpu::{GpuReading, GpuSnapshot, STALE_AFTER};

use crate::wire::Frame;

/// What is known of the reader itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trouble {
    /// Why nothing comes, in a sentence.
    pub(crate) cause: Option<String>,
    /// It cannot come by waiting: the program is not there.
    pub(crate) hopeless: bool,
}

/// Takes a new frame over the one before. A reader that has just started again knows no cards yet; those known before stay, marked as
/// old, and so do those that a reader knew before its library began to refuse.
pub(crate) fn take_over(before: Option<(&Frame, Duration)>, new: Frame) -> Frame {
    let Some((old, silent)) = before else { return new };
    let knows_nothing = new.age_s.is_none() && old.age_s.is_some();
    if !knows_nothing {
        return new;
    }
    let age = old.age_s.map(|age| age + silent.as_secs_f64());
    let reading = match new.snapshot.reading {
        GpuReading::Starting => GpuReading::Stale {
            since_s: age.unwrap_or_default(),
            cause: "The GPU reader was started again and has not read anything yet.".to_owned(),
        },
        // The library went away; then so did the cards.
        GpuReading::NoLibrary { .. } => return new,
        other => other,
    };
    let snapshot = GpuSnapshot { reading, ..old.snapshot.clone() };
    Frame { snapshot, age_s: age, notices: old.notices.clone() }
}

/// The snapshot to show. `silent` is the time since the last frame, or since the start when none has come.
pub(crate) fn shown(last: Option<&Arc<GpuSnapshot>>, silent: Duration, trouble: &Trouble) -> Arc<GpuSnapshot> {
    let cause = || trouble.cause.clone().unwrap_or_else(|| "The GPU reader does not answer.".to_owned());
    let stale = || GpuReading::Stale { since_s: silent.as_secs_f64(), cause: cause() };
    match last {
        Some(last) if silent <= STALE_AFTER => Arc::clone(last),
        Some(last) => Arc::new(GpuSnapshot { reading: stale(), ..GpuSnapshot::clone(last) }),
        None if trouble.hopeless => Arc::new(GpuSnapshot { reading: GpuReading::Failed { cause: cause() }, ..GpuSnapshot::starting() }),
        None if silent <= STALE_AFTER => Arc::new(GpuSnapshot::starting()),
        None => Arc::new(GpuSnapshot { reading: stale(), ..GpuSnapshot::starting() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(reading: GpuReading) -> Frame {
        let mut frame = Frame::bare(reading);
        frame.age_s = Some(0.5);
        frame.snapshot.driver = Some("1".to_owned());
        frame
    }

    #[test]
    fn a_reader_that_starts_again_does_not_make_the_cards_vanish() {
        let old = known(GpuReading::Live);
        let now = take_over(Some((&old, Duration::from_secs(3))), Frame::bare(GpuReading::Starting));
        assert_eq!(now.snapshot.driver.as_deref(), Some("1"));
        assert!(matches!(now.snapshot.reading, GpuReading::Stale { since_s, .. } if since_s >= 3.0));
        let failed = take_over(Some((&now, Duration::ZERO)), Frame::bare(GpuReading::Failed { cause: "x".to_owned() }));
        assert_eq!((failed.snapshot.driver.as_deref(), failed.snapshot.reading), (Some("1"), GpuReading::Failed { cause: "x".to_owned() }));
        let live = known(GpuReading::Live);
        assert_eq!(take_over(Some((&old, Duration::ZERO)), live.clone()), live);
    }

    #[test]
    fn a_silent_reader_is_stale_with_the_last_known_cards_and_the_reason() {
        let last = Arc::new(known(GpuReading::Live).snapshot);
        let trouble = Trouble { cause: Some("why".to_owned()), hopeless: false };
        assert_eq!(shown(Some(&last), Duration::from_secs(2), &trouble), last);
        let now = shown(Some(&last), Duration::from_secs(9), &trouble);
        assert_eq!(now.reading, GpuReading::Stale { since_s: 9.0, cause: "why".to_owned() });
        assert_eq!(now.driver.as_deref(), Some("1"));
    }

    #[test]
    fn a_reader_that_never_answered_is_told_after_a_moment() {
        assert_eq!(shown(None, Duration::from_secs(1), &Trouble::default()).reading, GpuReading::Starting);
        assert!(matches!(shown(None, Duration::from_secs(6), &Trouble::default()).reading, GpuReading::Stale { .. }));
        let hopeless = Trouble { cause: Some("not built".to_owned()), hopeless: true };
        assert_eq!(shown(None, Duration::ZERO, &hopeless).reading, GpuReading::Failed { cause: "not built".to_owned() });
    }
}
