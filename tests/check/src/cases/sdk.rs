//! The Python `openai` SDK against `make run`: models, chat with and without streaming, usage, and the error classes a program catches.
//!
//! The SDK is installed once, with every version pinned, into the cache outside the tree.

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
    let python = sdk_python(stage, &task.log)?;
    stage.engine_program(&task.log)?;
    let folder = state_folder()?;
    let mut box_ = MakeRun::start(stage, folder.path(), &task.log)?;
    box_.wait_console(Duration::from_secs(1800))?;
    let console = box_.claimed()?;
    let (_, _) = console.serve(SMALL_MODEL, "smollm2-135m", Duration::from_secs(120))?;
    let (key_id, key) = console.make_key("sdk")?;

    let mut client = Command::new(&python);
    client
        .arg(stage.places.root.join("tests/sdk/openai_client.py"))
        .arg(format!("{}/v1", box_.base()))
        .arg("smollm2-135m")
        .env("OPENAI_API_KEY", &key)
        .env("NO_PROXY", "127.0.0.1")
        .env("no_proxy", "127.0.0.1");
    let ran = command::run(client, Duration::from_secs(300), &task.log)?;
    let told: Value = ran.output.iter().rev().find_map(|l| serde_json::from_str(l).ok()).unwrap_or(Value::Null);
    let steps = told["steps"].as_array().cloned().unwrap_or_default();
    if steps.is_empty() {
        return Err(format!("the SDK's script told nothing; last: {}", ran.tail(6)));
    }
    for step in &steps {
        let sentence = step["says"].as_str().unwrap_or("a step without a sentence");
        result.expect(step["holds"] == Value::Bool(true), format!("SDK: {sentence}"));
    }
    result.expect(ran.ok(), "the SDK's script ended with exit code 0");
    for name in ["first_token_s", "completion_tokens"] {
        if let Some(value) = told["figures"][name].as_f64() {
            result.figure(name, value);
        }
    }
    let wanted = told["figures"]["charged_tokens"].as_f64().unwrap_or(-1.0);
    let charged = charged_to(&console, &key_id, wanted)?;
    result.expect((charged - wanted).abs() < 0.5, format!("the key's usage ({charged} tokens) is what the SDK was told ({wanted})"));

    box_.interrupt(Duration::from_secs(40))?;
    result.expect(left_behind(folder.path()).is_empty(), "nothing is left behind");
    Ok(())
}

/// Prompt and completion tokens charged to a key, waited for shortly because they are written in batches.
fn charged_to(console: &crate::console::Console, key_id: &str, wanted: f64) -> Result<f64, String> {
    let mut charged = 0.0;
    for _ in 0..30 {
        let key = console.expect("GET", &format!("/api/tokens/{key_id}"), None, &[200])?.json();
        charged = tokens_of(&key["usage"]);
        if (charged - wanted).abs() < 0.5 {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(charged)
}

/// Prompt and completion tokens of a usage document.
pub fn tokens_of(usage: &Value) -> f64 {
    let number = |names: [&str; 2]| names.iter().find_map(|n| usage[*n].as_f64()).unwrap_or_default();
    number(["prompt_tokens", "prompt"]) + number(["completion_tokens", "completion"])
}

/// A Python with the pinned SDK, keyed by the pins.
fn sdk_python(stage: &Stage, log: &CaseLog) -> Result<PathBuf, String> {
    let pins = stage.places.root.join("tests/sdk/requirements.txt");
    let text = std::fs::read(&pins).map_err(|e| format!("the pins {}: {e}", pins.display()))?;
    let key = hex::encode(&Sha256::digest(&text)[..6]);
    let folder = stage.places.cache.join("python").join(format!("openai-{key}"));
    let python = folder.join("bin/python");
    let marker = folder.join("complete");
    if marker.is_file() {
        return Ok(python);
    }
    let _nothing_there_yet = std::fs::remove_dir_all(&folder);
    let mut make = Command::new("python3");
    make.args(["-m", "venv"]).arg(&folder);
    command::run_ok("making a Python environment (Debian package python3-venv)", make, Duration::from_secs(120), log)?;
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r"]).arg(&pins);
    command::run_ok("installing the pinned openai SDK", install, Duration::from_secs(600), log)?;
    std::fs::write(&marker, "").map_err(|e| format!("{}: {e}", marker.display()))?;
    Ok(python)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_in_either_spelling() {
        assert!((tokens_of(&serde_json::json!({"prompt_tokens": 3, "completion_tokens": 4})) - 7.0).abs() < f64::EPSILON);
        assert!((tokens_of(&serde_json::json!({"prompt": 3, "completion": 4})) - 7.0).abs() < f64::EPSILON);
    }
}
