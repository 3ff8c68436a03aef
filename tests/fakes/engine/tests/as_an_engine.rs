//! The scripted engine behind the agent's own process runner: it takes the command line, goes through the phases, tells of itself, does
//! what its script says and notes what it was asked.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests: what they need and do not get fails the test")]

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};
use warden_domain::{
    change::Changes,
    engine::{Answering, Capacity, EngineKind, Engines, Launch, Observation, ReplicaPlan},
    ids::{GenerationId, ReplicaId},
    replica::Endpoint,
    units::Tokens,
};
use warden_engines::{ProcessConfig, ProcessEngines};
use warden_fake_engine::Folder;

struct Bench {
    engines: Arc<ProcessEngines>,
    launch: Launch,
    folder: Folder,
    replica: ReplicaId,
    _dir: tempfile::TempDir,
}

impl Bench {
    async fn start(script: Value) -> Self {
        let dir = tempfile::Builder::new().prefix("wardn").tempdir_in("/tmp").unwrap();
        let folder = Folder::lay(&dir.path().join("fake"), env!("CARGO_BIN_EXE_warden-fake-engine").as_ref()).unwrap();
        folder.script(&script).unwrap();
        let ready = json!({"engine": "llama.cpp", "version": "b11434", "state": "ready", "program": folder.program()});
        std::fs::write(dir.path().join("llama.cpp.json"), ready.to_string()).unwrap();
        let model = dir.path().join("tiny.gguf");
        std::fs::write(&model, "GGUF").unwrap();
        let config = ProcessConfig { engines_dir: dir.path().to_owned(), runtime_dir: dir.path().join("run"), log_dir: dir.path().join("logs") };
        let engines = ProcessEngines::new(config, Changes::new()).unwrap();
        let replica = ReplicaId::new("tiny-0").unwrap();
        let plan = ReplicaPlan {
            replica: replica.clone(),
            generation: GenerationId::random(),
            engine: EngineKind::LlamaCpp,
            served_name: "tiny".to_owned(),
            model_path: model,
            context: Tokens(1024),
            slots: 2,
            gpus: Vec::new(),
            device_minors: Vec::new(),
            trust_remote_code: false,
            extra_args: ["--seed", "7"].map(str::to_owned).to_vec(),
        };
        let launch = engines.start(&plan).await.unwrap();
        let bench = Self { engines, launch, folder, replica, _dir: dir };
        let begin = Instant::now();
        loop {
            match bench.engines.observe(&bench.launch).await {
                Observation::Ready(answering) => {
                    assert_eq!(answering, Answering { context: Some(Tokens(1024)), capacity: Capacity::Slots(2), images: Some(false) });
                    return bench;
                }
                Observation::Starting(_) if begin.elapsed() < Duration::from_secs(20) => tokio::time::sleep(Duration::from_millis(10)).await,
                other => panic!("{other:?}: {:?}", bench.engines.log_tail(&bench.replica, 20).await),
            }
        }
    }

    fn socket(&self) -> PathBuf {
        match &self.launch.endpoint {
            Endpoint::Unix(path) => path.clone(),
            other => panic!("{other:?}"),
        }
    }

    async fn begin(&self, path: &str, body: &Value) -> UnixStream {
        let mut stream = UnixStream::connect(self.socket()).await.unwrap();
        let body = body.to_string();
        let text = format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    async fn ask(&self, path: &str, body: Value) -> String {
        let mut text = Vec::new();
        let _cut = self.begin(path, &body).await.read_to_end(&mut text).await;
        String::from_utf8(text).unwrap()
    }

    /// How the n-th request ended, once it did.
    fn ended(&self, n: usize) -> Value {
        self.folder.wait("an end", Duration::from_secs(10), |folder| folder.asked().get(n).cloned()).unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let leader = self.launch.launch.split('/').nth(1).unwrap().parse().unwrap();
        let _gone_already = nix::sys::signal::killpg(nix::unistd::Pid::from_raw(leader), nix::sys::signal::Signal::SIGKILL);
    }
}

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn it_is_loaded_and_read_as_the_genuine_engine_is() {
    let bench = Bench::start(json!({"load_ms": 50})).await;
    let log = bench.engines.log_tail(&bench.replica, 100).await;
    for phase in ["initializing", "loaded meta data", "loading model tensors", "constructing llama_context", "warming up", "listening on"] {
        assert!(log.iter().any(|line| line.contains(phase)), "{phase}: {log:?}");
    }
    let idle = bench.engines.sample(&bench.launch).await.unwrap();
    assert_eq!((idle.running, idle.waiting, idle.generated_total), (Some(0), Some(0), Some(Tokens(0))));
    assert_eq!(bench.engines.count_tokens(&bench.launch, "12345678").await.unwrap(), Tokens(2));
    let answer = bench.ask(CHAT, json!({"model": "tiny", "messages": []})).await;
    assert!(answer.contains("Hello from the script.") && answer.contains("\"object\":\"chat.completion\""), "{answer}");
    assert!(bench.engines.sample(&bench.launch).await.unwrap().generated_total > Some(Tokens(0)));
    bench.engines.stop(&bench.replica).await.unwrap();
}

#[tokio::test]
async fn what_the_script_says_is_done_and_noted() {
    let bench = Bench::start(json!({"rules": [
        {"when": {"path": CHAT, "contains": "once"}, "times": 1, "act": {"answer": {"status": 503, "json": {"error": {"message": "busy"}}}}},
        {"when": {"path": CHAT, "contains": "cut"}, "act": {"chat": {"say": [{"text": "x", "repeat": 9}], "cut_after_events": 4}}},
        {"when": {"path": CHAT, "contains": "prefill"}, "act": {"chat": {"before_ms": 60_000}}},
        {"when": {"path": "/else"}, "act": {"answer": {"status": 418, "headers": {"x-a": "b"}, "text": "tea"}}},
    ]}))
    .await;
    assert!(bench.ask(CHAT, json!({"once": 1})).await.starts_with("HTTP/1.1 503 "));
    let streamed = bench.ask(CHAT, json!({"once": 1, "stream": true, "stream_options": {"include_usage": true}})).await;
    assert!(streamed.contains("data: [DONE]") && streamed.contains("\"completion_tokens\"") && streamed.ends_with("0\r\n\r\n"), "{streamed}");
    let cut = bench.ask(CHAT, json!({"cut": 1, "stream": true})).await;
    assert!(cut.matches("data: ").count() == 4 && !cut.contains("0\r\n\r\n"), "{cut}");
    let tea = bench.ask("/else", json!({})).await;
    assert!(tea.starts_with("HTTP/1.1 418 ") && tea.contains("x-a: b\r\n") && tea.ends_with("tea"), "{tea}");
    assert_eq!(
        ["503", "stream", "cut", "tea"].iter().enumerate().map(|(n, _)| bench.ended(n)["ended"].clone()).collect::<Vec<_>>(),
        ["finished", "finished", "cut", "finished"]
    );
    let waiting = bench.begin(CHAT, &json!({"prefill": 1})).await;
    bench.folder.wait("it came", Duration::from_secs(10), |folder| (folder.arrived().len() == 5).then_some(())).unwrap();
    let begin = Instant::now();
    let busy = loop {
        let sample = bench.engines.sample(&bench.launch).await.unwrap();
        if sample.running == Some(1) || begin.elapsed() > Duration::from_secs(10) {
            break sample;
        }
    };
    assert_eq!(busy.running, Some(1));
    drop(waiting);
    let left = bench.ended(4);
    assert!(left["ended"] == "client_gone" && left["body"] == "{\"prefill\":1}" && left["headers"]["host"] == "x", "{left}");
    bench.folder.script(&json!({"rules": [{"act": {"die": 7}}]})).unwrap();
    bench.ask(CHAT, json!({})).await;
    let begin = Instant::now();
    while !matches!(bench.engines.observe(&bench.launch).await, Observation::Gone { .. }) {
        assert!(begin.elapsed() < Duration::from_secs(10), "it did not end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(bench.ended(5)["ended"], "died");
}

#[tokio::test]
async fn who_finds_no_slot_waits_and_is_counted() {
    let bench = Bench::start(json!({"rules": [{"when": {"contains": "long"}, "act": {"chat": {"before_ms": 60_000}}}]})).await;
    let first = bench.begin(CHAT, &json!({"long": 1})).await;
    let second = bench.begin(CHAT, &json!({"long": 2})).await;
    bench.folder.wait("both came", Duration::from_secs(10), |folder| (folder.arrived().len() == 2).then_some(())).unwrap();
    let third = tokio::time::timeout(Duration::from_millis(150), bench.ask(CHAT, json!({"short": 1}))).await;
    assert!(third.is_err(), "two slots are taken");
    // It left the queue by being dropped; whoever comes next gets the slot that becomes free.
    drop(first);
    let fourth = bench.ask(CHAT, json!({"short": 2})).await;
    assert!(fourth.contains("Hello"), "{fourth}");
    drop(second);
}
