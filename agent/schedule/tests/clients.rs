//! Which conversation the requests of real coding clients belong to. The bodies have the shape of what was recorded from the clients:
//! which members there are, where ids stand, and what changes from one turn to the next.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod shapes;

use std::time::Duration;

use shapes::{Sent, claude, codex, opencode, pi, qwen};
use warden_domain::units::Tokens;
use warden_schedule::{
    ConversationId,
    identity::{Asked, Book, Met, Shelf, find_ids, scan},
};

struct Reader {
    book: Book,
    now: Duration,
}

impl Reader {
    fn new() -> Self {
        Self { book: Book::new(Shelf::default()), now: Duration::ZERO }
    }

    /// A request begins.
    fn meet(&mut self, key: &str, sent: &Sent) -> Met {
        self.now += Duration::from_secs(1);
        let scan = scan(&sent.bytes).expect("a body");
        let ids = find_ids(|name| sent.headers.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_str()), &scan);
        self.book.meet(&Asked::new(key, &ids, scan), self.now)
    }

    /// A request from beginning to end: its conversation.
    fn whole(&mut self, sent: &Sent) -> Option<ConversationId> {
        let met = self.meet("key", sent);
        if let Some(id) = met.conversation {
            self.book.leave(id, true, Some(Tokens(1000)), self.now);
        }
        met.conversation
    }
}

#[test]
fn the_turns_of_every_client_are_one_conversation() {
    for (client, turns) in [
        ("claude", (1..6).map(|n| claude(1, None, n)).collect::<Vec<_>>()),
        ("claude with a string for the last text", (1..6).map(|n| claude(1, None, n).with_plain_strings()).collect()),
        ("codex", (1..6).map(|n| codex(1, n)).collect()),
        ("opencode", (1..6).map(|n| opencode(1, n)).collect()),
        ("qwen", (1..6).map(|n| qwen("hello", n)).collect()),
        ("pi", (1..6).map(|n| pi(1, n)).collect()),
    ] {
        let mut reader = Reader::new();
        let first = reader.whole(&turns[0]).unwrap_or_else(|| panic!("{client}: no conversation"));
        for (n, turn) in turns.iter().enumerate().skip(1) {
            let met = reader.meet("key", turn);
            assert_eq!((met.conversation, met.known), (Some(first), true), "{client}, turn {}", n + 1);
            assert_eq!(met.expected_cached, Some(Tokens(1000)), "{client}");
            reader.book.leave(first, true, Some(Tokens(1000)), reader.now);
        }
        assert_eq!(reader.book.len(), 1, "{client}");
    }
}

#[test]
fn what_a_client_rewrites_between_turns_does_not_count() {
    let mut reader = Reader::new();
    let plain = reader.whole(&claude(1, None, 2));
    for other in [
        claude(1, None, 2).with_plain_strings(),
        claude(1, None, 2).spaced(),
        claude(1, None, 2).without("cache_control"),
        claude(1, None, 2).billed("c93.a1f"),
    ] {
        assert_eq!(reader.whole(&other), plain);
    }
    assert_eq!(reader.whole(&claude(1, None, 3).with_more_tools()), plain, "tools that are found later are no new conversation");
    let mut reader = Reader::new();
    let plain = reader.whole(&qwen("hello", 2));
    assert_eq!(reader.whole(&qwen("hello", 3).rewritten_arguments()), plain, "arguments are the same with and without spaces");
}

#[test]
fn arguments_written_with_other_escapes_and_spaces_are_the_same_and_other_arguments_are_not() {
    let with = |arguments: &str| {
        let calls = format!(r#"[{{"id":"c","type":"function","function":{{"name":"a","arguments":"{arguments}"}}}}]"#);
        scan(format!(r#"{{"messages":[{{"role":"user","content":"go"}},{{"role":"assistant","tool_calls":{calls}}}]}}"#).as_bytes())
    };
    let plain = with(r#"{\"path\":\"a/b\",\"n\":[1,2]}"#);
    assert_eq!(with(r#"{ \u0022n\u0022 : [1, 2],\n\"path\":\"a\\/b\" }"#), plain);
    assert_ne!(with(r#"{\"path\":\"a/c\",\"n\":[1,2]}"#), plain);
    let inner = |said: &str| with(&format!(r#"{{\"arguments\":\"{said}\"}}"#));
    assert_ne!(inner("1"), inner("2"), "what stands further in counts as well");
}

#[test]
fn a_title_is_no_conversation_and_does_not_disturb_its_parent() {
    let mut reader = Reader::new();
    // It comes before the first request of its parent.
    let title = reader.whole(&opencode(1, 1).title()).unwrap();
    let met = reader.meet("key", &opencode(1, 1));
    let parent = met.conversation.unwrap();
    assert_eq!(met.forgotten, [title]);
    // And after it, while the parent runs.
    assert_eq!(reader.meet("key", &opencode(1, 1).title()), Met::default());
    reader.book.leave(parent, true, None, reader.now);
    assert_eq!(reader.whole(&opencode(1, 2)), Some(parent));
    // Compaction: the same history and no tools.
    assert!(reader.whole(&codex(7, 3)).is_some());
    assert_eq!(reader.meet("key", &codex(7, 4).title()), Met::default());
    // Also where the client names no session.
    let talk = reader.whole(&qwen("hello", 3));
    assert_eq!(reader.meet("key", &qwen("hello", 4).without_tools()), Met::default());
    assert_eq!(reader.whole(&qwen("hello", 4)), talk);
}

#[test]
fn sub_agents_are_conversations_of_their_own() {
    let mut reader = Reader::new();
    let main = reader.whole(&claude(1, None, 1));
    let first = reader.whole(&claude(1, Some(1), 1));
    let second = reader.whole(&claude(1, Some(2), 1));
    assert!(main != first && first != second && main != second, "{main:?} {first:?} {second:?}");
    assert_eq!(
        [reader.whole(&claude(1, Some(2), 2)), reader.whole(&claude(1, None, 2)), reader.whole(&claude(1, Some(1), 2))],
        [second, main, first]
    );
}

#[test]
fn two_requests_at_a_time_on_one_chain_are_two_conversations() {
    let mut reader = Reader::new();
    let main = reader.whole(&codex(1, 1)).unwrap();
    let (left, right) = (reader.meet("key", &codex(1, 2)), reader.meet("key", &codex(1, 2)));
    assert_eq!(left.conversation, Some(main));
    assert!(right.conversation.is_some() && right.conversation != left.conversation);
    for met in [left.clone(), right.clone()] {
        reader.book.leave(met.conversation.unwrap(), true, None, reader.now);
    }
    // Later turns find one of the two each, and no third.
    let (a, b) = (reader.meet("key", &codex(1, 3)).conversation, reader.meet("key", &codex(1, 3)).conversation);
    assert!(a != b && [left.conversation, right.conversation].contains(&a) && [left.conversation, right.conversation].contains(&b));
}

#[test]
fn the_same_first_words_without_a_session_are_two_conversations_unless_the_first_got_no_answer() {
    let mut reader = Reader::new();
    let first = reader.whole(&qwen("hello", 1));
    assert_eq!(reader.whole(&qwen("hello", 2)), first);
    let second = reader.whole(&qwen("hello", 1));
    assert_ne!(second, first, "a new chat that begins like another one");
    assert_eq!(reader.whole(&qwen("hello", 2)), second, "and goes on like it");
    assert!(reader.whole(&qwen("hello", 3)).is_some_and(|id| Some(id) == first || Some(id) == second));
    let broken = reader.meet("key", &qwen("good day", 1)).conversation.unwrap();
    reader.book.leave(broken, false, None, reader.now);
    assert_eq!(reader.whole(&qwen("good day", 1)), Some(broken), "a retry of what was broken off");
}

#[test]
fn ids_and_histories_of_one_key_say_nothing_about_anothers() {
    let mut reader = Reader::new();
    let mine = reader.meet("key_a", &claude(1, None, 1)).conversation;
    let other = reader.meet("key_b", &claude(1, None, 2));
    assert!(other.conversation != mine && !other.known);
    assert_ne!(reader.meet("key_a", &claude(2, None, 1)).conversation, mine, "another session");
}

#[test]
fn a_rewritten_last_message_stays_in_its_conversation() {
    let mut reader = Reader::new();
    let talk = reader.whole(&qwen("hello", 4));
    reader.whole(&qwen("hello", 5));
    assert_eq!(reader.whole(&qwen("hello", 5).with_another_last_message()), talk);
}

#[test]
fn the_book_is_bounded_and_what_was_used_last_stays() {
    let mut reader = Reader { book: Book::new(Shelf { most: 64, idle: Duration::from_secs(1800) }), now: Duration::ZERO };
    let kept = reader.whole(&claude(0, None, 1));
    for n in 1..1000 {
        reader.whole(&claude(n, None, 1));
        if n % 10 == 0 {
            assert_eq!(reader.whole(&claude(0, None, 1)), kept);
        }
        assert!(reader.book.len() <= 64);
    }
}

#[test]
fn one_key_that_names_ever_new_sessions_makes_nobody_elses_forgotten() {
    let mut reader = Reader { book: Book::new(Shelf { most: 64, idle: Duration::from_secs(1800) }), now: Duration::ZERO };
    let mine = reader.meet("key_a", &opencode(1, 1)).conversation.unwrap();
    reader.book.leave(mine, true, None, reader.now);
    for n in 0..1000 {
        let other = reader.meet("key_b", &opencode(n, 1)).conversation.unwrap();
        reader.book.leave(other, true, None, reader.now);
    }
    assert_eq!(reader.meet("key_a", &opencode(1, 1).title()), Met::default(), "its session is known to have a parent");
    assert_eq!(reader.meet("key_a", &opencode(1, 2)).conversation, Some(mine));
    // And of its own it keeps the newest.
    assert_eq!(reader.meet("key_b", &opencode(999, 1).title()), Met::default());
}

#[test]
fn the_same_first_words_said_thousands_of_times_fill_no_book_and_a_conversation_that_went_on_stays() {
    let mut reader = Reader::new();
    let kept = reader.whole(&qwen("hello", 1));
    assert_eq!(reader.whole(&qwen("hello", 2)), kept);
    for _ in 0..2000 {
        reader.whole(&qwen("hello", 1));
    }
    assert!(reader.book.len() < 50, "{} conversations", reader.book.len());
    assert_eq!(reader.whole(&qwen("hello", 3)), kept);
}

#[test]
fn a_body_that_is_no_request_has_no_conversation_and_never_a_panic() {
    for body in ["", "[]", "{", "null", r#"{"messages":"#] {
        assert!(scan(body.as_bytes()).is_none(), "{body}");
    }
    for body in [
        r#"{}"#,
        r#"{"messages":5}"#.replace('5', "null").as_str(),
        r#"{"messages":{},"tools":7,"metadata":[],"prompt_cache_key":{}}"#,
        r#"{"input":["a",null]}"#,
    ] {
        if let Some(scan) = scan(body.as_bytes()) {
            let ids = find_ids(|_| None, &scan);
            assert_eq!(Book::new(Shelf::default()).meet(&Asked::new("key", &ids, scan), Duration::ZERO).conversation, None, "{body}");
        }
    }
    let deep = format!(r#"{{"messages":[{{"role":"user","content":{}{}}}]}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert!(scan(deep.as_bytes()).is_none(), "nested beyond reason: no identity, and no stack overflow");
}

#[test]
fn a_long_history_is_read_without_a_tree_and_still_matches() {
    let mut reader = Reader::new();
    let long: Vec<Sent> = [1200, 1201].into_iter().map(|n| qwen(&"word ".repeat(30_000), n)).collect();
    assert!(long[0].bytes.len() > 180_000);
    let first = reader.whole(&long[0]);
    assert_eq!(reader.whole(&long[1]), first);
}
