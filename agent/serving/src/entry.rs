//! One model as this room sees it: its replicas, whether it is wanted, how a reload of it goes, and how all that reads outside.
//!
//! Pure: replicas in, one document out.

use jiff::Timestamp;
use warden_domain::{
    ids::GpuId,
    model::{Incident, Model, ModelConfig, ModelState, StateReason, StateWord},
    replica::{Reload, ServedModel},
};
use warden_store::loads::{self, Phases};

use crate::{
    claims::Claim,
    name::replica_id,
    seat::{Seat, Stage, Turn},
};

/// A model that was asked for, or found running.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// With the settings it was loaded with.
    pub(crate) model: Model,
    pub(crate) wanted: bool,
    /// By number.
    pub(crate) seats: Vec<Seat>,
    /// In the reload under way nothing starts before everything has stopped.
    pub(crate) all_at_once: bool,
    /// In a rolling reload to fewer replicas those beyond go on until the others are through. When it was given up they stay.
    pub(crate) keeps_extras: bool,
    /// Times of earlier loads, newest first.
    pub(crate) earlier: Vec<Phases>,
    pub(crate) notice: Option<StateReason>,
    /// Newest first.
    pub(crate) incidents: Vec<Incident>,
    shown: StateWord,
    since: Timestamp,
}

/// Incidents told of one model.
const INCIDENTS: usize = 5;

impl Entry {
    pub(crate) fn new(model: Model, wanted: bool, earlier: Vec<Phases>, now: Timestamp) -> Self {
        let mut entry = Self {
            model,
            wanted,
            seats: Vec::new(),
            all_at_once: false,
            keeps_extras: false,
            earlier,
            notice: None,
            incidents: Vec::new(),
            shown: StateWord::Stopped,
            since: now,
        };
        entry.fit_seats(now);
        entry
    }

    /// Takes other settings; what runs keeps the old ones until it is started anew.
    pub(crate) fn take(&mut self, model: Model, now: Timestamp) {
        self.model = model;
        self.fit_seats(now);
    }

    /// As many replicas as the settings say; those beyond go once nothing of them runs.
    fn fit_seats(&mut self, now: Timestamp) {
        let wanted = usize::from(self.model.config.layout.replicas.max(1));
        while self.seats.len() < wanted {
            let number = u16::try_from(self.seats.len()).unwrap_or(u16::MAX);
            self.seats.push(Seat::new(replica_id(&self.model, number), now));
        }
        for (number, seat) in self.seats.iter_mut().enumerate() {
            seat.extra = number >= wanted;
        }
        self.drop_extras();
    }

    pub(crate) fn drop_extras(&mut self) {
        while self.seats.last().is_some_and(|seat| seat.extra && !seat.may_run()) {
            self.seats.pop();
        }
    }

    /// Whether an engine of it may run.
    pub(crate) fn may_run(&self) -> bool {
        self.seats.iter().any(Seat::may_run)
    }

    /// Whether an engine of it runs, or is being started or stopped; one that could not be stopped is neither.
    pub(crate) fn is_under_way(&self) -> bool {
        self.seats.iter().any(Seat::is_under_way)
    }

    pub(crate) fn answers(&self) -> bool {
        self.seats.iter().any(Seat::answers)
    }

    /// The cards it holds, or will as soon as it is its turn. With `to_come` false, only those that an engine may use now.
    pub(crate) fn claim(&self, to_come: bool) -> Option<Claim> {
        let mut cards: Vec<GpuId> = Vec::new();
        for (seat, number) in self.seats.iter().zip(0u16..) {
            if seat.may_run() || matches!(seat.stage, Stage::Down(_)) {
                cards.extend(seat.cards.iter().cloned());
            }
            let comes = self.wanted && !seat.extra && !matches!(seat.stage, Stage::Failed(_));
            if comes && (to_come || seat.may_run()) {
                cards.extend(self.model.config.layout.cards_of(number).iter().cloned());
            }
        }
        cards.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        cards.dedup();
        (!cards.is_empty()).then(|| Claim { name: self.model.config.served_name.clone(), cards })
    }

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
            seat.by_hand = true;
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
            let through = self.seats.iter().filter(|seat| !seat.extra).all(Seat::answers);
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
        self.wanted && (!seat.extra || self.keeps_extras)
    }

    /// Whether starts have to wait until everything that uses the old cards has stopped.
    pub(crate) fn holds_starts(&self) -> bool {
        self.all_at_once && self.seats.iter().any(|seat| seat.turn == Turn::Leaving || (seat.extra && seat.may_run()))
    }

    pub(crate) fn note(&mut self, incident: Incident) {
        self.incidents.insert(0, incident);
        self.incidents.truncate(INCIDENTS);
    }

    pub(crate) fn learn(&mut self, load: Phases) {
        self.earlier.insert(0, load);
        self.earlier.truncate(loads::KEPT);
    }

    fn word(&self) -> StateWord {
        let first_of = [StateWord::Running, StateWord::Loading, StateWord::Failed, StateWord::Waiting];
        first_of.into_iter().find(|word| self.seats.iter().any(|seat| seat.word() == *word)).unwrap_or(StateWord::Stopped)
    }

    /// The document for pages and api. The moment a state began is kept until its word changes.
    pub(crate) fn document(&mut self, now: Timestamp) -> ModelState {
        let word = self.word();
        if word != self.shown {
            self.shown = word;
            self.since = now;
        }
        let mut state = ModelState { state: word, ..ModelState::stopped(self.since) };
        state.notice.clone_from(&self.notice);
        state.incidents.clone_from(&self.incidents);
        if word == StateWord::Stopped {
            return state;
        }
        let earlier = &self.earlier;
        state.replicas = self.seats.iter_mut().map(|seat| seat.document(earlier, now)).collect();
        state.loaded = self.may_run().then(|| self.model.config.clone());
        let same: Vec<_> = state.replicas.iter().filter(|replica| replica.state == word).collect();
        if let Some(first) = same.first() {
            // A running model tells of draining and silence only when all that runs of it does.
            if word != StateWord::Running || same.iter().all(|replica| replica.phase.is_some()) {
                state.phase.clone_from(&first.phase);
            }
            if word != StateWord::Running {
                state.reason.clone_from(&first.reason);
                state.last_log_line.clone_from(&first.last_log_line);
            }
        }
        state.context = self.context();
        state
    }

    fn context(&self) -> Option<warden_domain::units::Tokens> {
        self.seats.iter().find_map(|seat| match &seat.stage {
            Stage::Running { answering, .. } => answering.context,
            _ => None,
        })
    }

    /// What the gateway may send to; `None` unless an engine answered.
    pub(crate) fn served(&self) -> Option<ServedModel> {
        let others = self.answers();
        let replicas: Vec<_> = self.seats.iter().filter_map(|seat| seat.served_as(others)).collect();
        (!replicas.is_empty()).then(|| ServedModel {
            id: self.model.id.clone(),
            served_name: self.model.config.served_name.clone(),
            context: self.context(),
            created: self.model.created_at.as_second(),
            replicas,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use warden_domain::{engine::Answering, ids::GpuId, model::Layout};

    use super::*;
    use crate::{samples::launch, samples::model_named, watch::Watch};

    fn with(replicas: u16, cards: &[&str]) -> Model {
        let mut model = model_named("tiny", "mdl_1");
        model.config.layout = Layout { replicas, gpus: cards.iter().map(|id| GpuId::from_stored(*id)).collect(), ..Layout::default() };
        model
    }

    fn entry(replicas: u16, cards: &[&str]) -> Entry {
        let mut entry = Entry::new(with(replicas, cards), true, Vec::new(), Timestamp::UNIX_EPOCH);
        entry.seats.iter_mut().for_each(|seat| seat.stage = running());
        entry
    }

    fn running() -> Stage {
        Stage::Running { launch: launch("L"), answering: Answering::default(), silent: None, watch: Watch::new(Instant::now()) }
    }

    fn failed() -> Stage {
        Stage::Failed(StateReason { code: "engine_failed".to_owned(), message: "It broke.".to_owned(), hint: None })
    }

    fn turns(entry: &Entry) -> Vec<Turn> {
        entry.seats.iter().map(|seat| seat.turn).collect()
    }

    #[test]
    fn a_model_runs_when_one_replica_answers_whatever_the_others_do() {
        let mut entry = entry(2, &[]);
        entry.seats[0].stage = failed();
        let state = entry.document(Timestamp::UNIX_EPOCH);
        assert_eq!((state.state, state.reason), (StateWord::Running, None));
        assert_eq!(state.replicas.iter().map(|r| r.state).collect::<Vec<_>>(), [StateWord::Failed, StateWord::Running]);
        assert_eq!(entry.served().unwrap().replicas.len(), 1);
        entry.seats[1].stage = failed();
        assert_eq!(entry.document(Timestamp::UNIX_EPOCH).reason.unwrap().message, "It broke.");
        assert!(entry.served().is_none());
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

    #[test]
    fn fewer_replicas_go_once_nothing_of_them_runs() {
        let mut entry = entry(3, &[]);
        entry.take(with(1, &[]), Timestamp::UNIX_EPOCH);
        assert_eq!(entry.seats.iter().map(|seat| seat.extra).collect::<Vec<_>>(), [false, true, true]);
        entry.seats[2].stage = Stage::Idle;
        entry.drop_extras();
        assert_eq!(entry.seats.len(), 2);
    }

    #[test]
    fn a_card_is_free_again_when_the_replica_on_it_is_gone() {
        let mut entry = entry(2, &["a", "b"]);
        for (seat, card) in entry.seats.iter_mut().zip(["a", "b"]) {
            seat.cards = vec![GpuId::from_stored(card)];
        }
        assert_eq!(entry.claim(false).unwrap().cards.len(), 2);
        entry.seats[0].stage = failed();
        assert_eq!(entry.claim(true).unwrap().cards, [GpuId::from_stored("b")]);
        entry.wanted = false;
        entry.seats[1].stage = Stage::Stopping { launch: launch("L"), draining: true };
        assert_eq!(entry.claim(true).unwrap().cards, [GpuId::from_stored("b")], "it is still in use while it drains");
        entry.seats[1].stage = Stage::Idle;
        assert_eq!(entry.claim(true), None);
        entry.seats[1].lingers = true;
        assert_eq!(entry.claim(true).unwrap().cards, [GpuId::from_stored("b")], "its engine could not be stopped");
        assert!(entry.may_run());
    }

    #[test]
    fn what_is_wanted_later_is_claimed_against_loads_and_not_against_starts() {
        let mut entry = entry(1, &["a"]);
        entry.seats[0].stage = Stage::Idle;
        assert_eq!(entry.claim(false), None);
        assert!(entry.claim(true).is_some());
    }
}
