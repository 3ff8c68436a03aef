//! What lies beside the answers: counting tokens, the list of models, clients that would rather speak WebSocket.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::desk::{Behind, Desk, Dialect, MODEL};
use super::bench::{Bench, SOON, Wish, register};
use super::raw::{Answer, Raw, head};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Claude Code asks so often when somebody looks at the context, on so many connections, and shows nothing until all are answered.
const COUNTS: usize = 34;
const CONNECTIONS: usize = 18;
const COUNTS_S: f64 = 1.3;

/// 34 counts beside a running generation of the genuine engine.
pub fn count_tokens(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let desk = Desk::start(stage, task, None, Behind::Genuine, 8192, "")?;
    let port = desk.agent.port();
    // Long enough to run all the time: it is left at the end.
    let mut long = Dialect::Chat.question("Tell me a long story.", true);
    (long["max_tokens"], long["ignore_eos"]) = (6000.into(), true.into());
    let mut running = Raw::post(port, Dialect::Chat.path(), &desk.key, long.to_string().as_bytes())?;
    running.until("\"content\"", SOON)?;
    let bodies: Vec<String> = (0..COUNTS).map(|n| counted(n).to_string()).collect();
    let sizes = (bodies.iter().map(String::len).min().unwrap_or(0), bodies.iter().map(String::len).max().unwrap_or(0));
    let begun = Instant::now();
    let answers = ask_all(port, &desk.key, &bodies);
    let took = begun.elapsed().as_secs_f64();
    let still = running.again(b"").map(|mut raw| raw.until("data: [DONE]", Duration::from_millis(1)).is_err());
    result.figure("count_tokens_s", took);
    let good: Vec<u64> = answers.iter().filter(|a| a.status == 200).filter_map(|a| a.json()["input_tokens"].as_u64()).collect();
    result.expect(good.len() == COUNTS, format!("{} of {COUNTS} counts are answered with input_tokens{}", good.len(), other(&answers)));
    result.expect(took <= COUNTS_S, format!("{COUNTS} counts of {} to {} bytes took {took:.2} s (at most {COUNTS_S})", sizes.0, sizes.1));
    result.expect(still.unwrap_or(false), "a generation ran all the while");
    let larger = good.iter().max().zip(good.iter().min()).is_some_and(|(most, least)| most > least && *least > 0);
    result.expect(larger, format!("longer texts have more tokens: {:?} to {:?}", good.iter().min(), good.iter().max()));
    desk.end(result)
}

/// What Claude Code sends: a word alone, with tools, or a piece of the prompt.
fn counted(n: usize) -> Value {
    let tool = json!({"name": format!("tool_{n}"), "description": "Reads a file. ".repeat(40), "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}});
    let (text, tools) = match n % 3 {
        0 => ("foo".to_owned(), Vec::new()),
        1 => ("foo".to_owned(), vec![tool; 1 + n % 11]),
        _ => ("You are an agent that edits files. ".repeat(n * 8), Vec::new()),
    };
    json!({"model": MODEL, "messages": [{"role": "user", "content": text}], "tools": tools})
}

fn ask_all(port: u16, key: &str, bodies: &[String]) -> Vec<Answer> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                scope.spawn(|| {
                    let mut answers = Vec::new();
                    while let Some(body) = bodies.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let asked = Raw::post(port, "/v1/messages/count_tokens?beta=true", key, body.as_bytes());
                        answers.push(asked.map(|raw| raw.end(SOON)).unwrap_or_default());
                    }
                    answers
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap_or_default()).collect()
    })
}

fn other(answers: &[Answer]) -> String {
    answers.iter().find(|a| a.status != 200).map(|a| format!("; another one: {}", a.short())).unwrap_or_default()
}

/// `/v1/models` in a shape that both vendors' SDKs page through; names are echoed as they were asked for.
pub fn models_list(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::start(stage, task, &Wish { slots: 1, ..Wish::default() })?;
    let wish = Wish { slots: 1, ..Wish::default() };
    for name in ["alpha", "beta_7B.Q4"] {
        let id = register(&bench.console, name, &wish)?;
        bench.load(&id, 1)?;
    }
    let get = |path: &str, more: &str| -> Result<Answer, String> {
        Ok(Raw::send(bench.agent.port(), format!("{}{more}\r\n", head("GET", path, &bench.key)).as_bytes())?.end(SOON))
    };
    let all = get("/v1/models", "")?.json();
    let names: Vec<String> = names_of(&all);
    result.expect(all["object"] == "list" && names.len() == 3, format!("OpenAI's SDK finds all in one page: {names:?}"));
    let whole =
        all["data"].as_array().is_some_and(|d| d.iter().all(|m| m["object"] == "model" && m["created"].is_i64() && m["owned_by"].is_string()));
    result.expect(whole && all["has_more"] == false, "each with what OpenAI's SDK reads, and no further page is announced");
    for size in [1, 2, 1000] {
        let paged = page_through(&get, size)?;
        result.expect(paged == names, format!("Anthropic's SDK, pages of {size}: {paged:?}"));
    }
    let anthropic = get("/v1/models", "anthropic-version: 2023-06-01\r\n")?.json();
    let whole = anthropic["data"].as_array().is_some_and(|d| {
        d.len() == 3
            && d.iter().all(|m| m["type"] == "model" && m["display_name"].is_string() && m["created_at"].as_str().is_some_and(|at| at.contains('T')))
    });
    result.expect(
        whole && anthropic["first_id"] == names[0].as_str() && anthropic["last_id"] == names[2].as_str(),
        "each with what Anthropic's SDK reads",
    );
    for name in &names {
        let one = get(&format!("/v1/models/{name}"), "")?;
        result.expect(one.status == 200 && one.json()["id"] == name.as_str(), format!("/v1/models/{name} finds it: {}", one.short()));
    }
    let wrong = get("/v1/models?limit=0", "anthropic-version: 2023-06-01\r\n")?;
    result.expect(wrong.status == 400, format!("a page of none is refused: {}", wrong.short()));
    echoed(&bench, result, &names)?;
    bench.end(result).map(drop)
}

fn names_of(list: &Value) -> Vec<String> {
    list["data"].as_array().into_iter().flatten().filter_map(|m| m["id"].as_str().map(str::to_owned)).collect()
}

/// As Anthropic's SDK does it: `after_id` is the last id of the page before, until no more is announced.
fn page_through(get: &impl Fn(&str, &str) -> Result<Answer, String>, size: usize) -> Result<Vec<String>, String> {
    let (mut names, mut after) = (Vec::new(), String::new());
    for _ in 0..10 {
        let page = get(&format!("/v1/models?limit={size}{after}"), "anthropic-version: 2023-06-01\r\n")?.json();
        names.extend(names_of(&page));
        if page["has_more"] != true {
            break;
        }
        after = format!("&after_id={}", page["last_id"].as_str().unwrap_or_default());
    }
    Ok(names)
}

/// Each answer carries the name that was asked for.
fn echoed(bench: &Bench, result: &mut CaseResult, names: &[String]) -> Result<(), String> {
    for name in names {
        for dialect in Dialect::ALL {
            for stream in [true, false] {
                let mut question = dialect.question("Hello?", stream);
                question["model"] = name.as_str().into();
                let answer = bench.ask(dialect, &question)?;
                let documents: Vec<Value> = if stream { answer.events().into_iter().map(|(_, data)| data).collect() } else { vec![answer.json()] };
                let said: Vec<&str> =
                    documents.iter().flat_map(|d| [&d["model"], &d["message"]["model"], &d["response"]["model"]]).filter_map(Value::as_str).collect();
                let right = answer.status == 200 && !said.is_empty() && said.iter().all(|s| s == name);
                result.expect(right, format!("{dialect:?}, streamed {stream}: the answer is from {name:?} ({said:?})"));
            }
        }
    }
    Ok(())
}

/// Codex tries WebSocket first: it is told so that it posts instead, on the same connection or another one.
pub fn websocket(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::start(stage, task, &Wish::default())?;
    let upgrade = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                   openai-beta: responses_websockets=2026-02-06\r\n\r\n";
    let asked = Raw::send(bench.agent.port(), format!("{}{upgrade}", head("GET", "/v1/responses", &bench.key)).as_bytes())?;
    let (refused, same) = asked.answer(SOON);
    let shaped = refused.json()["error"]["message"].as_str().is_some_and(|m| m.contains("POST"));
    result.expect(refused.status == 426 && refused.clean, format!("an upgrade is answered 426 and not switched: {}", refused.short()));
    result.expect(shaped, "with a sentence that says what to do");
    let question = Dialect::Responses.question("Hello?", true).to_string();
    let post = |key: &str| format!("{}content-length: {}\r\n\r\n{question}", head("POST", "/v1/responses", key), question.len());
    let closed = refused.header("connection").is_some_and(|c| c.eq_ignore_ascii_case("close"));
    if !closed {
        let answer = same.again(post(&bench.key).as_bytes())?.end(SOON);
        result.expect(
            answer.status == 200 && answer.text().contains("response.completed"),
            format!("the post on the same connection is answered: {}", answer.status),
        );
    }
    let answer = Raw::send(bench.agent.port(), post(&bench.key).as_bytes())?.end(SOON);
    result.expect(
        answer.status == 200 && answer.text().contains("response.completed"),
        format!("a post on another connection is answered: {}", answer.status),
    );
    let stranger = Raw::send(bench.agent.port(), format!("{}{upgrade}", head("GET", "/v1/responses", "vw_wrong")).as_bytes())?.end(SOON);
    result.expect(stranger.status == 401, format!("who shows no good key is told that instead: {}", stranger.status));
    bench.end(result).map(drop)
}
