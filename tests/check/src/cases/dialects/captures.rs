//! Recorded requests of real clients: what becomes of each, that nothing of them vanishes, and that a running agent answers them.
//!
//! The scripted engine gets every body at its full length and notes what reached it, for a strict reader. The genuine llama.cpp gets them with
//! their long texts cut, as the window and the speed of the tiny model allow no more. Both are held to the reviewed table of statuses.

use std::collections::BTreeMap;

use serde_json::Value;
use warden_fixtures::captures::{self, Capture};
use warden_fixtures::strict;

use super::super::{Case, Tier, case, named};
use super::desk::{Behind, Desk, Dialect, MODEL};
use crate::console::short;
use crate::http::Reply;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// The cases of this group.
pub const CASES: &[Case] = &[
    case("no-silent-loss", Tier::Host, no_silent_loss),
    case("captures-chat", Tier::Host, chat),
    case("captures-messages", Tier::Host, messages),
    case("captures-responses", Tier::Host, responses),
];

/// File, status over the scripted engine, status over the genuine one; relative to the project.
const TABLE: &str = "tests/accept/captures.tsv";
/// Asks for a length and gets no answer of a model.
const COUNT: &str = "/v1/messages/count_tokens";
/// Window of the tiny model here, in tokens.
const WINDOW: u32 = 32_768;

fn no_silent_loss(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    named::run(stage, task, result, &["-p", "warden-gateway", "--test", "captures", "no_field_of_a_captured"], 2)?;
    named::run(stage, task, result, &["-p", "warden-gateway", "--test", "dialects", "no_text_and_no_field", "a_field_that_nobody_knows"], 2)?;
    tell_where_from(stage, result);
    Ok(())
}

fn chat(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    named::run(stage, task, result, &["-p", "warden-gateway", "--test", "captures", "--test", "dialects", "captured_chat"], 2)?;
    replay(stage, task, result, Dialect::Chat)
}

fn messages(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    named::run(stage, task, result, &["-p", "warden-gateway", "--test", "captures", "--test", "dialects", "captured_messages"], 2)?;
    replay(stage, task, result, Dialect::Messages)
}

fn responses(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    named::run(stage, task, result, &["-p", "warden-gateway", "--test", "captures", "--test", "dialects", "captured_responses"], 2)?;
    replay(stage, task, result, Dialect::Responses)
}

fn tell_where_from(stage: &Stage, result: &mut CaseResult) {
    let where_ = captures::folder(&stage.places.root)
        .map_or_else(|| "the committed shapes: the recordings do not lie beside the project".to_owned(), |folder| folder.display().to_string());
    result.note(format!("requests read from {where_}"));
}

/// Statuses of the table, by file.
fn expected(stage: &Stage) -> Result<BTreeMap<String, (u16, u16)>, String> {
    let path = stage.places.root.join(TABLE);
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let rows = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    rows.map(|line| {
        let mut words = line.split('\t');
        let row = (words.next(), words.next().and_then(|w| w.parse().ok()), words.next().and_then(|w| w.parse().ok()));
        let (Some(name), Some(scripted), Some(genuine)) = row else { return Err(format!("{} has a row that is none: {line}", path.display())) };
        Ok((name.to_owned(), (scripted, genuine)))
    })
    .collect()
}

/// Sends every recorded request of a dialect through a running agent, to both engines.
fn replay(stage: &mut Stage, task: &Task, result: &mut CaseResult, dialect: Dialect) -> Result<(), String> {
    tell_where_from(stage, result);
    let (all, recorded) = captures::corpus(&stage.places.root)?;
    let own: Vec<Capture> = all.into_iter().filter(|c| c.route().starts_with(dialect.path())).map(|c| c.for_model(MODEL)).collect();
    let table = if recorded { expected(stage)? } else { BTreeMap::new() };
    let unlisted: Vec<&str> = own.iter().map(|c| c.name.as_str()).filter(|name| recorded && !table.contains_key(*name)).collect();
    result.expect(unlisted.is_empty() && own.len() > 8, format!("{} requests, each with a row in {TABLE} {unlisted:?}", own.len()));
    let status = |capture: &Capture| table.get(&capture.name).copied().unwrap_or((200, 200));

    let desk = Desk::start(stage, task, None, Behind::Scripted, WINDOW, "")?;
    let mut seen = Seen::default();
    for capture in &own {
        let body = capture.whole();
        desk.engine()?.forget();
        let reply = ask(&desk, capture, &body)?;
        seen.judge(capture, status(capture).0, &reply, task);
        if capture.route() != COUNT && reply.status == 200 {
            seen.reached += 1;
            seen.wrong.extend(reached(capture, &body, &desk.reached()?).into_iter().map(|sentence| format!("{}: {sentence}", capture.name)));
        }
    }
    seen.tell("at full length over the scripted engine", result);
    result.expect(seen.reached > 0, format!("the engine was asked {} times, and a strict reader finds nothing wrong", seen.reached));
    desk.end(result)?;

    let desk = Desk::start(stage, task, None, Behind::Genuine, WINDOW, "")?;
    let mut seen = Seen::default();
    for capture in &own {
        let reply = ask(&desk, capture, &short_answer(capture)?)?;
        seen.judge(capture, status(capture).1, &reply, task);
    }
    seen.tell("as recorded, with a short answer, over the genuine llama.cpp", result);
    desk.end(result)
}

/// The recorded body with a limit on the answer: a tiny model never comes to its end by itself, and clients allow it whole windows.
fn short_answer(capture: &Capture) -> Result<String, String> {
    const TOKENS: u64 = 16;
    let mut body: Value = serde_json::from_str(&capture.body).map_err(|e| format!("{}: {e}", capture.name))?;
    let limits: &[&str] = match capture.route() {
        COUNT => &[],
        "/v1/responses" => &["max_output_tokens"],
        "/v1/messages" => &["max_tokens"],
        _ => &["max_tokens", "max_completion_tokens"],
    };
    let named: Vec<&&str> = limits.iter().filter(|name| body[**name].is_u64()).collect();
    let named = if named.is_empty() { limits.iter().take(1).collect() } else { named };
    for name in named {
        body[*name] = body[*name].as_u64().map_or(TOKENS, |n| n.min(TOKENS)).into();
    }
    Ok(body.to_string())
}

/// Sends one as its client did.
fn ask(desk: &Desk, capture: &Capture, body: &str) -> Result<Reply, String> {
    let mut headers: Vec<(&str, &str)> = capture.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    if capture.headers.is_empty() {
        headers.push(("content-type", "application/json"));
    }
    desk.ask_as(&capture.path, &headers, body.as_bytes())
}

#[derive(Default)]
struct Seen {
    answered: usize,
    reached: usize,
    wrong: Vec<String>,
}

impl Seen {
    /// The status, and that a good answer is a whole one.
    fn judge(&mut self, capture: &Capture, status: u16, reply: &Reply, task: &Task) {
        task.log.line(format!("{} {} -> {} {}", capture.path, capture.name, reply.status, short(reply)));
        self.answered += 1;
        if reply.status != status {
            self.wrong.push(format!("{}: status {} and not {status}: {}", capture.name, reply.status, short(reply)));
        } else if status == 200 && !is_whole(capture, reply) {
            let end: String = reply.text().chars().rev().take(300).collect::<Vec<_>>().into_iter().rev().collect();
            self.wrong.push(format!("{}: the answer is not whole: …{end}", capture.name));
        }
    }

    fn tell(&self, how: &str, result: &mut CaseResult) {
        result.expect(self.wrong.is_empty(), format!("{} requests {how}: each with the status of its row, and answers whole", self.answered));
        self.wrong.iter().take(12).for_each(|sentence| result.note(sentence.clone()));
    }
}

/// Whether a good answer has its end.
fn is_whole(capture: &Capture, reply: &Reply) -> bool {
    let text = reply.text();
    let streamed = reply.header("content-type").is_some_and(|t| t.starts_with("text/event-stream"));
    let document = reply.json();
    match capture.route() {
        COUNT => document["input_tokens"].as_u64().is_some_and(|n| n > 0),
        "/v1/messages" if streamed => text.ends_with("data: {\"type\":\"message_stop\"}\n\n"),
        "/v1/messages" => document["stop_reason"].is_string() && document["content"].is_array(),
        "/v1/responses" if streamed => text.contains("event: response.completed\n") && !text.contains("event: response.failed\n"),
        "/v1/responses" => document["output"].is_array() && document["error"].is_null(),
        _ if streamed => text.trim_end().ends_with("data: [DONE]") && !text.contains("data: {\"error\""),
        _ => document["choices"][0]["finish_reason"].is_string(),
    }
}

/// Takes each image that was sent, and the sentence that stands in its place, out of both.
fn images_are_alike(sent: &mut Value, asked: &mut Value) {
    let (Some(sent), Some(asked)) = (sent["messages"].as_array_mut(), asked["messages"].as_array_mut()) else { return };
    for (sent, asked) in sent.iter_mut().zip(asked) {
        let (Some(sent), Some(asked)) = (sent["content"].as_array_mut(), asked["content"].as_array_mut()) else { continue };
        for (part, other) in sent.iter_mut().zip(asked) {
            if part["type"] == "image_url" && other["type"] == "text" {
                (*part, *other) = (Value::Null, Value::Null);
            }
        }
    }
}

/// What is wrong with what the engine was asked.
fn reached(capture: &Capture, body: &str, asked: &str) -> Vec<String> {
    let Ok(chat) = serde_json::from_str::<Value>(asked) else {
        return vec![format!("the engine was asked no JSON: {asked}")];
    };
    if capture.route() != Dialect::Chat.path() {
        return strict::complaints(&chat);
    }
    // Chat goes through as it came: only the box's own wishes about usage and streaming, limits that no window holds, and images (this
    // engine reads text only) may differ.
    let mut sent: Value = serde_json::from_str(body).unwrap_or_default();
    let mut chat = chat;
    images_are_alike(&mut sent, &mut chat);
    let own = ["stream", "stream_options", "max_tokens", "max_completion_tokens", "return_progress"];
    let members = |value: &Value| -> BTreeMap<String, Value> {
        value.as_object().into_iter().flatten().filter(|(n, _)| !own.contains(&n.as_str())).map(|(n, v)| (n.clone(), v.clone())).collect()
    };
    if members(&sent) == members(&chat) { Vec::new() } else { vec!["members of the body changed on the way to the engine".to_owned()] }
}
