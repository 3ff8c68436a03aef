//! How answers end: badly in the middle, plainly before they began, and what they cost.

use serde_json::{Value, json};

use super::super::desk::Dialect;
use super::bench::{Bench, Wish};
use super::raw::Answer;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Faults in the middle of an answer: what the engine does after its first words.
const FAULTS: [(&str, &str); 4] = [
    ("the engine says an error", r#"{"error": {"code": 500, "message": "the cache is full", "type": "server_error"}}"#),
    ("the engine closes the connection", r#"{"cut": true}"#),
    ("the engine says what is no JSON", r#"{"raw": "data: {\"choices\":[{\n\n"}"#),
    ("the engine is killed", r#"{"die": -9}"#),
];

/// An error in mid-stream is told in the words of the dialect, and the connection is cut: nothing looks like a good end.
pub fn error_mid_stream(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let wish = Wish { more: "[serving]\nrestart_pause_s = 0.2\nrestarts = 20\n", ..Wish::default() };
    let bench = Bench::start(stage, task, &wish)?;
    for (what, fault) in FAULTS {
        let fault: Value = serde_json::from_str(fault).map_err(|e| e.to_string())?;
        let say = json!(["Some first words ", {"pause_ms": 30}, fault.clone()]);
        for dialect in Dialect::ALL {
            bench.script(
                &json!([{"when": {"path": "/v1/chat/completions"}, "act": {"chat": {"say": say, "finish": null, "done": false, "usage": null}}}]),
            )?;
            let launches = bench.launches()?;
            let answer = bench.ask(dialect, &dialect.question("Say something.", true))?;
            told_badly(result, dialect, what, &answer);
            if fault.get("die").is_some() {
                bench.runs(&bench.id, 1, &launches)?;
            }
        }
    }
    let asked = (FAULTS.len() * Dialect::ALL.len()) as u64;
    let usage = bench.charged(asked)?;
    result.expect(usage["requests"] == asked, format!("each of the {asked} requests was charged once: {}", usage["requests"]));
    bench.expect_idle(result);
    let rows = bench.end(result)?;
    let failed = rows.iter().filter(|row| row.outcome == "engine_failed").count() as u64;
    result.expect(failed == asked, format!("{failed} of {asked} are noted as failed by the engine"));
    Ok(())
}

/// One stream that ended badly.
fn told_badly(result: &mut CaseResult, dialect: Dialect, what: &str, answer: &Answer) {
    let events = answer.events();
    let text = answer.text();
    let last = events.last().cloned().unwrap_or_default();
    let (told, good_end) = match dialect {
        Dialect::Chat => (
            last.1["error"]["message"].is_string() && last.1["error"]["type"].is_string(),
            text.contains("[DONE]") || events.iter().any(|(_, data)| data["choices"][0]["finish_reason"].is_string()),
        ),
        Dialect::Messages => (
            last.0 == "error" && last.1["type"] == "error" && last.1["error"]["type"].is_string() && last.1["error"]["message"].is_string(),
            text.contains("message_stop") || text.contains("message_delta"),
        ),
        Dialect::Responses => (
            last.0 == "response.failed" && last.1["response"]["status"] == "failed" && last.1["response"]["error"]["message"].is_string(),
            text.contains("response.completed") || text.contains("response.incomplete"),
        ),
    };
    let sound = answer.status == 200 && answer.is_stream() && text.contains("Some first words") && told && !good_end && !answer.clean;
    result.expect(
        sound,
        format!(
            "{dialect:?}, {what}: {} events, the last tells of the error ({told}), a good end is told ({good_end}), the connection is closed cleanly ({}){}",
            events.len(),
            answer.clean,
            if sound { String::new() } else { format!("; last event {} {}; {}", last.0, last.1, answer.short()) }
        ),
    );
}

/// Before an answer is begun everything that goes wrong is a plain status, for streamed requests too.
pub fn committed(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::start(stage, task, &Wish { replicas: 2, ..Wish::default() })?;
    for dialect in Dialect::ALL {
        for stream in [true, false] {
            let question = dialect.question("Say something.", stream);
            refused_by_engine(&bench, result, dialect, &question)?;
            let mut other = question.clone();
            other["model"] = "nobody".into();
            plain(result, dialect, "a model that is not there", &[404], "nobody", &bench.ask(dialect, &other)?);
            let broken = bench.agent.port();
            let answer = super::raw::Raw::post(broken, dialect.path(), &bench.key, b"{\"model\": \"tiny\", ")?.end(super::bench::SOON);
            plain(result, dialect, "a body that is no JSON", &[400], "", &answer);
            falls_back(&bench, result, dialect, &question)?;
        }
        too_large(&bench, result, dialect)?;
    }
    bench.expect_idle(result);
    bench.end(result).map(drop)
}

/// The engine refuses after a while: its words, as a plain answer.
fn refused_by_engine(bench: &Bench, result: &mut CaseResult, dialect: Dialect, question: &Value) -> Result<(), String> {
    let refusal = json!({"error": {"code": 400, "type": "exceed_context_size_error", "message": "the request exceeds the available context size",
        "n_prompt_tokens": 9000, "n_ctx": 4096}});
    bench.script(&json!([{"act": {"answer": {"status": 400, "before_ms": 300, "json": refusal}}}]))?;
    // One client reads the numbers out of a sentence that holds nothing else.
    let words = if dialect == Dialect::Messages { "prompt is too long: 9000 tokens > 4096 maximum" } else { "exceeds the available context" };
    plain(result, dialect, "the engine's own 400", &[400], words, &bench.ask(dialect, question)?);
    Ok(())
}

/// A body above the limit, announced: told before it was sent.
fn too_large(bench: &Bench, result: &mut CaseResult, dialect: Dialect) -> Result<(), String> {
    let head = super::raw::head("POST", dialect.path(), &bench.key);
    let raw = super::raw::Raw::send(bench.agent.port(), format!("{head}content-length: {}\r\n\r\n{{", 33 << 20).as_bytes())?;
    plain(result, dialect, "a body of 33 MB", &[413], "", &raw.end(super::bench::SOON));
    Ok(())
}

/// One replica does not take the request, in several ways: the other one answers and nobody is told. When none does: a plain status.
fn falls_back(bench: &Bench, result: &mut CaseResult, dialect: Dialect, question: &Value) -> Result<(), String> {
    let say = json!({"chat": {"say": ["From the other one."]}});
    for (what, act) in [
        ("closes the connection", json!("close")),
        ("answers 500", json!({"answer": {"status": 500, "json": {"error": {"code": 500, "message": "broken", "type": "server_error"}}}})),
        ("answers 503", json!({"answer": {"status": 503, "json": {"error": {"code": 503, "message": "busy", "type": "unavailable_error"}}}})),
    ] {
        // Both replicas count for themselves: whichever is asked first fails.
        bench.script(&json!([{"when": {"replica": "-0"}, "act": act}, {"act": say}]))?;
        let first = bench.ask(dialect, question)?;
        bench.script(&json!([{"when": {"replica": "-1"}, "act": act}, {"act": say}]))?;
        let second = bench.ask(dialect, question)?;
        let good = |answer: &Answer| answer.status == 200 && answer.clean && answer.text().contains("From the other one.");
        result.expect(
            good(&first) && good(&second),
            format!("{dialect:?}: one replica {what}, the other one answers ({}, {})", first.short(), second.short()),
        );
        bench.script(&json!([{"act": act}]))?;
        let none = bench.ask(dialect, question)?;
        let allowed: &[u16] = match what {
            "answers 503" if dialect == Dialect::Messages => &[529],
            "answers 503" => &[503],
            // In chat the engine's own answer goes through.
            "answers 500" => &[500, 502],
            _ => &[502],
        };
        plain(result, dialect, &format!("every replica {what}"), allowed, "", &none);
        bench.script(&json!([]))?;
    }
    Ok(())
}

/// A plain answer of one of these statuses in the shape of the dialect.
fn plain(result: &mut CaseResult, dialect: Dialect, what: &str, allowed: &[u16], words: &str, answer: &Answer) {
    let told = answer.json();
    let shaped = match dialect {
        Dialect::Messages => told["type"] == "error" && told["error"]["type"].is_string() && told["error"]["message"].is_string(),
        Dialect::Chat | Dialect::Responses => told["error"]["message"].is_string() && told["error"]["type"].is_string(),
    };
    let said = told["error"]["message"].as_str().unwrap_or_default().contains(words);
    let named = answer.header("x-request-id").is_some();
    let holds = allowed.contains(&answer.status) && answer.clean && !answer.is_stream() && shaped && said && named;
    let sentence = format!(
        "{dialect:?}, {what}: a plain {} in its own words{}",
        answer.status,
        if holds {
            String::new()
        } else {
            format!(" (wanted {allowed:?}, clean {}, shape {shaped}, words {said}, request id {named}): {}", answer.clean, answer.short())
        }
    );
    result.expect(holds, sentence);
}

/// The engine's figures of the cases below.
const PROMPT: u64 = 29;
const CACHED: u64 = 4;
const COMPLETION: u64 = 5;

/// What an answer used is told truly in each dialect, to nobody who did not ask, and charged all the same.
pub fn usage(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::start(stage, task, &Wish::default())?;
    bench.script(&json!([{"when": {"path": "/v1/chat/completions"}, "act": {"chat": {"say": [{"reason": "Hm. "}, "It ", "rains."],
        "usage": {"prompt": PROMPT, "cached": CACHED, "completion": COMPLETION, "reasoning": 2}}}}]))?;
    let mut asked = 0;
    for dialect in Dialect::ALL {
        for stream in [true, false] {
            let mut question = dialect.question("What is the weather?", stream);
            if dialect == Dialect::Chat && stream {
                let silent = bench.ask(dialect, &question)?;
                asked += 1;
                hidden(&bench, result, &silent)?;
                question["stream_options"] = json!({"include_usage": true});
            }
            let answer = bench.ask(dialect, &question)?;
            asked += 1;
            let told = told(dialect, stream, &answer);
            result.expect(told == expected(dialect), format!("{dialect:?}, streamed {stream}: usage is told truly: {told}"));
            let charged = bench.charged(asked)?;
            let sums = ["requests", "prompt_tokens", "cached_tokens", "completion_tokens"].map(|name| charged[name].as_u64().unwrap_or_default());
            let wanted = [asked, asked * PROMPT, asked * CACHED, asked * COMPLETION];
            result.expect(
                sums == wanted,
                format!("{dialect:?}, streamed {stream}: charged in all {sums:?} (requests, prompt, cached, completion), wanted {wanted:?}"),
            );
        }
    }
    genuine(stage, task, result)?;
    bench.expect_idle(result);
    bench.end(result).map(drop)
}

/// Nobody asked for usage: the client's stream is the engine's, byte for byte, without the figures that the gateway asked for.
fn hidden(bench: &Bench, result: &mut CaseResult, answer: &Answer) -> Result<(), String> {
    let asked = bench.engine.asked();
    let last = asked.last().ok_or("the engine was asked nothing")?;
    let body: Value = serde_json::from_str(last["body"].as_str().unwrap_or_default()).unwrap_or_default();
    let text = answer.text();
    let chunks = answer.events();
    result.expect(
        !text.contains("\"usage\":{") && text.ends_with("data: [DONE]\n\n") && chunks.iter().all(|(_, c)| c["choices"] != json!([])),
        format!("Chat, usage not asked for: {} events, none tells of usage", chunks.len()),
    );
    result.expect(body["stream_options"]["include_usage"] == true, "the gateway asks the engine for it all the same");
    Ok(())
}

/// The usage that an answer tells.
fn told(dialect: Dialect, stream: bool, answer: &Answer) -> Value {
    if !stream {
        return known(&answer.json()["usage"]);
    }
    let events = answer.events();
    let found = match dialect {
        Dialect::Chat => events.iter().rev().find(|(_, data)| data["usage"].is_object()).map(|(_, data)| data["usage"].clone()),
        Dialect::Messages => events.iter().find(|(name, _)| name == "message_delta").map(|(_, data)| data["usage"].clone()),
        Dialect::Responses => events.last().map(|(_, data)| data["response"]["usage"].clone()),
    };
    known(&found.unwrap_or_default())
}

/// Of a usage document what has a meaning here.
fn known(usage: &Value) -> Value {
    let fields = [
        "prompt_tokens",
        "completion_tokens",
        "input_tokens",
        "output_tokens",
        "total_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
    ];
    let mut known: serde_json::Map<String, Value> =
        fields.iter().filter(|name| !usage[**name].is_null()).map(|name| ((*name).to_owned(), usage[*name].clone())).collect();
    for (part, field) in [
        ("prompt_tokens_details", "cached_tokens"),
        ("input_tokens_details", "cached_tokens"),
        ("completion_tokens_details", "reasoning_tokens"),
        ("output_tokens_details", "reasoning_tokens"),
    ] {
        if !usage[part][field].is_null() {
            known.insert(field.to_owned(), usage[part][field].clone());
        }
    }
    known.into()
}

fn expected(dialect: Dialect) -> Value {
    let total = PROMPT + COMPLETION;
    match dialect {
        Dialect::Chat => {
            json!({"prompt_tokens": PROMPT, "completion_tokens": COMPLETION, "total_tokens": total, "cached_tokens": CACHED, "reasoning_tokens": 2})
        }
        // This dialect counts what came from the cache beside the rest of the prompt.
        Dialect::Messages => {
            json!({"input_tokens": PROMPT - CACHED, "output_tokens": COMPLETION, "cache_read_input_tokens": CACHED, "cache_creation_input_tokens": 0})
        }
        Dialect::Responses => {
            json!({"input_tokens": PROMPT, "output_tokens": COMPLETION, "total_tokens": total, "cached_tokens": CACHED, "reasoning_tokens": 2})
        }
    }
}

/// With the genuine engine: whole and streamed, and in each dialect, the same question costs the same.
fn genuine(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let desk = super::super::desk::Desk::start(stage, task, None, super::super::desk::Behind::Genuine, 2048, "")?;
    let mut costs = Vec::new();
    for dialect in Dialect::ALL {
        for stream in [true, false] {
            let mut question = dialect.question("What is the weather?", stream);
            question["temperature"] = 0.into();
            let limit = if dialect == Dialect::Responses { "max_output_tokens" } else { "max_tokens" };
            question[limit] = 8.into();
            if dialect == Dialect::Chat && stream {
                question["stream_options"] = json!({"include_usage": true});
            }
            let answer =
                super::raw::Raw::post(desk.agent.port(), dialect.path(), &desk.key, question.to_string().as_bytes())?.end(super::bench::SOON);
            let usage = told(dialect, stream, &answer);
            let number = |name: &str| usage[name].as_u64().unwrap_or_default();
            let prompt = number("prompt_tokens") + number("input_tokens") + number("cache_read_input_tokens");
            costs.push((prompt, number("completion_tokens") + number("output_tokens")));
        }
    }
    let same = costs.iter().all(|cost| *cost == costs[0]) && costs[0].0 > 0 && costs[0].1 > 0;
    result.expect(same, format!("the genuine engine: prompt and answer cost the same in every dialect, streamed or not: {costs:?}"));
    desk.end(result)
}
