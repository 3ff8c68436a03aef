//! What the rule `sticky` does when replicas die, return, drain, fill up.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::time::Duration;

use warden_domain::{engine::Capacity, ids::ReplicaId, units::Tokens};
use warden_schedule::{Action, Arrival, Bounds, Class, ConversationId, Event, Policy, Refusal, Return, State, Ticket, Used, step};

struct Bench {
    state: State,
    now: Duration,
    tickets: u64,
}

fn id(name: &str) -> ReplicaId {
    ReplicaId::new(name).unwrap()
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Bench {
    fn with(replicas: &[&str], slots: u16) -> Self {
        let mut it = Self { state: State::new(Policy::Sticky, Bounds::default()), now: Duration::ZERO, tickets: 0 };
        for name in replicas {
            it.up(name, "1", slots);
        }
        it
    }

    fn tell(&mut self, event: Event) -> Vec<Action> {
        step(&mut self.state, event, self.now)
    }

    fn up(&mut self, name: &str, launch: &str, slots: u16) -> Vec<Action> {
        self.tell(Event::ReplicaUp { replica: id(name), launch: launch.to_owned(), capacity: Capacity::Slots(slots) })
    }

    fn arrive(&mut self, talk: Option<u64>, streamed: bool, patience: Duration) -> (Ticket, Vec<Action>) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let arrival = Arrival { ticket, class: Class::USUAL, conversation: talk.map(ConversationId), streamed, patience };
        (ticket, self.tell(Event::Arrive(arrival)))
    }

    /// A request that starts at once: where.
    fn starts(&mut self, talk: u64) -> (Ticket, String) {
        let (ticket, actions) = self.arrive(Some(talk), true, s(100));
        (ticket, sent(&actions))
    }

    fn done(&mut self, ticket: Ticket) -> Vec<Action> {
        self.tell(Event::Done { ticket, used: Used { prompt: Some(Tokens(10)), cached: Some(Tokens(5)) } })
    }

    /// A whole turn: where it ran.
    fn turn(&mut self, talk: u64) -> String {
        let (ticket, at) = self.starts(talk);
        self.now += s(1);
        self.done(ticket);
        at
    }
}

fn sent(actions: &[Action]) -> String {
    let Some(Action::Dispatch { replica, .. }) = actions.last() else { panic!("not sent: {actions:?}") };
    replica.to_string()
}

#[test]
fn a_turn_waits_for_its_home_although_another_replica_is_idle_but_not_for_ever() {
    let mut it = Bench::with(&["a", "b"], 1);
    let (first, home) = it.starts(1);
    let (second, actions) = it.arrive(Some(1), true, s(100));
    assert_eq!(actions, [], "the second request of a conversation waits for its home");
    assert_eq!(it.state.position(second, it.now), Some((0, None)), "nothing is known yet about how long requests take");
    it.now += s(1);
    assert_eq!(sent(&it.done(first)), home);
    let (third, actions) = it.arrive(Some(1), true, s(100));
    assert_eq!(actions, []);
    assert_eq!(it.state.position(third, it.now).unwrap().1, Some(s(1)));
    it.now += s(21);
    assert_ne!(sent(&it.tell(Event::Tick)), home, "after a while it takes the other one");
    it.done(third);
    let (_, at) = it.starts(1);
    assert_ne!(at, home, "and stays there");
}

#[test]
fn a_conversation_leaves_a_home_that_died_and_a_replica_that_returns_is_cold_and_gets_the_new_ones() {
    let mut it = Bench::with(&["a", "b"], 4);
    let homes: Vec<String> = (1..=4).map(|talk| it.turn(talk)).collect();
    assert_eq!(homes, ["a", "b", "a", "b"]);
    it.tell(Event::ReplicaDown { replica: id("a"), launch: "1".to_owned() });
    assert_eq!((1..=4).map(|talk| it.turn(talk)).collect::<Vec<_>>(), ["b"; 4]);
    it.up("a", "2", 4);
    let a = it.state.view(it.now).replicas[0].clone();
    assert_eq!((a.homes, a.in_flight, a.launch.as_str()), (0, 0, "2"));
    assert_eq!((1..=4).map(|talk| it.turn(talk)).collect::<Vec<_>>(), ["b"; 4], "those that moved stay where they are now");
    assert_eq!((5..=8).map(|talk| it.turn(talk)).collect::<Vec<_>>(), ["a"; 4], "new ones fill it up");
    let view = it.state.view(it.now);
    assert_eq!((view.replicas[1].placed, view.replicas[1].moved, view.replicas[1].stayed), (2, 2, 6));
    assert_eq!((view.replicas[0].cached, view.replicas[0].prompt), (Some(Tokens(30)), Some(Tokens(60))));
}

#[test]
fn a_draining_replica_finishes_what_it_has_and_gets_nothing_new() {
    let mut it = Bench::with(&["a", "b"], 1);
    let (running, at) = it.starts(1);
    assert_eq!(at, "a");
    it.tell(Event::Drain { replica: id("a"), launch: "1".to_owned() });
    let (other, at) = it.starts(2);
    assert_eq!(at, "b");
    let (_, actions) = it.arrive(Some(1), true, s(100));
    assert_eq!(actions, [], "the home drains and the other one is full");
    assert_eq!(it.done(running), [], "a place on a draining replica is none");
    assert_eq!(sent(&it.done(other)), "b");
    assert_eq!(it.state.view(it.now).replicas[0].in_flight, 0);
}

#[test]
fn a_request_that_got_no_byte_goes_to_another_replica_and_one_nobody_can_reach_is_the_last_choice() {
    let mut it = Bench::with(&["a", "b"], 2);
    let (ticket, at) = it.starts(1);
    assert_eq!(at, "a");
    let actions = it.tell(Event::Back { ticket, why: Return::Unreachable });
    assert_eq!(actions[0], Action::Requeue { ticket });
    assert_eq!(sent(&actions), "b");
    assert_eq!((2..=3).map(|talk| it.turn(talk)).collect::<Vec<_>>(), ["b"; 2], "nothing is sent where nobody listens");
    it.now += s(6);
    assert_eq!(it.turn(4), "a", "later it gets another chance");
    // With a single replica the second try goes there again.
    let mut it = Bench::with(&["a"], 2);
    let (ticket, _) = it.starts(1);
    assert_eq!(sent(&it.tell(Event::Back { ticket, why: Return::BrokeOff })), "a");
}

#[test]
fn a_request_is_not_sent_again_where_it_just_failed_while_another_replica_is_only_under_suspicion() {
    let mut it = Bench::with(&["a", "b"], 2);
    let (ticket, _) = it.starts(1);
    it.tell(Event::Back { ticket, why: Return::Unreachable });
    it.done(ticket);
    let (ticket, at) = it.starts(1);
    assert_eq!(at, "b", "its new home");
    assert_eq!(sent(&it.tell(Event::Back { ticket, why: Return::Unreachable })), "a");
}

#[test]
fn one_broken_connection_moves_one_conversation_only() {
    let mut it = Bench::with(&["a", "b"], 2);
    assert_eq!((it.turn(1), it.turn(2), it.turn(3)), ("a".to_owned(), "b".to_owned(), "a".to_owned()));
    let (ticket, _) = it.starts(1);
    assert_eq!(sent(&it.tell(Event::Back { ticket, why: Return::BrokeOff })), "b");
    it.done(ticket);
    assert_eq!((it.turn(1), it.turn(3)), ("b".to_owned(), "a".to_owned()));
}

#[test]
fn a_request_given_up_that_its_engine_cannot_notice_holds_its_slot_until_the_engine_says_otherwise() {
    let mut it = Bench::with(&["a"], 1);
    let (ticket, actions) = it.arrive(Some(1), false, s(100));
    sent(&actions);
    it.tell(Event::Cancel { ticket });
    let (waits, actions) = it.arrive(Some(2), false, s(100));
    assert_eq!(actions, [], "the slot is still busy with the one before");
    let sample = |at_work| Event::Sample { replica: id("a"), launch: "1".to_owned(), at_work };
    assert_eq!(it.tell(sample(1)), []);
    assert_eq!(sent(&it.tell(sample(0))), "a");
    // Without samples, after a while.
    it.tell(Event::Cancel { ticket: waits });
    let (_, actions) = it.arrive(Some(3), false, s(100));
    assert_eq!(actions, []);
    it.now += s(31);
    assert_eq!(sent(&it.tell(Event::Tick)), "a");
    // A streamed one is noticed by the engine itself.
    let mut it = Bench::with(&["a"], 1);
    let (ticket, _) = it.starts(1);
    it.tell(Event::Cancel { ticket });
    it.starts(2);
}

#[test]
fn who_would_start_too_late_is_told_at_once_and_who_waited_too_long_too() {
    let mut it = Bench::with(&["a"], 1);
    let (ticket, _) = it.starts(1);
    it.now += s(30);
    it.done(ticket);
    let (running, _) = it.starts(1);
    let (waiting, actions) = it.arrive(None, true, s(40));
    assert_eq!(actions, []);
    let (_, actions) = it.arrive(None, true, s(40));
    assert!(matches!(actions.as_slice(), [Action::Refuse { why: Refusal::TooLong { expected }, .. }] if *expected == s(60)), "{actions:?}");
    it.now += s(41);
    let actions = it.tell(Event::Tick);
    assert!(matches!(actions.as_slice(), [Action::Refuse { ticket, why: Refusal::Expired { .. } }] if *ticket == waiting), "{actions:?}");
    it.done(running);
    assert_eq!((it.state.open(), it.state.view(it.now).refused), (0, 2));
}

#[test]
fn a_queue_has_an_end_and_a_model_without_replicas_has_none() {
    let bounds = Bounds { queue: 2, ..Bounds::default() };
    let mut it = Bench { state: State::new(Policy::Sticky, bounds), now: Duration::ZERO, tickets: 0 };
    let (_, actions) = it.arrive(None, true, s(9));
    assert!(matches!(actions.as_slice(), [Action::Refuse { why: Refusal::NoReplica, .. }]));
    it.up("a", "1", 1);
    it.starts(1);
    for _ in 0..2 {
        assert_eq!(it.arrive(None, true, s(9)).1, []);
    }
    let (_, actions) = it.arrive(None, true, s(9));
    assert!(matches!(actions.as_slice(), [Action::Refuse { why: Refusal::QueueFull { retry_after }, .. }] if *retry_after == s(5)), "{actions:?}");
    let actions = it.tell(Event::Drain { replica: id("a"), launch: "1".to_owned() });
    assert_eq!(actions.len(), 2, "those that wait for a model that is being unloaded are told so: {actions:?}");
}

#[test]
fn a_turn_that_cannot_wait_for_its_home_is_not_refused_while_another_replica_has_room() {
    let mut it = Bench::with(&["a", "b"], 1);
    let (first, home) = it.starts(1);
    it.now += s(60);
    it.done(first);
    it.starts(1);
    // Its home is expected to be free in a minute, and its patience is half of that.
    let (second, actions) = it.arrive(Some(1), true, s(30));
    assert_eq!(actions, [], "the other one has room");
    assert_eq!(it.state.position(second, it.now).unwrap().1, Some(s(15)));
    it.now += s(5);
    assert_eq!(it.state.position(second, it.now).unwrap().1, Some(s(10)));
    it.now += s(10);
    assert_ne!(sent(&it.tell(Event::Tick)), home);
    // Now nothing has room, and it is told at once.
    let (_, actions) = it.arrive(Some(1), true, s(30));
    assert!(matches!(actions.as_slice(), [Action::Refuse { why: Refusal::TooLong { expected }, .. }] if *expected == s(60)), "{actions:?}");
}

#[test]
fn a_turn_with_little_patience_leaves_a_busy_home_before_its_patience_is_over() {
    let mut it = Bench::with(&["a", "b"], 1);
    let (_, home) = it.starts(1);
    let (_, actions) = it.arrive(Some(1), true, s(10));
    assert_eq!(actions, []);
    it.now += s(4);
    assert_eq!(it.tell(Event::Tick), [], "at first it waits for its home");
    it.now += s(1);
    assert_ne!(sent(&it.tell(Event::Tick)), home);
}

#[test]
fn a_full_queue_lets_the_last_of_the_lowest_class_go_for_a_higher_one_and_for_nobody_else() {
    let bounds = Bounds { queue: 2, ..Bounds::default() };
    let mut it = Bench { state: State::new(Policy::Sticky, bounds), now: Duration::ZERO, tickets: 0 };
    it.up("a", "1", 1);
    it.starts(1);
    let mut arrive = |ticket: u64, class: u8| {
        let arrival = Arrival { ticket: Ticket(ticket), class: Class(class), conversation: None, streamed: true, patience: s(9) };
        it.tell(Event::Arrive(arrival))
    };
    let refused = |actions: &[Action]| match actions {
        [Action::Refuse { ticket, why: Refusal::QueueFull { .. } }] => Some(ticket.0),
        _ => None,
    };
    assert_eq!((arrive(11, 200), arrive(12, 200)), (vec![], vec![]));
    assert_eq!(refused(&arrive(13, 200)), Some(13), "equals keep their places");
    assert_eq!(refused(&arrive(14, 250)), Some(14));
    assert_eq!(refused(&arrive(15, 100)), Some(12), "who came last goes first");
    assert_eq!(refused(&arrive(16, 150)), Some(11));
    assert_eq!(refused(&arrive(17, 150)), Some(17));
    assert_eq!((it.state.waiting(), it.state.open()), (2, 3));
}

#[test]
fn one_request_that_fails_an_engine_keeps_nobody_else_away_and_several_in_a_row_do() {
    let mut it = Bench::with(&["a", "b"], 2);
    assert_eq!((it.turn(1), it.turn(2), it.turn(3), it.turn(4)), ("a".to_owned(), "b".to_owned(), "a".to_owned(), "b".to_owned()));
    let fails = |it: &mut Bench, talk: Option<u64>| {
        let (ticket, actions) = it.arrive(talk, true, s(100));
        let at = sent(&actions);
        assert_ne!(sent(&it.tell(Event::Back { ticket, why: Return::Failed })), at, "it gets another chance elsewhere");
        it.done(ticket);
        at
    };
    // The same conversation again and again, from one to the other.
    for at in ["a", "b", "a", "b", "a", "b"] {
        assert_eq!(fails(&mut it, Some(1)), at);
    }
    assert_eq!((it.turn(3), it.turn(4)), ("a".to_owned(), "b".to_owned()), "all others stay where they are");
    // An answer in between shows that the engine works.
    assert_eq!(fails(&mut it, None), "a");
    let (ticket, _) = it.starts(3);
    it.tell(Event::FirstToken { ticket });
    it.done(ticket);
    assert_eq!((fails(&mut it, None), fails(&mut it, None), it.turn(3)), ("a".to_owned(), "a".to_owned(), "a".to_owned()));
    assert_eq!(fails(&mut it, None), "a");
    assert_eq!(it.turn(3), "b", "three in a row are the engine's own fault");
}

#[test]
fn a_home_that_was_just_given_is_none_when_its_request_comes_back_and_an_older_one_stays() {
    let mut it = Bench::with(&["a", "b"], 1);
    let homes = |it: &Bench| it.state.view(it.now).replicas.iter().map(|r| r.homes).collect::<Vec<_>>();
    let ((ticket, _), (other, _)) = (it.starts(1), it.starts(2));
    it.tell(Event::Back { ticket, why: Return::Unreachable });
    assert_eq!(homes(&it), [0, 1], "nothing of it is on the one, and the other is full");
    it.done(other);
    assert_eq!(homes(&it), [0, 2]);
    let mut it = Bench::with(&["a", "b"], 1);
    it.turn(1);
    let ((ticket, _), _) = (it.starts(1), it.starts(2));
    it.tell(Event::Back { ticket, why: Return::BrokeOff });
    assert_eq!(homes(&it), [1, 1], "what it had there may still be there");
}
