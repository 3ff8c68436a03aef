//! A model that a request loads.

use std::time::Duration;

use serde_json::json;

use super::bench::{Bench, LOAD};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Requests at the same moment for a model that nobody loaded.
const TOGETHER: usize = 3;

/// A stopped model that may be loaded by a request: the first ones wait and are answered, by one load; without the setting they are refused.
pub fn load_on_request(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::start(stage, task, "", "")?;
    let id = bench.register("asleep", 1)?;
    let (_, key) = bench.console.make_key("demand")?;
    let refused = bench.console.chat(&key, "asleep", "Are you there?");
    result.expect(refused.is_err(), "without the setting a request loads nothing and is refused");
    result.expect(bench.agent.engines().is_empty(), "no engine was started for it");

    let settings = bench.console.expect("PATCH", &format!("/api/models/{id}/settings"), Some(&json!({"load_on_request": true})), &[200])?.json();
    result.expect(settings["load_on_request"] == true, "the setting is taken");
    let begin = std::time::Instant::now();
    let requests: Vec<_> = (0..TOGETHER)
        .map(|_| {
            let (console, key) = (bench.console.clone(), key.clone());
            std::thread::spawn(move || console.chat(&key, "asleep", "Are you there now?"))
        })
        .collect();
    for request in requests {
        let answer = request.join().map_err(|_| "a request's thread broke".to_owned())?;
        result.expect(answer.is_ok(), format!("a request that came first waits and is answered ({})", answer.err().unwrap_or_default()));
    }
    result.figure("first_answer_s", begin.elapsed().as_secs_f64());
    let model = bench.until(&id, "running", LOAD, |model| model["status"] == "running")?;
    result.expect(bench.agent.engines().len() == 1, format!("one engine was started for {TOGETHER} requests ({:?})", bench.agent.engines()));

    bench.console.unload(&id)?;
    bench.until(&id, "stopped", LOAD, |model| model["status"] == "stopped")?;
    std::thread::sleep(Duration::from_millis(500));
    result.expect(bench.agent.engines().is_empty(), "it stays unloaded while nobody asks");
    let again = bench.console.chat(&key, "asleep", "And again?");
    result.expect(again.is_ok(), format!("the next request loads it again ({})", again.err().unwrap_or_default()));
    let anew = bench.until(&id, "running", LOAD, |model| model["status"] == "running")?;
    result.expect(anew["state"]["replicas"][0]["launch"] != model["state"]["replicas"][0]["launch"], "on a new engine");
    bench.end(&[&id], result)
}
