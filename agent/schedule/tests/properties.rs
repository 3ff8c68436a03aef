//! Whatever happens in whatever order: nothing leaks, nobody is overtaken inside his class, no replica gets what it cannot take, and
//! every request ends once.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use proptest::prelude::*;
use warden_domain::{engine::Capacity, ids::ReplicaId, units::Tokens};
use warden_schedule::{Action, Arrival, Bounds, Class, ConversationId, Event, Policy, Return, State, Ticket, Used, step};

/// One thing that happens; numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Move {
    Arrive { class: u8, conversation: Option<u8>, streamed: bool, patience: u8 },
    FirstToken(u8),
    Done(u8),
    Cancel(u8),
    Back(u8, u8),
    Up { replica: u8, slots: u8, again: bool },
    Down(u8),
    Drain(u8),
    Sample(u8, u8),
    Pass(u8),
}

fn a_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        8 => (0..3_u8, prop::option::of(0..6_u8), any::<bool>(), 1..60_u8)
            .prop_map(|(class, conversation, streamed, patience)| Move::Arrive { class, conversation, streamed, patience }),
        2 => any::<u8>().prop_map(Move::FirstToken),
        5 => any::<u8>().prop_map(Move::Done),
        3 => any::<u8>().prop_map(Move::Cancel),
        3 => (any::<u8>(), 0..4_u8).prop_map(|(n, why)| Move::Back(n, why)),
        3 => (0..4_u8, 0..7_u8, any::<bool>()).prop_map(|(replica, slots, again)| Move::Up { replica, slots, again }),
        1 => (0..4_u8).prop_map(Move::Down),
        1 => (0..4_u8).prop_map(Move::Drain),
        1 => (0..4_u8, 0..6_u8).prop_map(|(replica, n)| Move::Sample(replica, n)),
        2 => (0..40_u8).prop_map(Move::Pass),
    ]
}

fn bounds() -> Bounds {
    Bounds { queue: 6, with_tokens: 3, unknown: 2, homes: 4, idle: Duration::from_secs(100), ..Bounds::default() }
}

#[derive(Clone, Debug, PartialEq)]
enum Stand {
    Waits,
    Runs(ReplicaId, String),
}

/// What the test knows by itself.
struct Model {
    state: State,
    now: Duration,
    tickets: u64,
    open: BTreeMap<Ticket, (Class, Option<ConversationId>, Stand)>,
    ended: HashMap<Ticket, u32>,
    /// Those that came back from a replica once.
    returned: BTreeSet<Ticket>,
    /// What is offered: launch and slots.
    offered: BTreeMap<ReplicaId, (String, u32)>,
    launches: u64,
}

fn replica(n: u8) -> ReplicaId {
    ReplicaId::new(format!("m-{n}")).unwrap()
}

/// Slots 0 stands for an engine that counts tokens.
fn capacity(slots: u8) -> (Capacity, u32) {
    match slots {
        0 => (Capacity::Tokens { tokens: Tokens(40_000), slots: None }, 3),
        5 => (Capacity::Tokens { tokens: Tokens(40_000), slots: Some(2) }, 2),
        6 => (Capacity::Tokens { tokens: Tokens(40_000), slots: Some(64) }, 3),
        4 => (Capacity::Unknown, 2),
        n => (Capacity::Slots(u16::from(n)), u32::from(n)),
    }
}

impl Model {
    fn new() -> Self {
        Self {
            state: State::new(Policy::Sticky, bounds()),
            now: Duration::ZERO,
            tickets: 0,
            open: BTreeMap::new(),
            ended: HashMap::new(),
            returned: BTreeSet::new(),
            offered: BTreeMap::new(),
            launches: 0,
        }
    }

    fn running(&self, n: u8) -> Option<Ticket> {
        let all: Vec<Ticket> = self.open.iter().filter(|(_, (_, _, s))| *s != Stand::Waits).map(|(t, _)| *t).collect();
        (!all.is_empty()).then(|| all[usize::from(n) % all.len()])
    }

    fn any(&self, n: u8) -> Option<Ticket> {
        let all: Vec<Ticket> = self.open.keys().copied().collect();
        (!all.is_empty()).then(|| all[usize::from(n) % all.len()])
    }

    fn over(&mut self, ticket: Ticket) {
        self.open.remove(&ticket).unwrap();
        *self.ended.entry(ticket).or_default() += 1;
    }

    fn play(&mut self, what: Move) {
        let event = match what {
            Move::Arrive { class, conversation, streamed, patience } => {
                self.tickets += 1;
                let ticket = Ticket(self.tickets);
                let conversation = conversation.map(|n| ConversationId(u64::from(n)));
                self.open.insert(ticket, (Class(class), conversation, Stand::Waits));
                Event::Arrive(Arrival { ticket, class: Class(class), conversation, streamed, patience: Duration::from_secs(u64::from(patience)) })
            }
            Move::FirstToken(n) => match self.running(n) {
                Some(ticket) => Event::FirstToken { ticket },
                None => return,
            },
            Move::Done(n) => match self.running(n) {
                Some(ticket) => {
                    self.over(ticket);
                    Event::Done { ticket, used: Used { prompt: Some(Tokens(100)), cached: Some(Tokens(40)) } }
                }
                None => return,
            },
            Move::Cancel(n) => match self.any(n) {
                Some(ticket) => {
                    self.over(ticket);
                    Event::Cancel { ticket }
                }
                None => return,
            },
            Move::Back(n, why) => match self.running(n) {
                Some(ticket) => {
                    self.open.get_mut(&ticket).unwrap().2 = Stand::Waits;
                    self.returned.insert(ticket);
                    Event::Back { ticket, why: [Return::Unreachable, Return::BrokeOff, Return::Withdrawn, Return::Failed][usize::from(why)] }
                }
                None => return,
            },
            Move::Up { replica: n, slots, again } => {
                if !again {
                    self.launches += 1;
                }
                let (capacity, places) = capacity(slots);
                let launch = format!("l{}", self.launches);
                self.offered.insert(replica(n), (launch.clone(), places));
                Event::ReplicaUp { replica: replica(n), launch, capacity }
            }
            Move::Down(n) | Move::Drain(n) => {
                let Some((launch, _)) = self.offered.remove(&replica(n)) else { return };
                if matches!(what, Move::Down(_)) {
                    Event::ReplicaDown { replica: replica(n), launch }
                } else {
                    Event::Drain { replica: replica(n), launch }
                }
            }
            Move::Sample(n, at_work) => {
                let launch = self.offered.get(&replica(n)).map_or_else(|| "other".to_owned(), |(l, _)| l.clone());
                Event::Sample { replica: replica(n), launch, at_work: u64::from(at_work) }
            }
            Move::Pass(seconds) => {
                self.now += Duration::from_secs(u64::from(seconds));
                Event::Tick
            }
        };
        let actions = step(&mut self.state, event, self.now);
        self.obey(actions);
        self.agree();
    }

    fn obey(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Dispatch { ticket, replica, launch } => {
                    let (present, places) =
                        self.offered.get(&replica).unwrap_or_else(|| panic!("{ticket:?} sent to {replica}, which is not offered"));
                    assert_eq!(*present, launch, "sent to a launch that is over");
                    let runs = Stand::Runs(replica.clone(), launch);
                    let busy = self.open.values().filter(|(_, _, s)| *s == runs).count() as u32;
                    assert!(busy < *places, "{replica} has {places} places and gets one more");
                    let (class, _, stand) = self.open.get(&ticket).unwrap_or_else(|| panic!("{ticket:?} is over and is sent")).clone();
                    assert_eq!(stand, Stand::Waits, "sent twice");
                    self.nobody_was_passed_over(ticket, class);
                    self.open.get_mut(&ticket).unwrap().2 = runs;
                }
                Action::Refuse { ticket, .. } => {
                    assert_eq!(self.open[&ticket].2, Stand::Waits, "refused while it runs");
                    self.over(ticket);
                }
                Action::Requeue { ticket } => assert_eq!(self.open[&ticket].2, Stand::Waits),
            }
        }
    }

    /// Who can go anywhere is passed over by nobody of his class or of a lower one. (Those that came back avoid a replica, by right.)
    fn nobody_was_passed_over(&self, ticket: Ticket, class: Class) {
        if self.returned.contains(&ticket) {
            return;
        }
        let passed = self
            .open
            .iter()
            .find(|(t, (c, talk, s))| (*c, **t) < (class, ticket) && talk.is_none() && *s == Stand::Waits && !self.returned.contains(t));
        assert!(passed.is_none(), "{ticket:?} went before {passed:?}");
    }

    fn agree(&self) {
        let waiting = self.open.values().filter(|(_, _, s)| *s == Stand::Waits).count();
        assert_eq!((self.state.open(), self.state.waiting()), (self.open.len(), waiting), "leaked or lost");
        assert!(waiting <= bounds().queue + self.open.len(), "the queue is bounded");
        let view = self.state.view(self.now);
        for shown in &view.replicas {
            let runs = Stand::Runs(shown.id.clone(), shown.launch.clone());
            let busy = self.open.values().filter(|(_, _, s)| *s == runs).count() as u64;
            assert_eq!(shown.in_flight, busy, "{} counts wrongly", shown.id);
            assert_eq!(shown.offered, self.offered.get(&shown.id).is_some_and(|(l, _)| *l == shown.launch));
            assert!(shown.homes <= bounds().homes as u64 + self.open.len() as u64);
        }
        if self.offered.is_empty() {
            assert_eq!(waiting, 0, "nobody waits where nothing can come");
        }
        assert!(self.ended.values().all(|n| *n == 1), "a request ends once");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_events_leaks_nothing_and_ends_every_request_once(moves in prop::collection::vec(a_move(), 1..120)) {
        let mut model = Model::new();
        for what in moves {
            model.play(what);
        }
        // The end of the day: everybody leaves.
        while let Some(ticket) = model.any(0) {
            model.over(ticket);
            let actions = step(&mut model.state, Event::Cancel { ticket }, model.now);
            model.obey(actions);
        }
        prop_assert_eq!((model.state.open(), model.state.waiting()), (0, 0));
        model.now += Duration::from_secs(10_000);
        step(&mut model.state, Event::Tick, model.now);
        let view = model.state.view(model.now);
        prop_assert!(view.replicas.iter().all(|r| r.in_flight == 0 && r.lingering == 0 && r.homes == 0), "{:?}", view);
        prop_assert_eq!(model.ended.len() as u64, model.tickets);
    }

    #[test]
    fn inside_a_class_who_came_first_starts_first_and_classes_go_in_order(
        classes in prop::collection::vec(0..3_u8, 1..40), slots in 1..4_u16, replicas in 1..4_u8,
    ) {
        let mut state = State::new(Policy::Sticky, Bounds::default());
        for n in 0..replicas {
            step(&mut state, Event::ReplicaUp { replica: replica(n), launch: "1".to_owned(), capacity: Capacity::Slots(slots) }, Duration::ZERO);
        }
        let places = usize::from(slots) * usize::from(replicas);
        let (mut started, mut running) = (Vec::new(), Vec::new());
        let mut note = |actions: Vec<Action>, running: &mut Vec<Ticket>| {
            for action in actions {
                let Action::Dispatch { ticket, .. } = action else { panic!("{action:?}") };
                started.push(ticket);
                running.push(ticket);
                assert!(running.len() <= places);
            }
        };
        for (n, class) in classes.iter().enumerate() {
            let arrival = Arrival { ticket: Ticket(n as u64), class: Class(*class), conversation: None, streamed: true, patience: Duration::from_secs(9999) };
            note(step(&mut state, Event::Arrive(arrival), Duration::from_secs(1)), &mut running);
        }
        while !running.is_empty() {
            let ticket = running.remove(0);
            note(step(&mut state, Event::Done { ticket, used: Used::default() }, Duration::from_secs(2)), &mut running);
        }
        prop_assert_eq!(started.len(), classes.len());
        let first = places.min(classes.len());
        let mut rest: Vec<u64> = (first as u64..classes.len() as u64).collect();
        rest.sort_by_key(|n| (classes[usize::try_from(*n).unwrap()], *n));
        let wanted: Vec<Ticket> = (0..first as u64).chain(rest).map(Ticket).collect();
        prop_assert_eq!(started, wanted);
    }

    #[test]
    fn new_conversations_are_spread_evenly_and_their_turns_stay(talks in 1..24_u64, replicas in 1..5_u8, turns in 1..5_u32) {
        let mut state = State::new(Policy::Sticky, Bounds::default());
        for n in 0..replicas {
            step(&mut state, Event::ReplicaUp { replica: replica(n), launch: "1".to_owned(), capacity: Capacity::Slots(4) }, Duration::ZERO);
        }
        let mut homes: HashMap<u64, ReplicaId> = HashMap::new();
        let mut tickets = 0;
        for turn in 0..turns {
            for talk in 0..talks {
                tickets += 1;
                let (ticket, now) = (Ticket(tickets), Duration::from_secs(u64::from(turn)));
                let arrival = Arrival { ticket, class: Class::USUAL, conversation: Some(ConversationId(talk)), streamed: true, patience: now };
                let actions = step(&mut state, Event::Arrive(arrival), now);
                let [Action::Dispatch { replica, .. }] = actions.as_slice() else { panic!("{actions:?}") };
                prop_assert_eq!(homes.entry(talk).or_insert_with(|| replica.clone()), replica, "a turn left its home");
                step(&mut state, Event::Done { ticket, used: Used::default() }, now);
            }
        }
        let counts: BTreeSet<u64> = state.view(Duration::from_secs(9)).replicas.iter().map(|r| r.homes).collect();
        prop_assert!(counts.last().unwrap() - counts.first().unwrap() <= 1, "unbalanced: {:?}", counts);
    }
}
