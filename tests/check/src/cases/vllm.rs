//! The cases of the list `vllm`: a genuine vLLM for processors behind a real agent, with the tiny model as a folder of safetensors.
//!
//! Too heavy for every run: `make check-vllm` installs the engine first and then runs this list alone.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use warden_fixtures::TinyModel;

use super::{Case, Tier, case};
use crate::agent::{AgentSetup, AgentUnderTest, processes_naming};
use crate::console::{Console, launch_identity, state_word};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// The cases.
pub const CASES: &[Case] = &[
    case("vllm-answers", Tier::Host, answers),
    case("vllm-core-killed", Tier::Host, core_killed),
    case("vllm-bad-context", Tier::Host, bad_context),
];

const NAME: &str = "tiny-vllm";
/// On two cores that do something else besides, a start takes some minutes.
const LOAD: Duration = Duration::from_secs(600);
const STOP: Duration = Duration::from_secs(60);

/// A hostile environment of the agent; nothing of it may reach the engine.
const HOSTILE: &[(&str, &str)] =
    &[("HF_TOKEN", "hf_secret"), ("PYTHONPATH", "/nonexistent"), ("VLLM_API_KEY", "sk-secret"), ("VLLM_PLUGINS", "none")];

fn answers(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let (mut agent, console, id) = registered(stage, task)?;
    let model = console.model(&id)?;
    result.expect(model["backend"] == "vllm", format!("a folder of safetensors is registered for {}", model["backend"]));
    let asked = Instant::now();
    console.load(&id)?;
    let (model, phases) = watched(&console, &id)?;
    result.figure("load_s", asked.elapsed().as_secs_f64());
    result.expect(state_word(&model) == "running", format!("it loads: {}", model["state"]["reason"]));
    let named = |name: &str| phases.iter().position(|(phase, _)| phase == name);
    let order = [named("start"), named("weights"), named("kv_cache"), named("warmup")];
    let shown: Vec<&str> = phases.iter().map(|(phase, _)| phase.as_str()).collect();
    result.note(format!("phases seen: {}", shown.join(", ")));
    // The shortest ones may pass between two looks.
    let seen: Vec<usize> = order.iter().flatten().copied().collect();
    result.expect(named("start").is_some() && seen.len() > 1 && seen.is_sorted(), "its phases follow each other from the start on");
    result.expect(model["state"]["context"] == 4096, format!("it tells its window: {} tokens", model["state"]["context"]));
    closed_environment(&agent, result);

    let (_, key) = console.make_key("vllm")?;
    let streamed = console.chat_stream(&key, NAME, "Say something.", 24)?;
    result.expect(
        streamed.status == 200 && streamed.done && streamed.moments > 1 && !streamed.text.is_empty(),
        format!("it streams an answer in {} events over {} moments: {}", streamed.events, streamed.moments, streamed.other),
    );
    let used = streamed.usage["completion_tokens"].as_u64();
    result.expect(used == Some(24), format!("with its usage ({used:?} tokens)"));
    stopped(&mut agent, &console, &id, result)
}

fn core_killed(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let (mut agent, console, id) = registered(stage, task)?;
    console.load(&id)?;
    let (model, _) = watched(&console, &id)?;
    let before = launch_identity(&model).map(str::to_owned);
    let server = *engines(&agent).first().ok_or("no engine runs")?;
    let core = below(server).into_iter().find(|pid| said(*pid).contains("EngineCore")).ok_or("the engine has no process that computes")?;
    task.log.line(format!("kill -9 of the process that computes, {core}"));
    kill(Pid::from_raw(core), Signal::SIGKILL).map_err(|e| format!("kill: {e}"))?;
    let told = told_within(&console, &id, before.as_deref(), Duration::from_secs(60))?;
    result.expect(told.contains("that computes died") || told.contains("was killed"), format!("its death is seen and told: {told}"));
    stopped(&mut agent, &console, &id, result)
}

/// The folder's description says less than it did when it was registered.
fn bad_context(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let (mut agent, console, id) = registered(stage, task)?;
    let path = agent.model_path("tiny").join("config.json");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut config: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    config["max_position_embeddings"] = json!(1024);
    std::fs::write(&path, config.to_string()).map_err(|e| e.to_string())?;
    console.load(&id)?;
    let told = told_within(&console, &id, None, LOAD)?;
    result.expect(
        told.contains("longer than the model can take") && told.contains("1024 tokens or less"),
        format!("the failed start is explained: {told}"),
    );
    stopped(&mut agent, &console, &id, result)
}

/// An agent with vLLM as its only engine, and the tiny model registered.
fn registered(stage: &mut Stage, task: &Task) -> Result<(AgentUnderTest, Console, String), String> {
    let status = stage.places.cache.join("engines/vllm.json");
    let text = std::fs::read_to_string(&status).map_err(|e| format!("{}: {e}; run `make vllm`", status.display()))?;
    let program = stage.agent_program(&task.log)?;
    let mut setup = AgentSetup::dev(program, PathBuf::new());
    setup.engine = None;
    setup.environment = HOSTILE.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let mut agent = AgentUnderTest::prepare(setup, &task.log)?;
    std::fs::write(agent.home().join("engines/vllm.json"), text).map_err(|e| e.to_string())?;
    let folder = agent.model_path("tiny");
    TinyModel::default().write_folder(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    agent.launch()?;
    agent.wait_healthy(Duration::from_secs(60))?;
    let console = agent.claimed()?;
    let id = console.register("tiny", NAME)?;
    Ok((agent, console, id))
}

/// Looks until it runs or failed; the phases in the order in which they were seen.
fn watched(console: &Console, id: &str) -> Result<(Value, Vec<(String, Value)>), String> {
    let until = Instant::now() + LOAD;
    let mut phases: Vec<(String, Value)> = Vec::new();
    loop {
        let model = console.model(id)?;
        if let Some(phase) = model["state"]["phase"].as_str()
            && phases.last().is_none_or(|(last, _)| last != phase)
        {
            phases.push((phase.to_owned(), model["state"]["last_log_line"].clone()));
        }
        match state_word(&model) {
            "running" | "failed" => return Ok((model, phases)),
            _ if Instant::now() > until => return Err(format!("it neither runs nor failed within {} s: {}", LOAD.as_secs(), model["state"])),
            _ => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// The sentence of a death or a failed start: the model's reason, or the newest incident when it is being loaded again already.
fn told_within(console: &Console, id: &str, before: Option<&str>, limit: Duration) -> Result<String, String> {
    let until = Instant::now() + limit;
    loop {
        let model = console.model(id)?;
        let state = &model["state"];
        let incident = &state["incidents"][0]["reason"];
        let reason = if incident.is_null() { &state["reason"] } else { incident };
        let other = state_word(&model) != "running" || launch_identity(&model) != before;
        if other && let Some(message) = reason["message"].as_str() {
            return Ok(format!("{message} {}", reason["hint"].as_str().unwrap_or_default()));
        }
        if Instant::now() > until {
            return Err(format!("nothing was told within {} s: {state}", limit.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The server's own environment; a process that gave itself another title has none to show.
fn closed_environment(agent: &AgentUnderTest, result: &mut CaseResult) {
    let servers = engines(agent);
    result.expect(servers.len() == 1, format!("one server runs ({servers:?})"));
    for pid in servers.iter().copied().chain(servers.iter().flat_map(|pid| below(*pid))) {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let text = String::from_utf8_lossy(&environment).into_owned();
        let leaked: Vec<&str> = HOSTILE.iter().filter(|(name, value)| text.contains(&format!("{name}={value}"))).map(|(name, _)| *name).collect();
        result.expect(leaked.is_empty(), format!("nothing of the agent's environment is in {} (leaked: {leaked:?})", said(pid)));
        if servers.contains(&pid) {
            result.expect(text.contains("HF_HUB_OFFLINE=1") && text.contains("VLLM_NO_USAGE_STATS=1"), "it fetches nothing and reports nothing");
        }
    }
}

fn stopped(agent: &mut AgentUnderTest, console: &Console, id: &str, result: &mut CaseResult) -> Result<(), String> {
    let family: Vec<i32> = engines(agent).into_iter().flat_map(|pid| std::iter::once(pid).chain(below(pid)).collect::<Vec<_>>()).collect();
    console.unload(id)?;
    console.wait_state(id, &["stopped", "failed"], STOP)?;
    let code = agent.stop(Duration::from_secs(60))?;
    let left: Vec<String> =
        family.into_iter().filter(|pid| Path::new(&format!("/proc/{pid}/exe")).exists()).map(said).filter(|s| !s.is_empty()).collect();
    result.expect(code == Some(0) && left.is_empty() && agent.engines().is_empty(), format!("nothing is left behind (left: {left:?})"));
    Ok(())
}

/// The servers of vLLM that were told this agent's folder.
fn engines(agent: &AgentUnderTest) -> Vec<i32> {
    processes_naming(agent.home()).into_iter().filter(|pid| line_of(*pid).contains(" --uds ")).collect()
}

/// Every process below one.
fn below(pid: i32) -> Vec<i32> {
    let mut all = Vec::new();
    let mut open = vec![pid];
    while let Some(parent) = open.pop() {
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        // Children may have been started by any thread.
        let threads = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        let of_threads: String = threads.map(|thread| std::fs::read_to_string(thread.path().join("children")).unwrap_or_default()).collect();
        for child in children.split_whitespace().chain(of_threads.split_whitespace()).filter_map(|word| word.parse::<i32>().ok()) {
            if !all.contains(&child) {
                all.push(child);
                open.push(child);
            }
        }
    }
    all
}

/// The beginning of a process's command line; empty when it is gone.
fn said(pid: i32) -> String {
    line_of(pid).chars().take(120).collect()
}

fn line_of(pid: i32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ").trim().to_owned()
}
