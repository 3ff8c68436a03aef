//! Answers that run away, with the guard off, noting and enforcing.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod scripted;

use scripted::{Act, Bench, DONE, Engine, HELLO, USAGE, post, text, whole_stream};
use serde_json::Value;
use warden_domain::{engine::EngineKind, ids::ModelId, model::RunawayGuard, routing::Routing, usage::Outcome};
use warden_gateway::GatewayLimits;

const ASK: &str = r#"{"model":"tiny","stream":true}"#;

fn start(guard: RunawayGuard, act: Act) -> (Bench, Engine) {
    let (bench, engine) = Bench::with_limits(vec![act], GatewayLimits::default());
    bench.serving.guard(guard);
    (bench, engine)
}

fn counted(bench: &Bench) -> u64 {
    bench.gateway.routing(&ModelId::from_stored("mdl_tiny")).unwrap().runaways
}

fn looped() -> Act {
    let events: Vec<&str> = std::iter::repeat_n(HELLO, 3000).chain([USAGE, DONE]).collect();
    whole_stream(&events)
}

#[tokio::test]
async fn a_repetition_is_noted_once_and_goes_on_where_the_guard_only_looks_and_is_not_seen_where_it_is_off() {
    for (guard, count) in [(RunawayGuard::Log, 1), (RunawayGuard::Off, 0)] {
        let (bench, _engine) = start(guard, looped());
        assert_eq!(text(bench.chat(ASK).await).await, format!("{}{DONE}", HELLO.repeat(3000)));
        let charge = bench.the_charge().await;
        assert_eq!((charge.outcome, charge.completion.is_some(), counted(&bench)), (Outcome::Completed, true, count), "{guard:?}");
    }
}

#[tokio::test]
async fn an_enforced_guard_ends_the_answer_like_a_limit_and_lets_the_engine_go() {
    for (path, member) in [("/v1/chat/completions", "delta"), ("/v1/completions", "text")] {
        let (bench, engine) = start(RunawayGuard::Enforce, if member == "text" { Act::Endless } else { looped() });
        let got = text(bench.ask(post(path, ASK)).await).await;
        if member == "text" {
            engine.was_left().await;
        }
        assert!(got.ends_with(DONE) && got.len() < 200_000, "it ends soon, and properly");
        let last = got.trim_end_matches(DONE).rsplit("data: ").next().unwrap();
        let last: Value = serde_json::from_str(last).unwrap();
        let choice = &last["choices"][0];
        assert_eq!((choice["finish_reason"].as_str(), last["warden_stop"].as_str()), (Some("length"), Some("runaway_repetition")));
        assert!(choice.get(member).is_some(), "{last}");
        assert_eq!((bench.the_charge().await.outcome, counted(&bench)), (Outcome::CutShort, 1));
    }
}

#[tokio::test]
async fn an_enforced_guard_leaves_an_ordinary_answer_alone() {
    let lines: Vec<String> = (0..2000)
        .map(|n| format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"| {n} | row | {} |\\n\"}}}}]}}\n\n", n * 3))
        .collect();
    let events: Vec<&str> = lines.iter().map(String::as_str).chain([USAGE, DONE]).collect();
    let (bench, _engine) = start(RunawayGuard::Enforce, whole_stream(&events));
    assert_eq!(text(bench.chat(ASK).await).await, format!("{}{DONE}", lines.concat()));
    assert_eq!((bench.the_charge().await.outcome, counted(&bench)), (Outcome::Completed, 0));
}

#[tokio::test]
async fn a_translated_answer_that_is_ended_says_in_its_dialect_that_it_came_to_its_limit() {
    let messages =
        |stream: bool| format!(r#"{{"model":"tiny","max_tokens":100000,"stream":{stream},"messages":[{{"role":"user","content":"hi"}}]}}"#);
    let responses = r#"{"model":"tiny","stream":true,"input":"hi"}"#.to_owned();
    for (path, ask, marks) in [
        ("/v1/messages", messages(true), ["\"stop_reason\":\"max_tokens\"", "event: message_stop"]),
        ("/v1/messages", messages(false), ["\"stop_reason\":\"max_tokens\"", "\"type\":\"message\""]),
        ("/v1/responses", responses, ["\"status\":\"incomplete\"", "max_output_tokens"]),
    ] {
        // An engine that is asked for a stream also where the client is not answered with one.
        let bench = Bench::new(GatewayLimits::default());
        bench.serving.kind(EngineKind::LlamaCpp);
        let engine = Engine::start(&bench.dir, "e0", vec![looped()]);
        bench.serving.offer(std::slice::from_ref(&engine.socket));
        bench.serving.guard(RunawayGuard::Enforce);
        let response = bench.ask(post(path, ask)).await;
        assert_eq!(response.status(), 200, "{path}");
        let got = text(response).await;
        for mark in marks {
            assert!(got.contains(mark), "{path}: no {mark} in {}", &got[got.len().saturating_sub(600)..]);
        }
        assert!(!got.contains("\"error\":{"), "{path}");
        assert_eq!((bench.the_charge().await.outcome, counted(&bench)), (Outcome::CutShort, 1), "{path}");
    }
}
