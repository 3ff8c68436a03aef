//! How a reload of a model goes: one replica after the other, or all at once where cards change hands. Pure.

use warden_domain::{
    ids::GpuId,
    model::{ModelConfig, StateReason},
    replica::Reload,
};

use crate::{
    entry::Entry,
    seat::{Seat, Stage, Turn},
};

impl Entry {
    /// How a reload with these settings goes.
    pub(crate) fn way_to(&self, next: &ModelConfig) -> Reload {
        let (old, new) = (&self.model.config.layout, &next.layout);
        let kept = old.replicas.min(new.replicas);
        if (0..kept).any(|number| old.cards_of(number) != new.cards_of(number)) {
            return Reload::Restart { why: "its replicas change cards".to_owned() };
        }
        if new.replicas > old.replicas && !new.gpus.is_empty() && (kept..new.replicas).any(|n| new.cards_of(n).iter().any(|c| old.gpus.contains(c))) {
            return Reload::Restart { why: "its replicas change cards".to_owned() };
        }
        // What a reload that was given up left running may hold cards that others are to get.
        let in_use = |card: &GpuId, but: u16| self.seats.iter().zip(0u16..).any(|(seat, n)| n != but && seat.may_run() && seat.cards.contains(card));
        if (0..new.replicas).any(|number| new.cards_of(number).iter().any(|card| in_use(card, number))) {
            return Reload::Restart { why: "its replicas change cards".to_owned() };
        }
        if self.seats.len() == 1 && new.replicas == 1 {
            return Reload::Restart { why: "it has one replica".to_owned() };
        }
        Reload::Rolling
    }

    /// Begins a reload with the settings taken before.
    pub(crate) fn begin_reload(&mut self, way: &Reload) {
        self.notice = None;
        self.all_at_once = matches!(way, Reload::Restart { .. });
        self.keeps_extras = !self.all_at_once;
        for seat in self.seats.iter_mut().filter(|seat| !seat.extra) {
            seat.turn = match (&seat.stage, self.all_at_once) {
                (Stage::Idle, _) => Turn::Settled,
                (_, true) => Turn::Leaving,
                (_, false) => Turn::Due,
            };
            (seat.by_hand, seat.parked) = (true, false);
        }
    }

    pub(crate) fn is_reloading(&self) -> bool {
        self.seats.iter().any(|seat| seat.turn != Turn::Settled)
    }

    /// Moves a reload on as far as the stages allow. One that does not come up again ends the reload; the others stay as they are.
    pub(crate) fn advance(&mut self) {
        if !self.wanted {
            self.seats.iter_mut().for_each(|seat| seat.turn = Turn::Settled);
        }
        self.advance_turns();
        if !self.is_reloading() {
            self.all_at_once = false;
            let through = self.seats.iter().filter(|seat| !seat.extra && !seat.parked).all(Seat::answers);
            self.keeps_extras &= self.wanted && !through;
        }
    }

    fn advance_turns(&mut self) {
        let mut given_up = None;
        for seat in &mut self.seats {
            seat.turn = match (seat.turn, &seat.stage) {
                (Turn::Leaving, Stage::Idle) => Turn::Coming,
                (Turn::Leaving, Stage::Failed(_) | Stage::Down(_) | Stage::Waiting(_)) => {
                    seat.stage = Stage::Idle;
                    Turn::Coming
                }
                (Turn::Coming, Stage::Running { silent: None, .. }) => Turn::Settled,
                (Turn::Coming, Stage::Failed(reason)) => {
                    given_up = Some((seat.id.clone(), reason.clone()));
                    Turn::Settled
                }
                (turn, _) => turn,
            };
            if seat.turn == Turn::Coming && seat.stage == Stage::Idle {
                (seat.served, seat.not_before, seat.tries) = (false, None, 0);
            }
        }
        if let Some((replica, reason)) = given_up {
            self.seats.iter_mut().filter(|seat| seat.turn == Turn::Due).for_each(|seat| seat.turn = Turn::Settled);
            self.notice = Some(StateReason {
                code: "reload_stopped".to_owned(),
                message: format!("The reload was given up at {replica}: {}", reason.message),
                hint: Some("What runs still has the settings from before. Correct the settings and reload again.".to_owned()),
            });
        }
        let one_is_moving = self.seats.iter().any(|seat| matches!(seat.turn, Turn::Leaving | Turn::Coming));
        if !one_is_moving && let Some(next) = self.seats.iter_mut().find(|seat| seat.turn == Turn::Due) {
            next.turn = Turn::Leaving;
        }
    }

    /// Whether a replica is to run now.
    pub(crate) const fn wants(&self, seat: &Seat) -> bool {
        self.wanted && !seat.parked && (!seat.extra || self.keeps_extras)
    }

    /// Whether starts have to wait until everything that uses the old cards has stopped.
    pub(crate) fn holds_starts(&self) -> bool {
        self.all_at_once && self.seats.iter().any(|seat| seat.turn == Turn::Leaving || (seat.extra && seat.may_run()))
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::samples::{entry, failed, launch, running, with};

    fn turns(entry: &Entry) -> Vec<Turn> {
        entry.seats.iter().map(|seat| seat.turn).collect()
    }

    #[test]
    fn a_rolling_reload_takes_one_replica_at_a_time() {
        use Turn::{Coming, Due, Leaving, Settled};
        let mut entry = entry(2, &[]);
        assert_eq!(entry.way_to(&entry.model.config.clone()), Reload::Rolling);
        entry.begin_reload(&Reload::Rolling);
        entry.advance();
        assert_eq!(turns(&entry), [Leaving, Due]);
        entry.seats[0].stage = Stage::Stopping { launch: launch("L"), draining: true };
        entry.advance();
        assert_eq!(turns(&entry), [Leaving, Due], "nothing else moves while one drains");
        entry.seats[0].stage = Stage::Idle;
        entry.advance();
        assert_eq!(turns(&entry), [Coming, Due]);
        entry.seats[0].stage = running();
        entry.advance();
        assert_eq!(turns(&entry), [Settled, Leaving]);
        entry.seats[1].stage = Stage::Idle;
        entry.advance();
        entry.seats[1].stage = running();
        entry.advance();
        assert!(!entry.is_reloading());
    }

    #[test]
    fn a_replica_that_does_not_come_back_ends_the_reload_and_the_others_stay() {
        let mut entry = entry(3, &[]);
        entry.begin_reload(&Reload::Rolling);
        entry.advance();
        entry.seats[0].stage = Stage::Idle;
        entry.advance();
        entry.seats[0].stage = failed();
        entry.advance();
        assert!(!entry.is_reloading());
        assert!(entry.seats[1].answers() && entry.seats[2].answers());
        assert_eq!(entry.notice.as_ref().unwrap().code, "reload_stopped");
    }

    #[test]
    fn replicas_that_change_cards_stop_together_before_one_starts() {
        let mut entry = entry(2, &["a", "b"]);
        let next = with(2, &["b", "a"]);
        let way = entry.way_to(&next.config);
        assert!(matches!(way, Reload::Restart { .. }));
        entry.take(next, Timestamp::UNIX_EPOCH);
        entry.begin_reload(&way);
        entry.seats[0].stage = Stage::Idle;
        entry.advance();
        assert!(entry.holds_starts());
        entry.seats[1].stage = Stage::Idle;
        entry.advance();
        assert!(!entry.holds_starts());
        assert!(matches!(self::entry(1, &[]).way_to(&with(1, &[]).config), Reload::Restart { .. }), "with one replica nothing can serve meanwhile");
        assert_eq!(self::entry(1, &["a"]).way_to(&with(2, &["a", "b"]).config), Reload::Rolling);
    }

    #[test]
    fn in_a_rolling_reload_to_fewer_replicas_the_others_serve_until_it_is_through() {
        let wants = |entry: &Entry| entry.seats.iter().map(|seat| entry.wants(seat)).collect::<Vec<_>>();
        let reloaded = || {
            let (mut entry, next) = (entry(3, &[]), with(1, &[]));
            let way = entry.way_to(&next.config);
            assert_eq!(way, Reload::Rolling);
            entry.take(next, Timestamp::UNIX_EPOCH);
            entry.begin_reload(&way);
            entry.advance();
            entry.seats[0].stage = Stage::Idle;
            entry.advance();
            assert_eq!(wants(&entry), [true, true, true]);
            entry
        };
        let mut through = reloaded();
        through.seats[0].stage = running();
        through.advance();
        assert_eq!(wants(&through), [true, false, false]);

        let mut given_up = reloaded();
        given_up.seats[0].stage = failed();
        given_up.advance();
        assert_eq!(wants(&given_up), [true, true, true], "they are all that serves");
        given_up.advance();
        assert_eq!(wants(&given_up), [true, true, true]);
        given_up.seats[0].stage = running();
        given_up.advance();
        assert_eq!(wants(&given_up), [true, false, false], "it was loaded again and came up");
    }

    #[test]
    fn a_replica_that_a_given_up_reload_left_does_not_share_its_card_with_another() {
        let mut entry = entry(2, &["a", "b"]);
        for (seat, card) in entry.seats.iter_mut().zip(["a", "b"]) {
            seat.cards = vec![GpuId::from_stored(card)];
        }
        entry.take(with(1, &["a"]), Timestamp::UNIX_EPOCH);
        assert!(matches!(entry.way_to(&with(3, &["a", "c", "b"]).config), Reload::Restart { .. }));
        assert_eq!(entry.way_to(&with(2, &["a", "c"]).config), Reload::Rolling);
    }
}
