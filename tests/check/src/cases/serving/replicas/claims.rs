//! Cards are claimed before anything starts: by the room's own rules and its reconciler, and at the door of a real agent.

use std::time::Duration;

use serde_json::json;

use super::bench::Bench;
use crate::command;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut tests = stage.in_tree("cargo");
    tests.args(["nextest", "run", "-p", "warden-serving", "--no-tests=fail", "-E"]);
    tests.arg("test(claims::) | test(a_second_model_on_a_claimed_card) | test(a_card_is_free_again) | test(its_own_cards)");
    let ran = command::run(tests, Duration::from_secs(1800), &task.log)?;
    let summary = ran.output.iter().rev().find(|line| line.contains("tests run:")).map_or("no summary", |line| line.trim()).to_owned();
    result.expect(ran.ok(), format!("a claimed card is refused with the occupant's name, at once, and is free again afterwards: {summary}"));

    let bench = Bench::start(stage, task, "", "")?;
    let body = json!({"path": "tiny.gguf", "served_model_name": "on-cards", "gpus": ["GPU-not-here"]});
    let id = bench.console.expect("POST", "/api/models", Some(&body), &[201])?.json()["id"].as_str().unwrap_or_default().to_owned();
    let refused = bench.console.call("POST", &format!("/api/models/{id}/load"), None)?;
    let detail = &refused.json()["detail"];
    let told = detail["message"].as_str().is_some_and(|m| m.contains("card")) && detail["hint"].is_string();
    result.expect((400..600).contains(&refused.status) && told, format!("a card that is not there is refused at once: {detail}"));
    result.expect(bench.agent.engines().is_empty(), "nothing was started for it");
    let uneven = json!({"replicas": 2});
    let refused = bench.console.call("PATCH", &format!("/api/models/{id}/settings"), Some(&uneven))?;
    result.expect(refused.status == 422 && refused.json()["detail"]["param"] == "gpus", "one card for two replicas is refused, and names the field");
    let (plain, _) = bench.serve("plain", 1)?;
    result.expect(true, "a model on processors needs no claim and serves");
    bench.end(&[&plain], result)
}
