//! Model files and sockets that cannot be used: each is a sentence, and nothing is half-written afterwards.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use warden_fixtures::{TinyModel, broken};

use super::bad_requests::{expect_detail, missing_words};
use crate::agent::{AgentSetup, AgentUnderTest};
use crate::console::{Console, items, state_word};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// A path nobody can register: file name, words of which each group must be met in the sentence.
type Row = (&'static str, &'static str, &'static [&'static [&'static str]]);

const ROWS: &[Row] = &[
    ("a text file", "text.gguf", &[&["gguf"], &["text.gguf"]]),
    ("a file cut in its header", "cut-header.gguf", &[&["cut", "ends", "short", "incomplete"], &["cut-header.gguf"]]),
    ("a file cut in its data", "cut-data.gguf", &[&["cut", "ends", "short", "incomplete"], &["cut-data.gguf"]]),
    ("an empty file", "empty.gguf", &[&["empty", "gguf", "cut"], &["empty.gguf"]]),
    ("a missing file", "missing.gguf", &[&["missing.gguf"], &["no such", "not there", "does not exist", "no file", "not found"]]),
    ("a path that leads out of the models folder", "../../agent.toml", &[&["models", "folder", "allowed", "outside"]]),
];

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let program = stage.agent_program(&task.log)?;
    let engine = stage.engine_program(&task.log)?;
    let setup = AgentSetup::dev(program, engine);
    let mut agent = AgentUnderTest::start(setup.clone(), &task.log)?;
    let console = agent.claimed()?;
    lay_broken_files(&agent).map_err(|e| format!("the broken files cannot be written: {e}"))?;
    let before = files_in(&agent.home().join("data"));

    for (what, path, words) in ROWS {
        let reply = console.call("POST", "/api/models", Some(&json!({"path": path, "served_model_name": "broken"})))?;
        expect_detail(result, what, &reply, &[403, 404, 422], words);
    }
    let listed = models(&console)?;
    result.expect(listed.is_empty(), "no refused file is registered");
    result.expect(files_in(&agent.home().join("data")) == before, "the data folder holds the same files as before");

    stage.write_tiny_model(&agent.model_path("tiny.gguf"))?;
    name_taken(&console, result)?;
    cut_after_registration(stage, &agent, &console, result)?;
    socket_taken(&agent, &console, result)?;
    port_taken(&agent, &setup, task, result)?;

    let said = agent.said();
    result.expect(!said.contains("panicked"), "the agent's log shows no panic");
    let code = agent.stop(Duration::from_secs(40))?;
    result.expect(code == Some(0), format!("the agent ends cleanly (exit code {code:?})"));
    result.expect(agent.engines().is_empty(), "no engine is left behind");
    Ok(())
}

fn lay_broken_files(agent: &AgentUnderTest) -> std::io::Result<()> {
    let tiny = TinyModel::default();
    std::fs::write(agent.model_path("text.gguf"), broken::not_a_gguf())?;
    std::fs::write(agent.model_path("cut-header.gguf"), broken::cut_in_header(&tiny))?;
    std::fs::write(agent.model_path("cut-data.gguf"), broken::cut_in_data(&tiny))?;
    std::fs::write(agent.model_path("empty.gguf"), b"")
}

fn models(console: &Console) -> Result<Vec<Value>, String> {
    let listed = console.expect("GET", "/api/models", None, &[200])?.json();
    items(&listed).ok_or_else(|| format!("the list of models is none: {listed}"))
}

fn name_taken(console: &Console, result: &mut CaseResult) -> Result<(), String> {
    console.register("tiny.gguf", "tiny")?;
    let reply = console.call("POST", "/api/models", Some(&json!({"path": "tiny.gguf", "served_model_name": "tiny"})))?;
    expect_detail(result, "a name that is taken", &reply, &[409], &[&["tiny"]]);
    Ok(())
}

/// A file that is cut after it was registered is refused at the load, before an engine is started.
fn cut_after_registration(stage: &Stage, agent: &AgentUnderTest, console: &Console, result: &mut CaseResult) -> Result<(), String> {
    let path = agent.model_path("later-cut.gguf");
    stage.write_tiny_model(&path)?;
    let id = console.register("later-cut.gguf", "later-cut")?;
    std::fs::write(&path, broken::cut_in_data(&TinyModel::default())).map_err(|e| format!("{}: {e}", path.display()))?;
    let sentence = refused_or_failed(console, &id)?;
    let missing = missing_words(&sentence, &[&["cut", "ends", "short", "incomplete"], &["later-cut.gguf"]]);
    result.expect(missing.is_none(), format!("a file cut after it was registered: {sentence}"));
    result.expect(agent.engines().is_empty(), "no engine runs for a cut file");
    console.unload(&id)?;
    Ok(())
}

/// Loads the tiny model to see where its socket is, then puts a foreign file there.
fn socket_taken(agent: &AgentUnderTest, console: &Console, result: &mut CaseResult) -> Result<(), String> {
    let id = models(console)?
        .iter()
        .find(|m| m["served_model_name"] == "tiny")
        .and_then(|m| m["id"].as_str().map(str::to_owned))
        .ok_or("the tiny model is not listed")?;
    console.load(&id)?;
    console.wait_state(&id, &["running"], Duration::from_secs(60))?;
    let socket = engine_sockets(&agent.home().join("run")).into_iter().next().ok_or("the running engine has no socket in the runtime folder")?;
    console.unload(&id)?;
    console.wait_state(&id, &["stopped"], Duration::from_secs(60))?;

    let _gone_with_the_engine = std::fs::remove_file(&socket);
    std::fs::create_dir_all(socket.parent().unwrap_or(Path::new("/"))).map_err(|e| e.to_string())?;
    std::fs::write(&socket, "mine").map_err(|e| format!("{}: {e}", socket.display()))?;
    let sentence = refused_or_failed(console, &id)?;
    let missing = missing_words(&sentence, &[&["socket"]]);
    result.expect(missing.is_none(), format!("a socket's place taken by a foreign file: {sentence}"));
    result.expect(std::fs::read(&socket).is_ok_and(|b| b == b"mine"), "the foreign file is left as it was");
    std::fs::remove_file(&socket).map_err(|e| e.to_string())?;
    console.unload(&id)?;
    console.wait_state(&id, &["stopped", "failed"], Duration::from_secs(30))?;
    console.load(&id)?;
    console.wait_state(&id, &["running"], Duration::from_secs(60))?;
    result.expect(true, "with the foreign file gone the same model loads");
    Ok(())
}

/// A second agent on the same port says who is in the way and ends.
fn port_taken(agent: &AgentUnderTest, setup: &AgentSetup, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut second = setup.clone();
    second.environment.push(("WARDEN_PORT".to_owned(), agent.port().to_string()));
    let mut second = AgentUnderTest::prepare(second, &task.log)?;
    second.launch()?;
    let code = second.wait_end(Duration::from_secs(15))?;
    let said = second.said();
    let missing = missing_words(&said, &[&["port", "address"], &["taken", "in use", "another"]]);
    let named = said.contains(&agent.port().to_string());
    result.expect(
        code.is_some_and(|c| c != 0) && missing.is_none() && named && !said.contains("panicked"),
        format!("a taken port (exit code {code:?}): {said}"),
    );
    result.expect(agent.console().http.get("/healthz").is_ok_and(|r| r.status == 200), "the first agent goes on");
    Ok(())
}

/// Asks for a load that must not succeed; the sentence comes at once or as the reason of the failed state.
fn refused_or_failed(console: &Console, id: &str) -> Result<String, String> {
    let reply = console.call("POST", &format!("/api/models/{id}/load"), None)?;
    if reply.status != 202 {
        let body = reply.json();
        return Ok(format!("{} {}", body["detail"]["message"].as_str().unwrap_or_default(), body["detail"]["hint"].as_str().unwrap_or_default()));
    }
    for _ in 0..300 {
        let model = console.model(id)?;
        match state_word(&model) {
            "failed" => {
                let reason = &model["state"]["reason"];
                return Ok(format!("{} {}", reason["message"].as_str().unwrap_or_default(), reason["hint"].as_str().unwrap_or_default()));
            }
            "running" => return Err("the model came up although it must not".to_owned()),
            _ => std::thread::sleep(Duration::from_millis(100)),
        }
    }
    Err("the load neither failed nor came up within 30 s".to_owned())
}

/// Sockets below a folder, the agent's own for the local screen left out.
fn engine_sockets(folder: &Path) -> Vec<PathBuf> {
    use std::os::unix::fs::FileTypeExt;
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries
        .flatten()
        .flat_map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => engine_sockets(&entry.path()),
            Ok(kind) if kind.is_socket() && entry.file_name() != "console.sock" => vec![entry.path()],
            _ => Vec::new(),
        })
        .collect()
}

/// Every file below a folder with its size, logs left out.
fn files_in(folder: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    let Ok(entries) = std::fs::read_dir(folder) else { return found };
    for entry in entries.flatten() {
        match entry.metadata() {
            Ok(meta) if meta.is_dir() => found.extend(files_in(&entry.path())),
            Ok(meta) => {
                found.insert(entry.path(), meta.len());
            }
            Err(_) => {}
        }
    }
    found
}
