//! Streams: whatever the engine sends and wherever it is cut, a client sees the same complete events, or an error and no end.

use proptest::prelude::*;
use serde_json::Value;
use warden_domain::{Problem, ProblemKind};
use warden_gateway::dialects::Standing;

use super::fixtures::{TRANSLATED, golden, recorded, translation};

/// Translates a stream that comes in these pieces.
fn translate(dialect: &str, pieces: &[&[u8]]) -> (String, Standing) {
    let mut translation = translation(dialect);
    let mut out = Vec::new();
    pieces.iter().for_each(|piece| translation.feed(piece, &mut out));
    let standing = translation.close(&mut out);
    (String::from_utf8(out).unwrap(), standing)
}

/// Name and data of each event.
fn events(text: &str) -> Vec<(String, Value)> {
    text.split("\n\n")
        .filter(|event| !event.is_empty() && !event.starts_with(':'))
        .map(|event| {
            let (name, data) = event.split_once('\n').unwrap();
            (name.strip_prefix("event: ").unwrap().to_owned(), serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap())
        })
        .collect()
}

fn as_reviewed(dialect: &str) {
    for stream in recorded("streams", ".sse") {
        let (text, standing) = translate(dialect, &[&stream.bytes]);
        golden("streams", &format!("{}.{dialect}", stream.name), &text);
        let expected = if stream.name.starts_with("bad-") { Standing::Failed } else { Standing::Whole };
        assert_eq!(standing, expected, "{} as {dialect}", stream.name);
        complete(dialect, &text, standing);
    }
}

#[test]
fn recorded_streams_become_the_messages_events_that_were_reviewed() {
    as_reviewed("messages");
}

#[test]
fn recorded_streams_become_the_responses_events_that_were_reviewed() {
    as_reviewed("responses");
}

#[test]
fn every_recorded_stream_cut_at_each_byte_gives_the_same_events() {
    for stream in recorded("streams", ".sse") {
        let whole = TRANSLATED.map(|dialect| translate(dialect, &[&stream.bytes]));
        for at in 0..stream.bytes.len() {
            // What is cut is the engine's stream, which is read the same way for both: they take turns.
            let dialect = TRANSLATED[at % 2];
            assert_eq!(translate(dialect, &[&stream.bytes[..at], &stream.bytes[at..]]), whole[at % 2], "{} as {dialect} cut at {at}", stream.name);
        }
    }
}

/// What real engines were recorded to send, where that lies beside the project.
#[test]
fn every_stream_of_a_real_engine_cut_at_each_byte_gives_the_same_events() {
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).canonicalize().unwrap();
    for (name, bytes) in warden_fixtures::captures::engine_streams(&root).unwrap() {
        let whole = TRANSLATED.map(|dialect| translate(dialect, &[&bytes]));
        for (dialect, (text, standing)) in TRANSLATED.into_iter().zip(&whole) {
            complete(dialect, text, *standing);
        }
        for at in 0..bytes.len() {
            let dialect = TRANSLATED[at % 2];
            assert!(translate(dialect, &[&bytes[..at], &bytes[at..]]) == whole[at % 2], "{name} as {dialect} cut at {at}");
        }
    }
}

/// A stream that ends too early never looks complete, wherever that is.
#[test]
fn a_stream_that_stops_anywhere_before_its_end_is_an_error_and_no_end() {
    for stream in recorded("streams", ".sse").iter().filter(|s| !s.name.starts_with("bad-")) {
        let mark = b"\"finish_reason\":\"";
        let finish = stream.bytes.windows(mark.len()).position(|w| w == mark).unwrap();
        for at in 0..finish {
            let dialect = TRANSLATED[at % 2];
            let (out, standing) = translate(dialect, &[&stream.bytes[..at]]);
            assert_eq!(standing, Standing::Failed, "{} as {dialect} ends at {at}", stream.name);
            complete(dialect, &out, standing);
        }
    }
}

/// Checks the order of events, and that what was opened is closed when the end is told.
fn complete(dialect: &str, text: &str, standing: Standing) {
    let events = events(text);
    for (name, data) in &events {
        assert_eq!(data["type"], name.as_str(), "the name of an event stands in its data too");
    }
    match dialect {
        "messages" => complete_messages(&events, standing),
        _ => complete_responses(&events, standing),
    }
}

fn complete_messages(events: &[(String, Value)], standing: Standing) {
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    let count = |name: &str| names.iter().filter(|n| **n == name).count();
    if standing == Standing::Failed {
        assert_eq!((names.last(), count("message_stop"), count("message_delta"), count("error")), (Some(&"error"), 0, 0, 1), "{names:?}");
        return;
    }
    assert_eq!(names[0], "message_start");
    assert_eq!(names[names.len() - 2..], ["message_delta", "message_stop"]);
    assert_eq!((count("message_start"), count("message_delta"), count("message_stop"), count("error")), (1, 1, 1, 0));
    let mut next = 0;
    let mut open = false;
    for (name, data) in &events[1..events.len() - 2] {
        assert_eq!(data["index"], next, "one block at a time, and numbers rise");
        match name.as_str() {
            "content_block_start" => assert!(!std::mem::replace(&mut open, true)),
            "content_block_delta" => assert!(open),
            "content_block_stop" => {
                assert!(std::mem::replace(&mut open, false));
                next += 1;
            }
            other => panic!("{other} between blocks"),
        }
    }
    assert!(!open);
}

fn complete_responses(events: &[(String, Value)], standing: Standing) {
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    for (number, (_, data)) in events.iter().enumerate() {
        assert_eq!(data["sequence_number"], number);
    }
    assert_eq!(names[..2], ["response.created", "response.in_progress"]);
    let count = |name: &str| names.iter().filter(|n| **n == name).count();
    assert_eq!(count("response.incomplete"), 0, "one client asks for the whole turn again when it sees it");
    let last = &events[events.len() - 1];
    if standing == Standing::Failed {
        assert_eq!((last.0.as_str(), count("response.completed"), count("response.failed")), ("response.failed", 0, 1), "{names:?}");
        assert!(last.1["response"]["error"]["code"].is_string());
        return;
    }
    assert_eq!((last.0.as_str(), count("response.completed"), count("response.failed")), ("response.completed", 1, 0));
    let output = last.1["response"]["output"].as_array().unwrap();
    let told = |event: &str| events.iter().filter(|(name, _)| name == event).map(|(_, data)| &data["item"]).collect::<Vec<_>>();
    let (added, done) = (told("response.output_item.added"), told("response.output_item.done"));
    assert_eq!(done, output.iter().collect::<Vec<_>>(), "the end holds what was told before");
    let ids = |items: &[&Value]| items.iter().map(|i| i["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(ids(&added), ids(&done));
    for (_, data) in events.iter().filter(|(_, data)| data["item_id"].is_string()) {
        let place = usize::try_from(data["output_index"].as_u64().unwrap()).unwrap();
        assert_eq!(data["item_id"], output[place]["id"], "an item keeps its id");
    }
}

#[test]
fn a_silent_connection_is_kept_alive_without_an_early_beginning() {
    let mut messages = translation("messages");
    let mut out = Vec::new();
    messages.keep_alive(&mut out);
    messages.keep_alive(&mut out);
    assert_eq!(String::from_utf8(out).unwrap(), ": keep-alive\n\n: keep-alive\n\n");
    assert!(messages.restart(), "another engine may still take over");

    let mut responses = translation("responses");
    let mut out = Vec::new();
    responses.keep_alive(&mut out);
    responses.keep_alive(&mut out);
    responses.feed(b"data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", &mut out);
    responses.keep_alive(&mut out);
    let text = String::from_utf8(out).unwrap();
    let names: Vec<String> = events(&text).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names[..3], ["response.created", "response.in_progress", "response.in_progress"]);
    assert_eq!(names.last().unwrap(), "response.completed", "nothing is said after the end");
    assert_eq!(responses.close(&mut Vec::new()), Standing::Whole);
    assert!(!responses.restart());
}

#[test]
fn a_problem_met_here_ends_a_stream_in_the_words_of_its_dialect_and_nothing_follows() {
    let problem = Problem::new(ProblemKind::Overloaded, "The server is stopping.");
    for (dialect, mark) in [("messages", "\"overloaded_error\""), ("responses", "\"server_is_overloaded\"")] {
        let mut translation = translation(dialect);
        let mut out = Vec::new();
        translation.feed(b"data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n", &mut out);
        translation.fail(&problem, &mut out);
        let length = out.len();
        translation.feed(b"data: {\"choices\":[{\"delta\":{\"content\":\"y\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", &mut out);
        assert_eq!(translation.close(&mut out), Standing::Failed);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.len(), length);
        assert!(text.contains(mark), "{text}");
        complete(dialect, &text, Standing::Failed);
    }
}

#[test]
fn a_prompt_that_does_not_fit_is_told_so_that_clients_compact() {
    let stream = recorded("streams", "bad-error-field.sse").remove(0).bytes;
    assert!(translate("messages", &[&stream]).0.contains("prompt is too long: 3024 tokens > 2048 maximum"));
    assert!(translate("responses", &[&stream]).0.contains("\"code\":\"context_length_exceeded\""));
}

/// A stream of an engine, made up.
fn any_stream() -> impl Strategy<Value = String> {
    let text = "[a-zé🦙\"\\\\\n ]{0,8}";
    let chunk = prop_oneof![
        text.prop_map(|t| serde_json::json!({"content": t})),
        text.prop_map(|t| serde_json::json!({"reasoning_content": t})),
        Just(serde_json::json!({"role": "assistant", "content": null})),
        (0u64..3, prop::option::of("[a-c]"), prop::option::of("[f-h]"), text).prop_map(|(index, id, name, arguments)| {
            serde_json::json!({"tool_calls": [{"index": index, "id": id, "function": {"name": name, "arguments": arguments}}]})
        }),
    ];
    let finish = prop_oneof![Just("stop"), Just("length"), Just("tool_calls"), Just("content_filter"), Just("runaway_repetition")];
    (prop::collection::vec(chunk, 0..12), finish, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(deltas, finish, usage, done, crlf)| {
        let mut text = String::new();
        for delta in deltas {
            text.push_str(&format!("data: {}\n\n", serde_json::json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})));
        }
        text.push_str(&format!("data: {}\n\n", serde_json::json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})));
        if usage {
            text.push_str("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\n");
        }
        text.push_str(if done { "data: [DONE]\n\n" } else { "" });
        if crlf { text.replace('\n', "\r\n") } else { text }
    })
}

proptest! {
    #[test]
    fn any_stream_in_any_pieces_is_told_whole_and_the_same(stream in any_stream(), cuts in prop::collection::vec(0usize..2000, 0..12)) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(stream.len())).chain([0, stream.len()]).collect();
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &stream.as_bytes()[w[0]..w[1]]).collect();
        for dialect in TRANSLATED {
            let whole = translate(dialect, &[stream.as_bytes()]);
            prop_assert_eq!(&translate(dialect, &pieces), &whole);
            prop_assert_eq!(whole.1, Standing::Whole);
            complete(dialect, &whole.0, whole.1);
        }
    }

    #[test]
    fn any_stream_cut_short_never_looks_whole(stream in any_stream(), at in 0usize..2000) {
        let finish = stream.rfind("\"finish_reason\":\"").unwrap();
        let at = at.min(finish);
        for dialect in TRANSLATED {
            let (out, standing) = translate(dialect, &[&stream.as_bytes()[..at]]);
            prop_assert_eq!(standing, Standing::Failed);
            complete(dialect, &out, standing);
        }
    }
}
