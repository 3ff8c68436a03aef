//! Loads: their phases while they happen, and what becomes of one that does not advance.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::bench::{Bench, LOAD, replicas};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// What one load showed: for each phase the times told while it went on, and what was typical of it.
#[derive(Default)]
struct Seen {
    elapsed: BTreeMap<String, Vec<f64>>,
    typical: BTreeMap<String, Option<f64>>,
}

fn watch(bench: &Bench, id: &str) -> Result<Seen, String> {
    let mut seen = Seen::default();
    let until = Instant::now() + LOAD;
    bench.console.load(id)?;
    loop {
        let model = bench.console.model(id)?;
        match model["status"].as_str() {
            Some("running") => return Ok(seen),
            Some("loading") => {}
            _ => return Err(format!("the load went wrong: {}", model["state"])),
        }
        for phase in model["state"]["phases"].as_array().into_iter().flatten() {
            let name = phase["name"].as_str().unwrap_or_default().to_owned();
            if let (Some(elapsed), Value::Bool(false)) = (phase["elapsed_s"].as_f64(), &phase["done"]) {
                seen.elapsed.entry(name.clone()).or_default().push(elapsed);
            }
            seen.typical.insert(name, phase["typical_s"].as_f64());
        }
        if Instant::now() >= until {
            return Err(format!("it still loads after {} s: {}", LOAD.as_secs(), model["state"]));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Starts the genuine engine, stopped before its first step, and lets it run a little at a time: a tiny model is up before a person could look.
const PACED: &str = "*\" --alias paced \"*) sh -c 'kill -STOP $$; exec \"$0\" \"$@\"' ENGINE \"$@\" & p=$!; n=0; \
    while [ $n -lt 80 ]; do sleep 0.12; kill -CONT $p; sleep 0.003; kill -STOP $p; n=$((n+1)); done; kill -CONT $p; wait $p;;\n";

/// Phases with their times while a genuine engine loads; typical times from the second load on.
pub fn phases_live(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::start(stage, task, PACED, "")?;
    let id = bench.register("paced", 1)?;
    let first = watch(&bench, &id)?;
    let grows = first.elapsed.values().any(|times| times.windows(2).all(|pair| pair[0] <= pair[1]) && times.last() > times.first());
    let names: Vec<&String> = first.elapsed.keys().collect();
    result.expect(grows && names.len() > 1, format!("phases follow each other, and the time in each grows while it goes on ({names:?})"));
    result.expect(first.typical.values().all(Option::is_none), "the first load knows nothing typical and says null");

    for round in 2..=3 {
        bench.console.unload(&id)?;
        bench.until(&id, "stopped", LOAD, |model| model["status"] == "stopped")?;
        let seen = watch(&bench, &id)?;
        let told = |name: &str| seen.typical.get(name).copied().flatten();
        let unlike: Vec<_> = first
            .elapsed
            .iter()
            // One that this load went through between two looks is not shown at all.
            .filter(|(name, _)| seen.typical.contains_key(*name))
            .filter_map(|(name, times)| Some((name, *times.last()?)))
            .filter(|(name, took)| told(name).is_none_or(|usual| (usual - took).abs() > 3.0))
            .collect();
        result.expect(unlike.is_empty(), format!("load {round} tells for every phase of the first what it usually takes (not so: {unlike:?})"));
        let known = seen.typical.values().flatten().count();
        result.expect(known > 1, format!("load {round} shows typical times of {known} phases"));
        let whole: f64 = seen.typical.values().copied().flatten().sum();
        result.figure(&format!("typical_load_{round}_s"), whole);
    }
    bench.end(&[&id], result)
}

/// A load that does nothing is stopped; one that is only slow comes up.
pub fn stuck_load(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let faults = "*\" --alias stuck \"*) echo 'load_tensors: reading part 7 of 9'; exec sleep 100000;;\n\
        *\" --alias slow \"*) for n in 1 2 3 4 5 6 7 8 9 10 11 12; do echo \"reading part $n of 12\"; sleep 1; done; exec ENGINE \"$@\";;\n";
    // The deliberate break: the timer is as good as off.
    let patience = if task.sabotage { "stuck_after_s = 100000\n" } else { "stuck_after_s = 4\n" };
    let bench = Bench::start(stage, task, faults, patience)?;
    let (stuck, slow) = (bench.register("stuck", 1)?, bench.register("slow", 1)?);
    bench.console.load(&slow)?;
    bench.console.load(&stuck)?;
    let begin = Instant::now();
    let model = bench.until(&stuck, "given up", Duration::from_secs(25), |model| {
        model["status"] == "failed" && replicas(model).iter().all(|replica| replica["launch"].is_null())
    });
    let Ok(model) = model else {
        result.expect(false, "a load that does not advance is stopped");
        bench.console.unload(&stuck)?;
        return Ok(());
    };
    result.figure("stopped_after_s", begin.elapsed().as_secs_f64());
    let reason = &model["state"]["reason"];
    let message = reason["message"].as_str().unwrap_or_default();
    result.expect(reason["code"] == "load_stuck" && message.contains("reading part 7 of 9"), format!("it is told with its last line: {message}"));
    let slow_pids = bench.agent.engines().len();
    result.expect(slow_pids <= 2, "the process of the stuck load is gone");

    let until = Instant::now() + LOAD;
    let mut words = Vec::new();
    loop {
        let model = bench.console.model(&slow)?;
        let word = model["status"].as_str().unwrap_or_default().to_owned();
        if words.last() != Some(&word) {
            words.push(word.clone());
        }
        if word == "running" || word == "failed" || Instant::now() >= until {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    result.expect(words == ["loading", "running"], format!("a slow load that advances is never red and comes up: {words:?}"));
    result.expect(begin.elapsed() > Duration::from_secs(11), "it took about three times the patience");
    bench.end(&[&stuck, &slow], result)
}
