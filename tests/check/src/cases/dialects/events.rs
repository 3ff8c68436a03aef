//! Streams: the order of events in each dialect, and that it does not matter where an engine's bytes are cut.

use serde_json::{Value, json};

use super::super::{Case, Tier, case, named};
use super::desk::{Behind, Desk, Dialect, Told};
use super::order;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// The cases of this group.
pub const CASES: &[Case] = &[
    case("cut-everywhere", Tier::Host, cut_everywhere),
    case("events-chat", Tier::Host, |stage, task, result| events(stage, task, result, Dialect::Chat)),
    case("events-messages", Tier::Host, |stage, task, result| events(stage, task, result, Dialect::Messages)),
    case("events-responses", Tier::Host, |stage, task, result| events(stage, task, result, Dialect::Responses)),
];

/// Window of the tiny model here, in tokens.
const WINDOW: u32 = 4096;

/// A question that offers two tools and asks for thinking.
pub fn with_tools(dialect: Dialect, text: &str) -> Value {
    let schema =
        json!({"type": "object", "properties": {"path": {"type": "string", "maxLength": 8}}, "required": ["path"], "additionalProperties": false});
    let mut body = dialect.question(text, true);
    let names = ["read_file", "list_files"];
    match dialect {
        Dialect::Chat => {
            body["tools"] = names.iter().map(|name| json!({"type": "function", "function": {"name": name, "parameters": schema}})).collect();
            body["stream_options"] = json!({"include_usage": true});
        }
        Dialect::Messages => {
            body["tools"] = names.iter().map(|name| json!({"name": name, "input_schema": schema})).collect();
            body["thinking"] = json!({"type": "adaptive"});
        }
        Dialect::Responses => {
            body["tools"] = names.iter().map(|name| json!({"type": "function", "name": name, "parameters": schema})).collect();
            body["reasoning"] = json!({"effort": "medium", "summary": "auto"});
        }
    }
    body
}

/// What the scripted engine says, by name, with the end that is told of it in each dialect: `finish_reason`, `stop_reason`, and how the response stands.
fn plays() -> Vec<(&'static str, Value, [&'static str; 3])> {
    let call = |index: u64, id: &str, name: &str, arguments: &str| json!({"call": {"index": index, "id": id, "name": name, "arguments": arguments}});
    let more = |index: u64, arguments: &str| json!({"call": {"index": index, "arguments": arguments}});
    vec![
        ("text", json!({"say": ["It ", "is ", "🦙."]}), ["stop", "end_turn", "completed"]),
        ("nothing", json!({"say": []}), ["stop", "end_turn", "completed"]),
        ("cut at its length", json!({"say": ["It is"], "finish": "length"}), ["length", "max_tokens", "incomplete"]),
        ("thinking and text", json!({"say": [{"reason": "Hm. "}, {"reason": "Yes."}, "It is."]}), ["stop", "end_turn", "completed"]),
        (
            "text and a tool",
            json!({"say": ["I look.", call(0, "c1", "read_file", "{\"path\""), more(0, ":\"a\"}")], "finish": "tool_calls"}),
            ["tool_calls", "tool_use", "completed"],
        ),
        (
            "two tools at once",
            json!({"say": [call(0, "c1", "read_file", ""), call(1, "c2", "list_files", "{\"pa"), more(0, "{\"path\":\"a\"}"), more(1, "th\":\"b\"}")],
                "finish": "tool_calls"}),
            ["tool_calls", "tool_use", "completed"],
        ),
        (
            "thinking, text and a tool",
            json!({"say": [{"reason": "Hm."}, "I look.", call(0, "c1", "read_file", "{\"path\":\"a\"}")], "finish": "tool_calls"}),
            ["tool_calls", "tool_use", "completed"],
        ),
    ]
}

/// The word with which an answer says how it ended.
fn ended(dialect: Dialect, told: &Told) -> String {
    let last = |name: &str| told.events.iter().rfind(|e| e.name == name).map(|e| e.data.clone()).unwrap_or_default();
    let word = match dialect {
        Dialect::Chat => return order::finish_reason(told),
        Dialect::Messages => last("message_delta")["delta"]["stop_reason"].clone(),
        Dialect::Responses => last("response.completed")["response"]["status"].clone(),
    };
    word.as_str().unwrap_or_default().to_owned()
}

fn events(stage: &mut Stage, task: &Task, result: &mut CaseResult, dialect: Dialect) -> Result<(), String> {
    let which = Dialect::ALL.iter().position(|d| *d == dialect).unwrap_or_default();
    let desk = Desk::start(stage, task, None, Behind::Scripted, WINDOW, "")?;
    let body = with_tools(dialect, "Which files are there?");
    for (name, play, ends) in plays() {
        desk.script(&json!({"rules": [{"when": {"path": "/v1/chat/completions"}, "act": {"chat": play}}]}))?;
        let told = desk.listen(dialect.path(), body.to_string().as_bytes())?;
        task.log.line(format!("{name}: {told:?}"));
        let wrong = order::complaints(dialect, &told);
        let end = ended(dialect, &told);
        result.expect(wrong.is_empty() && end == ends[which], format!("scripted, {name}: {} events, ended as {end} {wrong:?}", told.events.len()));
    }
    desk.end(result)?;

    let desk = Desk::start(stage, task, None, Behind::Genuine, WINDOW, "")?;
    let mut short = dialect.question("Tell me of the sea.", true);
    let limit = if dialect == Dialect::Responses { "max_output_tokens" } else { "max_tokens" };
    short[limit] = json!(1);
    // The likeliest word, so that each run has the same one: a tiny model may also be done at once.
    short["temperature"] = json!(0);
    let asks = [
        ("text", dialect.question("Tell me of the sea.", true), None),
        ("cut at its length", short, Some(["length", "max_tokens", "incomplete"])),
        ("tools on offer", with_tools(dialect, "Read the file a."), None),
    ];
    for (name, body, ends) in asks {
        let told = desk.listen(dialect.path(), body.to_string().as_bytes())?;
        task.log.line(format!("{name}: {told:?}"));
        let wrong = order::complaints(dialect, &told);
        let end = ended(dialect, &told);
        let good = wrong.is_empty() && ends.is_none_or(|ends| end == ends[which]);
        result.expect(good, format!("llama.cpp, {name}: {} events, ended as {end} {wrong:?}", told.events.len()));
    }
    desk.end(result)
}

/// `cut-everywhere`: the rooms' own tests at each byte; and a running agent whose engine pauses inside of an event.
fn cut_everywhere(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    named::run(stage, task, result, &["-p", "warden-gateway", "--test", "dialects", "cut_at_each_byte"], 2)?;
    named::run(stage, task, result, &["-p", "warden-gateway", "--lib", "cut_at", "any_chunking"], 2)?;
    let path = stage.places.root.join("agent/gateway/tests/fixtures/streams/real-llama-two-tools.sse");
    let stream = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let desk = Desk::start(stage, task, None, Behind::Scripted, WINDOW, "")?;
    for dialect in Dialect::ALL {
        let body = with_tools(dialect, "Which files are there?").to_string();
        let at = |cut: usize| -> Result<Told, String> {
            // Characters of several bytes are cut in the rooms' own tests; a script is text.
            let cut = (cut..=stream.len()).find(|at| stream.is_char_boundary(*at)).unwrap_or(stream.len());
            let say = json!([{"raw": stream[..cut]}, {"pause_ms": 4, "raw": stream[cut..]}]);
            let play = json!({"role": false, "finish": null, "usage": null, "done": false, "say": say});
            desk.script(&json!({"rules": [{"when": {"path": "/v1/chat/completions"}, "act": {"chat": play}}]}))?;
            desk.listen(dialect.path(), body.as_bytes())
        };
        let whole = at(stream.len())?;
        let wrong = order::complaints(dialect, &whole);
        let mut differ = Vec::new();
        for cut in (1..stream.len()).step_by(37) {
            if alike(&at(cut)?) != alike(&whole) {
                differ.push(cut);
            }
        }
        let what = format!("{}: the same {} events wherever the engine pauses {differ:?} {wrong:?}", dialect.path(), whole.events.len());
        result.expect(differ.is_empty() && wrong.is_empty(), what);
    }
    desk.end(result)
}

/// An answer without what is its own: ids made of the request's, and when it was made.
fn alike(told: &Told) -> String {
    let mut text: String = told.events.iter().map(|e| format!("{} {}\n", e.name, e.data)).collect();
    let own =
        |e: &Value| ["/id", "/response/id", "/message/id"].iter().filter_map(|at| e.pointer(at)?.as_str().map(str::to_owned)).collect::<Vec<_>>();
    for id in told.events.iter().flat_map(|e| own(&e.data)) {
        let seed = id.split_once('_').map_or(id.clone(), |(_, seed)| seed.to_owned());
        text = text.replace(&seed, "");
    }
    let mut parts = text.split("\"created_at\":");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.trim_start_matches(|c: char| c.is_ascii_digit()))
}
