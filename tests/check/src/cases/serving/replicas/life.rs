//! Replicas over the ends of agents and machines, and a reload under requests.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use super::bench::{Bench, LOAD, all_run, launches, replicas, signal};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// kill -9 of the agent: the next one finds every engine, and nothing is started again.
pub fn adopt(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut bench = Bench::start(stage, task, "", "")?;
    let (id, model) = bench.serve("pair", 2)?;
    let (_, key) = bench.console.make_key("adopt")?;
    let before = (launches(&model), sorted(bench.agent.engines()));
    bench.kill_agent()?;
    bench.start_again()?;
    let model = bench.until(&id, "adopted", Duration::from_secs(20), |model| all_run(model, 2))?;
    result.expect(launches(&model) == before.0, format!("both launches are the same ({:?})", before.0));
    result.expect(sorted(bench.agent.engines()) == before.1, "no process was started or ended");
    let answer = bench.console.chat(&key, "pair", "Are you still there?");
    result.expect(answer.is_ok(), format!("the next request is answered ({})", answer.err().unwrap_or_default()));
    bench.end(&[&id], result)
}

fn sorted(mut pids: Vec<i32>) -> Vec<i32> {
    pids.sort_unstable();
    pids
}

/// After a reboot (no process is left, and the boot has another identity) what served serves again.
pub fn reboot_restore(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut bench = Bench::start(stage, task, "", "")?;
    let (wanted, model) = bench.serve("wanted", 2)?;
    let (stopped, _) = bench.serve("stopped", 1)?;
    bench.console.unload(&stopped)?;
    bench.until(&stopped, "stopped", LOAD, |model| model["status"] == "stopped")?;
    let before = launches(&model);
    bench.kill_agent()?;
    for pid in bench.agent.engines() {
        signal(pid, Signal::SIGKILL)?;
    }
    let until = Instant::now() + Duration::from_secs(10);
    while !bench.agent.engines().is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    let records = of_another_boot(&bench)?;
    result.note(format!("{records} records of launches carry another boot's identity"));
    bench.start_again()?;
    let model = bench.until(&wanted, "restored", LOAD, |model| all_run(model, 2))?;
    result.expect(launches(&model).iter().all(|launch| !before.contains(launch)), "what served serves again, on new engines");
    let idle = bench.console.model(&stopped)?;
    result.expect(idle["status"] == "stopped", format!("what was stopped stays stopped (it is {})", idle["status"]));
    bench.end(&[&wanted], result)
}

/// Gives the records of launches the identity of another boot.
fn of_another_boot(bench: &Bench) -> Result<usize, String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(|e| format!("the boot's identity: {e}"))?;
    let mut changed = 0;
    let folder = bench.agent.home().join("run");
    for entry in fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?.flatten() {
        let path = entry.path();
        if path.to_string_lossy().ends_with(".launch.json") {
            let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let other = text.replace(boot.trim(), "00000000-0000-0000-0000-000000000000");
            fs::write(&path, other).map_err(|e| format!("{}: {e}", path.display()))?;
            changed += 1;
        }
    }
    Ok(changed)
}

/// kill -9 of the agent while one replica has the new settings and the other the old ones: the next agent finishes the reload, and the model
/// is served all the time after it is back.
pub fn reload_cut(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut bench = Bench::start(stage, task, "", "")?;
    let (id, model) = bench.serve("pair", 2)?;
    let (_, key) = bench.console.make_key("cut")?;
    let before = launches(&model);
    bench.console.expect("PATCH", &format!("/api/models/{id}/settings"), Some(&json!({"slots": 3})), &[200])?;
    bench.console.expect("POST", &format!("/api/models/{id}/reload"), None, &[202])?;
    let half = |model: &serde_json::Value| replicas(model)[0]["launch"].as_str().is_some_and(|launch| !before.iter().any(|old| old == launch));
    bench.until(&id, "reloaded by half", LOAD, half)?;
    bench.kill_agent()?;
    let left = bench.agent.engines().len();
    result.note(format!("{left} engines ran when the agent was killed"));
    bench.start_again()?;
    let answer = bench.console.chat(&key, "pair", "Are you still there?");
    result.expect(answer.is_ok(), format!("the next request is answered ({})", answer.err().unwrap_or_default()));
    let through = |model: &serde_json::Value| {
        all_run(model, 2) && launches(model).iter().all(|launch| !before.contains(launch)) && replicas(model).iter().all(|r| r["outdated"] == false)
    };
    bench.until(&id, "reloaded", LOAD, through)?;
    let settings = bench.console.expect("GET", &format!("/api/models/{id}/settings"), None, &[200])?.json();
    result.expect(settings["takes_effect"] == "now" && settings["slots"] == 3, "what runs has the new settings, and the API says so");
    let slots: Vec<_> = bench.agent.engines().into_iter().filter_map(told_slots).collect();
    result.expect(slots == ["3", "3"], format!("both engines were started with them ({slots:?})"));
    bench.end(&[&id], result)
}

/// What an engine's own command line says of its slots.
fn told_slots(pid: i32) -> Option<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<&[u8]> = line.split(|&b| b == 0).collect();
    words.windows(2).find(|pair| pair[0] == b"--parallel").map(|pair| String::from_utf8_lossy(pair[1]).into_owned())
}

/// A reload under requests: running ones are finished, new ones are answered by the other replica.
pub fn drain(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::start(stage, task, "", "")?;
    let (id, model) = bench.serve("pair", 2)?;
    let (_, key) = bench.console.make_key("drain")?;
    let before = launches(&model);
    let settings = bench.console.expect("PATCH", &format!("/api/models/{id}/settings"), Some(&json!({"slots": 4})), &[200])?.json();
    result.expect(settings["takes_effect"] == "reload", "changed settings wait for the reload, and the answer says so");
    let streams: Vec<_> = (0..3)
        .map(|_| {
            let (console, key) = (bench.console.clone(), key.clone());
            std::thread::spawn(move || console.chat_stream(&key, "pair", "Tell a long story.", 3000))
        })
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    let reload = bench.console.expect("POST", &format!("/api/models/{id}/reload"), None, &[202])?.json();
    result.expect(reload["how"] == "rolling", format!("with two replicas the reload is a rolling one ({})", reload["how"]));
    let (mut answered, mut refused, mut drained, mut down) = (0u32, Vec::new(), false, false);
    let until = Instant::now() + Duration::from_secs(90);
    loop {
        match bench.console.chat(&key, "pair", "And you?") {
            Ok(_) => answered += 1,
            Err(sentence) => refused.push(sentence),
        }
        let model = bench.console.model(&id)?;
        drained |= replicas(&model).iter().any(|replica| replica["phase"] == "draining");
        down |= model["status"] != "running";
        if all_run(&model, 2) && launches(&model).iter().all(|launch| !before.contains(launch)) {
            break;
        }
        if Instant::now() >= until {
            return Err(format!("the reload is not through: {}", model["state"]));
        }
    }
    result.figure("answered_meanwhile", f64::from(answered));
    result.expect(answered > 0 && refused.is_empty(), format!("{answered} new requests were answered meanwhile, none refused: {refused:?}"));
    result.expect(!down, "the model was running all the time");
    result.note(if drained { "a replica was seen draining" } else { "no look fell into a drain" });
    for stream in streams {
        let seen = stream.join().map_err(|_| "a stream's thread broke".to_owned())??;
        result.expect(seen.done && seen.events > 1000, format!("a running request was finished: {} events, closed {}", seen.events, seen.done));
    }
    let settings = bench.console.expect("GET", &format!("/api/models/{id}/settings"), None, &[200])?.json();
    result.expect(settings["takes_effect"] == "now" && settings["slots"] == 4, "what runs has the new settings");
    bench.end(&[&id], result)
}
