//! Decisions over the entries that were found: which slot is first, which state a slot has, which single file to write next, and which
//! of two files of one slot counts after a cut. Values in, values out.

use crate::entry::{Entry, Slot, TRIES, Tries};

/// One file to write; all other files of that slot go afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// Slot of the entry.
    pub slot: Slot,
    /// Its new counter.
    pub tries: Tries,
    /// Its generation.
    pub generation: u32,
}

/// The entry of a slot. A cut between writing the new file and removing the old one leaves twins: the newer generation counts, and of
/// one generation the one with fewer promises, so that a cut never turns a slot that failed into one that is trusted.
#[must_use]
pub fn entry_of(entries: &[Entry], slot: Slot) -> Option<&Entry> {
    let trust = |entry: &Entry| match entry.tries {
        Tries::Confirmed => u32::MAX,
        Tries::Left(left) => left,
    };
    entries.iter().filter(|entry| entry.slot == slot).max_by_key(|entry| (entry.generation, u32::MAX - trust(entry)))
}

/// The files that lost against their twin and may go.
#[must_use]
pub fn twins(entries: &[Entry]) -> Vec<&Entry> {
    let kept = |entry: &Entry| entry_of(entries, entry.slot).is_some_and(|best| best.file == entry.file);
    entries.iter().filter(|entry| !kept(entry)).collect()
}

/// The slot the loader starts next: the newest usable one. Nothing when no slot is usable.
#[must_use]
pub fn primary(entries: &[Entry]) -> Option<Slot> {
    let of = |slot| entry_of(entries, slot).filter(|entry| entry.tries.usable());
    Slot::BOTH.into_iter().filter_map(of).max_by_key(|entry| entry.generation).map(|entry| entry.slot)
}

/// Whether a slot may be started: it has an entry and tries.
#[must_use]
pub fn good(entries: &[Entry], slot: Slot) -> bool {
    entry_of(entries, slot).is_some_and(|entry| entry.tries.usable())
}

/// The write that makes a slot the first one, with a full count of tries and a generation above all others.
#[must_use]
pub fn set_primary(entries: &[Entry], slot: Slot) -> Write {
    let newest = entries.iter().map(|entry| entry.generation).max().unwrap_or(0);
    Write { slot, tries: Tries::Left(TRIES), generation: newest.saturating_add(1) }
}

/// The write that judges a slot good (counter gone) or bad (no try left); its place in the order stays.
#[must_use]
pub fn set_state(entries: &[Entry], slot: Slot, good: bool) -> Write {
    let generation = entry_of(entries, slot).map_or(0, |entry| entry.generation);
    Write { slot, tries: if good { Tries::Confirmed } else { Tries::Left(0) }, generation }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{name, parse_name};

    fn entries(files: &[(&str, u32)]) -> Vec<Entry> {
        let made = |&(file, generation): &(&str, u32)| {
            let (slot, tries) = parse_name(file).unwrap();
            Entry { slot, tries, generation, file: file.to_owned() }
        };
        files.iter().map(made).collect()
    }

    #[test]
    fn the_newest_usable_slot_is_started() {
        assert_eq!(primary(&entries(&[("a.conf", 1), ("b+3.conf", 2)])), Some(Slot::B));
        assert_eq!(primary(&entries(&[("a.conf", 1), ("b+0-3.conf", 2)])), Some(Slot::A));
        assert_eq!(primary(&entries(&[("a+0.conf", 1), ("b+0-3.conf", 2)])), None);
        assert_eq!(primary(&[]), None);
    }

    #[test]
    fn an_installed_slot_gets_three_tries_and_goes_first() {
        let found = entries(&[("a.conf", 7), ("b+0.conf", 3)]);
        let write = set_primary(&found, Slot::B);
        assert_eq!((name(write.slot, write.tries).as_str(), write.generation), ("b+3.conf", 8));
    }

    #[test]
    fn judging_a_slot_keeps_its_place_in_the_order() {
        let found = entries(&[("a.conf", 7), ("b+2-1.conf", 8)]);
        assert_eq!(set_state(&found, Slot::B, true), Write { slot: Slot::B, tries: Tries::Confirmed, generation: 8 });
        assert_eq!(set_state(&found, Slot::B, false), Write { slot: Slot::B, tries: Tries::Left(0), generation: 8 });
    }

    #[test]
    fn a_cut_while_marking_a_slot_bad_does_not_leave_it_trusted() {
        let found = entries(&[("b.conf", 8), ("b+0.conf", 8), ("a.conf", 7)]);
        assert_eq!(entry_of(&found, Slot::B).unwrap().file, "b+0.conf");
        assert_eq!(primary(&found), Some(Slot::A));
        assert_eq!(twins(&found).iter().map(|entry| entry.file.as_str()).collect::<Vec<_>>(), ["b.conf"]);
    }

    #[test]
    fn a_cut_while_making_a_slot_first_keeps_the_newer_file() {
        let found = entries(&[("b+0.conf", 3), ("b+3.conf", 8)]);
        assert_eq!(entry_of(&found, Slot::B).unwrap().file, "b+3.conf");
        assert!(good(&found, Slot::B));
    }

    #[test]
    fn a_slot_without_an_entry_is_not_good() {
        assert!(!good(&entries(&[("a.conf", 1)]), Slot::B));
    }
}
