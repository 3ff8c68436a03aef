//! When to try again. Pure.

use std::time::Duration;

/// Pauses after the first, second, … try that failed; the last one repeats.
const PAUSES: &[u64] = &[2, 5, 15, 60, 300, 900, 3600];
/// Tries in all before an alert is given up: about a day.
const TRIES: u32 = 30;

/// The pause before the next try after `tries` that failed; `None` = give up.
pub(crate) fn after(tries: u32) -> Option<Duration> {
    if tries >= TRIES {
        return None;
    }
    let place = usize::try_from(tries).unwrap_or(usize::MAX).saturating_sub(1).min(PAUSES.len() - 1);
    PAUSES.get(place).map(|seconds| Duration::from_secs(*seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hiccup_is_over_in_seconds_and_a_receiver_away_for_a_night_still_hears() {
        assert_eq!(after(1), Some(Duration::from_secs(2)));
        assert_eq!(after(2), Some(Duration::from_secs(5)));
        let all: u64 = (1..TRIES).filter_map(after).map(|pause| pause.as_secs()).sum();
        assert!(all > 20 * 3_600 && all < 36 * 3_600, "{all}");
        assert_eq!(after(TRIES), None);
    }
}
