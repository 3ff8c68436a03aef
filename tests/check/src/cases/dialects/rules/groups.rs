//! `tools-namespace`: tools in groups and tools of free text, as one client has them, there and back again.

use serde_json::{Value, json};

use super::super::super::named;
use super::super::desk::{Behind, Desk, Dialect, MODEL};
use super::super::order;
use super::{WINDOW, answered, play};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Free text that JSON, SSE and grammars all have trouble with.
const PATCH: &str = "*** Begin Patch\n*** Update File: a\r\n+\t\"é\" \\n \u{2028} 🦙 </tool>\n\ndata: [DONE]\n*** End Patch\n";

fn tools() -> Value {
    json!([{"type": "function", "name": "shell", "strict": false, "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}},
        {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": {"type": "grammar", "syntax": "lark", "definition": "start: begin\nbegin: \"*** Begin Patch\"\n"}},
        {"type": "namespace", "name": "agents", "description": "Other agents.", "tools": [
            {"type": "function", "name": "close_agent", "description": "Closes one.", "strict": false, "parameters": {"type": "object", "properties": {"target": {"type": "string"}}}},
            {"type": "custom", "name": "brief_agent", "description": "Tells one."}]}])
}

pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    named::run(stage, task, result, &["-p", "warden-gateway", "--test", "dialects", "a_call_of_a_grouped", "free_text_of_a_custom"], 2)?;
    let desk = Desk::start(stage, task, None, Behind::Scripted, WINDOW, "")?;
    let free = |text: &str| json!({"input": text}).to_string();
    // What the model calls, and what the client must get and send back.
    let cases = [
        (
            "a member of a group",
            "close_agent",
            json!({"target": "x"}).to_string(),
            json!({"type": "function_call", "name": "close_agent", "namespace": "agents", "arguments": json!({"target": "x"}).to_string()}),
        ),
        ("free text", "apply_patch", free(PATCH), json!({"type": "custom_tool_call", "name": "apply_patch", "input": PATCH})),
        (
            "free text in a group",
            "brief_agent",
            free(PATCH),
            json!({"type": "custom_tool_call", "name": "brief_agent", "namespace": "agents", "input": PATCH}),
        ),
        (
            "a plain function",
            "shell",
            json!({"command": PATCH}).to_string(),
            json!({"type": "function_call", "name": "shell", "arguments": json!({"command": PATCH}).to_string()}),
        ),
    ];
    for (what, name, arguments, expected) in cases {
        // Cut where escapes and characters of several bytes are.
        let pieces: Vec<Value> = arguments
            .chars()
            .collect::<Vec<_>>()
            .chunks(3)
            .map(|three| json!({"call": {"index": 0, "arguments": three.iter().collect::<String>()}}))
            .collect();
        let mut say = vec![json!({"call": {"index": 0, "id": "call_1", "name": name, "arguments": ""}})];
        say.extend(pieces);
        play(&desk, &json!({"say": say, "finish": "tool_calls"}))?;
        for streamed in [false, true] {
            let mut request = json!({"model": MODEL, "input": [{"role": "user", "content": "go"}], "tools": tools(), "store": false});
            let output = if streamed {
                request["stream"] = json!(true);
                let told = desk.listen("/v1/responses", request.to_string().as_bytes())?;
                let wrong = order::complaints(Dialect::Responses, &told);
                result.expect(wrong.is_empty(), format!("{what}: the events are whole {wrong:?}"));
                told.events.last().map(|e| e.data["response"]["output"].clone()).unwrap_or_default()
            } else {
                answered(&desk, "/v1/responses", &request)?["output"].clone()
            };
            let item = output[0].clone();
            let same = expected.as_object().into_iter().flatten().all(|(name, value)| item[name] == *value) && item["call_id"] == "call_1";
            let outside = expected.get("namespace").is_some() || item.get("namespace").is_none();
            result.expect(same && outside, format!("{what}, streamed: {streamed}: the client gets {item}"));
            came_back(&desk, what, name, &arguments, &item, result)?;
        }
    }
    offered(&desk, result)?;
    desk.end(result)
}

/// The client sends the call back with its output: the engine sees the call as the model made it.
fn came_back(desk: &Desk, what: &str, name: &str, arguments: &str, item: &Value, result: &mut CaseResult) -> Result<(), String> {
    let kind = if item["type"] == "custom_tool_call" { "custom_tool_call_output" } else { "function_call_output" };
    let output = json!({"type": kind, "call_id": "call_1", "output": PATCH});
    let request = json!({"model": MODEL, "input": [{"role": "user", "content": "go"}, item, output], "tools": tools()});
    answered(desk, "/v1/responses", &request)?;
    let chat: Value = serde_json::from_str(&desk.reached()?).map_err(|e| format!("the engine was asked no JSON: {e}"))?;
    let call = &chat["messages"][1]["tool_calls"][0];
    let made: Option<Value> = call["function"]["arguments"].as_str().and_then(|text| serde_json::from_str(text).ok());
    let same = call["function"]["name"] == name && made == serde_json::from_str(arguments).ok() && call["id"] == "call_1";
    let told = chat["messages"][2] == json!({"role": "tool", "tool_call_id": "call_1", "content": PATCH});
    result.expect(same && told, format!("{what}: the engine sees the call and its output again: {call}"));
    Ok(())
}

/// What the engine is offered of it.
fn offered(desk: &Desk, result: &mut CaseResult) -> Result<(), String> {
    answered(desk, "/v1/responses", &json!({"model": MODEL, "input": "go", "tools": tools()}))?;
    let chat: Value = serde_json::from_str(&desk.reached()?).map_err(|e| format!("the engine was asked no JSON: {e}"))?;
    let wrong = warden_fixtures::strict::complaints(&chat);
    let names: Vec<&str> = chat["tools"].as_array().into_iter().flatten().filter_map(|t| t["function"]["name"].as_str()).collect();
    let about = chat["tools"].to_string();
    let whole = ["lark", "*** Begin Patch", "Other agents.", "Closes one.", "Tells one."].iter().all(|part| about.contains(part));
    result.expect(
        names == ["shell", "apply_patch", "close_agent", "brief_agent"] && whole,
        format!("the engine is offered {names:?}, with grammar and descriptions"),
    );
    result.expect(wrong.is_empty(), format!("a strict reader finds nothing wrong {wrong:?}"));
    Ok(())
}
