//! Headless Chromium through the first run: wizard, load, chat, keys, both themes, against a fresh `make run`.
//!
//! The steps themselves are in `tests/browser/first-run.mjs`; this brings its one package (by lock file, into the cache), starts a box
//! nobody has claimed and reads the script's last line.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::command;
use crate::log::CaseLog;
use crate::make_run::{MakeRun, SMALL_MODEL, left_behind, state_folder};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let script = installed_script(stage, &task.log)?;
    stage.engine_program(&task.log)?;
    let folder = state_folder()?;
    let mut box_ = MakeRun::start(stage, folder.path(), &task.log)?;
    box_.wait_console(Duration::from_secs(1800))?;
    let code = box_.claim_code()?;
    let pictures = stage.places.evidence.join("browser-first-run");
    let _no_old_ones = std::fs::remove_dir_all(&pictures);
    std::fs::create_dir_all(&pictures).map_err(|e| format!("{}: {e}", pictures.display()))?;

    let mut node = Command::new("node");
    node.arg(&script).args([box_.base().as_str(), code.as_str(), SMALL_MODEL]).arg(&pictures);
    let ran = command::run(node, Duration::from_secs(600), &task.log)?;
    let told: Value = ran.output.iter().rev().find_map(|l| serde_json::from_str(l).ok()).unwrap_or(Value::Null);
    let steps = told["steps"].as_array().cloned().unwrap_or_default();
    if steps.is_empty() {
        return Err(format!("the browser script told nothing; last: {}", ran.tail(6)));
    }
    for step in &steps {
        let (holds, sentence) = read_step(step);
        result.expect(holds, format!("browser: {sentence}"));
    }
    result.expect(told["passed"] == Value::Bool(true), format!("the browser script passed ({} steps)", steps.len()));
    result.expect(ran.ok(), "the browser script ended with exit code 0");
    for (name, value) in told["figures"].as_object().into_iter().flatten() {
        if let Some(value) = value.as_f64() {
            result.figure(name, value);
        }
    }
    let shots = std::fs::read_dir(&pictures).map(|d| d.flatten().count()).unwrap_or_default();
    result.expect(shots > 0, format!("{shots} pictures lie in {}", pictures.display()));
    box_.interrupt(Duration::from_secs(40))?;
    result.expect(left_behind(folder.path()).is_empty(), "nothing is left behind");
    Ok(())
}

/// A step's verdict and its sentence, with the cause when it failed.
fn read_step(step: &Value) -> (bool, String) {
    let name = step["name"].as_str().unwrap_or("a step without a name");
    let why = step["why"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
    (step["passed"] == Value::Bool(true), format!("{name}{why}"))
}

/// The script beside its installed package, in the cache, keyed by lock file and script.
fn installed_script(stage: &Stage, log: &CaseLog) -> Result<PathBuf, String> {
    let source = stage.places.root.join("tests/browser");
    let lock = std::fs::read(source.join("package-lock.json")).map_err(|e| format!("tests/browser/package-lock.json: {e}"))?;
    let folder = stage.places.cache.join("browser").join(hex::encode(&Sha256::digest(&lock)[..6]));
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let marker = folder.join("complete");
    for entry in std::fs::read_dir(&source).map_err(|e| format!("{}: {e}", source.display()))?.flatten() {
        if entry.file_type().is_ok_and(|t| t.is_file()) {
            std::fs::copy(entry.path(), folder.join(entry.file_name())).map_err(|e| format!("{}: {e}", entry.path().display()))?;
        }
    }
    if !marker.is_file() {
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(&folder);
        command::run_ok("installing the browser driver", npm, Duration::from_secs(300), log)?;
        std::fs::write(&marker, "").map_err(|e| format!("{}: {e}", marker.display()))?;
    }
    let script = folder.join("first-run.mjs");
    if script.is_file() { Ok(script) } else { Err("tests/browser/first-run.mjs is not there".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_is_not_read_as_a_passed_one() {
        assert_eq!(read_step(&serde_json::json!({"name": "claim", "passed": false, "why": "timeout"})), (false, "claim: timeout".to_owned()));
        assert_eq!(read_step(&serde_json::json!({"name": "claim", "passed": true, "seconds": 1.5})), (true, "claim".to_owned()));
        assert!(!read_step(&serde_json::json!({"name": "a step without a verdict"})).0);
    }
}
