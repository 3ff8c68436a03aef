//! How a reload goes on that an agent left in the middle, killed or given up. Pure.
//!
//! In: what runs with which settings, and the settings that were asked for last. Out: whose turn it is. Nothing of it was kept in memory.

use crate::{
    entry::Entry,
    seat::{Seat, Turn},
};

impl Entry {
    /// Goes on with a reload that not all replicas went through; false when all run as they were asked to.
    pub(crate) fn resume(&mut self) -> bool {
        let target = self.model.config.clone();
        let left: Vec<bool> = self.seats.iter().map(|seat| seat.may_run() && (seat.extra || seat.is_outdated(&target))).collect();
        if !self.wanted || !left.contains(&true) {
            return false;
        }
        let layout = &target.layout;
        let numbered = || self.seats.iter().zip(0u16..);
        let held = |card, but| numbered().any(|(seat, number)| number != but && seat.may_run() && seat.cards.contains(card));
        let clash = (0..layout.replicas).any(|number| layout.cards_of(number).iter().any(|card| held(card, number)));
        let moves = numbered().any(|(seat, number)| seat.may_run() && !seat.extra && seat.cards != layout.cards_of(number));
        self.all_at_once = clash || moves;
        self.keeps_extras = !self.all_at_once;
        for (seat, left) in self.seats.iter_mut().zip(left).filter(|(seat, _)| !seat.extra) {
            seat.turn = match (left, self.all_at_once) {
                (true, true) => Turn::Leaving,
                (true, false) => Turn::Due,
                // Whether it was stopped for its turn or never ran: it has to come up before the next one stops.
                (false, _) if !seat.answers() => Turn::Coming,
                (false, _) => Turn::Settled,
            };
        }
        true
    }

    /// Whether something of it runs with other settings than those asked for last.
    pub(crate) fn outdated(&self) -> Option<&Seat> {
        self.seats.iter().find(|seat| seat.is_outdated(&self.model.config))
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use warden_domain::{ids::GpuId, model::Model};

    use super::*;
    use crate::{
        samples::{adopted, failed, running, with},
        seat::Stage,
    };

    /// An entry as an agent finds it: asked for `next`; each replica runs with these settings, or not at all.
    fn found(next: &Model, seats: &[Option<&Model>]) -> Entry {
        let mut entry = Entry::new(next.clone(), true, Vec::new(), Timestamp::UNIX_EPOCH);
        for (number, runs) in (0u16..).zip(seats) {
            if let Some(model) = runs {
                entry.make_room(number, Timestamp::UNIX_EPOCH);
                adopted(&mut entry.seats[usize::from(number)], &model.config, number);
            }
        }
        entry
    }

    fn slots(replicas: u16, cards: &[&str], slots: u16) -> Model {
        let mut model = with(replicas, cards);
        model.config.slots = slots;
        model
    }

    /// Drives the entry as the reconciler does, engines that always come up, until nothing moves; what ran at a time on each card.
    fn drive(entry: &mut Entry) {
        for _ in 0..100 {
            entry.advance();
            entry.drop_extras();
            let held = entry.holds_starts();
            let wants: Vec<bool> = entry.seats.iter().map(|seat| entry.wants(seat)).collect();
            let target = entry.model.config.clone();
            for (number, wanted) in wants.into_iter().enumerate() {
                let seat = &mut entry.seats[number];
                match &seat.stage {
                    Stage::Loading { .. } => seat.stage = running(),
                    Stage::Running { .. } if !wanted || seat.turn == Turn::Leaving => seat.stage = Stage::Idle,
                    Stage::Idle if wanted && !held && !seat.extra => adopted(seat, &target, u16::try_from(number).unwrap()),
                    _ => {}
                }
            }
            let mut cards: Vec<&GpuId> = entry.seats.iter().filter(|seat| seat.may_run()).flat_map(|seat| &seat.cards).collect();
            let all = cards.len();
            cards.sort();
            cards.dedup();
            assert_eq!(cards.len(), all, "two engines on one card: {:?}", entry.seats);
        }
    }

    #[test]
    fn a_reload_cut_at_any_point_is_finished() {
        let cases = [
            (slots(2, &[], 1), slots(2, &[], 2)),
            (slots(2, &["a", "b"], 1), slots(2, &["a", "b"], 2)),
            (slots(2, &["a", "b"], 1), slots(2, &["b", "a"], 1)),
            (slots(3, &["a", "b", "c"], 1), slots(1, &["a"], 2)),
            (slots(2, &["a", "b"], 1), slots(1, &["a", "b"], 1)),
            (slots(1, &["a"], 1), slots(2, &["a", "b"], 2)),
            (slots(1, &["a", "b"], 1), slots(2, &["a", "b"], 1)),
        ];
        for (old, next) in &cases {
            let most = usize::from(old.config.layout.replicas.max(next.config.layout.replicas));
            // Every replica stopped, on the old settings, or on the new ones: more than any cut can leave.
            for cut in 0..3usize.pow(u32::try_from(most).unwrap()) {
                let seats: Vec<Option<&Model>> = (0..most)
                    .map(|number| match cut / 3usize.pow(u32::try_from(number).unwrap()) % 3 {
                        0 => None,
                        1 => Some(old).filter(|model| number < usize::from(model.config.layout.replicas)),
                        _ => Some(next).filter(|model| number < usize::from(model.config.layout.replicas)),
                    })
                    .collect();
                let mut entry = found(next, &seats);
                let mut cards: Vec<&GpuId> = entry.seats.iter().flat_map(|seat| &seat.cards).collect();
                cards.sort();
                if cards.windows(2).any(|pair| pair[0] == pair[1]) {
                    continue; // No reload leaves two engines on one card.
                }
                entry.resume();
                drive(&mut entry);
                let context = format!("{seats:?}");
                assert!(!entry.is_reloading() && entry.outdated().is_none(), "{context}: {:?}", entry.seats);
                assert_eq!(entry.seats.len(), usize::from(next.config.layout.replicas), "{context}");
                assert!(entry.seats.iter().all(Seat::answers), "{context}: {:?}", entry.seats);
            }
        }
    }

    #[test]
    fn in_a_rolling_reload_what_serves_goes_on_until_the_replica_before_it_is_up() {
        let (old, next) = (slots(2, &[], 1), slots(2, &[], 2));
        let mut entry = found(&next, &[None, Some(&old)]);
        assert!(entry.resume());
        entry.seats[1].stage = running();
        entry.advance();
        assert_eq!(entry.seats.iter().map(|seat| seat.turn).collect::<Vec<_>>(), [Turn::Coming, Turn::Due]);
        entry.seats[0].stage = failed();
        entry.advance();
        assert_eq!(entry.notice.as_ref().unwrap().code, "reload_stopped");
        assert!(!entry.is_reloading() && entry.seats[1].answers());
        assert_eq!(entry.outdated().map(|seat| seat.id.as_str()), Some("tiny-1"), "and what it runs with is seen");
        assert_eq!(entry.document(Timestamp::UNIX_EPOCH).loaded.unwrap().slots, 1, "so that a reload is due");
    }

    #[test]
    fn cards_of_engines_with_older_settings_are_held() {
        let (old, next) = (slots(1, &["a"], 1), slots(1, &["b"], 1));
        let mut entry = found(&next, &[Some(&old)]);
        entry.resume();
        assert_eq!(entry.claim(false).unwrap().cards, ["a", "b"].map(GpuId::from_stored));
    }

    #[test]
    fn what_runs_as_it_was_asked_to_is_left_alone() {
        let model = slots(2, &[], 1);
        let mut entry = found(&model, &[Some(&model), None]);
        assert!(!entry.resume());
        assert!(!entry.is_reloading());
    }
}
