//! One model as this room sees it: its replicas, whether it is wanted, and how all that reads outside.
//!
//! Pure: replicas in, one document out.

use jiff::Timestamp;
use warden_domain::{
    ids::GpuId,
    model::{Incident, Model, ModelState, ReplicaState, StateReason, StateWord},
    replica::ServedModel,
};
use warden_store::loads::{self, Phases};

use crate::{
    claims::Claim,
    name::replica_id,
    seat::{Seat, Stage},
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

    /// Makes sure that there is a replica of this number, one beyond the settings where it must be.
    pub(crate) fn make_room(&mut self, number: u16, now: Timestamp) {
        while self.seats.len() <= usize::from(number) {
            let next = u16::try_from(self.seats.len()).unwrap_or(u16::MAX);
            let mut seat = Seat::new(replica_id(&self.model, next), now);
            seat.extra = true;
            self.seats.push(seat);
        }
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
        let settings = &self.model.config;
        let documents = self.seats.iter_mut().map(|seat| ReplicaState { outdated: seat.is_outdated(settings), ..seat.document(earlier, now) });
        state.replicas = documents.collect();
        // While a reload is under way it is not due. One that was given up left something that still is.
        let left = self.outdated().filter(|_| !self.is_reloading()).and_then(|seat| seat.runs.clone());
        state.loaded = self.may_run().then(|| left.unwrap_or_else(|| self.model.config.clone()));
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
        state.comes = self.wanted && word != StateWord::Running && self.seats.iter().any(Seat::comes);
        state
    }

    fn context(&self) -> Option<warden_domain::units::Tokens> {
        self.seats.iter().find_map(|seat| match &seat.stage {
            Stage::Running { answering, .. } => answering.context,
            _ => None,
        })
    }

    /// Whether it takes images: one engine that does not is enough for a no.
    fn images(&self) -> Option<bool> {
        let told = self.seats.iter().filter_map(|seat| match &seat.stage {
            Stage::Running { answering, .. } => answering.images,
            _ => None,
        });
        told.reduce(|all, one| all && one).or(self.model.facts.images)
    }

    /// What the gateway may send to; `None` unless an engine answered.
    pub(crate) fn served(&self) -> Option<ServedModel> {
        let others = self.answers();
        let replicas: Vec<_> = self.seats.iter().filter_map(|seat| seat.served_as(others)).collect();
        (!replicas.is_empty()).then(|| ServedModel {
            id: self.model.id.clone(),
            served_name: self.model.config.served_name.clone(),
            engine: self.model.config.engine,
            context: self.context(),
            images: self.images(),
            runaway: self.model.config.layout.runaway,
            created: self.model.created_at.as_second(),
            replicas,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{entry, failed, launch, with};

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
    fn whether_it_takes_images_is_what_its_engines_say_and_else_what_its_files_say() {
        let mut entry = entry(2, &[]);
        assert_eq!(entry.served().unwrap().images, None);
        entry.model.facts.images = Some(true);
        assert_eq!(entry.served().unwrap().images, Some(true));
        for (seat, said) in [(0, true), (1, false)] {
            let Stage::Running { answering, .. } = &mut entry.seats[seat].stage else { unreachable!() };
            answering.images = Some(said);
        }
        assert_eq!(entry.served().unwrap().images, Some(false));
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
