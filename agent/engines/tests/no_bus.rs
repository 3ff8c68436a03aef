//! The appliance's runner on a machine whose system manager cannot or will not help: a sentence each time, never a crash.

use std::fs;

use warden_domain::{
    ProblemKind,
    change::Changes,
    engine::{EngineKind, Engines, Launch, Observation, PackState, ReplicaPlan},
    ids::{GenerationId, ReplicaId},
    replica::Endpoint,
    units::Tokens,
};
use warden_engines::{SystemdConfig, SystemdEngines};

#[tokio::test]
async fn without_a_usable_bus_every_verb_is_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let digest = "a".repeat(64);
    fs::write(dir.path().join(format!("{digest}.raw")), b"image").unwrap();
    fs::write(dir.path().join(format!("{digest}.json")), format!(r#"{{"engine":"llama.cpp","version":"b1","digest":"{digest}"}}"#)).unwrap();
    let folder = dir.path().to_owned();
    let engines = SystemdEngines::new(
        SystemdConfig { packs_dir: folder.clone(), launch_dir: folder.clone(), engine_runtime_dir: folder.clone() },
        Changes::new(),
    );
    assert_eq!(engines.packs().await[0].state, PackState::Ready);

    // A name no appliance uses: on a development machine with a system bus this must not meet a real unit.
    let replica = ReplicaId::new("test-without-a-bus-0").unwrap();
    let plan = ReplicaPlan {
        replica: replica.clone(),
        generation: GenerationId::random(),
        engine: EngineKind::LlamaCpp,
        served_name: "tiny".to_owned(),
        model_path: "/data/models/tiny.gguf".into(),
        context: Tokens(4096),
        slots: 1,
        gpus: Vec::new(),
        extra_args: Vec::new(),
        device_minors: Vec::new(),
        trust_remote_code: false,
    };
    let problem = engines.start(&plan).await.unwrap_err();
    assert_eq!(problem.kind, ProblemKind::SystemService, "{problem:?}");
    assert!(problem.hint.is_some() && problem.retry_after.is_some());

    // Nothing is claimed about a process that could not be looked at.
    let launch = Launch { replica, launch: "0".repeat(32), endpoint: Endpoint::Unix(folder.join("engine.sock")) };
    assert!(matches!(engines.observe(&launch).await, Observation::Starting(_) | Observation::Gone { .. }));
}

#[tokio::test]
async fn without_a_pack_a_start_says_what_to_install() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_owned();
    let engines = SystemdEngines::new(
        SystemdConfig { packs_dir: folder.join("none"), launch_dir: folder.clone(), engine_runtime_dir: folder.clone() },
        Changes::new(),
    );
    assert!(matches!(&engines.packs().await[0].state, PackState::Broken { message } if message.contains("Install")));
}
