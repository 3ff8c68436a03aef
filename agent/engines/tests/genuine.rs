//! The genuine llama.cpp under the process runner: it takes the command line, tells of itself, and its figures are read.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests: what they need and do not get fails the test")]

use std::time::{Duration, Instant};

use warden_domain::{
    change::Changes,
    engine::{Answering, Capacity, EngineKind, Engines, Launch, Observation, ReplicaPlan, ReplicaSample},
    ids::{GenerationId, ReplicaId},
    units::Tokens,
};
use warden_engines::{ProcessConfig, ProcessEngines};
use warden_fixtures::{TinyModel, engine::genuine_llama_server};

#[tokio::test]
async fn the_genuine_engine_takes_its_command_line_and_tells_of_itself() {
    let dir = tempfile::Builder::new().prefix("wardn").tempdir_in("/tmp").unwrap();
    let model = dir.path().join("tiny.gguf");
    TinyModel::default().write(&model).unwrap();
    let program = genuine_llama_server().unwrap();
    let ready = serde_json::json!({"engine": "llama.cpp", "version": "b11434", "state": "ready", "program": program});
    std::fs::write(dir.path().join("llama.cpp.json"), ready.to_string()).unwrap();
    let config = ProcessConfig { engines_dir: dir.path().to_owned(), runtime_dir: dir.path().join("run"), log_dir: dir.path().join("logs") };
    let engines = ProcessEngines::new(config, Changes::new()).unwrap();
    let plan = ReplicaPlan {
        replica: ReplicaId::new("tiny-0").unwrap(),
        generation: GenerationId::random(),
        engine: EngineKind::LlamaCpp,
        served_name: "tiny".to_owned(),
        model_path: model,
        context: Tokens(1024),
        slots: 3,
        gpus: Vec::new(),
        // Said by the box too: the admin's word counts, because it comes later.
        extra_args: ["--ctx-checkpoints", "2", "--seed", "7"].map(str::to_owned).to_vec(),
        device_minors: Vec::new(),
        trust_remote_code: false,
    };
    let launch = engines.start(&plan).await.unwrap();
    let _ended = Ended::of(&launch);
    let answering = ready_within(&engines, &launch, Duration::from_secs(60)).await;
    assert_eq!(answering, Answering { context: Some(Tokens(1024)), capacity: Capacity::Slots(3) });

    let idle = engines.sample(&launch).await.unwrap();
    assert_eq!(
        idle,
        ReplicaSample {
            running: Some(0),
            waiting: Some(0),
            kv_used_ratio: None,
            prompt_total: Some(Tokens(0)),
            cached_total: Some(Tokens(0)),
            generated_total: Some(Tokens(0)),
            preemptions_total: None,
            steps_total: idle.steps_total,
        }
    );
    assert!(idle.steps_total.is_some(), "without its steps a long answer looks like a hang");
    let words = engines.count_tokens(&launch, "the box counts words").await.unwrap();
    let twice = engines.count_tokens(&launch, "the box counts words the box counts words").await.unwrap();
    assert!(words.0 >= 4 && twice.0 > words.0, "{words:?} {twice:?}");
    assert_eq!(engines.count_tokens(&launch, "").await.unwrap(), Tokens(0));
    let log = engines.log_tail(&plan.replica, 2000).await.join("\n");
    assert!(log.contains("context checkpoints enabled, max = 2"), "{log}");

    engines.stop(&plan.replica).await.unwrap();
    assert!(engines.sample(&launch).await.is_err(), "figures of an engine that is gone");
}

async fn ready_within(engines: &ProcessEngines, launch: &Launch, limit: Duration) -> Answering {
    let begin = Instant::now();
    loop {
        match engines.observe(launch).await {
            Observation::Ready(answering) => return answering,
            Observation::Starting(_) if begin.elapsed() < limit => tokio::time::sleep(Duration::from_millis(20)).await,
            other => panic!("{other:?}: {:?}", engines.log_tail(&launch.replica, 20).await),
        }
    }
}

/// Ends a launch whatever the test found.
struct Ended(i32);

impl Ended {
    fn of(launch: &Launch) -> Self {
        Self(launch.launch.split('/').nth(1).unwrap().parse().unwrap())
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // It leads a group of its own.
        let _ = nix::sys::signal::killpg(nix::unistd::Pid::from_raw(self.0), nix::sys::signal::Signal::SIGKILL);
    }
}
