//! What clients get: answers, errors in OpenAI's shape, usage charged once.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod scripted;

use axum::{body::Body, http::Request};
use scripted::{Bench, DONE, HELLO, USAGE, json, post, text, whole_stream};
use serde_json::Value;
use warden_domain::{
    key::{Caller, Priority},
    units::Tokens,
    usage::Outcome,
};
use warden_gateway::GatewayLimits;

const ASK: &str = r#"{"model":"tiny","messages":[]}"#;
const ASK_STREAM: &str = r#"{"model":"tiny","stream":true,"messages":[{"role":"user","content":"hé \u00e9"}]}"#;

async fn error_of(response: axum::http::Response<Body>) -> (u16, Value) {
    let status = response.status().as_u16();
    assert!(response.headers().contains_key("x-request-id"));
    let value: Value = serde_json::from_str(&text(response).await).unwrap();
    (status, value["error"].clone())
}

#[tokio::test]
async fn an_answer_goes_through_unchanged_and_is_charged_once() {
    let body = r#"{"choices":[{"message":{"content":"hi"}}],  "usage":{"prompt_tokens":29,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4}}}"#;
    let (bench, engine) = Bench::with(vec![json("200 OK", body)]);
    let response = bench.chat(ASK).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-length"].to_str().unwrap(), body.len().to_string());
    let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
    assert_eq!(text(response).await, body);
    let charge = bench.the_charge().await;
    assert_eq!((charge.prompt, charge.cached, charge.completion), (Some(Tokens(29)), Some(Tokens(4)), Some(Tokens(5))));
    assert_eq!((charge.outcome, charge.status, charge.request.as_str()), (Outcome::Completed, 200, id.as_str()));
    assert!(charge.first_byte.is_some());
    let seen = engine.seen.lock().unwrap();
    assert_eq!(seen[0].1, ASK);
    assert!(!seen[0].0.contains("vw_good") && !seen[0].0.contains("authorization"), "the key must not reach the engine: {}", seen[0].0);
}

#[tokio::test]
async fn a_stream_is_counted_although_its_client_did_not_ask_and_does_not_see_it() {
    let (bench, engine) = Bench::with(vec![whole_stream(&[HELLO, USAGE, DONE])]);
    let response = bench.chat(ASK_STREAM).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert!(!response.headers().contains_key("access-control-allow-origin"));
    assert_eq!(text(response).await, format!("{HELLO}{DONE}"));
    let charge = bench.the_charge().await;
    assert_eq!((charge.prompt, charge.completion, charge.outcome), (Some(Tokens(29)), Some(Tokens(5)), Outcome::Completed));
    let sent: Value = serde_json::from_str(&engine.bodies()[0]).unwrap();
    assert_eq!(sent["stream_options"]["include_usage"], true);
    assert!(engine.bodies()[0].ends_with(&ASK_STREAM[1..]), "all other bytes are the client's");
}

#[tokio::test]
async fn a_client_that_asks_for_usage_gets_it() {
    let (bench, engine) = Bench::with(vec![whole_stream(&[HELLO, USAGE, DONE])]);
    let ask = r#"{"model":"tiny","stream":true,"stream_options":{"include_usage":true}}"#;
    assert_eq!(text(bench.chat(ask).await).await, format!("{HELLO}{USAGE}{DONE}"));
    assert_eq!(engine.bodies()[0], ask);
    assert_eq!(bench.the_charge().await.completion, Some(Tokens(5)));
}

#[tokio::test]
async fn an_answer_without_usage_is_charged_as_unknown() {
    let (bench, _engine) = Bench::with(vec![json("200 OK", r#"{"choices":[],"usage":null}"#)]);
    text(bench.chat(ASK).await).await;
    let charge = bench.the_charge().await;
    assert_eq!((charge.prompt, charge.completion, charge.outcome), (None, None, Outcome::Completed));
}

#[tokio::test]
async fn embeddings_are_counted_with_no_answer_tokens() {
    let (bench, engine) = Bench::with(vec![json("200 OK", r#"{"data":[],"usage":{"prompt_tokens":8,"total_tokens":8}}"#)]);
    text(bench.ask(post("/v1/embeddings", ASK)).await).await;
    let charge = bench.the_charge().await;
    assert_eq!((charge.prompt, charge.completion), (Some(Tokens(8)), Some(Tokens(0))));
    assert!(engine.seen.lock().unwrap()[0].0.starts_with("post /v1/embeddings"));
}

#[tokio::test]
async fn an_engines_own_words_reach_a_chat_client_as_they_are() {
    let refusal = r#"{"error":{"code":400,"message":"tool_choice is wrong","type":"invalid_request_error"}}"#;
    for (status, stream, outcome) in [("400 Bad Request", true, Outcome::Refused), ("500 Internal Server Error", false, Outcome::EngineFailed)] {
        let (bench, _engine) = Bench::with(vec![json(status, refusal)]);
        let response = bench.chat(if stream { ASK_STREAM } else { ASK }).await;
        assert_eq!(response.status().as_str(), &status[..3]);
        assert_eq!(text(response).await, refusal);
        assert_eq!(bench.the_charge().await.outcome, outcome);
    }
}

#[tokio::test]
async fn a_prompt_that_is_too_long_is_told_in_the_code_that_clients_know() {
    let refusal = r#"{"error":{"code":400,"message":"request (3024 tokens) exceeds the available context size (2048 tokens)","type":"exceed_context_size_error"}}"#;
    let (bench, _engine) = Bench::with(vec![json("400 Bad Request", refusal)]);
    let (status, error) = error_of(bench.chat(ASK_STREAM).await).await;
    assert_eq!((status, error["code"].as_str()), (400, Some("context_length_exceeded")));
    assert_eq!(bench.the_charge().await.outcome, Outcome::Refused);
}

#[tokio::test]
async fn a_limit_that_the_window_cannot_hold_is_not_told_to_the_engine() {
    let (bench, engine) = Bench::with(vec![json("200 OK", "{}")]);
    bench.chat(r#"{"model":"tiny","max_tokens":128000,"messages":[]}"#).await;
    assert_eq!(engine.bodies()[0], r#"{"model":"tiny","max_tokens":null,"messages":[]}"#);
}

#[tokio::test]
async fn an_engine_that_is_still_loading_is_our_503_with_a_time() {
    let (bench, _engine) =
        Bench::with(vec![json("503 Service Unavailable", r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#)]);
    let response = bench.chat(ASK).await;
    assert_eq!(response.headers()["retry-after"], "5");
    let (status, error) = error_of(response).await;
    assert_eq!((status, error["code"].as_str()), (503, Some("overloaded")));
    assert!(error["message"].as_str().unwrap().contains("\"tiny\" is still loading"));
    assert_eq!(bench.the_charge().await.status, 503);
}

#[tokio::test]
async fn a_request_without_a_good_key_is_told_what_is_wrong_with_it() {
    let (bench, engine) = Bench::with(vec![json("200 OK", "{}")]);
    for (header, word) in [(None, "No key"), (Some("sk-abc"), "not a key"), (Some("vw_other"), "not known"), (Some("vw_old"), "revoked")] {
        for path in ["/v1/chat/completions", "/v1/models", "/v1/nothing"] {
            let mut request = Request::post(path);
            if let Some(key) = header {
                request = request.header("authorization", format!("Bearer {key}"));
            }
            let (status, error) = error_of(bench.ask(request.body(Body::from(ASK)).unwrap()).await).await;
            assert_eq!((status, error["code"].as_str(), error["type"].as_str()), (401, Some("invalid_api_key"), Some("authentication_error")));
            assert!(error["message"].as_str().unwrap().contains(word), "{error}");
        }
    }
    assert!(engine.bodies().is_empty() && bench.ledger.charged.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_wrong_model_is_answered_with_the_right_ones_and_nothing_is_charged() {
    let (bench, _engine) = Bench::with(vec![json("200 OK", "{}")]);
    let (status, error) = error_of(bench.chat(r#"{"model":"gpt-4o"}"#).await).await;
    assert_eq!((status, error["code"].as_str(), error["param"].as_str()), (404, Some("model_not_found"), Some("model")));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("gpt-4o") && message.contains("tiny"), "{message}");
    let (_, error) = error_of(Bench::new(GatewayLimits::default()).chat(ASK).await).await;
    assert!(error["message"].as_str().unwrap().contains("No model is loaded"));
    assert!(bench.ledger.charged.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_body_that_is_no_request_is_refused_with_its_fault() {
    let (bench, engine) = Bench::with(vec![json("200 OK", "{}")]);
    for (body, word) in
        [("", "JSON"), ("model=tiny", "JSON"), ("[]", "object"), ("{}", "names no model"), (r#"{"model":"tiny","model":"x"}"#, "twice")]
    {
        let (status, error) = error_of(bench.chat(body).await).await;
        assert_eq!((status, error["type"].as_str()), (400, Some("invalid_request_error")), "{body}");
        assert!(error["message"].as_str().unwrap().contains(word), "{error}");
    }
    assert!(engine.bodies().is_empty());
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_413_with_and_without_a_stated_length() {
    let (bench, engine) = Bench::with(vec![json("200 OK", "{}")]);
    let big = format!(r#"{{"model":"tiny","x":"{}"}}"#, "y".repeat(33 << 20));
    let mut stated = post("/v1/chat/completions", "");
    stated.headers_mut().insert("content-length", (33u64 << 20).into());
    for request in [post("/v1/chat/completions", big), stated] {
        let (status, error) = error_of(bench.ask(request).await).await;
        assert_eq!((status, error["code"].as_str()), (413, Some("body_too_large")));
        assert!(error["message"].as_str().unwrap().contains("32.0 MiB"));
    }
    let fits = format!(r#"{{"model":"tiny","x":"{}"}}"#, "y".repeat(31 << 20));
    assert_eq!(bench.chat(fits.clone()).await.status(), 200);
    assert_eq!(engine.bodies()[0].len(), fits.len());
}

#[tokio::test]
async fn the_list_shows_what_answers_now() {
    let (bench, _engine) = Bench::with(vec![json("200 OK", "{}")]);
    let get = |path: &str| Request::get(path).header("x-api-key", "vw_good").body(Body::empty()).unwrap();
    let list: Value = serde_json::from_str(&text(bench.ask(get("/v1/models")).await).await).unwrap();
    let tiny = serde_json::json!({"id": "tiny", "object": "model", "type": "model", "display_name": "tiny", "created": 7,
        "created_at": "1970-01-01T00:00:07Z", "owned_by": "lm-warden", "max_model_len": 2048});
    assert_eq!(list, serde_json::json!({"object": "list", "data": [tiny.clone()], "has_more": false, "first_id": "tiny", "last_id": "tiny"}));
    assert_eq!(error_of(bench.ask(get("/v1/models?after_id=x")).await).await.0, 400);
    let one: Value = serde_json::from_str(&text(bench.ask(get("/v1/models/tiny")).await).await).unwrap();
    assert_eq!(one, tiny);
    assert_eq!(error_of(bench.ask(get("/v1/models/other")).await).await.0, 404);
}

#[tokio::test]
async fn a_wrong_path_or_method_is_a_clear_error_in_the_right_shape() {
    let (bench, _engine) = Bench::with(vec![json("200 OK", "{}")]);
    let (status, error) = error_of(bench.ask(post("/v1/nothing", ASK)).await).await;
    assert_eq!((status, error["code"].as_str()), (404, Some("not_found")));
    assert!(error["message"].as_str().unwrap().contains("/v1/chat/completions"));
    let wrong = Request::get("/v1/chat/completions").header("x-lmwarden-key", "vw_good").body(Body::empty()).unwrap();
    let response = bench.ask(wrong).await;
    assert_eq!(response.headers()["allow"], "POST");
    assert_eq!(error_of(response).await.0, 405);
    for path in ["/v1", "/v1/"] {
        assert_eq!(error_of(bench.ask(post(path, "")).await).await.0, 404);
    }
}

#[tokio::test]
async fn an_image_for_a_model_that_reads_text_only_is_a_sentence_and_otherwise_the_engines_affair() {
    let ask = r#"{"model":"tiny","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]}"#;
    for (images, stays) in [(None, true), (Some(true), true), (Some(false), false)] {
        let (bench, engine) = Bench::with(vec![json("200 OK", "{}")]);
        bench.serving.images(images);
        assert_eq!(bench.chat(ask).await.status(), 200);
        let sent = engine.bodies()[0].clone();
        assert_eq!(sent == ask, stays, "{images:?}: {sent}");
        assert_eq!(sent.contains("reads text only"), !stays, "{images:?}: {sent}");
    }
}

#[tokio::test]
async fn a_ledger_that_could_lose_charges_stops_requests_before_the_engine() {
    let (bench, engine) = Bench::with(vec![json("200 OK", "{}")]);
    *bench.ledger.full.lock().unwrap() = true;
    let response = bench.chat(ASK).await;
    assert!(response.headers().contains_key("retry-after"));
    assert_eq!(error_of(response).await.0, 503);
    assert!(engine.bodies().is_empty());
}

#[tokio::test]
async fn the_consoles_own_chat_needs_no_key_and_is_charged_to_none() {
    let (bench, _engine) = Bench::with(vec![whole_stream(&[HELLO, USAGE, DONE])]);
    let response = bench.gateway.chat_as(Caller { key: None, name: "ada".to_owned(), priority: Priority::USUAL }, Body::from(ASK_STREAM)).await;
    assert_eq!(text(response).await, format!("{HELLO}{DONE}"));
    assert_eq!(bench.the_charge().await.key, None);
}

#[tokio::test]
async fn an_error_the_engine_reports_inside_a_stream_is_the_last_event_and_never_a_clean_end() {
    let error = "data: {\"error\":{\"message\":\"out of memory\"}}\n\n";
    let (bench, _engine) = Bench::with(vec![whole_stream(&[HELLO, error, DONE])]);
    let (said, cut) = scripted::until_cut(bench.chat(ASK_STREAM).await).await;
    assert!(said.starts_with(HELLO) && said.contains("\"message\":\"out of memory\"") && !said.contains("[DONE]") && cut, "{said}");
    assert_eq!(bench.the_charge().await.outcome, Outcome::EngineFailed);
    // With nothing said before it, it is a plain status.
    let (bench, _engine) = Bench::with(vec![whole_stream(&[error, DONE])]);
    let (status, error) = error_of(bench.chat(ASK_STREAM).await).await;
    assert_eq!((status, error["message"].as_str()), (502, Some("out of memory")));
}

#[tokio::test]
async fn connections_to_the_engine_are_used_again() {
    let (bench, engine) = Bench::with(vec![json("200 OK", "{}")]);
    for _ in 0..5 {
        assert_eq!(text(bench.chat(ASK).await).await, "{}");
    }
    assert_eq!(engine.bodies().len(), 5);
    assert_eq!(bench.ledger.charged.lock().unwrap().len(), 5);
}
