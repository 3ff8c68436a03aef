//! Who waits, where, and what becomes of a request whose replica dies: over scripted engines.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod scripted;

use std::{path::PathBuf, time::Duration};

use axum::{body::Body, http::Request};
use scripted::{Act, Bench, DONE, Engine, HELLO, STREAM_HEAD, chunked, json, raw_post, text, until, whole_stream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use warden_domain::{
    engine::{Capacity, ReplicaSample},
    ids::ModelId,
    routing::{Routing, RoutingView},
    usage::Outcome,
};
use warden_gateway::GatewayLimits;

const ASK: &str = r#"{"model":"tiny"}"#;
const ASK_STREAM: &str = r#"{"model":"tiny","stream":true}"#;

fn view(bench: &Bench) -> RoutingView {
    bench.gateway.routing(&ModelId::from_stored("mdl_tiny")).unwrap()
}

/// Two engines with that many slots each.
fn two(limits: GatewayLimits, slots: u16, first: Vec<Act>, second: Vec<Act>) -> (Bench, Engine, Engine) {
    let bench = Bench::new(limits);
    let (a, b) = (Engine::start(&bench.dir, "a", first), Engine::start(&bench.dir, "b", second));
    bench.serving.offer_with(&[(a.socket.clone(), "1"), (b.socket.clone(), "1")], Capacity::Slots(slots));
    (bench, a, b)
}

fn one_slot(limits: GatewayLimits, acts: Vec<Act>) -> (Bench, Engine) {
    let (bench, engine) = Bench::with_limits(acts, limits);
    bench.serving.offer_with(&[(engine.socket.clone(), "1")], Capacity::Slots(1));
    (bench, engine)
}

async fn send(bench: &Bench, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(bench.listen().await).await.unwrap();
    stream.write_all(raw_post(body).as_bytes()).await.unwrap();
    stream
}

/// A turn of a conversation: everything said so far, the newest last.
fn turn(session: &str, said: usize) -> Request<Body> {
    let messages: Vec<String> =
        (0..said).map(|n| format!(r#"{{"role":"{}","content":"word {n}"}}"#, if n % 2 == 0 { "user" } else { "assistant" })).collect();
    let body = format!(r#"{{"model":"tiny","messages":[{}]}}"#, messages.join(","));
    let mut request = scripted::post("/v1/chat/completions", body);
    request.headers_mut().insert("x-session-id", session.parse().unwrap());
    request
}

#[tokio::test]
async fn a_request_that_finds_every_slot_busy_waits_here_and_not_at_the_engine() {
    let pieces = vec![format!("{STREAM_HEAD}{}", chunked(HELLO)), chunked(DONE), "0\r\n\r\n".to_owned()];
    let (bench, engine) = one_slot(GatewayLimits::default(), vec![Act::Slowly(pieces, Duration::from_millis(150)), json("200 OK", "{}")]);
    let mut first = send(&bench, ASK_STREAM).await;
    let _ = first.read(&mut [0; 10]).await.unwrap();
    let mut second = send(&bench, ASK).await;
    until(|| view(&bench).waiting == 1, "the second request waits").await;
    assert_eq!((engine.bodies().len(), bench.flights.all()), (1, 1), "the engine has one slot and one request");
    let mut head = [0; 12];
    second.read_exact(&mut head).await.unwrap();
    assert_eq!((&head, engine.bodies().len()), (b"HTTP/1.1 200", 2));
}

#[tokio::test]
async fn a_client_that_leaves_the_queue_was_never_known_to_the_engine_and_is_charged_once() {
    let (bench, engine) = one_slot(GatewayLimits::default(), vec![Act::Hang]);
    let _busy = send(&bench, ASK_STREAM).await;
    until(|| engine.bodies().len() == 1, "the first request runs").await;
    let waiting = send(&bench, ASK).await;
    until(|| view(&bench).waiting == 1, "the second request waits").await;
    drop(waiting);
    until(|| view(&bench).waiting == 0, "it left the queue").await;
    let charge = bench.ledger.charged.lock().unwrap().clone();
    assert_eq!(charge.iter().map(|c| (c.outcome, c.status)).collect::<Vec<_>>(), [(Outcome::ClientGone, 499)]);
    assert_eq!((engine.bodies().len(), bench.flights.all()), (1, 1));
}

#[tokio::test]
async fn a_replica_that_dies_between_the_head_and_the_first_byte_is_covered_by_the_other() {
    let (bench, a, b) = two(
        GatewayLimits::default(),
        2,
        vec![Act::Slowly(vec![STREAM_HEAD.to_owned()], Duration::from_millis(30))],
        vec![whole_stream(&[HELLO, DONE])],
    );
    let response = bench.chat(ASK_STREAM).await;
    assert_eq!((response.status().as_u16(), text(response).await), (200, format!("{HELLO}{DONE}")));
    assert_eq!((a.bodies().len(), b.bodies().len()), (1, 1));
    assert_eq!(bench.the_charge().await.outcome, Outcome::Completed);
}

#[tokio::test]
async fn a_replica_that_dies_over_an_answer_in_one_piece_is_covered_by_the_other() {
    let (bench, a, b) =
        two(GatewayLimits::default(), 2, vec![Act::Slowly(vec![String::new()], Duration::from_millis(50))], vec![json("200 OK", "{}")]);
    let response = bench.chat(ASK).await;
    assert_eq!((response.status().as_u16(), text(response).await.as_str()), (200, "{}"));
    assert_eq!((a.bodies().len(), b.bodies().len(), view(&bench).replicas[0].lost), (1, 1, 1));
    assert_eq!(bench.the_charge().await.outcome, Outcome::Completed);
}

#[tokio::test]
async fn turns_stay_and_new_conversations_are_spread() {
    let (bench, a, b) = two(GatewayLimits::default(), 4, vec![json("200 OK", "{}")], vec![json("200 OK", "{}")]);
    for said in [1, 3, 5] {
        for session in ["session-1", "session-2", "session-3", "session-4"] {
            assert_eq!(text(bench.ask(turn(session, said)).await).await, "{}");
        }
    }
    assert_eq!((a.bodies().len(), b.bodies().len()), (6, 6));
    let shown: Vec<_> = view(&bench).replicas.iter().map(|r| (r.homes, r.placed, r.stayed, r.moved, r.in_flight)).collect();
    assert_eq!(shown, [(2, 2, 4, 0, 0); 2]);
}

#[tokio::test]
async fn a_replica_that_is_withdrawn_finishes_what_it_has_and_its_conversations_go_elsewhere() {
    let closing = STREAM_HEAD.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    let pieces = vec![format!("{closing}{}", chunked(HELLO)), chunked(DONE), "0\r\n\r\n".to_owned()];
    let (bench, a, b) =
        two(GatewayLimits::default(), 4, vec![json("200 OK", "{}"), Act::Slowly(pieces, Duration::from_millis(200))], vec![json("200 OK", "{}")]);
    assert_eq!(text(bench.ask(turn("session-1", 1)).await).await, "{}");
    assert_eq!(a.bodies().len(), 1);
    let running = tokio::spawn({
        let router = bench.router();
        async move { tower::ServiceExt::oneshot(router, turn("session-1", 3)).await.unwrap() }
    });
    until(|| a.bodies().len() == 2, "its second turn stays").await;
    bench.serving.offer_with(&[(b.socket.clone(), "1")], Capacity::Slots(4));
    assert_eq!(text(bench.ask(turn("session-1", 5)).await).await, "{}");
    assert_eq!((a.bodies().len(), b.bodies().len()), (2, 1), "the third goes to the other");
    assert_eq!(text(running.await.unwrap()).await, format!("{HELLO}{DONE}"), "what ran was finished");
    // The same replica comes back as another launch: it is cold and gets the new conversation, the moved one stays.
    bench.serving.offer_with(&[(a.socket.clone(), "2"), (b.socket.clone(), "1")], Capacity::Slots(4));
    text(bench.ask(turn("session-1", 7)).await).await;
    assert_eq!((a.bodies().len(), b.bodies().len()), (2, 2));
    text(bench.ask(turn("session-2", 1)).await).await;
    assert_eq!(a.bodies().len(), 3, "{:?}", view(&bench));
}

#[tokio::test]
async fn a_full_queue_refuses_at_once_and_charges_nothing() {
    let limits = GatewayLimits::default();
    let bounds = warden_schedule::Bounds { queue: 1, ..limits.bounds };
    let (bench, engine) = one_slot(GatewayLimits { bounds, ..limits }, vec![Act::Hang]);
    let _busy = send(&bench, ASK).await;
    until(|| engine.bodies().len() == 1, "the first request runs").await;
    let _waiting = send(&bench, ASK).await;
    until(|| view(&bench).waiting == 1, "the second request waits").await;
    let refused = bench.chat(ASK).await;
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["retry-after"], "5");
    let error: serde_json::Value = serde_json::from_str(&text(refused).await).unwrap();
    assert_eq!((error["error"]["code"].as_str(), error["error"]["type"].as_str()), (Some("overloaded"), Some("server_error")));
    assert!(bench.ledger.charged.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_request_waits_as_long_as_its_client_can_and_no_longer() {
    let limits = GatewayLimits { patience_whole: Duration::from_millis(300), ..GatewayLimits::default() };
    let (bench, engine) = one_slot(limits, vec![Act::Hang]);
    let _busy = send(&bench, ASK_STREAM).await;
    until(|| engine.bodies().len() == 1, "the first request runs").await;
    let refused = bench.chat(ASK).await;
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    let charged = bench.ledger.charged.lock().unwrap().clone();
    assert_eq!(charged.iter().map(|c| (c.outcome, c.status)).collect::<Vec<_>>(), [(Outcome::TurnedAway, 503)], "no engine failed here");
    assert_eq!(engine.bodies().len(), 1);
}

#[tokio::test]
async fn who_waits_for_a_model_that_is_unloaded_is_told_so() {
    let (bench, engine) = one_slot(GatewayLimits::default(), vec![Act::Hang]);
    let _busy = send(&bench, ASK).await;
    until(|| engine.bodies().len() == 1, "the first request runs").await;
    let router = bench.router();
    let waiting = tokio::spawn(async move { tower::ServiceExt::oneshot(router, scripted::post("/v1/chat/completions", ASK)).await.unwrap() });
    until(|| view(&bench).waiting == 1, "the second request waits").await;
    bench.serving.offer_with(&[], Capacity::Unknown);
    let refused = waiting.await.unwrap();
    assert_eq!(refused.status(), 404);
    assert!(text(refused).await.contains("not loaded"));
    let charged = bench.ledger.charged.lock().unwrap().clone();
    assert_eq!(charged.iter().map(|c| (c.outcome, c.status)).collect::<Vec<_>>(), [(Outcome::TurnedAway, 404)]);
}

#[tokio::test]
async fn a_stop_lets_those_who_wait_finish_too() {
    let pieces = vec![format!("{STREAM_HEAD}{}", chunked(HELLO)), chunked(DONE), "0\r\n\r\n".to_owned()];
    let (bench, engine) = one_slot(GatewayLimits::default(), vec![Act::Slowly(pieces, Duration::from_millis(100)), Act::Hang]);
    let _first = send(&bench, ASK_STREAM).await;
    until(|| engine.bodies().len() == 1, "the first request runs").await;
    let mut second = send(&bench, ASK).await;
    until(|| view(&bench).waiting == 1, "the second request waits").await;
    bench.gateway.drain(Duration::from_millis(50)).await;
    assert_eq!((bench.flights.all(), view(&bench).waiting), (0, 0));
    let mut head = [0; 12];
    second.read_exact(&mut head).await.unwrap();
    assert_eq!((&head, engine.bodies().len()), (b"HTTP/1.1 503", 1));
}

#[tokio::test]
async fn a_slot_whose_client_left_is_busy_until_the_engine_says_otherwise() {
    let (bench, engine) = one_slot(GatewayLimits::default(), vec![Act::Hang, json("200 OK", "{}")]);
    let first = send(&bench, ASK).await;
    until(|| engine.bodies().len() == 1, "the first request runs").await;
    drop(first);
    until(|| view(&bench).replicas[0].lingering == 1, "the engine is believed to go on").await;
    let router = bench.router();
    let waiting = tokio::spawn(async move { tower::ServiceExt::oneshot(router, scripted::post("/v1/chat/completions", ASK)).await.unwrap() });
    until(|| view(&bench).waiting == 1, "the second request waits").await;
    let idle = ReplicaSample { running: Some(0), waiting: Some(0), ..ReplicaSample::default() };
    bench.serving.figures("tiny-e0", "1", idle);
    assert_eq!(text(waiting.await.unwrap()).await, "{}");
}

#[tokio::test]
async fn the_next_turn_of_a_client_that_reads_only_to_the_end_mark_goes_on_with_its_conversation() {
    // The engine lingers behind its end mark; the client does not.
    let lingering =
        |n: usize| Act::Slowly(vec![format!("{STREAM_HEAD}{}{}", chunked(HELLO), chunked(DONE)), "0\r\n\r\n".repeat(n)], Duration::from_millis(300));
    let (bench, a, b) = two(GatewayLimits::default(), 4, vec![lingering(1)], vec![lingering(1)]);
    let address = bench.listen().await;
    for said in [1, 3, 5] {
        let body = axum::body::to_bytes(turn("s", said).into_body(), 10_000).await.unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap().replace(r#""model""#, r#""stream":true,"model""#);
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(raw_post(&body).as_bytes()).await.unwrap();
        let mut got = Vec::new();
        while !String::from_utf8_lossy(&got).contains("[DONE]") {
            assert!(stream.read_buf(&mut got).await.unwrap() > 0);
        }
    }
    let mut counts = [a.bodies().len(), b.bodies().len()];
    counts.sort_unstable();
    assert_eq!(counts, [0, 3], "{:?}", PathBuf::from(bench.dir.path()));
}

#[tokio::test]
async fn a_replica_that_answers_with_an_error_of_its_own_is_left_for_another_and_an_error_of_the_request_is_not() {
    let broken = || vec![json("500 Internal Server Error", r#"{"error":{"message":"core is dead"}}"#)];
    let starting = vec![json("503 Service Unavailable", r#"{"error":{"message":"not yet"}}"#)];
    // It says itself that it takes nothing; or it fails over one request after the other, each of which may have been the reason.
    for (failing, tries) in [(starting, 1), (broken(), 3)] {
        let (bench, a, b) = two(GatewayLimits::default(), 4, failing, vec![json("200 OK", r#"{"choices":[]}"#)]);
        for _ in 0..6 {
            assert_eq!(bench.chat(ASK).await.status(), 200);
        }
        assert!(a.bodies().len() <= tries, "the broken one is left alone for a while: {}", a.bodies().len());
        assert_eq!(b.bodies().len(), 6);
    }

    let refusing = || vec![json("400 Bad Request", r#"{"error":{"message":"no messages"}}"#)];
    let (bench, a, b) = two(GatewayLimits::default(), 4, refusing(), refusing());
    assert_eq!(bench.chat(ASK).await.status(), 400);
    assert_eq!(a.bodies().len() + b.bodies().len(), 1);

    let (bench, a, b) = two(GatewayLimits::default(), 4, broken(), broken());
    assert_eq!(bench.chat(ASK).await.status(), 500, "where all fail, the last answer is told");
    assert_eq!((a.bodies().len(), b.bodies().len()), (1, 1));
}

#[tokio::test]
async fn a_request_that_makes_an_engine_fail_moves_no_conversation_but_its_own() {
    let fine = json("200 OK", r#"{"choices":[]}"#);
    let failed = json("500 Internal Server Error", r#"{"error":{"message":"cannot do that"}}"#);
    let (bench, a, b) = two(GatewayLimits::default(), 4, vec![fine.clone(), failed, fine.clone()], vec![fine]);
    assert_eq!(text(bench.ask(turn("session-1", 1)).await).await, r#"{"choices":[]}"#);
    assert_eq!(bench.ask(turn("session-2", 1)).await.status(), 200);
    assert_eq!((a.bodies().len(), b.bodies().len()), (1, 1));
    // One of no session makes the first fail and is answered by the second.
    assert_eq!(bench.chat(ASK).await.status(), 200);
    assert_eq!((a.bodies().len(), b.bodies().len()), (2, 2));
    assert_eq!(bench.ask(turn("session-1", 3)).await.status(), 200);
    assert_eq!((a.bodies().len(), b.bodies().len()), (3, 2), "the conversation stays where it is");
}

#[tokio::test]
async fn a_key_of_higher_priority_overtakes_in_the_queue_and_equals_keep_their_order() {
    let (bench, engine) = one_slot(
        GatewayLimits::default(),
        vec![
            Act::Slowly(vec![String::new(), "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_owned()], Duration::from_millis(1500)),
            json("200 OK", "{}"),
        ],
    );
    let router = bench.router();
    let ask = |key: &str, mark: &str| {
        let body = format!(r#"{{"model":"tiny","user":"{mark}"}}"#);
        let request = Request::post("/v1/chat/completions").header("authorization", format!("Bearer {key}")).body(Body::from(body)).unwrap();
        tokio::spawn(tower::ServiceExt::oneshot(router.clone(), request))
    };
    let mut all = vec![ask("vw_good", "first")];
    until(|| engine.bodies().len() == 1, "the first request runs").await;
    for (waiting, (key, mark)) in
        [("vw_low", "low"), ("vw_good", "usual 1"), ("vw_good", "usual 2"), ("vw_high", "high 1"), ("vw_high", "high 2")].into_iter().enumerate()
    {
        all.push(ask(key, mark));
        until(|| view(&bench).waiting == waiting as u64 + 1, "the request waits").await;
    }
    for one in all {
        assert_eq!(one.await.unwrap().unwrap().status(), 200);
    }
    let order: Vec<String> =
        engine.bodies().iter().map(|body| serde_json::from_str::<serde_json::Value>(body).unwrap()["user"].as_str().unwrap().to_owned()).collect();
    assert_eq!(order, ["first", "high 1", "high 2", "usual 1", "usual 2", "low"]);
}
