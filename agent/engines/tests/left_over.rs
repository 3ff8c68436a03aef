//! What an agent finds of engines that died under the agent before it: told at once, cleared beside it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use warden_domain::{
    change::Changes,
    engine::{EngineKind, Engines, ReplicaPlan},
    ids::{GenerationId, ReplicaId},
    units::Tokens,
};
use warden_engines::{ProcessConfig, ProcessEngines};

/// Ends a process whatever the test found.
struct Ended(i32);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0), Signal::SIGKILL);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_of_a_dead_engine_and_does_not_end_holds_up_no_adoption() {
    let dir = tempfile::tempdir().unwrap();
    let (program, left) = (dir.path().join("engine"), dir.path().join("left"));
    // Its first process ends and leaves one that hears no request to end.
    let text = format!("#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 1; done &\necho $! > {}\nsleep 2\n", left.display());
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let told = serde_json::json!({"engine": "llama.cpp", "version": "1", "state": "ready", "program": program});
    fs::write(dir.path().join("llama.cpp.json"), told.to_string()).unwrap();
    let runner = || {
        let config = ProcessConfig { engines_dir: dir.path().to_owned(), runtime_dir: dir.path().join("run"), log_dir: dir.path().join("logs") };
        ProcessEngines::new(config, Changes::new()).unwrap()
    };
    let generation = GenerationId::random();
    let plan = ReplicaPlan {
        replica: ReplicaId::new("tiny-0").unwrap(),
        generation: generation.clone(),
        engine: EngineKind::LlamaCpp,
        served_name: "tiny".to_owned(),
        model_path: "/data/models/tiny.gguf".into(),
        context: Tokens(4096),
        slots: 1,
        gpus: Vec::new(),
        device_minors: Vec::new(),
        extra_args: Vec::new(),
        trust_remote_code: false,
    };
    let first = runner();
    let launch = first.start(&plan).await.unwrap();
    let leader = Ended(launch.launch.split('/').nth(1).unwrap().parse().unwrap());
    let begin = Instant::now();
    let survivor = loop {
        if let Some(pid) = fs::read_to_string(&left).ok().and_then(|text| text.trim().parse().ok()) {
            break Ended(pid);
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "the program was not started");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let found = runner().running().await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].generation.as_ref(), &found[0].launch), (Some(&generation), &launch), "what lives is found with its attempt");

    kill(Pid::from_raw(leader.0), Signal::SIGKILL).unwrap();
    let begin = Instant::now();
    let next = runner();
    while !next.running().await.unwrap().is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(5), "the dead engine counts as one that runs, or holds everything up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(begin.elapsed() < Duration::from_secs(5), "it was waited for");
    assert!(fs::read_to_string(format!("/proc/{}/comm", survivor.0)).is_ok(), "the survivor was gone already, so this shows nothing");

    // Cleared beside it, with the last means.
    let begin = Instant::now();
    while dir.path().join("run/tiny-0.launch.json").exists() {
        assert!(begin.elapsed() < Duration::from_secs(30), "nothing cleared it");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
