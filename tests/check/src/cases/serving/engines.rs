//! Engine adapters: command lines, environments, phases and root causes, against recorded logs and real engines.
//!
//! What is pure is shown by the room's own tests, run by name; a name that no test has fails the case. What reaches an engine is read from
//! the process of a genuine llama.cpp that a real agent started.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::super::{Case, Tier, case};
use crate::agent::{AgentSetup, AgentUnderTest};
use crate::command;
use crate::console::Console;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// The cases of this room.
pub const CASES: &[Case] = &[
    case("phases-recorded", Tier::Host, phases_recorded),
    case("diagnosis", Tier::Host, diagnosis),
    case("argv-golden", Tier::Host, argv_golden),
    case("env-closed", Tier::Host, env_closed),
];

/// A crate, a test target of it (`--lib`, `--bins`, `--test=name`), and the names of tests in it.
type Named = (&'static str, &'static str, &'static [&'static str]);

const PHASES: &[Named] = &[(
    "warden-engines",
    "--lib",
    &[
        "llama::phases::tests::a_recorded_start_goes_through_the_phases_in_order",
        "llama::phases::tests::a_start_that_fits_itself_first_tells_of_it",
        "llama::phases::tests::recorded_failures_stop_in_the_phase_in_which_they_failed",
        "llama::phases::tests::a_chat_template_that_quotes_the_log_changes_nothing",
        "llama::memory::tests::two_stores_of_tokens_on_one_device_add_up",
        "llama::memory::tests::what_a_look_for_a_fit_told_is_not_counted_twice",
        "vllm::phases::tests::recorded_starts_go_through_the_phases_in_order",
        "vllm::phases::tests::recorded_failures_stop_in_the_phase_in_which_they_failed",
        "vllm::phases::tests::parts_of_shards_and_graphs_are_counted",
        "vllm::phases::tests::words_of_a_prompt_or_template_are_no_phase",
        "log::tests::a_bar_that_draws_over_itself_is_read_as_it_stands",
    ],
)];

const DIAGNOSIS: &[Named] = &[(
    "warden-engines",
    "--lib",
    &[
        "llama::causes::tests::each_recorded_failure_is_told_by_its_own_cause",
        "llama::causes::tests::which_memory_was_short_is_said",
        "llama::causes::tests::memory_outweighs_what_follows_from_it",
        "llama::causes::tests::words_of_a_prompt_or_template_are_no_cause",
        "vllm::causes::tests::each_recorded_failure_is_told_by_its_own_cause",
        "vllm::causes::tests::each_failure_of_the_source_is_told_by_its_own_cause",
        "vllm::causes::tests::an_echo_never_hides_the_cause",
        "vllm::causes::tests::a_start_or_a_stop_that_went_well_has_no_cause",
        "vllm::causes::tests::words_of_a_prompt_or_template_are_no_cause",
        "verdict::tests::a_killed_engine_is_told_as_killed_whatever_its_log_holds",
        "verdict::tests::a_server_that_ends_well_because_its_engine_died_is_no_stop",
        "systemd::unit::tests::deaths_are_told_apart",
    ],
)];

const ARGV: &[Named] = &[
    (
        "warden-engines",
        "--lib",
        &[
            "adapter::tests::command_lines_and_environments_change_only_on_purpose",
            "adapter::tests::the_boxs_own_flags_come_after_the_admins_and_are_never_the_admins",
            "systemd::spec::tests::specs_change_only_on_purpose",
            "extra::tests::flags_of_the_box_are_refused_in_every_spelling",
            "extra::tests::names_cut_short_are_refused_where_the_engine_takes_them",
            "extra::tests::what_is_the_admins_passes",
            "extra::tests::each_refused_argument_gets_its_own_sentence",
        ],
    ),
    ("warden-launch", "--bins", &["spec::tests::every_spec_that_the_agent_writes_is_taken"]),
];

const ENVIRONMENT: &[Named] = &[
    (
        "warden-engines",
        "--lib",
        &["adapter::tests::an_environment_holds_nothing_that_loads_code_or_names_a_secret", "adapter::tests::without_cards_an_engine_sees_none"],
    ),
    ("warden-engines", "--test=environment", &["nothing_of_the_agents_environment_reaches_an_engine"]),
];

/// What the agent has around it and an engine must not get. The library is one that any program may load.
const HOSTILE: &[(&str, &str)] = &[
    ("LD_PRELOAD", "libm.so.6"),
    ("LD_LIBRARY_PATH", "/nonexistent"),
    ("HF_TOKEN", "hf_secret"),
    ("PYTHONPATH", "/nonexistent"),
    ("PYTHONSTARTUP", "/nonexistent/start.py"),
    ("LLAMA_ARG_CTX_SIZE", "256"),
    ("LLAMA_ARG_API_KEY", "sk-secret"),
    ("LLAMA_ARG_NO_WARMUP", "1"),
    ("CUDA_VISIBLE_DEVICES", "7"),
];

/// All that a llama.cpp engine of a dev agent may have.
const ALLOWED: &[&str] = &["CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "HOME", "OMP_WAIT_POLICY"];

const TINY: &str = "tiny";
const LOAD: Duration = Duration::from_secs(60);

fn phases_recorded(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    named_tests(stage, task, result, PHASES)
}

fn diagnosis(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    named_tests(stage, task, result, DIAGNOSIS)
}

fn argv_golden(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    named_tests(stage, task, result, ARGV)?;
    let golden = stage.places.root.join("agent/engines/tests/golden/commands/llama-2-cpus-4-slots.txt");
    let golden = std::fs::read_to_string(&golden).map_err(|e| format!("{}: {e}", golden.display()))?;
    let expected: Vec<&str> = golden.lines().filter(|line| line.starts_with("--")).collect();
    let (mut agent, console) = agent(stage, task, &[])?;
    let (id, pid) = serving(stage, &agent, &console)?;
    refused_by_the_box(&console, result)?;
    let said = strings_of(pid, "cmdline")?;
    let flags: Vec<&str> = said.iter().map(String::as_str).filter(|word| word.starts_with("--")).collect();
    result.expect(flags == expected, format!("a genuine engine got the flags of the golden file and no other: {}", flags.join(" ")));
    let after = |flag: &str| said.windows(2).find(|pair| pair[0] == flag).map(|pair| pair[1].clone()).unwrap_or_default();
    let place = agent.home().display().to_string();
    result.expect(after("--model").starts_with(&place) && after("--alias") == TINY, "with the model's file and its name");
    result.expect(after("--host").starts_with(&place) && after("--host").ends_with(".sock"), "and a socket in the agent's folder, no port");
    unload(&mut agent, &console, &id, result)
}

/// A model with an argument that is the box's own is refused when it is registered, or at the latest when it is to be loaded.
fn refused_by_the_box(console: &Console, result: &mut CaseResult) -> Result<(), String> {
    let body = json!({"path": "tiny.gguf", "served_model_name": "other", "extra_args": ["--seed", "1", "--api_key=secret"]});
    let mut reply = console.call("POST", "/api/models", Some(&body))?;
    if reply.status == 201 {
        let id = reply.json()["id"].as_str().unwrap_or_default().to_owned();
        reply = console.call("POST", &format!("/api/models/{id}/load"), None)?;
    }
    let said = reply.json()["detail"]["message"].as_str().unwrap_or_default().to_owned();
    result.expect(
        reply.status == 422 && said.contains("--api-key"),
        format!("an argument that is the box's own is refused ({}): {said}", reply.status),
    );
    Ok(())
}

fn env_closed(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    named_tests(stage, task, result, ENVIRONMENT)?;
    let (mut agent, console) = agent(stage, task, HOSTILE)?;
    let (id, pid) = serving(stage, &agent, &console)?;
    let own = environment(i32::try_from(agent.process()?.pid()).map_err(|e| e.to_string())?)?;
    result.expect(HOSTILE.iter().all(|(name, value)| own.get(*name).is_some_and(|v| v == value)), "the agent itself has the hostile environment");
    let engine = environment(pid)?;
    let strange: Vec<&String> = engine.keys().filter(|name| !ALLOWED.contains(&name.as_str())).collect();
    result.expect(strange.is_empty(), format!("its engine has nothing but {ALLOWED:?} (besides: {strange:?})"));
    let leaked: Vec<&str> = HOSTILE.iter().filter(|(name, value)| engine.get(*name).is_some_and(|v| v == value)).map(|(name, _)| *name).collect();
    result.expect(leaked.is_empty(), format!("nothing of the agent's environment is in it (leaked: {leaked:?})"));
    let window = console.model(&id)?["state"]["context"].as_u64();
    result.expect(window == Some(4096), format!("a LLAMA_ARG_ of the agent did not change the engine (its window is {window:?} tokens)"));
    unload(&mut agent, &console, &id, result)
}

/// Runs tests by name and notes which ran.
fn named_tests(stage: &Stage, task: &Task, result: &mut CaseResult, all: &[Named]) -> Result<(), String> {
    for (package, target, names) in all {
        let mut cargo = stage.in_tree("cargo");
        cargo.args(["test", "--quiet", "-p", package, target, "--", "--exact", "--format=pretty"]).args(*names);
        let finished = command::run(cargo, Duration::from_secs(1800), &task.log)?;
        let missing: Vec<&str> = names.iter().copied().filter(|name| !finished.output.contains(&format!("test {name} ... ok"))).collect();
        result.expect(
            finished.ok() && missing.is_empty(),
            if missing.is_empty() && finished.ok() {
                format!("{package}: {} tests passed: {}", names.len(), names.join(", "))
            } else {
                format!("{package}: tests that failed or did not run: {missing:?}; last: {}", finished.tail(4))
            },
        );
    }
    Ok(())
}

fn agent(stage: &mut Stage, task: &Task, environment: &[(&str, &str)]) -> Result<(AgentUnderTest, Console), String> {
    let program = stage.agent_program(&task.log)?;
    let engine = stage.engine_program(&task.log)?;
    let mut setup = AgentSetup::dev(program, engine);
    setup.environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let mut agent = AgentUnderTest::start(setup, &task.log)?;
    let console = agent.claimed()?;
    Ok((agent, console))
}

/// Loads the tiny model; its id and the engine's process.
fn serving(stage: &Stage, agent: &AgentUnderTest, console: &Console) -> Result<(String, i32), String> {
    stage.write_tiny_model(&agent.model_path("tiny.gguf"))?;
    let id = console.register("tiny.gguf", TINY)?;
    console.load(&id)?;
    console.wait_state(&id, &["running"], LOAD)?;
    let engines: Vec<i32> = agent.engines();
    match engines.as_slice() {
        [pid] => Ok((id, *pid)),
        other => Err(format!("one engine was expected to run, not {other:?}")),
    }
}

fn unload(agent: &mut AgentUnderTest, console: &Console, id: &str, result: &mut CaseResult) -> Result<(), String> {
    console.unload(id)?;
    console.wait_state(id, &["stopped"], LOAD)?;
    let code = agent.stop(Duration::from_secs(40))?;
    result.expect(code == Some(0) && agent.engines().is_empty(), "agent and engine end cleanly");
    Ok(())
}

fn environment(pid: i32) -> Result<BTreeMap<String, String>, String> {
    let entries = strings_of(pid, "environ")?;
    Ok(entries.iter().filter_map(|entry| entry.split_once('=')).map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

fn strings_of(pid: i32, file: &str) -> Result<Vec<String>, String> {
    let path = Path::new("/proc").join(pid.to_string()).join(file);
    let bytes = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).split('\0').filter(|word| !word.is_empty()).map(str::to_owned).collect())
}
