//! Nothing of the agent's own environment reaches an engine: a real child of the process runner, asked through /proc.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests: what they need and do not get fails the test")]

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use warden_domain::{
    change::Changes,
    engine::{EngineKind, Engines, Launch, ReplicaPlan},
    ids::{GenerationId, GpuId, ReplicaId},
    units::Tokens,
};
use warden_engines::{ProcessConfig, ProcessEngines};

/// Set only in the process that stands for an agent with a hostile environment.
const MARK: &str = "WARDEN_TEST_HOSTILE";

/// What an agent may have around it and an engine must not get.
const HOSTILE: &[(&str, &str)] = &[
    ("LD_LIBRARY_PATH", "/nonexistent/lib"),
    ("LD_PRELOAD", "/nonexistent/evil.so"),
    ("HF_TOKEN", "hf_secret"),
    ("HF_HUB_OFFLINE", "0"),
    ("PYTHONPATH", "/nonexistent/python"),
    ("PYTHONSTARTUP", "/nonexistent/start.py"),
    ("LLAMA_ARG_HOST", "0.0.0.0"),
    ("LLAMA_API_KEY", "sk-secret"),
    ("VLLM_API_KEY", "sk-secret"),
    ("VLLM_PLUGINS", "evil"),
    ("CUDA_VISIBLE_DEVICES", "7"),
    ("GGML_BACKEND_PATH", "/nonexistent/evil.so"),
    ("PATH", "/nonexistent/bin:/usr/bin:/bin"),
];

/// All that may stand in the environment of an engine on a dev machine.
const ALLOWED: &[&str] = &[
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "HF_HUB_OFFLINE",
    "HOME",
    "OMP_WAIT_POLICY",
    "PYTHONUNBUFFERED",
    "TRANSFORMERS_OFFLINE",
    "VLLM_CACHE_ROOT",
    "VLLM_CPU_KVCACHE_SPACE",
    "VLLM_HOST_IP",
    "VLLM_NO_USAGE_STATS",
];

#[test]
fn nothing_of_the_agents_environment_reaches_an_engine() {
    // Another process, because the environment of this one must not be changed while threads run.
    let mut agent = Command::new(std::env::current_exe().unwrap());
    agent.args(["--exact", "an_engine_of_an_agent_with_a_hostile_environment", "--nocapture"]).envs(HOSTILE.iter().copied()).env(MARK, "1");
    // The loader would complain about a library that is not there; an empty one is taken without a word.
    agent.env("LD_PRELOAD", "");
    let said = agent.output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success() && text.contains("both engines looked at"), "{text}");
}

/// Runs only as a child of the test above.
#[tokio::test]
async fn an_engine_of_an_agent_with_a_hostile_environment() {
    if std::env::var_os(MARK).is_none() {
        return;
    }
    assert_eq!(std::env::var("HF_TOKEN").unwrap(), "hf_secret", "the agent itself has it");
    let dir = tempfile::tempdir().unwrap();
    // A program that stays and does nothing, whatever it is told. A shell shows the environment that it was started with.
    let program = dir.path().join("engine");
    fs::write(&program, "#!/bin/sh\nwhile :; do sleep 1; done\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    for engine in ["llama.cpp", "vllm"] {
        let text = serde_json::json!({"engine": engine, "version": "1", "state": "ready", "program": program});
        fs::write(dir.path().join(format!("{engine}.json")), text.to_string()).unwrap();
    }
    let config = ProcessConfig { engines_dir: dir.path().to_owned(), runtime_dir: dir.path().join("run"), log_dir: dir.path().join("logs") };
    let engines = ProcessEngines::new(config, Changes::new()).unwrap();
    for engine in [EngineKind::LlamaCpp, EngineKind::Vllm] {
        for gpus in [Vec::new(), vec![GpuId::from_stored("GPU-1")]] {
            let launch = engines.start(&plan(engine, gpus.clone())).await.unwrap();
            let _ended = Ended::of(&launch);
            let environment = environment_of(&launch).await;
            engines.stop(&launch.replica).await.unwrap();
            for (name, value) in &environment {
                assert!(ALLOWED.contains(&name.as_str()), "{engine:?} got {name}={value}");
            }
            for (name, hostile) in HOSTILE {
                assert!(environment.get(*name).is_none_or(|value| value != hostile), "{engine:?} got {name} of the agent");
            }
            let shown = gpus.iter().map(GpuId::as_str).collect::<String>();
            assert_eq!(environment["CUDA_VISIBLE_DEVICES"], shown);
        }
    }
    println!("both engines looked at");
}

fn plan(engine: EngineKind, gpus: Vec<GpuId>) -> ReplicaPlan {
    ReplicaPlan {
        replica: ReplicaId::new("tiny-0").unwrap(),
        generation: GenerationId::random(),
        engine,
        served_name: "tiny".to_owned(),
        model_path: "/data/models/tiny".into(),
        context: Tokens(4096),
        slots: 1,
        gpus,
        extra_args: Vec::new(),
        device_minors: Vec::new(),
        trust_remote_code: false,
    }
}

/// The environment that a launched process was started with. Between fork and exec it is still that of the agent.
async fn environment_of(launch: &Launch) -> BTreeMap<String, String> {
    let pid = launch.launch.split('/').nth(1).unwrap();
    let begin = Instant::now();
    while !fs::read(Path::new("/proc").join(pid).join("cmdline")).is_ok_and(|line| line.starts_with(b"/bin/sh\0")) {
        assert!(begin.elapsed() < Duration::from_secs(20), "the program was not started");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let bytes = fs::read(Path::new("/proc").join(pid).join("environ")).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    text.split('\0').filter_map(|entry| entry.split_once('=')).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
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
