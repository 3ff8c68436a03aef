//! The gateway's figures beside other gateways: the agent of the image's own form, with its data on disk, a key, a schedule and accounts,
//! before an engine that does nothing (`warden-bench`, which measures). See tests/bench.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use warden_fixtures::TinyModel;

use super::super::{Case, Tier, case};
use crate::agent::{AgentSetup, AgentUnderTest};
use crate::command;
use crate::console::Console;
use crate::log::CaseLog;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// The cases of this group.
pub const CASES: &[Case] = &[case("bench", Tier::Host, run)];

/// The model's name for clients. Its engine is spoken to like those of the other gateways, vLLM.
const MODEL: &str = "bench";
/// The same for llama.cpp, which is asked for a stream whatever the client wants: what that costs is told beside.
const COLLECTED: &str = "bench-collected";
/// A release build of the agent from nothing, on a busy machine.
const BUILD: Duration = Duration::from_secs(3600);
/// The measurement.
const MEASURE: Duration = Duration::from_secs(3600);

fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let (agent_program, bench) = (built(stage, "warden-agent", &task.log)?, built(stage, "warden-bench", &task.log)?);
    let peers = peers(stage, &task.log)?;
    let program = fs::read(&agent_program).map_err(|e| format!("{}: {e}", agent_program.display()))?;
    let hash = hex::encode(Sha256::digest(&program));
    let repetitions = repetitions(stage)?;
    #[allow(clippy::cast_precision_loss, reason = "a small whole number")]
    result.figure("repetitions", repetitions as f64);

    let mut agent = AgentUnderTest::start(AgentSetup::dev(agent_program, PathBuf::new()), &task.log)?;
    for (kind, program) in [("vllm", "vllm"), ("llama.cpp", "llama-server")] {
        engine(&agent, &bench, kind, program)?;
    }
    let console = agent.claimed()?;
    let folder = agent.model_path("bench");
    TinyModel::default().write_folder(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let (id, _) = console.serve("bench", MODEL, Duration::from_secs(60))?;
    stage.write_tiny_model(&agent.model_path("bench.gguf"))?;
    console.serve("bench.gguf", COLLECTED, Duration::from_secs(60))?;
    let (_, key) = console.make_key("bench")?;
    let key_file = agent.home().join("bench.key");
    fs::write(&key_file, key).and_then(|()| fs::set_permissions(&key_file, fs::Permissions::from_mode(0o600))).map_err(|e| e.to_string())?;
    // What the setup needed is over before memory is looked at.
    std::thread::sleep(Duration::from_secs(5));

    let report = stage.places.evidence.join("bench-gateway.json");
    let mut measure = Command::new(&bench);
    measure.args(["gateway", "--agent", &format!("127.0.0.1:{}", agent.port()), "--agent-pid", &agent.process()?.pid().to_string()]);
    measure.args(["--agent-sha256", &hash, "--model", MODEL, "--collected-model", COLLECTED, "--repetitions", &repetitions.to_string()]);
    measure.arg("--key-file").arg(&key_file).arg("--peers").arg(&peers).arg("--report").arg(&report);
    let told = command::run_ok("measuring", measure, MEASURE, &task.log)?;
    told.output.iter().for_each(|line| println!("{line}"));
    let text = fs::read_to_string(&report).map_err(|e| format!("{}: {e}", report.display()))?;
    judge(&serde_json::from_str(&text).map_err(|e| format!("{}: {e}", report.display()))?, result);
    result.note(format!("agent {hash}; the whole report is {}", report.display()));

    counters(&console, &id, result)?;
    result.expect(!agent.said().contains("panicked"), "the agent's log shows no panic");
    let code = agent.stop(Duration::from_secs(40))?;
    result.expect(code == Some(0) && agent.engines().is_empty(), format!("the agent ends cleanly and leaves no engine (exit code {code:?})"));
    Ok(())
}

/// Everything in the report that decides something.
fn judge(report: &Value, result: &mut CaseResult) {
    for (name, value) in report["thresholds"].as_object().into_iter().flatten() {
        if let Some(value) = value.as_f64() {
            result.figure(name, value);
        }
    }
    for expectation in report["expectations"].as_array().into_iter().flatten() {
        result.expect(expectation["holds"] == true, expectation["says"].as_str().unwrap_or_default());
    }
    for void in report["void"].as_array().into_iter().flatten() {
        result.note(format!("void: {}", void.as_str().unwrap_or_default()));
    }
    let measured: Vec<&str> = ["vllm-router", "smg", "litellm"].into_iter().filter(|peer| report["peers"][peer].is_string()).collect();
    result.expect(measured.len() == 3, format!("measured beside {}", measured.join(", ")));
    result.note(format!("machine: {}, {:.0} ms for a fixed sum", report["machine"], report["machine_speed_ms"].as_f64().unwrap_or_default()));
    result.note(format!("clients that left: {}", report["left"]));
}

/// After all those clients that left, nothing is counted as running or waiting.
fn counters(console: &Console, id: &str, result: &mut CaseResult) -> Result<(), String> {
    let until = Instant::now() + Duration::from_secs(15);
    loop {
        let seen = console.expect("GET", &format!("/api/models/{id}/dp-routing"), None, &[200])?.json();
        let rank = &seen["ranks"][0];
        let counts = [&seen["totals"]["in_flight"], &seen["queue"]["waiting"], &rank["in_flight"], &rank["lingering"], &rank["requests_running"]];
        let zero = counts.iter().all(|count| count.as_u64() == Some(0));
        if zero || Instant::now() > until {
            result.expect(
                zero,
                format!("after all clients left every counter is at zero (in flight, waiting, on the replica, lingering, in the engine: {counts:?})"),
            );
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(250));
    }
}

/// A program in the form in which it is measured.
fn built(stage: &Stage, package: &str, log: &CaseLog) -> Result<PathBuf, String> {
    let mut cargo = stage.in_tree("cargo");
    cargo.args(["build", "--release", "--quiet", "-p", package]);
    command::run_ok(&format!("building {package} for the measurement"), cargo, BUILD, log)?;
    Ok(stage.places.root.join("target/release").join(package))
}

/// The folder in which the other gateways are installed.
fn peers(stage: &Stage, log: &CaseLog) -> Result<PathBuf, String> {
    let installed = command::run_ok("installing the other gateways", stage.in_tree("tests/bench/peers.sh"), Duration::from_secs(1800), log)?;
    installed.output.last().map(PathBuf::from).ok_or_else(|| "tests/bench/peers.sh told no folder".to_owned())
}

/// The agent's own runner starts the engine that does nothing.
fn engine(agent: &AgentUnderTest, bench: &Path, kind: &str, program: &str) -> Result<(), String> {
    let script = agent.home().join(program);
    let ready = json!({"engine": kind, "version": "bench", "state": "ready", "program": script});
    fs::write(&script, format!("#!/bin/sh\nexec {} engine \"$@\"\n", bench.display()))
        .and_then(|()| fs::set_permissions(&script, fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::write(agent.home().join(format!("engines/{kind}.json")), ready.to_string()))
        .map_err(|e| format!("{}: {e}", script.display()))
}

/// How often, as the list says.
fn repetitions(stage: &Stage) -> Result<u64, String> {
    let path = stage.places.accept("dialects");
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let list = crate::list::parse(&path.display().to_string(), &text).map_err(|e| e.to_string())?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small whole number")]
    list.thresholds.get("repetitions").map(|n| *n as u64).ok_or_else(|| "the list says no repetitions".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_without_a_peer_fails_and_its_figures_are_kept() {
        let report = json!({"thresholds": {"chat_1k_us": 40.5}, "expectations": [{"holds": true, "says": "below"}], "void": ["round 2"],
            "peers": {"smg": "1", "vllm-router": "2"}});
        let mut result = CaseResult::new("x.log");
        judge(&report, &mut result);
        assert!(!result.passed && result.headline().contains("measured beside"), "{result:?}");
        assert_eq!(result.figures["chat_1k_us"], 40.5);
    }
}
