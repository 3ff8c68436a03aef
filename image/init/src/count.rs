//! Starts of a slot that were not judged healthy afterwards. The boot loader counts only a slot that is on trial; this count, kept on
//! state, also catches a slot that was trusted and later breaks. The old count and the entries go in, the next count or a fallback comes out.

use warden_bootslot::choice::{entry_of, good};
use warden_bootslot::entry::{Entry, Slot, Tries};

/// Unhealthy starts in a row after which the other slot takes over.
pub const LIMIT: u32 = 3;

/// Unhealthy starts of one slot in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// The slot that was started.
    pub slot: Slot,
    /// How often.
    pub starts: u32,
}

impl Count {
    /// Reads the count's file; nothing when it does not hold together, which counts as no start.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let slot = Slot::parse(words.next()?.strip_prefix("slot=")?).ok()?;
        let starts = words.next()?.strip_prefix("starts=")?.parse().ok()?;
        words.next().is_none().then_some(Self { slot, starts })
    }

    /// The text of the count's file.
    #[must_use]
    pub fn render(self) -> String {
        format!("slot={} starts={}\n", self.slot, self.starts)
    }
}

/// The count for this start. A start of another slot than last time begins anew.
#[must_use]
pub fn next(before: Option<Count>, slot: Slot) -> Count {
    let starts = before.filter(|count| count.slot == slot).map_or(0, |count| count.starts);
    Count { slot, starts: starts.saturating_add(1) }
}

/// Whether this start needs a look at the boot entries: `LIMIT` starts before it were not judged healthy.
#[must_use]
pub fn in_trouble(count: Count) -> bool {
    count.starts > LIMIT
}

/// What to do with a slot in trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Start it again: the boot loader counts it itself.
    LoaderCounts,
    /// Start the other slot instead.
    FallBack,
    /// No other slot is good: start this one, with a recovery screen instead of a loop.
    NowhereToGo,
}

/// Judges a slot in trouble by the boot entries.
#[must_use]
pub fn verdict(entries: &[Entry], slot: Slot) -> Verdict {
    let on_trial = entry_of(entries, slot).is_some_and(|entry| matches!(entry.tries, Tries::Left(left) if left > 0));
    if on_trial {
        Verdict::LoaderCounts
    } else if good(entries, slot.other()) {
        Verdict::FallBack
    } else {
        Verdict::NowhereToGo
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(slot: Slot, tries: Tries) -> Entry {
        Entry { slot, tries, generation: 1, file: warden_bootslot::entry::name(slot, tries) }
    }

    #[test]
    fn a_slot_gets_three_starts_before_the_other_takes_over() {
        let mut count = None;
        let mut troubled = Vec::new();
        for _ in 0..4 {
            let now = next(count, Slot::A);
            troubled.push(in_trouble(now));
            count = Some(now);
        }
        assert_eq!(troubled, [false, false, false, true]);
    }

    #[test]
    fn a_start_of_the_other_slot_begins_a_new_count() {
        let before = Count { slot: Slot::A, starts: 3 };
        assert_eq!(next(Some(before), Slot::B), Count { slot: Slot::B, starts: 1 });
    }

    #[test]
    fn the_count_survives_the_way_through_its_file() {
        let count = Count { slot: Slot::B, starts: 2 };
        assert_eq!(Count::parse(&count.render()), Some(count));
        for text in ["", "slot=b", "slot=c starts=1", "slot=b starts=x", "slot=b starts=1 more"] {
            assert_eq!(Count::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_box_never_falls_back_to_a_slot_that_failed() {
        let own = entry(Slot::A, Tries::Confirmed);
        assert_eq!(verdict(&[own.clone(), entry(Slot::B, Tries::Confirmed)], Slot::A), Verdict::FallBack);
        assert_eq!(verdict(&[own.clone(), entry(Slot::B, Tries::Left(0))], Slot::A), Verdict::NowhereToGo);
        assert_eq!(verdict(&[own], Slot::A), Verdict::NowhereToGo);
    }

    #[test]
    fn a_slot_on_trial_is_left_to_the_boot_loader() {
        assert_eq!(verdict(&[entry(Slot::A, Tries::Left(1)), entry(Slot::B, Tries::Confirmed)], Slot::A), Verdict::LoaderCounts);
    }
}
