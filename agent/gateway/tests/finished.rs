//! Exactly one `Finished` for each admitted request, whatever happens to it: clients that leave at any moment, engines that refuse, break
//! off, go silent and die, replicas that are withdrawn.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod scripted;

use std::{collections::BTreeMap, time::Duration};

use scripted::{Act, Bench, DONE, Engine, HELLO, STREAM_HEAD, USAGE, chunked, json, post, until, whole_stream};
use warden_domain::{
    engine::{Capacity, EngineKind},
    ids::ModelId,
    routing::Routing,
};
use warden_gateway::GatewayLimits;

const REQUESTS: u64 = 120;
const FINISH: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

/// A number that looks like chance and is the same in every run.
fn scattered(seed: u64) -> u64 {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    x ^= x >> 29;
    x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^ (x >> 32)
}

/// What engines do, good and bad.
fn acts() -> Vec<Act> {
    let ms = Duration::from_millis;
    let good = || whole_stream(&[HELLO, FINISH, USAGE, DONE]);
    let slow = |events: &[&str], pause| {
        let pieces = std::iter::once(STREAM_HEAD.to_owned()).chain(events.iter().map(|e| chunked(e)));
        Act::Slowly(pieces.collect(), ms(pause))
    };
    let error = "data: {\"error\":{\"message\":\"out of memory\",\"code\":500}}\n\n";
    vec![
        good(),
        Act::Close,
        slow(&[HELLO, HELLO, FINISH, USAGE, DONE], 15),
        json("400 Bad Request", r#"{"error":{"message":"no","code":400}}"#),
        good(),
        slow(&[HELLO], 10),
        json("500 Internal Server Error", r#"{"error":{"message":"broken","code":500}}"#),
        slow(&[], 20),
        whole_stream(&[HELLO, error, DONE]),
        json("503 Service Unavailable", r#"{"error":{"message":"busy","code":503}}"#),
        whole_stream(&[error, DONE]),
        Act::Hang,
        Act::Endless,
        Act::Write("rubbish\r\n\r\n".to_owned()),
    ]
}

fn ask(n: u64) -> (&'static str, String) {
    let stream = scattered(n).is_multiple_of(3);
    match n % 3 {
        0 => ("/v1/chat/completions", format!(r#"{{"model":"tiny","stream":{stream},"messages":[{{"role":"user","content":"{n}"}}]}}"#)),
        1 => ("/v1/messages", format!(r#"{{"model":"tiny","max_tokens":9,"stream":{stream},"messages":[{{"role":"user","content":"{n}"}}]}}"#)),
        _ => ("/v1/responses", format!(r#"{{"model":"tiny","stream":{stream},"input":"{n}"}}"#)),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_admitted_request_is_finished_once_whatever_happens() {
    let ms = Duration::from_millis;
    let limits = GatewayLimits {
        engine_pause: ms(300),
        head: ms(800),
        client_pause: ms(300),
        keep_alive: ms(25),
        patience_streamed: ms(1500),
        patience_whole: ms(1500),
        ..GatewayLimits::default()
    };
    let bench = Bench::new(limits);
    bench.serving.kind(EngineKind::LlamaCpp);
    let (a, b) = (Engine::start(&bench.dir, "a", acts()), Engine::start(&bench.dir, "b", acts().into_iter().rev().collect()));
    let engines = [(a.socket.clone(), "1"), (b.socket.clone(), "1")];
    bench.serving.offer_with(&engines, Capacity::Slots(3));
    let address = bench.listen().await;
    let mut clients = tokio::task::JoinSet::new();
    for n in 0..REQUESTS {
        let (path, body) = ask(n);
        clients.spawn(async move {
            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut stream, scripted::raw_post_to(path, &body).as_bytes()).await.unwrap();
            let mut read = Vec::new();
            // Some leave at once, some in the middle, some stay to the end, some do not read.
            let stays = match scattered(n ^ 77) % 8 {
                0 => ms(0),
                1 => ms(5),
                2 => ms(30),
                3 => ms(90),
                4 => {
                    tokio::time::sleep(ms(400)).await;
                    return;
                }
                _ => ms(5000),
            };
            let _left = tokio::time::timeout(stays, tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut read)).await;
        });
        tokio::time::sleep(ms(scattered(n ^ 5) % 12)).await;
        match n % 40 {
            // One replica is withdrawn for a while, and comes back as another launch.
            20 => bench.serving.offer_with(&engines[..1], Capacity::Slots(3)),
            30 => bench.serving.offer_with(&[(a.socket.clone(), "1"), (b.socket.clone(), "2")], Capacity::Slots(3)),
            _ => {}
        }
    }
    while clients.join_next().await.is_some() {}
    let view = || bench.gateway.routing(&ModelId::from_stored("mdl_tiny")).unwrap();
    until(|| bench.flights.all() == 0 && view().waiting == 0, "somebody is still there").await;
    assert!(view().replicas.iter().all(|r| r.in_flight == 0), "{:?}", view());
    let charged = bench.ledger.charged.lock().unwrap().clone();
    let mut each: BTreeMap<String, usize> = BTreeMap::new();
    charged.iter().for_each(|c| *each.entry(c.request.as_str().to_owned()).or_default() += 1);
    assert!(each.values().all(|n| *n == 1), "{each:?}");
    // Only a refusal before admission is not charged; here nobody is refused so early, but some leave before their body was read.
    let opened = *bench.ledger.opened.lock().unwrap();
    assert_eq!(charged.len(), opened);
    assert!(opened > REQUESTS as usize / 2, "{opened} of {REQUESTS} were admitted");
    let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
    charged.iter().for_each(|c| *outcomes.entry(c.outcome.as_str()).or_default() += 1);
    assert!(outcomes.len() >= 4, "the test meets many ends: {outcomes:?}");
    // And it still works.
    let last = Engine::start(&bench.dir, "c", vec![json("200 OK", "{}")]);
    bench.serving.offer_with(&[(last.socket.clone(), "1")], Capacity::Slots(1));
    assert_eq!(bench.ask(post("/v1/chat/completions", r#"{"model":"tiny"}"#)).await.status(), 200);
}
