//! Bodies of every size, over a real connection: what is taken, what is refused, when, and whether the client gets to see why.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod scripted;

use std::time::Duration;

use scripted::{Act, Bench, Engine, json, post, text, until};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use warden_gateway::GatewayLimits;

const MIB: usize = 1 << 20;

fn body_of(size: usize) -> String {
    let frame = r#"{"model":"tiny","x":""}"#;
    format!(r#"{{"model":"tiny","x":"{}"}}"#, "y".repeat(size - frame.len()))
}

async fn connect(bench: &Bench) -> TcpStream {
    TcpStream::connect(bench.listen().await).await.unwrap()
}

fn head(key: &str, framing: &str) -> String {
    format!("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n{framing}\r\n\r\n")
}

/// Writes as a client does that looks at no answer before it has sent everything.
async fn write_all(stream: &mut TcpStream, framing: &str, key: &str, body: &str, chunked: bool) {
    stream.write_all(head(key, framing).as_bytes()).await.unwrap();
    if !chunked {
        return stream.write_all(body.as_bytes()).await.unwrap();
    }
    for piece in body.as_bytes().chunks(MIB) {
        stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).await.unwrap();
        stream.write_all(piece).await.unwrap();
        stream.write_all(b"\r\n").await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
}

/// The head of an answer and what came with it.
async fn answer(stream: &mut TcpStream) -> String {
    let mut got = Vec::new();
    while !got.ends_with(b"}") {
        let n = tokio::time::timeout(Duration::from_secs(20), stream.read_buf(&mut got)).await.expect("an answer comes").unwrap();
        assert!(n > 0, "the connection ended: {}", String::from_utf8_lossy(&got));
    }
    String::from_utf8(got).unwrap()
}

async fn start() -> (Bench, Engine) {
    Bench::with(vec![json("200 OK", "{}")])
}

#[tokio::test]
async fn one_and_thirty_one_megabytes_are_taken_however_they_come() {
    for size in [MIB, 31 * MIB] {
        for chunked in [false, true] {
            let (bench, engine) = start().await;
            let body = body_of(size);
            let framing = if chunked { "transfer-encoding: chunked".to_owned() } else { format!("content-length: {size}") };
            let mut stream = connect(&bench).await;
            write_all(&mut stream, &framing, "vw_good", &body, chunked).await;
            let answer = answer(&mut stream).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{size} {chunked}: {answer}");
            assert!(engine.bodies()[0] == body, "{size} {chunked}: the engine gets every byte of it");
        }
    }
}

#[tokio::test]
async fn a_client_that_sends_thirty_three_megabytes_before_it_looks_finds_its_413() {
    for chunked in [false, true] {
        let (bench, engine) = start().await;
        let body = body_of(33 * MIB);
        let framing = if chunked { "transfer-encoding: chunked".to_owned() } else { format!("content-length: {}", body.len()) };
        let mut stream = connect(&bench).await;
        write_all(&mut stream, &framing, "vw_good", &body, chunked).await;
        let answer = answer(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("body_too_large"), "{chunked}: {answer}");
        assert!(engine.bodies().is_empty() && bench.ledger.charged.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn an_announced_length_is_refused_before_a_byte_of_it_came_and_a_chunked_one_as_soon_as_it_is_over() {
    let (bench, _engine) = start().await;
    let mut stream = connect(&bench).await;
    stream.write_all(head("vw_good", &format!("content-length: {}", 33 * MIB)).as_bytes()).await.unwrap();
    assert!(answer(&mut stream).await.starts_with("HTTP/1.1 413"));

    let mut stream = connect(&bench).await;
    stream.write_all(head("vw_good", "transfer-encoding: chunked").as_bytes()).await.unwrap();
    let piece = [format!("{MIB:x}\r\n").into_bytes(), vec![b'y'; MIB], b"\r\n".to_vec()].concat();
    for _ in 0..33 {
        stream.write_all(&piece).await.unwrap();
    }
    // The end of the body is never sent.
    assert!(answer(&mut stream).await.starts_with("HTTP/1.1 413"));
}

#[tokio::test]
async fn one_who_asks_before_it_sends_is_refused_and_not_told_to_go_on() {
    let (bench, _engine) = start().await;
    let mut stream = connect(&bench).await;
    stream.write_all(head("vw_good", &format!("content-length: {}\r\nexpect: 100-continue", 33 * MIB)).as_bytes()).await.unwrap();
    let answer = answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 413") && !answer.contains("100 Continue"), "{answer}");
}

#[tokio::test]
async fn a_wrong_key_with_a_large_body_is_told_so() {
    let (bench, _engine) = start().await;
    let body = body_of(20 * MIB);
    let mut stream = connect(&bench).await;
    write_all(&mut stream, &format!("content-length: {}", body.len()), "vw_other", &body, false).await;
    assert!(answer(&mut stream).await.starts_with("HTTP/1.1 401"));
}

#[tokio::test]
async fn bodies_that_are_too_many_together_are_refused_with_a_time_and_taken_again_later() {
    let limits = GatewayLimits { all_bodies: 4 * MIB, ..GatewayLimits::default() };
    let (bench, engine) = Bench::with_limits(vec![Act::Hang, json("200 OK", "{}")], limits);
    let large = body_of(3 * MIB);
    let mut first = connect(&bench).await;
    write_all(&mut first, &format!("content-length: {}", large.len()), "vw_good", &large, false).await;
    until(|| engine.bodies().len() == 1, "the first body is held while its engine works").await;
    let refused = bench.chat(large.clone()).await;
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    assert!(text(refused).await.contains("overloaded"));
    assert_eq!(bench.ask(post("/v1/chat/completions", r#"{"model":"tiny"}"#)).await.status(), 200, "a small one still has room");
    drop(first);
    engine.was_left().await;
    let gone = || bench.flights.all() == 0;
    until(gone, "the first request is over").await;
    assert_eq!(bench.chat(large).await.status(), 200);
}
