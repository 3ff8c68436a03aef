//! A request within the limit of bodies takes neither gigabytes nor minutes, whatever its lists hold.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use warden_domain::{Problem, ProblemKind};
use warden_gateway::dialects::{chat::unseen, messages::MessagesRequest, responses::ResponsesRequest};

use super::fixtures::{TARGET, chat_of};

/// Far more than a large conversation takes in a debug build, and far less than any loop in a loop takes here.
const SOON: Duration = Duration::from_secs(30);

fn list(thing: &str, times: usize) -> String {
    format!("[{}]", vec![thing; times].join(","))
}

fn assert_too_many(read: Result<(), Problem>, what: &str) {
    let problem = read.expect_err(what);
    assert_eq!(problem.kind, ProblemKind::BadRequest, "{what}");
    let text = problem.full_text();
    assert!(text.contains("more than 100000") && text.contains("Leave out old turns"), "{what}: {text}");
}

#[test]
fn lists_of_a_messages_request_hold_so_much_and_no_more_nested_ones_too() {
    let text = r#"{"type":"text","text":""}"#;
    let few = |inner: &str| list(inner, 400);
    for (what, body) in [
        ("messages", format!(r#"{{"model":"m","messages":{}}}"#, list("{}", 100_001))),
        ("content", format!(r#"{{"model":"m","messages":[{{"role":"user","content":{}}}]}}"#, list(text, 100_001))),
        ("contents", format!(r#"{{"model":"m","messages":{}}}"#, few(&format!(r#"{{"role":"user","content":{}}}"#, few(text))))),
        (
            "results",
            format!(
                r#"{{"model":"m","messages":[{{"role":"user","content":{}}}]}}"#,
                few(&format!(r#"{{"type":"tool_result","tool_use_id":"t","content":{}}}"#, few("{}")))
            ),
        ),
        ("system", format!(r#"{{"model":"m","system":{}}}"#, list(text, 100_001))),
        ("tools", format!(r#"{{"model":"m","tools":{}}}"#, list("{}", 100_001))),
        ("stops", format!(r#"{{"model":"m","stop_sequences":{}}}"#, list(r#""""#, 100_001))),
    ] {
        assert_too_many(MessagesRequest::read(body.as_bytes()).map(drop), what);
    }
    let fits = format!(r#"{{"model":"m","messages":[{{"role":"user","content":{}}}]}}"#, list(text, 99_999));
    assert!(MessagesRequest::read(fits.as_bytes()).unwrap().count(&TARGET).is_ok());
}

#[test]
fn lists_of_a_responses_request_hold_so_much_and_no_more_nested_ones_too() {
    let few = |inner: &str| list(inner, 400);
    for (what, body) in [
        ("input", format!(r#"{{"model":"m","input":{}}}"#, list("{}", 100_001))),
        ("instructions", format!(r#"{{"model":"m","instructions":{}}}"#, list("{}", 100_001))),
        ("contents", format!(r#"{{"model":"m","input":{}}}"#, few(&format!(r#"{{"content":{}}}"#, few("{}"))))),
        ("outputs", format!(r#"{{"model":"m","input":{}}}"#, few(&format!(r#"{{"output":{}}}"#, few("{}"))))),
        ("summaries", format!(r#"{{"model":"m","input":{}}}"#, few(&format!(r#"{{"summary":{}}}"#, few("{}"))))),
        ("tools", format!(r#"{{"model":"m","tools":{}}}"#, list("{}", 100_001))),
        ("groups", format!(r#"{{"model":"m","tools":{}}}"#, few(&format!(r#"{{"tools":{}}}"#, few("{}"))))),
        ("include", format!(r#"{{"model":"m","include":{}}}"#, list(r#""""#, 100_001))),
    ] {
        assert_too_many(ResponsesRequest::read(body.as_bytes()).map(drop), what);
    }
}

#[test]
fn lists_that_are_searched_for_images_hold_so_much_and_no_more() {
    let few = |inner: &str| list(inner, 400);
    for body in [
        format!(r#"{{"messages":{}}}"#, list("{}", 100_001)),
        format!(r#"{{"messages":{}}}"#, few(&format!(r#"{{"content":{}}}"#, few(r#"{"type":"image_url"}"#)))),
    ] {
        assert_too_many(unseen::without_images(body.into()).map(drop), "chat");
    }
}

#[test]
fn a_block_without_a_type_is_refused_while_it_is_read() {
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":{}}}]}}"#, list("{}", 200_000));
    let problem = MessagesRequest::read(body.as_bytes()).map(drop).unwrap_err();
    assert_eq!(problem.kind, ProblemKind::BadRequest);
    assert!(problem.message.contains("every content block needs a 'type'"), "{problem}");
}

/// What becomes of a request in both its ways, in time.
fn soon(what: &str, dialect: &str, body: &Value) -> Value {
    let body = body.to_string();
    let begun = Instant::now();
    let (chat, _) = chat_of(dialect, body.as_bytes());
    if dialect == "responses" {
        drop(ResponsesRequest::read(body.as_bytes()).unwrap().plan("req_1", 0).unwrap());
    }
    assert!(begun.elapsed() < SOON, "{what}: {:?}", begun.elapsed());
    serde_json::from_slice(&chat).unwrap()
}

#[test]
fn many_results_of_many_calls_are_lined_up_soon() {
    let calls: Vec<Value> = (0..49_000).map(|n| json!({"type": "tool_use", "id": format!("t{n}"), "name": "f"})).collect();
    let results = vec![json!({"type": "tool_result", "tool_use_id": "t0", "content": "r"}); 49_000];
    let body = json!({"model": "m", "messages": [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]});
    assert_eq!(soon("results", "messages", &body)["messages"].as_array().unwrap().len(), 49_001);
}

#[test]
fn many_tools_are_told_apart_soon() {
    let tool = |n: usize| json!({"type": "function", "name": format!("f{n}")});
    let tools: Vec<Value> = (0..49_000).map(tool).collect();
    let members: Vec<Value> = (20_000..69_000).map(tool).collect();
    // The name of a group is long, and is not kept for each of its members.
    let group = json!({"type": "namespace", "name": "g".repeat(1 << 20), "tools": members});
    let body = json!({"model": "m", "input": "x", "tools": tools.into_iter().chain([group]).collect::<Vec<_>>()});
    assert_eq!(soon("tools", "responses", &body)["tools"].as_array().unwrap().len(), 69_000);
}

#[test]
fn many_tools_that_a_search_found_are_shown_soon() {
    let tool = |n: usize| json!({"name": format!("f{n}"), "input_schema": {}, "defer_loading": true});
    let tools: Vec<Value> = (0..49_000).map(tool).chain([json!({"name": "ToolSearch", "input_schema": {}})]).collect();
    let found: Vec<Value> = (0..49_000).rev().map(|n| json!({"type": "tool_reference", "tool_name": format!("f{n}")})).collect();
    let body = json!({"model": "m", "tools": tools, "messages": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "ToolSearch"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": found}]}]});
    let chat = soon("references", "messages", &body);
    let shown = chat["tools"].as_array().unwrap();
    assert_eq!((shown.len(), &shown[1]["function"]["name"]), (49_001, &json!("f48999")), "in the order found");
}

#[test]
fn many_texts_that_say_nothing_are_joined_soon() {
    let nothing = vec![json!({"type": "text", "text": ""}); 99_000];
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": nothing}, {"role": "user", "content": "y"}]});
    assert_eq!(soon("texts", "messages", &body)["messages"], json!([{"role": "user", "content": "x\n\ny"}]));
}

#[test]
fn many_fields_that_nobody_knows_are_noted_soon_and_not_all_of_them() {
    let unknown: serde_json::Map<String, Value> = (0..300_000).map(|n| (format!("x{n}"), json!(0))).collect();
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]});
    body.as_object_mut().unwrap().extend(unknown);
    let body = body.to_string();
    let begun = Instant::now();
    let noted = chat_of("messages", body.as_bytes()).1.len();
    assert!((100..=1000).contains(&noted) && begun.elapsed() < SOON, "{noted} in {:?}", begun.elapsed());
    let kinds: Vec<Value> = (0..99_000).map(|n| json!({"type": format!("hosted{n}")})).collect();
    soon("kinds", "messages", &json!({"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": kinds}));
}

#[test]
fn a_long_id_of_a_call_is_not_said_again_with_each_image() {
    let id = "i".repeat(1 << 16);
    let images = vec![json!({"type": "image", "source": {"type": "url", "url": "u"}}); 1000];
    let body = json!({"model": "m", "messages": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "f"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": images}]}]})
    .to_string();
    let (chat, _) = chat_of("messages", body.as_bytes());
    assert!(chat.len() < 2 * body.len(), "{} bytes of {}", chat.len(), body.len());
}
