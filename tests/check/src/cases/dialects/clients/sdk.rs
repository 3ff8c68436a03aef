//! The SDK suites of `tests/clients`: one sentence per check, told by the suite itself.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::room::{Room, What};
use crate::cases::dialects::desk::{Behind, MODEL};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Runs the suite that the case names.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let suites = stage.places.root.join("tests/clients");
    let script = std::fs::read_to_string(suites.join("script.json")).map_err(|e| format!("tests/clients/script.json: {e}"))?;
    let script: Value = serde_json::from_str(&script).map_err(|e| format!("tests/clients/script.json: {e}"))?;
    let room = Room::open(stage, task, Behind::Seeing, What::Sdk, "")?;
    room.desk.script(&script)?;
    suite(&room, &suites, task.id, "scripted", result)?;
    let left = room.chats(0, 0)?.iter().filter(|asked| asked["ended"] == "client_gone").count();
    result.expect(left > 0, format!("what the suite left in the middle ended at the engine as well ({left} requests)"));
    room.leave(result)?;

    let room = Room::open(stage, task, Behind::Wide, What::Sdk, "")?;
    suite(&room, &suites, task.id, "genuine", result)?;
    room.leave(result)
}

fn suite(room: &Room, suites: &Path, id: &str, engine: &str, result: &mut CaseResult) -> Result<(), String> {
    let vendor = if id.contains("openai") { "openai" } else { "anthropic" };
    let base = format!("{}{}", room.desk.agent.base(), if vendor == "openai" { "/v1" } else { "" });
    let mut command = if id.ends_with("-py") {
        let mut python = room.command("venv/bin/python");
        python.arg("-B").arg(suites.join(format!("{vendor}_suite.py")));
        python
    } else {
        let mut node = room.command("/usr/bin/env");
        node.arg("node").arg(suites.join(format!("{vendor}_suite.mjs")));
        node
    };
    let key = if vendor == "openai" { "OPENAI_API_KEY" } else { "ANTHROPIC_API_KEY" };
    command.arg(base).arg(MODEL).env(key, &room.desk.key).env("ENGINE", engine);
    let said = room.run(command, Duration::from_secs(300))?;
    let mut checks = 0;
    for (holds, sentence) in said.events.iter().filter_map(read) {
        result.expect(holds, format!("{engine}: {sentence}"));
        checks += 1;
    }
    result.expect(
        said.code == Some(0) && said.events.last() == Some(&json!({"end": true})),
        format!("{engine}: the suite ends with exit code 0 (it has {:?})", said.code),
    );
    result.expect(checks >= 10, format!("{engine}: the suite tells what it saw ({checks} checks)"));
    if said.code != Some(0) {
        result.note(format!("{engine}: last words: {}", said.tail()));
    }
    Ok(())
}

/// A check's verdict and its sentence.
fn read(event: &Value) -> Option<(bool, String)> {
    let sentence = event["says"].as_str()?;
    Some((event["holds"] == true, sentence.chars().take(400).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_without_a_verdict_does_not_hold_and_the_end_is_none() {
        assert_eq!(read(&json!({"says": "x", "holds": true})), Some((true, "x".to_owned())));
        assert_eq!(read(&json!({"says": "x"})), Some((false, "x".to_owned())));
        assert_eq!(read(&json!({"end": true})), None);
    }
}
