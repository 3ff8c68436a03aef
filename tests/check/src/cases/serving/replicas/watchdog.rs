//! Engines that die, fall silent or hang, and how often they are started again.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::bench::{Bench, LOAD, all_run, children, launches, pid_of, signal};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Waits until another launch answers, and for the incident of the one before.
fn restarted(bench: &Bench, id: &str, before: &Value, incidents: usize) -> Result<Value, String> {
    let old = launches(before);
    bench.until(id, "started again", LOAD, |model| all_run(model, 1) && launches(model) != old && kept(model).len() >= incidents)
}

fn kept(model: &Value) -> Vec<Value> {
    model["state"]["incidents"].as_array().cloned().unwrap_or_default()
}

/// The newest incident has this code, and its evidence lies where it says.
fn expect_incident(bench: &Bench, model: &Value, codes: &[&str], result: &mut CaseResult) {
    let incident = kept(model).first().cloned().unwrap_or_default();
    let code = incident["reason"]["code"].as_str().unwrap_or_default().to_owned();
    result.expect(codes.contains(&code.as_str()), format!("the incident is told as {code}: {}", incident["reason"]["message"]));
    let folder = bench.agent.home().join("state").join(incident["evidence"].as_str().unwrap_or("nothing"));
    let log = std::fs::metadata(folder.join("engine.log")).map_or(0, |about| about.len());
    result.expect(log > 0 && folder.join("report.json").is_file(), format!("evidence was kept ({log} bytes of its log)"));
}

/// The genuine engine ends with exit status 0 when it gets SIGTERM; nobody of ours sent one.
pub fn exit_zero(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::start(stage, task, "", "restart_pause_s = 1\n")?;
    let (id, model) = bench.serve("tiny", 1)?;
    signal(pid_of(&model)?, Signal::SIGTERM)?;
    let failed = bench.until(&id, "told as dead", Duration::from_secs(10), |now| now["status"] == "failed")?;
    result
        .expect(failed["state"]["reason"]["code"] == "engine_stopped", format!("an end nobody asked for is a crash: {}", failed["state"]["reason"]));
    let again = restarted(&bench, &id, &model, 1)?;
    expect_incident(&bench, &again, &["engine_stopped"], result);
    let page = bench.console.page(&format!("/ui/models/{id}"))?;
    let evidence = kept(&again)[0]["evidence"].as_str().unwrap_or("nothing").to_owned();
    result.expect(page.contains(&evidence), "the model's page names what was kept");
    bench.end(&[&id], result)
}

/// The wrapper lives on after its engine died; and an engine that somebody stopped is no running one either.
pub fn core_dead(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let faults = "*\" --alias wrapped \"*) ENGINE \"$@\" & wait $!; while :; do sleep 1; done;;\n";
    let bench = Bench::start(stage, task, faults, "silent_after_s = 3\nrestart_pause_s = 0.5\n")?;
    let (id, model) = bench.serve("wrapped", 1)?;
    let wrapper = pid_of(&model)?;
    let core = children(wrapper).first().copied().ok_or("the wrapper has no engine")?;
    signal(core, Signal::SIGKILL)?;
    let begin = Instant::now();
    let again = restarted(&bench, &id, &model, 1)?;
    result.figure("core_dead_back_s", begin.elapsed().as_secs_f64());
    expect_incident(&bench, &again, &["engine_silent"], result);
    result.expect(!std::path::Path::new(&format!("/proc/{wrapper}")).exists(), "the wrapper that lived on was ended");

    let (stopped, model) = bench.serve("tiny", 1)?;
    signal(pid_of(&model)?, Signal::SIGSTOP)?;
    let back = restarted(&bench, &stopped, &model, 1)?;
    expect_incident(&bench, &back, &["engine_silent"], result);
    bench.end(&[&id, &stopped], result)
}

/// Requests without a token and without any work are a hang; a long prompt that is computed is none.
pub fn hang(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let faults = "*\" --alias hang \"*|*\" --alias prompt \"*) exec FAULTY \"$@\";;\n";
    let bench = Bench::start(stage, task, faults, "hang_after_s = 3\nrestart_pause_s = 0.5\n")?;
    let (_, key) = bench.console.make_key("hang")?;
    let (prompt, model) = bench.serve("prompt", 1)?;
    let begin = Instant::now();
    let answer = bench.console.chat(&key, "prompt", "A very long prompt.");
    result.expect(answer.is_ok(), format!("a prompt that is computed for three times the limit is answered ({})", answer.err().unwrap_or_default()));
    result.figure("prompt_s", begin.elapsed().as_secs_f64());
    let now = bench.console.model(&prompt)?;
    result.expect(launches(&now) == launches(&model) && kept(&now).is_empty(), "its engine was left alone");
    bench.console.unload(&prompt)?;

    let (hang, model) = bench.serve("hang", 1)?;
    std::thread::sleep(Duration::from_secs(5));
    let now = bench.console.model(&hang)?;
    result.expect(launches(&now) == launches(&model), "without requests an engine that does nothing is left alone");
    let (console, key) = (bench.console.clone(), key.clone());
    let begin = Instant::now();
    let asking = std::thread::spawn(move || console.chat(&key, "hang", "Anybody?"));
    let again = restarted(&bench, &hang, &model, 1)?;
    result.figure("hang_back_s", begin.elapsed().as_secs_f64());
    expect_incident(&bench, &again, &["engine_hangs"], result);
    // The client's request may be tried on the new engine, which hangs as well: it is not waited for.
    drop(asking);
    bench.end(&[&hang, &prompt], result)
}

/// What is used up stays down and says so; a load by hand that comes up gives it back.
pub fn budget(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::start(stage, task, "", "restarts = 2\nrestart_pause_s = 0.3\n")?;
    let (id, mut model) = bench.serve("tiny", 1)?;
    for number in 1..=2 {
        signal(pid_of(&model)?, Signal::SIGKILL)?;
        model = restarted(&bench, &id, &model, number)?;
    }
    result.expect(true, "it was started again twice");
    signal(pid_of(&model)?, Signal::SIGKILL)?;
    let failed = bench.until(&id, "given up", Duration::from_secs(20), |now| now["state"]["reason"]["code"] == "restarts_used_up")?;
    let message = failed["state"]["reason"]["message"].as_str().unwrap_or_default().to_owned();
    result.expect(message.contains("2 times"), format!("it says so: {message}"));
    std::thread::sleep(Duration::from_secs(4));
    let still = bench.console.model(&id)?;
    result.expect(still["status"] == "failed" && bench.agent.engines().is_empty(), "it stays failed, and nothing runs");

    bench.console.load(&id)?;
    let model = bench.until(&id, "running by hand", LOAD, |model| all_run(model, 1))?;
    signal(pid_of(&model)?, Signal::SIGKILL)?;
    restarted(&bench, &id, &model, 1)?;
    result.expect(true, "after a load by hand that came up it is started again by itself");
    bench.end(&[&id], result)
}
