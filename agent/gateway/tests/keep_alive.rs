//! Streams that are silent for long: while a model loads, in the queue, while a prompt is worked through, and between two words.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod scripted;

use std::time::Duration;

use scripted::{Act, Bench, DONE, HELLO, STREAM_HEAD, USAGE, chunked, post, text, until, until_cut};
use warden_domain::{engine::Capacity, ids::ModelId, routing::Routing, usage::Outcome};
use warden_gateway::GatewayLimits;

const FINISH: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

fn short() -> GatewayLimits {
    GatewayLimits { keep_alive: Duration::from_millis(60), ..GatewayLimits::default() }
}

/// The three streamed calls, and what keeps each alive.
fn all() -> [(&'static str, &'static str, &'static str); 3] {
    [
        ("/v1/chat/completions", r#"{"model":"tiny","stream":true,"messages":[{"role":"user","content":"hi"}]}"#, ": keep-alive\n\n"),
        ("/v1/messages", r#"{"model":"tiny","max_tokens":10,"stream":true,"messages":[{"role":"user","content":"hi"}]}"#, ": keep-alive\n\n"),
        ("/v1/responses", r#"{"model":"tiny","stream":true,"input":"hi"}"#, "event: response.in_progress\n"),
    ]
}

fn slow(pause: u64, events: &[&str]) -> Act {
    let pieces = std::iter::once(STREAM_HEAD.to_owned()).chain(events.iter().map(|e| chunked(e))).chain(["0\r\n\r\n".to_owned()]);
    Act::Slowly(pieces.collect(), Duration::from_millis(pause))
}

#[tokio::test]
async fn a_silent_engine_does_not_make_a_client_give_up() {
    for (path, ask, alive) in all() {
        let (bench, _engine) = Bench::with_limits(vec![slow(200, &[HELLO, FINISH, USAGE, DONE])], short());
        let said = text(bench.ask(post(path, ask)).await).await;
        let (before, after) = said.split_once("hello").unwrap();
        assert!(before.matches(alive).count() >= 2, "while the prompt is worked through: {said}");
        assert!(after.matches(alive).count() >= 2, "between two words: {said}");
        assert!(!said.contains("message_start") || !before[..before.find("message_start").unwrap()].contains("data:"), "{said}");
        assert_eq!(bench.the_charge().await.outcome, Outcome::Completed);
    }
}

#[tokio::test]
async fn who_waits_in_the_queue_is_kept_alive_and_a_fault_is_then_the_last_event() {
    for (path, ask, alive) in all() {
        let limits = GatewayLimits { patience_streamed: Duration::from_millis(500), ..short() };
        let (bench, engine) = Bench::with_limits(vec![Act::Hang], limits);
        bench.serving.offer_with(&[(engine.socket.clone(), "1")], Capacity::Slots(1));
        let router = bench.router();
        let busy = tokio::spawn(async move { tower::ServiceExt::oneshot(router, post("/v1/chat/completions", r#"{"model":"tiny"}"#)).await });
        until(|| engine.bodies().len() == 1, "the slot is taken").await;
        let response = bench.ask(post(path, ask)).await;
        assert_eq!(response.status(), 200);
        let (said, cut) = until_cut(response).await;
        assert!(cut && said.contains(alive) && said.contains("was busy for as long"), "{path}: {said}");
        assert_eq!(engine.bodies().len(), 1);
        assert_eq!(bench.gateway.routing(&ModelId::from_stored("mdl_tiny")).unwrap().waiting, 0);
        busy.abort();
    }
}

#[tokio::test]
async fn a_fault_before_the_first_sign_of_life_is_a_plain_status() {
    for (path, ask, _) in all() {
        let (bench, _engine) = Bench::with(vec![Act::Close]);
        let response = bench.ask(post(path, ask)).await;
        assert_eq!(response.status(), 502, "{path}");
    }
}

#[tokio::test]
async fn an_engine_lost_behind_a_sign_of_life_is_still_covered_by_another_try() {
    for (path, ask, alive) in all() {
        let lost = Act::Slowly(vec![STREAM_HEAD.to_owned()], Duration::from_millis(150));
        let (bench, engine) = Bench::with_limits(vec![lost, slow(1, &[HELLO, FINISH, USAGE, DONE])], short());
        let said = text(bench.ask(post(path, ask)).await).await;
        assert!(said.contains(alive) && said.contains("hello"), "{said}");
        assert_eq!(engine.bodies().len(), 2);
        assert_eq!(bench.the_charge().await.outcome, Outcome::Completed);
    }
}

#[tokio::test]
async fn an_answer_that_is_not_streamed_gets_no_sign_of_life() {
    let (bench, _engine) = Bench::with_limits(
        vec![Act::Slowly(
            vec![String::new(), "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}".to_owned()],
            Duration::from_millis(200),
        )],
        short(),
    );
    assert_eq!(text(bench.chat(r#"{"model":"tiny"}"#).await).await, "{}");
}
