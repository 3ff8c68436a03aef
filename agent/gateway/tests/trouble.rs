//! What happens when somebody breaks off: the client, the engine, or the agent itself. Each request is charged exactly once, the
//! engine never works for nobody, and a cut answer never looks complete.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod scripted;

use std::time::{Duration, Instant};

use scripted::{Act, Bench, DONE, Engine, HELLO, STREAM_HEAD, USAGE, chunked, json, raw_post, text, until, whole_stream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use warden_domain::{
    engine::{Capacity, ReplicaSample},
    usage::Outcome,
};
use warden_gateway::GatewayLimits;

const ASK: &str = r#"{"model":"tiny"}"#;
const ASK_STREAM: &str = r#"{"model":"tiny","stream":true}"#;

/// Everything a client reads on the wire until the connection ends.
async fn read_all(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut bytes)).await.expect("the connection ends");
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn send(bench: &Bench, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(bench.listen().await).await.unwrap();
    stream.write_all(raw_post(body).as_bytes()).await.unwrap();
    stream
}

/// A kept connection that the engine closed meanwhile is no failure of the engine: only what happens on a fresh one counts.
#[tokio::test]
async fn a_kept_connection_that_was_closed_costs_no_try() {
    let good = json("200 OK", r#"{"choices":[]}"#);
    let (bench, engine) = Bench::with(vec![good.clone(), Act::Close, Act::Close, good]);
    for _ in 0..2 {
        let response = bench.ask(scripted::post("/v1/embeddings", ASK)).await;
        assert_eq!(response.status(), 200);
        text(response).await;
    }
    assert_eq!(engine.bodies().len(), 4, "one on the kept connection, one that failed on a fresh one, and the second try");
}

#[tokio::test]
async fn an_engine_that_dies_in_the_middle_of_a_stream_is_told_and_the_answer_never_looks_complete() {
    let cuts = [
        format!("{STREAM_HEAD}{}", chunked(HELLO)),
        format!("{STREAM_HEAD}{}ff\r\ndata: {{\"choi", chunked(HELLO)),
        format!("{STREAM_HEAD}{}{}0\r\n\r\n", chunked(HELLO), chunked("data: {\"half")),
    ];
    for cut in cuts {
        let (bench, _engine) = Bench::with(vec![Act::Slowly(vec![cut.clone()], Duration::from_millis(10))]);
        let wire = read_all(&mut send(&bench, ASK_STREAM).await).await;
        assert!(wire.starts_with("HTTP/1.1 200") && wire.contains("hello"), "{wire}");
        let event = wire.find("data: {\"error\":{\"message\":\"The engine broke off").unwrap_or_else(|| panic!("no error event: {wire}"));
        assert!(wire[..event].ends_with("\r\n"), "the event starts a chunk of its own: {wire}");
        assert!(!wire.ends_with("0\r\n\r\n") && !wire.contains("[DONE]"), "it must not look complete: {wire}");
        assert_eq!(bench.the_charge().await.outcome, Outcome::EngineFailed);
    }
}

#[tokio::test]
async fn an_engine_that_dies_in_the_middle_of_a_document_cuts_the_connection() {
    let half = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"choices\":".to_owned();
    let (bench, _engine) = Bench::with(vec![Act::Slowly(vec![half], Duration::from_millis(10))]);
    let wire = read_all(&mut send(&bench, ASK).await).await;
    assert!(wire.contains("content-length: 100") && wire.ends_with("{\"choices\":"), "{wire}");
    assert_eq!(bench.the_charge().await.outcome, Outcome::EngineFailed);
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_frees_its_engine() {
    let (bench, engine) = Bench::with(vec![Act::Hang]);
    let stream = send(&bench, ASK).await;
    until(|| !engine.bodies().is_empty(), "the request reaches the engine").await;
    drop(stream);
    engine.was_left().await;
    let charge = bench.the_charge().await;
    assert_eq!((charge.outcome, charge.status), (Outcome::ClientGone, 499));
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_a_stream_frees_its_engine_at_once() {
    let pieces = std::iter::once(format!("{STREAM_HEAD}{}", chunked(HELLO))).chain((0..2000).map(|_| chunked(HELLO))).collect();
    let (bench, engine) = Bench::with(vec![Act::Slowly(pieces, Duration::from_millis(5))]);
    let mut stream = send(&bench, ASK_STREAM).await;
    let _ = stream.read(&mut [0; 1000]).await.unwrap();
    let left = Instant::now();
    drop(stream);
    engine.was_left().await;
    assert!(left.elapsed() < Duration::from_secs(2));
    assert_eq!(bench.the_charge().await.outcome, Outcome::ClientGone);
}

#[tokio::test]
async fn a_client_that_stops_reading_is_given_up_and_does_not_hold_the_engine() {
    let limits = GatewayLimits { client_pause: Duration::from_millis(300), ..GatewayLimits::default() };
    let (bench, engine) = Bench::with_limits(vec![Act::Endless], limits);
    let _unread = send(&bench, ASK_STREAM).await;
    engine.was_left().await;
    assert_eq!(bench.the_charge().await.outcome, Outcome::ClientGone);
}

#[tokio::test]
async fn a_client_that_stops_reading_an_answer_in_one_piece_is_given_up_the_same_way() {
    let pieces = std::iter::once("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 134217728\r\n\r\n".to_owned())
        .chain(std::iter::repeat_n("x".repeat(1 << 20), 128))
        .collect();
    let limits = GatewayLimits { client_pause: Duration::from_millis(300), ..GatewayLimits::default() };
    let (bench, engine) = Bench::with_limits(vec![Act::Slowly(pieces, Duration::from_millis(1))], limits);
    let _unread = send(&bench, ASK).await;
    engine.was_left().await;
    assert_eq!(bench.the_charge().await.outcome, Outcome::ClientGone);
}

#[tokio::test]
async fn a_slow_client_that_does_read_gets_everything() {
    let event = format!("data: {{\"choices\":[{{\"text\":\"{}\"}}]}}\n\n", "x".repeat(20_000));
    let events: Vec<&str> = std::iter::repeat_n(event.as_str(), 60).chain([USAGE, DONE]).collect();
    let limits = GatewayLimits { client_pause: Duration::from_millis(400), ..GatewayLimits::default() };
    let (bench, _engine) = Bench::with_limits(vec![whole_stream(&events)], limits);
    let mut stream = send(&bench, ASK_STREAM).await;
    let (mut got, mut piece) = (Vec::new(), vec![0; 30_000]);
    while !got.ends_with(b"0\r\n\r\n") {
        let n = stream.read(&mut piece).await.unwrap();
        assert!(n > 0, "cut after {} bytes", got.len());
        got.extend_from_slice(&piece[..n]);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(got.windows(5).filter(|w| w == b"text\"").count(), 60);
    assert_eq!(bench.the_charge().await.outcome, Outcome::Completed);
}

#[tokio::test]
async fn an_engine_that_goes_silent_in_the_middle_is_given_up_with_an_error() {
    let limits = GatewayLimits { engine_pause: Duration::from_millis(200), ..GatewayLimits::default() };
    let (bench, _engine) = Bench::with_limits(vec![Act::Slowly(vec![format!("{STREAM_HEAD}{}", chunked(HELLO))], Duration::from_secs(30))], limits);
    let wire = read_all(&mut send(&bench, ASK_STREAM).await).await;
    assert!(wire.contains("\"code\":\"upstream_timeout\"") && !wire.ends_with("0\r\n\r\n"), "{wire}");
    assert_eq!(bench.the_charge().await.outcome, Outcome::EngineFailed);
}

#[tokio::test]
async fn the_first_byte_may_take_any_time_while_the_engine_says_that_it_is_at_work() {
    let late =
        || vec![Act::Slowly(vec![STREAM_HEAD.to_owned(), format!("{}{}0\r\n\r\n", chunked(HELLO), chunked(DONE))], Duration::from_millis(900))];
    let limits = || GatewayLimits { engine_pause: Duration::from_millis(200), ..GatewayLimits::default() };
    let (bench, engine) = Bench::with_limits(late(), limits());
    let replica = format!("tiny-{}", engine.socket.file_stem().unwrap().to_str().unwrap());
    bench.serving.figures(&replica, "1", ReplicaSample { running: Some(1), ..ReplicaSample::default() });
    assert_eq!(text(bench.chat(ASK_STREAM).await).await, format!("{HELLO}{DONE}"));

    let (bench, engine) = Bench::with_limits(late(), limits());
    let replica = format!("tiny-{}", engine.socket.file_stem().unwrap().to_str().unwrap());
    bench.serving.figures(&replica, "1", ReplicaSample { running: Some(0), ..ReplicaSample::default() });
    let wire = text(bench.chat(ASK_STREAM).await).await;
    assert!(wire.contains("\"code\":\"upstream_timeout\""), "an engine that has nothing to do will not answer any more: {wire}");
}

#[tokio::test]
async fn a_connection_that_was_gone_already_is_tried_once_more() {
    let (bench, engine) = Bench::with(vec![Act::Close, json("200 OK", "{}")]);
    let response = bench.chat(ASK).await;
    assert_eq!((response.status().as_u16(), text(response).await.as_str()), (200, "{}"));
    assert_eq!(engine.bodies(), [ASK, ASK]);
    assert_eq!(bench.the_charge().await.outcome, Outcome::Completed);
}

#[tokio::test]
async fn an_engine_that_closes_twice_is_a_502_and_gets_no_third_request() {
    let (bench, engine) = Bench::with(vec![Act::Close]);
    let response = bench.chat(ASK).await;
    assert_eq!(response.status(), 502);
    assert!(text(response).await.contains("\"code\":\"upstream_unreachable\""));
    assert_eq!(engine.bodies().len(), 2);
    let charge = bench.the_charge().await;
    assert_eq!((charge.outcome, charge.status), (Outcome::EngineFailed, 502));
}

#[tokio::test]
async fn a_dead_replica_is_covered_by_the_other() {
    let (bench, engine) = Bench::with(vec![json("200 OK", "{}")]);
    let dead = bench.dir.path().join("gone.sock");
    bench.serving.offer(&[dead, engine.socket.clone()]);
    assert_eq!(text(bench.chat(ASK).await).await, "{}");
    assert_eq!(bench.the_charge().await.outcome, Outcome::Completed);
}

#[tokio::test]
async fn an_engine_that_fails_too_late_for_another_try_is_heard_in_its_own_words() {
    let words = r#"{"error":{"message":"out of memory","type":"server_error"}}"#;
    let Act::Write(failure) = json("500 Internal Server Error", words) else { panic!("no answer") };
    let late = vec![Act::Slowly(vec![String::new(), failure], Duration::from_millis(200))];
    let limits = GatewayLimits { retry_within: Duration::from_millis(50), ..GatewayLimits::default() };
    let (bench, first) = Bench::with_limits(late.clone(), limits);
    let second = Engine::start(&bench.dir, "e1", late);
    bench.serving.offer(&[first.socket.clone(), second.socket.clone()]);
    let response = bench.chat(ASK).await;
    assert_eq!((response.status().as_u16(), text(response).await.as_str()), (500, words));
    assert_eq!(first.bodies().len() + second.bodies().len(), 1);
    assert_eq!(bench.the_charge().await.outcome, Outcome::EngineFailed);
}

#[tokio::test]
async fn a_request_that_finds_no_room_for_its_second_try_is_told_when_to_come_again() {
    let limits = GatewayLimits { patience_whole: Duration::from_millis(400), ..GatewayLimits::default() };
    let dying = Act::Slowly(vec![String::new()], Duration::from_millis(300));
    let (bench, engine) = Bench::with_limits(vec![Act::Hang, dying], limits);
    let offer = |slots| bench.serving.offer_with(&[(engine.socket.clone(), "1")], Capacity::Slots(slots));
    offer(2);
    let _busy = send(&bench, ASK).await;
    until(|| engine.bodies().len() == 1, "the first request runs").await;
    let (answer, ()) = tokio::join!(bench.chat(ASK), async {
        until(|| engine.bodies().len() == 2, "the second request runs").await;
        offer(1);
    });
    assert_eq!(answer.status(), 503);
    assert!(answer.headers().contains_key("retry-after"));
    let words = text(answer).await;
    assert!(words.contains("busy for as long as this request could wait"), "{words}");
}

#[tokio::test]
async fn a_client_that_hangs_up_behind_the_last_byte_had_a_complete_answer() {
    let lingering = vec![format!("{STREAM_HEAD}{}{}{}", chunked(HELLO), chunked(USAGE), chunked(DONE)), "0\r\n\r\n".to_owned()];
    for (ask, act, mark) in [(ASK, json("200 OK", "{\"choices\":[]}"), "[]}"), (ASK_STREAM, Act::Slowly(lingering, Duration::from_secs(2)), "[DONE]")]
    {
        let (bench, _engine) = Bench::with(vec![act]);
        let (mut stream, mut got) = (send(&bench, ask).await, Vec::new());
        while !String::from_utf8_lossy(&got).contains(mark) {
            assert!(stream.read_buf(&mut got).await.unwrap() > 0);
        }
        drop(stream);
        assert_eq!(bench.the_charge().await.outcome, Outcome::Completed, "{ask}");
    }
}

#[tokio::test]
async fn two_requests_at_the_same_time_go_to_two_replicas() {
    let (bench, first) = Bench::with(vec![Act::Hang]);
    let second = Engine::start(&bench.dir, "e1", vec![Act::Hang]);
    bench.serving.offer(&[first.socket.clone(), second.socket.clone()]);
    let (_a, _b) = (send(&bench, ASK).await, send(&bench, ASK).await);
    until(|| first.bodies().len() == 1 && second.bodies().len() == 1, "each replica has one request").await;
    assert_eq!(bench.flights.all(), 2);
}

#[tokio::test]
async fn a_stop_lets_requests_finish_and_refuses_new_ones() {
    let pieces = vec![format!("{STREAM_HEAD}{}", chunked(HELLO)), chunked(DONE), "0\r\n\r\n".to_owned()];
    let (bench, _engine) = Bench::with(vec![Act::Slowly(pieces, Duration::from_millis(200))]);
    let mut stream = send(&bench, ASK_STREAM).await;
    let _ = stream.read(&mut [0; 10]).await.unwrap();
    let gateway = bench.gateway.clone();
    let drain = tokio::spawn(async move { gateway.drain(Duration::from_secs(10)).await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    let refused = bench.chat(ASK).await;
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    drain.await.unwrap();
    let mut rest = Vec::new();
    while !rest.ends_with(b"0\r\n\r\n") {
        assert!(stream.read_buf(&mut rest).await.unwrap() > 0, "the running answer was cut");
    }
    assert_eq!(bench.the_charge().await.outcome, Outcome::Completed);
}

#[tokio::test]
async fn a_stop_that_takes_too_long_ends_the_rest_with_an_error() {
    let pieces = std::iter::once(format!("{STREAM_HEAD}{}", chunked(HELLO))).chain((0..2000).map(|_| chunked(HELLO))).collect();
    let (bench, engine) = Bench::with(vec![Act::Slowly(pieces, Duration::from_millis(10)), Act::Hang]);
    let mut streaming = send(&bench, ASK_STREAM).await;
    let _ = streaming.read(&mut [0; 10]).await.unwrap();
    let mut waiting = send(&bench, ASK).await;
    until(|| engine.bodies().len() == 2, "both requests run").await;
    bench.gateway.drain(Duration::from_millis(100)).await;
    assert_eq!(bench.flights.all(), 0);
    let wire = read_all(&mut streaming).await;
    assert!(wire.contains("\"code\":\"shutting_down\"") && !wire.ends_with("0\r\n\r\n"), "{wire}");
    let mut head = [0; 12];
    waiting.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 503");
    let charged = bench.ledger.charged.lock().unwrap().clone();
    assert_eq!(charged.iter().map(|c| c.outcome).collect::<Vec<_>>(), [Outcome::ShutDown, Outcome::ShutDown]);
}
