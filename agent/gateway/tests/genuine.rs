//! Two genuine llama.cpp servers behind the gateway: turns stay and find their cache, a kill -9 is nobody's error, a replica that returns
//! gets work.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod scripted;

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use axum::{body::Body, http::Request};
use scripted::{Bench, text};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use warden_domain::{
    engine::{Capacity, EngineKind},
    ids::ModelId,
    routing::{RoutedReplica, Routing},
};
use warden_fixtures::{TinyModel, engine::genuine_llama_server};
use warden_gateway::GatewayLimits;

/// One engine; killed with its test.
struct Genuine {
    child: Child,
    socket: PathBuf,
}

impl Genuine {
    async fn start(bench: &Bench, name: &str) -> Self {
        let socket = bench.dir.path().join(format!("{name}.sock"));
        let _none_yet = std::fs::remove_file(&socket);
        let model = bench.dir.path().join("tiny.gguf");
        if !model.is_file() {
            TinyModel { context: 8192, ..TinyModel::default() }.write(&model).unwrap();
        }
        let program = genuine_llama_server().unwrap_or_else(|sentence| panic!("{sentence}"));
        let child = Command::new(program)
            .args(["--model", model.to_str().unwrap(), "--alias", "tiny", "--host", socket.to_str().unwrap()])
            .args("--ctx-size 16384 --parallel 2 --no-kv-unified --threads 1 --threads-batch 1 --fit off --cache-ram 0 --offline --no-ui".split(' '))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let engine = Self { child, socket };
        for _ in 0..600 {
            if engine.is_healthy().await {
                return engine;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("llama-server does not answer");
    }

    async fn is_healthy(&self) -> bool {
        self.get("/health").await.is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }

    /// Whether it works on anything.
    async fn is_busy(&self) -> bool {
        self.get("/slots").await.unwrap().contains("\"is_processing\":true")
    }

    async fn get(&self, path: &str) -> Option<String> {
        let mut stream = tokio::net::UnixStream::connect(&self.socket).await.ok()?;
        let mut answer = String::new();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes()).await.ok()?;
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Genuine {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A client that says something, keeps what it was told, and goes on.
struct Talk {
    session: String,
    messages: Vec<Value>,
}

impl Talk {
    fn new(n: usize) -> Self {
        // Its own from the first word on: llama.cpp gives a slot to whom its prompt resembles, and would throw one talk out for another.
        let own = format!("{n:04} is my number. ");
        Self { session: format!("session-{n:04}"), messages: vec![json!({"role": "system", "content": own.repeat(20)})] }
    }

    fn ask(&mut self, what: &str, tokens: u32) -> Request<Body> {
        self.messages.push(json!({"role": "user", "content": format!("{what} of {}", self.session)}));
        let body = json!({"model": "tiny", "messages": self.messages, "max_tokens": tokens, "temperature": 0, "ignore_eos": true});
        let mut request = scripted::post("/v1/chat/completions", body.to_string());
        request.headers_mut().insert("x-session-id", self.session.parse().unwrap());
        request
    }

    /// One turn; how many tokens came from the cache.
    async fn turn(&mut self, bench: &Bench) -> u64 {
        let request = self.ask("a question", 8);
        let response = bench.ask(request).await;
        let status = response.status();
        let answer: Value = serde_json::from_str(&text(response).await).unwrap();
        assert_eq!(status, 200, "{answer}");
        self.messages.push(answer["choices"][0]["message"].clone());
        answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or_else(|| panic!("no cached_tokens: {answer}"))
    }
}

fn shown(bench: &Bench) -> Vec<RoutedReplica> {
    bench.gateway.routing(&ModelId::from_stored("mdl_tiny")).unwrap().replicas
}

#[tokio::test]
async fn turns_stay_on_two_genuine_engines_a_kill_is_nobodys_error_and_who_returns_gets_work() {
    let bench = Bench::new(GatewayLimits::default());
    let (mut a, b) = (Genuine::start(&bench, "a").await, Genuine::start(&bench, "b").await);
    bench.serving.offer_with(&[(a.socket.clone(), "1"), (b.socket.clone(), "1")], Capacity::Slots(2));
    let mut talks: Vec<Talk> = (0..4).map(Talk::new).collect();
    let mut cached = vec![0; talks.len()];
    for round in 0..3 {
        for (talk, before) in talks.iter_mut().zip(&mut cached) {
            let now = talk.turn(&bench).await;
            assert!(round == 0 || now > *before, "turn {round} of {} took {now} tokens from the cache, the one before {before}", talk.session);
            *before = now;
        }
    }
    let counts: Vec<_> = shown(&bench).iter().map(|r| (r.homes, r.placed, r.stayed, r.moved)).collect();
    assert_eq!(counts, [(2, 2, 4, 0); 2], "homes are balanced and nothing moved");

    // Killed over an answer in one piece, before its first byte; the table does not know yet.
    let request = talks[0].ask("a long question", 3000);
    let router = bench.router();
    let running = tokio::spawn(async move { tower::ServiceExt::oneshot(router, request).await.unwrap() });
    scripted::until(|| shown(&bench)[0].in_flight == 1, "it runs on the first replica").await;
    a.kill();
    let response = running.await.unwrap();
    let (status, body) = (response.status(), text(response).await);
    assert_eq!(status, 200, "{body}");
    for talk in &mut talks[1..] {
        talk.turn(&bench).await;
    }
    assert_eq!(shown(&bench)[0].lost, 2, "the one that ran, the next one, and then nothing is sent where nobody listens: {:?}", shown(&bench));
    bench.serving.offer_with(&[(b.socket.clone(), "1")], Capacity::Slots(2));
    assert_eq!(shown(&bench)[1].homes, 4);

    // It returns, cold, and gets the new ones; the moved ones stay.
    let again = Genuine::start(&bench, "a").await;
    bench.serving.offer_with(&[(again.socket.clone(), "2"), (b.socket.clone(), "1")], Capacity::Slots(2));
    let mut new: Vec<Talk> = (10..12).map(Talk::new).collect();
    for talk in new.iter_mut().chain(&mut talks[1..2]) {
        talk.turn(&bench).await;
    }
    assert_eq!(shown(&bench).iter().map(|r| r.homes).collect::<Vec<_>>(), [2, 4]);
}

/// llama.cpp works on for nobody when it was not asked for a stream (b11434), so the gateway asks it for one and puts the answer together.
#[tokio::test]
async fn a_genuine_engine_stops_at_once_for_a_client_that_left_an_answer_in_one_piece() {
    let bench = Bench::new(GatewayLimits::default());
    bench.serving.kind(EngineKind::LlamaCpp);
    let engine = Genuine::start(&bench, "a").await;
    bench.serving.offer_with(&[(engine.socket.clone(), "1")], Capacity::Slots(2));
    let address = bench.listen().await;
    for (path, body) in [
        ("/v1/chat/completions", json!({"model": "tiny", "max_tokens": 7000, "ignore_eos": true, "messages": [{"role": "user", "content": "hi"}]})),
        ("/v1/completions", json!({"model": "tiny", "max_tokens": 7000, "ignore_eos": true, "prompt": "hi"})),
    ] {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(scripted::raw_post_to(path, &body.to_string()).as_bytes()).await.unwrap();
        let mut began = false;
        for _ in 0..100 {
            began |= engine.is_busy().await;
            if began {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(began, "{path}: the engine works on it");
        drop(stream);
        let left = std::time::Instant::now();
        while engine.is_busy().await {
            assert!(left.elapsed() < Duration::from_secs(3), "{path}: the engine works on for nobody");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    // Whoever stays gets the whole answer.
    let ask = json!({"model": "tiny", "max_tokens": 8, "ignore_eos": true, "messages": [{"role": "user", "content": "hi"}]});
    let answer: Value = serde_json::from_str(&text(bench.ask(scripted::post("/v1/chat/completions", ask.to_string())).await).await).unwrap();
    assert_eq!((&answer["object"], &answer["usage"]["completion_tokens"]), (&json!("chat.completion"), &json!(8)), "{answer}");
    assert_eq!((&answer["choices"][0]["finish_reason"], answer["timings"].is_object()), (&json!("length"), true));
}
