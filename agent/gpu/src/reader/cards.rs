//! From what the library answered per entry to the cards that are shown. Pure: identities are unique afterwards, and what was there
//! before and is not now is said.

use std::collections::{BTreeMap, btree_map::Entry as Slot};

use warden_domain::{
    gpu::{GpuCard, GpuHolder, GpuNotice},
    ids::GpuId,
};

/// One entry of the library's list.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A card that told its identity.
    Card(Box<GpuCard>),
    /// It fell off its bus.
    Lost,
    /// It told no identity; why.
    Unnamed(String),
}

/// The cards seen since the start: place and name.
pub type Seen = BTreeMap<GpuId, (u32, Option<String>)>;

/// Sorts out one round. `seen` is carried from round to round.
pub fn sort_out(entries: Vec<Entry>, seen: &mut Seen) -> (Vec<GpuCard>, Vec<GpuNotice>) {
    let mut cards = BTreeMap::new();
    let mut order = Vec::new();
    let mut notices = Vec::new();
    for (index, entry) in (0..).zip(entries) {
        match entry {
            Entry::Card(card) => match cards.entry(card.id.clone()) {
                Slot::Vacant(slot) => {
                    order.push(card.id.clone());
                    seen.insert(card.id.clone(), (index, card.name.clone()));
                    slot.insert(*card);
                }
                Slot::Occupied(_) => notices.push(GpuNotice::Doubled { id: card.id.clone(), index }),
            },
            Entry::Unnamed(cause) => notices.push(GpuNotice::Unnamed { index, cause }),
            // One that was never seen whole has no name to be missed by.
            Entry::Lost if seen.values().all(|(place, _)| *place != index) => {
                notices.push(GpuNotice::Unnamed { index, cause: "it fell off its bus".to_owned() });
            }
            Entry::Lost => {}
        }
    }
    let gone = seen.iter().filter(|(id, _)| !cards.contains_key(*id));
    notices.extend(gone.map(|(id, (index, name))| GpuNotice::Gone { id: id.clone(), index: *index, name: name.clone() }));
    (order.iter().filter_map(|id| cards.remove(id)).collect(), notices)
}

/// Makes one list of processes that compute and processes that draw; a process in both is one.
#[must_use]
pub fn merge_holders(compute: Option<Vec<GpuHolder>>, graphics: Option<Vec<GpuHolder>>) -> Option<Vec<GpuHolder>> {
    let mut all = compute?;
    for other in graphics.unwrap_or_default() {
        if all.iter().all(|holder| holder.pid != other.pid) {
            all.push(other);
        }
    }
    all.sort_by_key(|holder| holder.pid);
    Some(all)
}

/// The temperature at which the card slows itself down first: the lowest threshold it tells. 0 is a threshold nobody set.
#[must_use]
pub fn slows_at(thresholds: &[Option<u32>]) -> Option<u32> {
    thresholds.iter().flatten().copied().filter(|degrees| *degrees > 0).min()
}

/// A PCI address as Linux writes it: NVML's domain has four digits more.
#[must_use]
pub fn pci_address(told: &str) -> Option<String> {
    let told = told.trim().to_ascii_lowercase();
    let short = told.strip_prefix("0000").filter(|rest| rest.find(':') == Some(4)).unwrap_or(&told);
    (!short.is_empty()).then(|| short.to_owned())
}

/// The program's name out of what the driver calls a process: a command line whose later words are nobody's business.
#[must_use]
pub fn program(told: &str) -> Option<String> {
    let first = told.split_whitespace().next()?;
    let name = first.rsplit('/').next().unwrap_or(first);
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use warden_domain::gpu::PcieLink;

    use super::*;

    fn card(index: u32, id: &str) -> Entry {
        Entry::Card(Box::new(GpuCard {
            index,
            id: GpuId::from_stored(id),
            minor: None,
            name: Some("A".to_owned()),
            pci: None,
            memory_total: None,
            memory_used: None,
            utilisation_ratio: None,
            temperature: None,
            temperature_limit: None,
            power: None,
            power_cap: None,
            link: PcieLink::default(),
            holders: None,
        }))
    }

    #[test]
    fn two_cards_of_one_identity_are_never_both_offered() {
        let (cards, notices) = sort_out(vec![card(0, "GPU-a"), card(1, "GPU-a"), card(2, "GPU-b")], &mut Seen::new());
        assert_eq!(cards.iter().map(|c| c.index).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(notices, [GpuNotice::Doubled { id: GpuId::from_stored("GPU-a"), index: 1 }]);
    }

    #[test]
    fn a_card_that_vanished_is_missed_until_it_is_back() {
        let mut seen = Seen::new();
        sort_out(vec![card(0, "GPU-a"), card(1, "GPU-b")], &mut seen);
        for without in [vec![card(0, "GPU-a")], vec![card(0, "GPU-a"), Entry::Lost]] {
            let (cards, notices) = sort_out(without, &mut seen);
            assert_eq!(cards.len(), 1);
            assert_eq!(notices, [GpuNotice::Gone { id: GpuId::from_stored("GPU-b"), index: 1, name: Some("A".to_owned()) }]);
        }
        let (cards, notices) = sort_out(vec![card(0, "GPU-a"), card(1, "GPU-b")], &mut seen);
        assert_eq!((cards.len(), notices.len()), (2, 0));
    }

    #[test]
    fn a_card_without_identity_is_told_and_not_offered() {
        let (cards, notices) = sort_out(vec![Entry::Unnamed("no".to_owned()), Entry::Lost], &mut Seen::new());
        assert!(cards.is_empty());
        assert_eq!(notices.len(), 2);
    }

    #[test]
    fn an_unset_threshold_is_not_taken_for_nought_degrees() {
        assert_eq!(slows_at(&[Some(0), None, Some(93), Some(84)]), Some(84));
        assert_eq!(slows_at(&[None, Some(0)]), None);
    }

    #[test]
    fn arguments_of_a_foreign_process_are_not_shown() {
        assert_eq!(program("/srv/venv/bin/python3 serve.py --token secret").as_deref(), Some("python3"));
        assert_eq!(program("  "), None);
    }

    #[test]
    fn an_address_is_written_as_the_kernel_writes_it() {
        assert_eq!(pci_address("00000000:A1:00.0").as_deref(), Some("0000:a1:00.0"));
        assert_eq!(pci_address("00010000:A1:00.0").as_deref(), Some("00010000:a1:00.0"));
        assert_eq!(pci_address("0000:a1:00.0").as_deref(), Some("0000:a1:00.0"));
        assert_eq!(pci_address(""), None);
    }

    #[test]
    fn a_process_that_computes_and_draws_holds_memory_once() {
        let holder = |pid| GpuHolder { pid, name: None, memory: None };
        assert_eq!(merge_holders(Some(vec![holder(2), holder(1)]), Some(vec![holder(2), holder(3)])).unwrap().len(), 3);
        assert_eq!(merge_holders(None, Some(vec![holder(2)])), None, "who computes is unknown, so nobody can say who holds memory");
        assert_eq!(merge_holders(Some(vec![]), None), Some(vec![]));
    }
}
