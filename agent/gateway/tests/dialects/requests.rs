//! Requests: every recorded body becomes the chat request that was reviewed, and loses nothing on the way.

use bytes::Bytes;
use serde_json::Value;
use warden_gateway::dialects::chat::splice::{self, Edits};

use super::fixtures::{self, chat_of, golden, pretty, recorded};

fn translated_as_reviewed(dialect: &str) {
    for request in recorded("requests", &format!(".{dialect}.json")) {
        let (chat, _) = chat_of(dialect, &request.bytes);
        golden("requests", &format!("{}.{dialect}.chat", request.name), &pretty(&chat));
    }
}

#[test]
fn captured_messages_bodies_become_the_chat_requests_that_were_reviewed() {
    translated_as_reviewed("messages");
}

#[test]
fn captured_responses_bodies_become_the_chat_requests_that_were_reviewed() {
    translated_as_reviewed("responses");
}

/// Every text of the recorded requests is a numbered word. Each must arrive, except where a rule says why not.
#[test]
fn no_text_and_no_field_of_a_captured_body_vanishes() {
    for dialect in fixtures::TRANSLATED {
        for request in recorded("requests", &format!(".{dialect}.json")) {
            let (chat, left) = chat_of(dialect, &request.bytes);
            assert_eq!(left, Vec::<String>::new(), "{}: fields that are neither used nor on the list of ignored ones", request.name);
            let arrived = String::from_utf8(chat).unwrap();
            let body: Value = serde_json::from_slice(&request.bytes).unwrap();
            let loads = body["tools"].as_array().is_some_and(|tools| tools.iter().any(|t| t["name"] == "ToolSearch"));
            for_each_word(&body, &mut |word| assert!(arrived.contains(word), "{}: {word:?} is lost", request.name), loads);
        }
    }
}

/// Calls `see` for every word that must arrive.
fn for_each_word(value: &Value, see: &mut impl FnMut(&str), loads: bool) {
    match value {
        Value::String(text) => text.split("words ").skip(1).for_each(|rest| see(&format!("words {}.", rest.split('.').next().unwrap()))),
        Value::Array(list) => list.iter().for_each(|item| for_each_word(item, see, loads)),
        Value::Object(object) => {
            let hosted = object.get("type").is_some_and(|t| t == "tool_search");
            // A tool that a client has not loaded yet is not shown to the model.
            let deferred = loads && object.get("defer_loading").is_some_and(|d| d == true) && object["name"] == "DeferredToolPlaceholder";
            if !hosted && !deferred {
                object.values().for_each(|inner| for_each_word(inner, see, loads));
            }
        }
        _ => {}
    }
}

#[test]
fn a_field_that_nobody_knows_is_reported_where_it_stands_and_refuses_nothing() {
    let messages = br#"{"model":"m","max_tokens":5,"nova":1,"messages":[{"role":"user","mood":2,"content":[{"type":"text","text":"x","cache_control":{},"tone":3}]}],
        "tools":[{"name":"f","input_schema":{},"speed":4},{"type":"teleport_1","name":"t"}]}"#;
    assert_eq!(
        chat_of("messages", messages).1,
        ["messages.nova", "messages.message.mood", "messages.block.tone", "messages.tool.speed", "messages.tool of type \"teleport_1\""]
    );
    let responses = br#"{"model":"m","nova":1,"store":false,"include":["reasoning.encrypted_content","web_search_call.results","dreams"],
        "input":[{"role":"user","mood":2,"content":[{"type":"input_text","text":"x","tone":3}]},{"type":"reasoning","summary":[{"type":"summary_text","text":"y","hue":4}]}],
        "tools":[{"type":"teleport"}]}"#;
    assert_eq!(
        chat_of("responses", responses).1,
        [
            "responses.nova",
            "responses.item.mood",
            "responses.part.tone",
            "responses.part.hue",
            "responses.tool of type \"teleport\"",
            "responses.include.dreams"
        ]
    );
}

/// The next request of a conversation begins with the bytes of this one, whatever a client moved about in between.
#[test]
fn a_conversation_only_grows_at_its_end() {
    let first = br#"{"model":"m","system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=1.16f;"},{"type":"text","text":"S"}],
        "messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]},{"role":"system","content":"budget 1"}]}"#;
    let second = br#"{"model":"m","system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=1.b11;"},{"type":"text","text":"S"}],
        "messages":[{"role":"user","content":"hi"},{"role":"system","content":"budget 1"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r"}]},{"role":"system","content":[{"type":"text","text":"budget 2"}]}]}"#;
    let messages = |body: &[u8]| serde_json::from_slice::<Value>(&chat_of("messages", body).0).unwrap()["messages"].as_array().unwrap().clone();
    let (before, after) = (messages(first), messages(second));
    assert_eq!(after[..before.len()], before);
    assert_eq!(before[0]["content"], "S", "the line about billing is gone");
    let roles: Vec<&str> = after.iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "user"]);
}

/// Chat goes through as bytes: another name of the model is the only thing that changes.
#[test]
fn captured_chat_bodies_pass_with_nothing_changed_but_the_models_name() {
    for request in recorded("requests", ".chat.json") {
        let body = Bytes::from(request.bytes);
        let text = String::from_utf8(body.to_vec()).unwrap();
        let named: Value = serde_json::from_str(&text).unwrap();
        let renamed = splice::request(body.clone(), &Edits { model: Some("other \"name\""), window: None }).unwrap();
        let before = format!("\"model\":{}", named["model"]);
        assert_eq!(String::from_utf8(renamed.to_vec()).unwrap(), text.replacen(&before, r#""model":"other \"name\"""#, 1), "{}", request.name);
        assert_eq!(splice::request(body.clone(), &Edits::default()).unwrap(), body, "{}", request.name);
    }
}
