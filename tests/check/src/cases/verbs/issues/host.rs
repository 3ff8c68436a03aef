//! Conditions of disks, models, engines and alerts: a real agent on this machine, with small disks in memory and the genuine engine.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::receiver::Receiver;
use super::small_disk::SmallDisk;
use super::watch::Watch;
use crate::agent::{AgentSetup, AgentUnderTest, free_port};
use crate::command;
use crate::console::Console;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

const NAME: &str = "watched";
/// What one look of all checks may cost in processor time, with the request that asks for it. The agent under test is a debug build.
const LOOK_S: f64 = 0.015;
/// Looks over which that is measured.
const LOOKS: u32 = 60;

/// Causes and cures each condition; returns the codes seen.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<BTreeSet<String>, String> {
    let home = tempfile::Builder::new().prefix("wardn").tempdir_in("/tmp").map_err(|e| format!("no temporary folder: {e}"))?;
    let data = SmallDisk::mount(&home.path().join("data"), 64, &task.log)?;
    let state = SmallDisk::mount(&home.path().join("state"), 48, &task.log)?;
    let setup = AgentSetup {
        home: Some(home.path().to_owned()),
        // A killed engine is to stay dead until somebody clicks.
        more: "[serving]\nrestarts = 0\n".to_owned(),
        ..AgentSetup::dev(stage.agent_program(&task.log)?, stage.engine_program(&task.log)?)
    };
    let mut agent = AgentUnderTest::start(setup, &task.log)?;
    let console = agent.claimed()?;
    let file = agent.model_path("watched.gguf");
    stage.write_tiny_model(&file)?;
    let id = console.register("watched.gguf", NAME)?;
    let mut watch = Watch::new(&console);

    let list = watch.look()?;
    result.expect(list["count"] == 0, format!("a box in order has no issue ({})", list["open"]));
    let because = list["unchecked"].to_string();
    result.expect(because.contains("unit_failed"), format!("what cannot be looked at on this machine is told as not checked: {because}"));

    // From here on messages have nowhere to go; by the end of the other conditions that is an issue of its own.
    let port = free_port()?;
    let away = json!({"enabled": true, "url": format!("http://127.0.0.1:{port}/"), "codes": ["model_failed"]});
    console.expect("PUT", "/api/alerts", Some(&away), &[200])?;
    console.expect("POST", "/api/alerts/test", None, &[202])?;

    disks(&mut watch, &data, &state, result)?;
    let image = empty_image(stage, task, home.path())?;
    watch.caused(result, "data_disk_missing", "data", || data.cover(&image), |_, _| data.uncover())?;
    engines(&mut watch, &mut agent, &id, result)?;
    model(&mut watch, &agent, &id, result)?;
    files(&mut watch, &file, &id, result)?;
    alerts(&mut watch, port, task, result)?;

    restart(&mut agent, &console, &file, &id, result)?;
    let seen = watch.seen.clone();
    result.figure("slowest_issue_look_s", watch.slowest_look_s);
    let cost = cost(&mut agent, &mut watch)?;
    result.figure("issue_look_cpu_s", cost);
    result.expect(cost > 0.0 && cost < LOOK_S, format!("one look of all checks costs {:.1} ms of processor time", cost * 1000.0));
    Ok(seen)
}

/// Processor time of the agent per look.
fn cost(agent: &mut AgentUnderTest, watch: &mut Watch<'_>) -> Result<f64, String> {
    let pid = agent.process()?.pid();
    let before = processor_seconds(pid)?;
    for _ in 0..LOOKS {
        watch.look()?;
    }
    Ok((processor_seconds(pid)? - before) / f64::from(LOOKS))
}

/// Processor time the threads of a process used until now, to the nanosecond; the coarse count of `stat` misses work this short.
fn processor_seconds(pid: u32) -> Result<f64, String> {
    let folder = format!("/proc/{pid}/task");
    let threads = std::fs::read_dir(&folder).map_err(|e| format!("{folder}: {e}"))?;
    let spent = threads.flatten().filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    Ok(spent.sum::<f64>() / 1e9)
}

fn disks(watch: &mut Watch<'_>, data: &SmallDisk, state: &SmallDisk, result: &mut CaseResult) -> Result<(), String> {
    watch.caused(result, "data_disk_nearly_full", "data", || data.leave_free(60), |_, _| data.empty())?;
    watch.caused(result, "data_disk_full", "data", || data.leave_free(5), |_, _| data.empty())?;
    watch.caused(result, "data_disk_read_only", "data", || data.read_only(true), |_, _| data.read_only(false))?;
    watch.caused(result, "state_disk_nearly_full", "state", || state.leave_free(70), |_, _| state.empty())
}

/// An image as the system's root is one, with nothing in it.
fn empty_image(stage: &mut Stage, task: &Task, home: &Path) -> Result<PathBuf, String> {
    let (images, places) = stage.images();
    let builder = images.builder(places, &task.log)?;
    let folder = home.join("image");
    std::fs::create_dir_all(folder.join("empty")).map_err(|e| format!("{}: {e}", folder.display()))?;
    let image = folder.join("empty.squashfs");
    let mut make = builder.command("mksquashfs", &[&folder]);
    make.arg(folder.join("empty")).arg(&image).args(["-noappend", "-quiet", "-no-progress"]);
    command::run_ok("making an empty image", make, Duration::from_secs(60), &task.log)?;
    Ok(image)
}

/// The engine's record goes away: first while a model is only registered, then, over a restart, while it is wanted.
fn engines(watch: &mut Watch<'_>, agent: &mut AgentUnderTest, id: &str, result: &mut CaseResult) -> Result<(), String> {
    let record = agent.home().join("engines/llama.cpp.json");
    let hidden = record.with_extension("hidden");
    let hide = || std::fs::rename(&record, &hidden).map_err(|e| format!("{}: {e}", record.display()));
    let show = |_: &Console, _: &Value| std::fs::rename(&hidden, &record).map_err(|e| format!("{}: {e}", hidden.display()));
    watch.caused(result, "engine_missing", "llama.cpp", hide, show)?;
    watch.console.load(id)?;
    watch.console.wait_state(id, &["running"], Duration::from_secs(60))?;
    let hide_and_restart = || {
        hide()?;
        agent.stop(Duration::from_secs(30))?;
        agent.launch()?;
        agent.wait_healthy(Duration::from_secs(30))
    };
    watch.caused(result, "model_waiting", id, hide_and_restart, show)?;
    watch.console.wait_state(id, &["running"], Duration::from_secs(60)).map(drop)
}

/// The engine is killed, and one click brings the model back.
fn model(watch: &mut Watch<'_>, agent: &AgentUnderTest, id: &str, result: &mut CaseResult) -> Result<(), String> {
    let kill_engine = || {
        let engines = agent.engines();
        if engines.is_empty() {
            return Err("no engine runs that could be killed".to_owned());
        }
        engines.into_iter().try_for_each(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL)).map_err(|e| format!("the engine cannot be killed: {e}"))
    };
    let click = |console: &Console, issue: &Value| {
        let issue = issue["id"].as_str().unwrap_or_default();
        console.expect("POST", &format!("/api/issues/{issue}/fix"), None, &[202])?;
        console.wait_state(id, &["running"], Duration::from_secs(60)).map(drop)
    };
    watch.caused(result, "model_failed", id, kill_engine, click)
}

fn files(watch: &mut Watch<'_>, file: &std::path::Path, id: &str, result: &mut CaseResult) -> Result<(), String> {
    let told = |e: std::io::Error| format!("{}: {e}", file.display());
    let length = std::fs::metadata(file).map_err(told)?.len();
    let resize = |length: u64| std::fs::OpenOptions::new().write(true).open(file).and_then(|f| f.set_len(length)).map_err(told);
    watch.caused(result, "model_file_changed", id, || resize(length + 1), |_, _| resize(length))?;
    let away = file.with_extension("away");
    let (take, back) = (|| std::fs::rename(file, &away).map_err(told), |_: &Console, _: &Value| std::fs::rename(&away, file).map_err(told));
    watch.caused(result, "model_file_missing", id, take, back)
}

/// A receiver that is away; it comes back and one click sends what waits.
fn alerts(watch: &mut Watch<'_>, port: u16, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let Some(issue) = watch.opened("alert_not_delivered", "webhook", Duration::from_secs(60))? else {
        result.expect(false, "messages that do not arrive become an issue");
        return Ok(());
    };
    result.expect(true, format!("alert_not_delivered: {}", issue["sentence"].as_str().unwrap_or_default()));
    let receiver = Receiver::start(port, 0, &task.log)?;
    let path = format!("/api/issues/{}/fix", issue["id"].as_str().unwrap_or_default());
    watch.console.expect("POST", &path, None, &[202])?;
    let came = receiver.wait(Duration::from_secs(20), |heard| heard.iter().any(|h| h.event == "test" && h.status == 200));
    let over = watch.over("alert_not_delivered", "webhook", Duration::from_secs(30))?;
    result.expect(came && over, "one click sends what waits, and the issue is over");
    if over {
        watch.seen.insert("alert_not_delivered".to_owned());
    }
    Ok(())
}

/// An open issue keeps its identity over a restart; a dismissed one stays dismissed and uncounted.
fn restart(agent: &mut AgentUnderTest, console: &Console, file: &std::path::Path, id: &str, result: &mut CaseResult) -> Result<(), String> {
    console.unload(id)?;
    console.wait_state(id, &["stopped"], Duration::from_secs(40))?;
    let away = file.with_extension("away");
    std::fs::rename(file, &away).map_err(|e| format!("{}: {e}", file.display()))?;
    let before = Watch::new(console).opened("model_file_missing", id, Duration::from_secs(20))?.unwrap_or(Value::Null);
    let issue = before["id"].as_str().unwrap_or_default().to_owned();
    let why = json!({"reason": "a copy is on its way"});
    console.expect("POST", &format!("/api/issues/{issue}/dismiss"), Some(&why), &[200])?;
    agent.stop(Duration::from_secs(20))?;
    agent.launch()?;
    agent.wait_healthy(Duration::from_secs(30))?;
    let mut watch = Watch::new(console);
    let after = watch.opened("model_file_missing", id, Duration::from_secs(20))?.unwrap_or(Value::Null);
    let same = after["id"] == issue.as_str() && after["first_seen"] == before["first_seen"];
    result
        .expect(same && after["dismissed"]["reason"] == "a copy is on its way", "an issue keeps identity and dismissal over a restart of the agent");
    let count = watch.look()?["count"].clone();
    result.expect(count == 0, format!("a dismissed issue is not counted ({count})"));
    std::fs::rename(&away, file).map_err(|e| format!("{}: {e}", away.display()))
}
