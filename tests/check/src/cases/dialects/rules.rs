//! Rules of translation over a running agent: billing lines, tools, structured output, images.

use serde_json::{Value, json};

use super::super::{Case, Tier, case, named};
use super::desk::{Behind, Desk, Dialect, MODEL, Told};
use super::{events::with_tools, order};
use crate::console::short;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

mod forms;
mod groups;

/// The cases of this group.
pub const CASES: &[Case] = &[
    case("billing-line", Tier::Host, billing_line),
    case("tools-parallel", Tier::Host, tools_parallel),
    case("tools-namespace", Tier::Host, groups::run),
    case("structured", Tier::Host, forms::structured),
    case("images", Tier::Host, forms::images),
];

/// Window of the tiny model here, in tokens.
const WINDOW: u32 = 4096;
/// The path of engines.
const CHAT: &str = "/v1/chat/completions";

/// Asks and expects 200; the answer's document.
fn answered(desk: &Desk, path: &str, body: &Value) -> Result<Value, String> {
    let reply = desk.ask(path, body.to_string().as_bytes())?;
    if reply.status == 200 { Ok(reply.json()) } else { Err(format!("{path} answered {}: {} to {body}", reply.status, short(&reply))) }
}

/// What an engine says from now on.
fn play(desk: &Desk, chat: &Value) -> Result<(), String> {
    desk.script(&json!({"rules": [{"when": {"path": CHAT}, "act": {"chat": chat}}]}))
}

/// A Messages request with this system prompt.
fn with_system(system: Value) -> Value {
    let mut body = Dialect::Messages.question("How many files?", false);
    body["system"] = system;
    body
}

fn billing_line(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let desk = Desk::start(stage, task, None, Behind::Scripted, WINDOW, "")?;
    let line = |build: &str| format!("x-anthropic-billing-header: cc_version=1.0.{build}; cc_entrypoint=cli;");
    let text = |text: &str| json!({"type": "text", "text": text, "cache_control": {"type": "ephemeral"}});
    let reached = |system: Value| -> Result<String, String> {
        answered(&desk, "/v1/messages", &with_system(system))?;
        desk.reached()
    };
    let plain = reached(json!([text("You help."), text("Be brief. \"é\" 🦙")]))?;
    let (one, two) = (
        reached(json!([text(&line("16f")), text("You help."), text("Be brief. \"é\" 🦙")]))?,
        reached(json!([text(&line("b11")), text("You help."), text("Be brief. \"é\" 🦙")]))?,
    );
    result.expect(one == two, "two sessions whose billing lines differ give the engine the same bytes");
    result.expect(one == plain, "with the line taken out every other byte is as without it");
    result.expect(!one.contains("billing"), "nothing of the line reaches the engine");
    let inside = reached(json!(format!("{}\nYou help.", line("16f"))))?;
    result.expect(inside == reached(json!("You help."))?, "a line at the start of one text is taken out, and the text behind it stays");
    let quoted = reached(json!([text(&format!("Quote: {}", line("16f")))]))?;
    result.expect(quoted.contains(&line("16f")), "a text that talks of such a line stays as it is");

    // A chat request is the client's own: not one byte of it changes. This engine is asked for a stream with usage, whatever the client
    // wants: only of a stream does it notice that nobody waits any more.
    let chat = format!(
        "{{ \"messages\" : [{{\"role\":\"system\",\"content\":\"{}\"}},\n{{\"role\":\"user\",\"content\":\"h\\u00e9 \"}}],\"model\":\"{MODEL}\",\"temperature\":0.50 }}",
        line("16f")
    );
    let reply = desk.ask(CHAT, chat.as_bytes())?;
    let asked = desk.reached()?;
    let own = asked.replacen("\"stream_options\":{\"include_usage\":true},\"stream\":true,", "", 1);
    result.expect(reply.status == 200 && own == chat, format!("a chat request reaches the engine byte for byte but for the wish to stream: {asked}"));
    let streamed = chat.replacen("{ ", "{ \"stream\":true,", 1);
    desk.ask(CHAT, streamed.as_bytes())?;
    let asked = desk.reached()?;
    let added = asked.replacen(",\"stream_options\":{\"include_usage\":true}", "", 1).replacen("\"stream_options\":{\"include_usage\":true},", "", 1);
    result.expect(asked.len() > streamed.len() && added == streamed, format!("streamed, it gets the wish for usage and nothing else: {asked}"));
    result.note("the byte-exact way to a provider is not part of this software yet; nothing is sent to one");
    desk.end(result)
}

/// Calls an answer holds, as (id, name, arguments), whichever dialect.
pub fn calls(dialect: Dialect, answer: &Value) -> Vec<(String, String, Value)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    match dialect {
        Dialect::Chat => list(&answer["choices"][0]["message"]["tool_calls"])
            .iter()
            .map(|c| (text(&c["id"]), text(&c["function"]["name"]), c["function"]["arguments"].clone()))
            .collect(),
        Dialect::Messages => {
            let used = list(&answer["content"]).into_iter().filter(|b| b["type"] == "tool_use");
            used.map(|b| (text(&b["id"]), text(&b["name"]), b["input"].to_string().into())).collect()
        }
        Dialect::Responses => {
            let made = list(&answer["output"]).into_iter().filter(|i| i["type"] == "function_call");
            made.map(|i| (text(&i["call_id"]), text(&i["name"]), i["arguments"].clone())).collect()
        }
    }
}

/// The same of a streamed answer.
fn streamed_calls(dialect: Dialect, told: &Told) -> Vec<(String, String, Value)> {
    match dialect {
        Dialect::Chat => Vec::new(),
        Dialect::Responses => told.events.last().map(|e| calls(dialect, &e.data["response"])).unwrap_or_default(),
        Dialect::Messages => {
            let begun = told.events.iter().filter(|e| e.data["content_block"]["type"] == "tool_use");
            begun
                .map(|e| {
                    let pieces = told.events.iter().filter(|d| d.name == "content_block_delta" && d.data["index"] == e.data["index"]);
                    let input: String = pieces.filter_map(|d| d.data["delta"]["partial_json"].as_str()).collect();
                    let block = &e.data["content_block"];
                    let word = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
                    let input = serde_json::from_str::<Value>(&input).unwrap_or_else(|_| json!({}));
                    (word("id"), word("name"), input.to_string().into())
                })
                .collect()
        }
    }
}

fn tools_parallel(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    named::run(stage, task, result, &["-p", "warden-gateway", "--lib", "dialects::chat::calls"], 3)?;
    let desk = Desk::start(stage, task, None, Behind::Scripted, WINDOW, "")?;
    let both = [("read_file", "{\"path\":\"a\"}"), ("list_files", "{\"path\":\"b\"}")];
    let plays = [
        (
            "mixed pieces",
            json!([{"call": [{"index": 0, "id": "c1", "name": "read_file", "arguments": ""}, {"index": 1, "id": "c2", "name": "list_files", "arguments": "{\"pa"}]},
                {"call": {"index": 0, "arguments": "{\"path\":"}}, {"call": {"index": 1, "arguments": "th\":\"b\"}"}}, {"call": {"index": 0, "arguments": "\"a\"}"}}]),
        ),
        (
            "no index",
            json!([{"call": {"id": "c1", "name": "read_file", "arguments": "{\"path\":\"a\"}"}}, {"call": {"id": "c2", "name": "list_files", "arguments": "{\"path\""}},
                {"call": {"arguments": ":\"b\"}"}}]),
        ),
        (
            "no id",
            json!([{"call": {"index": 0, "name": "read_file", "arguments": "{\"path\":\"a\"}"}}, {"call": {"index": 1, "name": "list_files", "arguments": "{\"path\":\"b\"}"}}]),
        ),
        (
            "neither",
            json!([{"call": {"name": "read_file", "arguments": "{\"path\":\"a\"}"}}, {"call": {"name": "list_files", "arguments": "{\"path\":\"b\"}"}}]),
        ),
        (
            "one id for both",
            json!([{"call": {"index": 0, "id": "c", "name": "read_file", "arguments": "{\"path\":\"a\"}"}}, {"call": {"index": 1, "id": "c", "name": "list_files", "arguments": "{\"path\":\"b\"}"}}]),
        ),
    ];
    for (what, say) in plays {
        play(&desk, &json!({"say": say, "finish": "tool_calls"}))?;
        for dialect in [Dialect::Messages, Dialect::Responses] {
            let mut body = with_tools(dialect, "Which files?");
            let told = desk.listen(dialect.path(), body.to_string().as_bytes())?;
            let wrong = order::complaints(dialect, &told);
            let streamed = streamed_calls(dialect, &told);
            result.expect(wrong.is_empty() && are(&streamed, &both), format!("{what}, streamed as {dialect:?}: {streamed:?} {wrong:?}"));
            body["stream"] = json!(false);
            let whole = calls(dialect, &answered(&desk, dialect.path(), &body)?);
            result.expect(are(&whole, &both), format!("{what}, whole as {dialect:?}: {whole:?}"));
        }
    }
    // Cut in the middle of the arguments: what a client gets is never half a document where it must be a whole one.
    play(
        &desk,
        &json!({"say": ["I look.", {"call": {"index": 0, "id": "c1", "name": "read_file", "arguments": "{\"path\": \"a"}}], "finish": "length"}),
    )?;
    for dialect in [Dialect::Messages, Dialect::Responses] {
        let mut body = with_tools(dialect, "Which files?");
        let told = desk.listen(dialect.path(), body.to_string().as_bytes())?;
        let wrong = order::complaints(dialect, &told);
        body["stream"] = json!(false);
        let whole = answered(&desk, dialect.path(), &body)?;
        let (made, end) = match dialect {
            Dialect::Messages => (calls(dialect, &whole).iter().all(|(.., input)| input == "{}"), &whole["stop_reason"] == "max_tokens"),
            _ => (calls(dialect, &whole).iter().all(|(.., arguments)| arguments == "{\"path\": \"a"), whole["status"] == "incomplete"),
        };
        result.expect(wrong.is_empty() && made && end, format!("cut arguments as {dialect:?}: {whole} {wrong:?}"));
    }
    desk.end(result)
}

/// Whether the calls are these two, each with an id of its own.
fn are(calls: &[(String, String, Value)], expected: &[(&str, &str)]) -> bool {
    let ids = calls.len() == 2 && calls.iter().all(|(id, ..)| !id.is_empty()) && calls[0].0 != calls[1].0;
    ids && calls.iter().zip(expected).all(|((_, name, arguments), (n, a))| name == n && arguments == a)
}
