//! Calls that only some engines have: through as bytes, and a sentence where the engine has them not.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod scripted;

use axum::{body::Body, http::Request};
use scripted::{Act, Bench, json, post, text};
use serde_json::Value;
use warden_domain::{units::Tokens, usage::Outcome};

const JSON_CALLS: [&str; 5] = ["/v1/rerank", "/v1/score", "/v1/audio/speech", "/tokenize", "/detokenize"];
const FORM_CALLS: [&str; 2] = ["/v1/audio/transcriptions", "/v1/audio/translations"];
const KIND: &str = "multipart/form-data; boundary=xX42";

fn form(path: &str, model: &str) -> (Request<Body>, String) {
    let body = format!(
        "--xX42\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\nRIFF\u{1}\u{2}\r\n--xX4\r\n--xX42\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n{model}\r\n--xX42--\r\n"
    );
    let request = Request::post(path).header("authorization", "Bearer vw_good").header("content-type", KIND).body(Body::from(body.clone())).unwrap();
    (request, body)
}

#[tokio::test]
async fn json_calls_reach_the_engine_under_their_path_and_are_charged_where_it_tells() {
    for path in JSON_CALLS {
        let body = r#"{ "x":[1.50], "model" : "tiny","stream":true}"#;
        let (bench, engine) = Bench::with(vec![json("200 OK", r#"{"results":[],"usage":{"prompt_tokens":8,"total_tokens":8}}"#)]);
        let response = bench.ask(post(path, body)).await;
        assert_eq!(response.status(), 200, "{path}");
        assert!(text(response).await.contains("results"));
        let (head, sent) = engine.seen.lock().unwrap()[0].clone();
        assert!(head.starts_with(&format!("post {path} ")) && head.contains("content-type: application/json"), "{head}");
        assert_eq!(sent, body, "byte for byte");
        let charge = bench.the_charge().await;
        assert_eq!((charge.outcome, charge.prompt), (Outcome::Completed, Some(Tokens(8))));
    }
}

#[tokio::test]
async fn a_form_goes_through_untouched_with_its_boundary() {
    for path in FORM_CALLS {
        let (bench, engine) = Bench::with(vec![json("200 OK", r#"{"text":"hello"}"#)]);
        let (request, body) = form(path, "tiny");
        assert_eq!(text(bench.ask(request).await).await, r#"{"text":"hello"}"#);
        let (head, sent) = engine.seen.lock().unwrap()[0].clone();
        assert!(head.starts_with(&format!("post {path} ")) && head.contains(&format!("content-type: {}", KIND.to_lowercase())), "{head}");
        assert_eq!(sent, body);
        let charge = bench.the_charge().await;
        assert_eq!((charge.outcome, charge.prompt), (Outcome::Completed, None));
    }
}

#[tokio::test]
async fn what_is_no_json_comes_back_as_it_is() {
    let audio = "HTTP/1.1 200 OK\r\ncontent-type: audio/wav\r\ncontent-length: 8\r\n\r\nRIFF\u{0}{\"x";
    let (bench, _engine) = Bench::with(vec![Act::Write(audio.to_owned())]);
    let response = bench.ask(post("/v1/audio/speech", r#"{"model":"tiny","input":"hi"}"#)).await;
    assert_eq!(response.headers()["content-type"], "audio/wav");
    assert_eq!(text(response).await, "RIFF\u{0}{\"x");
}

#[tokio::test]
async fn an_engine_without_the_call_is_told_in_a_sentence() {
    for path in JSON_CALLS.into_iter().chain(FORM_CALLS) {
        // The last is what llama.cpp says for a model that was not started for it: how to start it is no client's affair.
        for answer in ["404 Not Found", "405 Method Not Allowed", "501 Not Implemented"] {
            let (bench, _engine) = Bench::with(vec![json(answer, r#"{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}"#)]);
            let request = if FORM_CALLS.contains(&path) { form(path, "tiny").0 } else { post(path, r#"{"model":"tiny"}"#) };
            let response = bench.ask(request).await;
            assert_eq!(response.status(), 404, "{path}");
            let error: Value = serde_json::from_str(&text(response).await).unwrap();
            let message = error["error"]["message"].as_str().unwrap();
            assert!(message.contains("\"tiny\"") && message.contains(path), "{message}");
            assert_eq!(bench.the_charge().await.outcome, Outcome::Refused);
        }
    }
}

#[tokio::test]
async fn what_the_engine_says_itself_is_passed_on_and_a_wrong_model_is_told_as_ever() {
    let refusal = r#"{"error":{"code":400,"message":"\"documents\" must be a non-empty string array","type":"invalid_request_error"}}"#;
    let (bench, _engine) = Bench::with(vec![json("400 Bad Request", refusal)]);
    assert_eq!(text(bench.ask(post("/v1/rerank", r#"{"model":"tiny"}"#)).await).await, refusal);
    for request in [form("/v1/audio/transcriptions", "whisper").0, post("/v1/score", r#"{"model":"whisper"}"#)] {
        let response = bench.ask(request).await;
        assert_eq!(response.status(), 404);
        assert!(text(response).await.contains("model_not_found"));
    }
    for request in [post("/v1/audio/transcriptions", "{\"model\":\"tiny\"}"), post("/tokenize", r#"{"content":"x"}"#)] {
        assert_eq!(bench.ask(request).await.status(), 400);
    }
}
