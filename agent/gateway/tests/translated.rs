//! Clients that speak Messages or Responses: what the engine is asked, what they are answered, and how faults look to them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod scripted;

use axum::{body::Body, http::Request};
use scripted::{Act, Bench, DONE, HELLO, STREAM_HEAD, USAGE, chunked, json, post, text, until_cut, whole_stream};
use serde_json::{Value, json as value};
use warden_domain::{engine::EngineKind, units::Tokens, usage::Outcome};
use warden_gateway::GatewayLimits;

const MESSAGES: &str = "/v1/messages?beta=true";
const RESPONSES: &str = "/v1/responses";
const FINISH: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const WHOLE: &str = r#"{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hello"}}],
    "usage":{"prompt_tokens":29,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4}}}"#;

fn messages(stream: bool) -> String {
    value!({"model": "tiny", "max_tokens": 128_000, "stream": stream, "system": "Be brief.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]})
    .to_string()
}

fn responses(stream: bool) -> String {
    value!({"model": "tiny", "stream": stream, "input": "hi"}).to_string()
}

/// Both translated calls.
fn both(stream: bool) -> [(&'static str, String); 2] {
    [(MESSAGES, messages(stream)), (RESPONSES, responses(stream))]
}

/// The data of each event.
fn events(stream: &str) -> Vec<Value> {
    stream.lines().filter_map(|line| line.strip_prefix("data: ")).map(|data| serde_json::from_str(data).unwrap()).collect()
}

fn kinds(stream: &str) -> Vec<String> {
    events(stream).iter().map(|event| event["type"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn a_messages_stream_is_told_in_its_own_events_with_true_usage() {
    let (bench, engine) = Bench::with(vec![whole_stream(&[HELLO, FINISH, USAGE, DONE])]);
    let response = bench.ask(post(MESSAGES, messages(true))).await;
    assert_eq!((response.status().as_u16(), response.headers()["content-type"].to_str().unwrap()), (200, "text/event-stream"));
    assert!(response.headers().contains_key("request-id") && !response.headers().contains_key("access-control-allow-origin"));
    let said = text(response).await;
    let expected = ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"];
    assert_eq!(kinds(&said), expected);
    let usage = &events(&said)[4]["usage"];
    assert_eq!((&usage["input_tokens"], &usage["cache_read_input_tokens"], &usage["output_tokens"]), (&value!(25), &value!(4), &value!(5)));
    let charge = bench.the_charge().await;
    assert_eq!((charge.prompt, charge.cached, charge.completion), (Some(Tokens(29)), Some(Tokens(4)), Some(Tokens(5))));
    assert_eq!((charge.outcome, charge.status), (Outcome::Completed, 200));
    assert!(engine.seen.lock().unwrap()[0].0.starts_with("post /v1/chat/completions"));
    let asked: Value = serde_json::from_str(&engine.bodies()[0]).unwrap();
    assert_eq!(asked["messages"], value!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]));
    assert_eq!((&asked["stream_options"]["include_usage"], asked.get("max_tokens")), (&value!(true), None));
}

#[tokio::test]
async fn a_responses_stream_is_told_in_its_own_events() {
    let (bench, _engine) = Bench::with(vec![whole_stream(&[HELLO, FINISH, USAGE, DONE])]);
    let said = text(bench.ask(post(RESPONSES, responses(true))).await).await;
    let kinds = kinds(&said);
    assert_eq!(
        (kinds[0].as_str(), kinds[1].as_str(), kinds.last().unwrap().as_str()),
        ("response.created", "response.in_progress", "response.completed")
    );
    let last = events(&said).pop().unwrap();
    assert_eq!(last["response"]["usage"]["input_tokens"], 29);
    assert_eq!(bench.the_charge().await.outcome, Outcome::Completed);
}

#[tokio::test]
async fn an_answer_in_one_piece_is_the_same_from_an_engine_that_streams_and_one_that_does_not() {
    for (path, ask) in both(false) {
        let mut told = Vec::new();
        for (kind, act) in [(EngineKind::Vllm, json("200 OK", WHOLE)), (EngineKind::LlamaCpp, whole_stream(&[HELLO, FINISH, USAGE, DONE]))] {
            let (bench, engine) = Bench::with(vec![act]);
            bench.serving.kind(kind);
            bench.serving.offer(std::slice::from_ref(&engine.socket));
            let response = bench.ask(post(path, ask.clone())).await;
            assert_eq!((response.status().as_u16(), response.headers()["content-type"].to_str().unwrap()), (200, "application/json"));
            assert!(response.headers().contains_key("content-length"));
            let mut answer: Value = serde_json::from_str(&text(response).await).unwrap();
            let asked: Value = serde_json::from_str(&engine.bodies()[0]).unwrap();
            assert_eq!(asked["stream"].as_bool().unwrap_or(false), kind == EngineKind::LlamaCpp, "{path}");
            let charge = bench.the_charge().await;
            assert_eq!((charge.prompt, charge.completion, charge.outcome), (Some(Tokens(29)), Some(Tokens(5)), Outcome::Completed));
            forget_ids(&mut answer);
            told.push(answer);
        }
        assert_eq!(told[0], told[1], "{path}");
        assert!(told[0].to_string().contains("hello"));
    }
}

#[tokio::test]
async fn a_chat_answer_in_one_piece_is_asked_for_as_a_stream_where_the_engine_would_go_on_for_nobody() {
    let (bench, engine) = Bench::with(vec![whole_stream(&[HELLO, FINISH, USAGE, DONE]), Act::Hang]);
    bench.serving.kind(EngineKind::LlamaCpp);
    bench.serving.offer(std::slice::from_ref(&engine.socket));
    let ask = r#"{"model":"tiny","messages":[{"role":"user","content":"hi"}]}"#;
    let response = bench.chat(ask).await;
    assert_eq!((response.status().as_u16(), response.headers()["content-type"].to_str().unwrap()), (200, "application/json"));
    let answer: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!((&answer["object"], &answer["choices"][0]["message"]["content"]), (&value!("chat.completion"), &value!("hello")));
    assert_eq!(answer["usage"]["completion_tokens"], 5);
    assert!(engine.bodies()[0].ends_with(&ask[1..]) && engine.bodies()[0].contains("\"stream\":true"));
    assert_eq!(bench.the_charge().await.completion, Some(Tokens(5)));
}

/// Ids and times differ between two requests.
fn forget_ids(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for name in ["id", "created_at", "completed_at"] {
                members.remove(name);
            }
            members.values_mut().for_each(forget_ids);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_ids),
        _ => {}
    }
}

#[tokio::test]
async fn before_anything_is_sent_a_fault_is_a_plain_status_in_the_dialect_of_the_path() {
    let long = r#"{"error":{"code":400,"message":"request (3024 tokens) exceeds the available context size (2048 tokens)","type":"exceed_context_size_error","n_prompt_tokens":3024,"n_ctx":2048}}"#;
    let loading = r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#;
    for stream in [true, false] {
        for (status, words, told) in [("400 Bad Request", long, [400, 400]), ("503 Service Unavailable", loading, [529, 503])] {
            for ((path, ask), expected) in both(stream).into_iter().zip(told) {
                let (bench, _engine) = Bench::with(vec![json(status, words)]);
                let response = bench.ask(post(path, ask)).await;
                assert_eq!(response.status().as_u16(), expected, "{path}");
                assert_eq!(response.headers().contains_key("retry-after"), expected > 500);
                let error: Value = serde_json::from_str(&text(response).await).unwrap();
                assert_eq!(error["type"] == "error", path == MESSAGES, "{error}");
                if status.starts_with('4') && path == MESSAGES {
                    assert_eq!(error["error"]["message"], "prompt is too long: 3024 tokens > 2048 maximum");
                } else if status.starts_with('4') {
                    assert_eq!(error["error"]["code"], "context_length_exceeded");
                }
                assert_eq!(bench.the_charge().await.status, expected);
            }
        }
    }
}

#[tokio::test]
async fn a_wrong_model_key_or_body_is_told_in_the_dialect_of_the_path() {
    let (bench, engine) = Bench::with(vec![json("200 OK", WHOLE)]);
    for (path, ask) in both(true) {
        let ask = ask.replace("tiny", "claude-sonnet");
        let keyless = Request::post(path).body(Body::from(ask.clone())).unwrap();
        for (request, status, kind) in
            [(keyless, 401, "authentication_error"), (post(path, ask), 404, "not_found_error"), (post(path, "{"), 400, "invalid_request_error")]
        {
            let response = bench.ask(request).await;
            assert_eq!(response.status(), status, "{path}");
            let error: Value = serde_json::from_str(&text(response).await).unwrap();
            if path == MESSAGES {
                assert_eq!((&error["type"], &error["error"]["type"]), (&value!("error"), &value!(kind)));
                assert!(error["request_id"].is_string());
            } else {
                assert!(error["type"].is_null() && error["error"]["code"].is_string(), "{error}");
            }
            assert!(status != 404 || error.to_string().contains("claude-sonnet"));
        }
    }
    assert!(engine.bodies().is_empty() && bench.ledger.charged.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_engine_that_dies_in_the_middle_is_an_event_of_the_dialect_and_a_cut() {
    for ((path, ask), last) in both(true).into_iter().zip(["error", "response.failed"]) {
        let (bench, _engine) = Bench::with(vec![Act::Slowly(vec![format!("{STREAM_HEAD}{}", chunked(HELLO))], std::time::Duration::from_millis(10))]);
        let (said, cut) = until_cut(bench.ask(post(path, ask)).await).await;
        assert!(cut && said.contains("hello"), "{said}");
        assert_eq!(kinds(&said).last().unwrap(), last);
        let charge = bench.the_charge().await;
        assert_eq!((charge.outcome, charge.status), (Outcome::EngineFailed, 200));
    }
}

#[tokio::test]
async fn a_replica_that_dies_before_its_first_word_is_covered_by_the_other() {
    let progress = "data: {\"choices\":[],\"prompt_progress\":{\"total\":100,\"cache\":0,\"processed\":50}}\n\n";
    let dies = Act::Slowly(vec![format!("{STREAM_HEAD}{}", chunked(progress))], std::time::Duration::from_millis(10));
    for (path, ask) in both(true) {
        let (bench, engine) = Bench::with(vec![dies.clone(), whole_stream(&[HELLO, FINISH, USAGE, DONE])]);
        let said = text(bench.ask(post(path, ask)).await).await;
        assert_eq!((said.matches("hello").count() > 0, engine.bodies().len()), (true, 2), "{said}");
        assert_eq!(bench.the_charge().await.outcome, Outcome::Completed);
    }
}

#[tokio::test]
async fn a_websocket_is_refused_so_that_its_client_posts() {
    let (bench, _engine) = Bench::with(vec![json("200 OK", WHOLE)]);
    let request = Request::get(RESPONSES).header("authorization", "Bearer vw_good").header("connection", "upgrade").header("upgrade", "websocket");
    let response = bench.ask(request.body(Body::empty()).unwrap()).await;
    assert_eq!(response.status(), 426);
    assert!(text(response).await.contains("POST"));
}

#[tokio::test]
async fn a_prompt_is_counted_by_the_engine_without_a_place_or_a_charge() {
    for (kind, path, answer) in [
        (EngineKind::LlamaCpp, "post /v1/chat/completions/input_tokens", r#"{"input_tokens":17}"#),
        (EngineKind::Vllm, "post /tokenize", r#"{"count":17,"tokens":[]}"#),
    ] {
        let (bench, engine) = Bench::with(vec![json("200 OK", answer)]);
        bench.serving.kind(kind);
        bench.serving.offer_with(&[(engine.socket.clone(), "1")], warden_domain::engine::Capacity::Slots(1));
        let counted = text(bench.ask(post("/v1/messages/count_tokens?beta=true", messages(false))).await).await;
        assert_eq!(counted, r#"{"input_tokens":17}"#);
        assert!(engine.seen.lock().unwrap()[0].0.starts_with(path));
        assert_eq!(bench.flights.all(), 0);
        assert!(bench.ledger.charged.lock().unwrap().is_empty());
    }
    let bench = Bench::new(GatewayLimits::default());
    assert_eq!(bench.ask(post("/v1/messages/count_tokens", messages(false))).await.status(), 404);
}
