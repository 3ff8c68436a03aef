//! A host that fails the agent: no room on the disk, no system bus. Each is a sentence, never a panic, and what was there stays whole.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::bad_requests::missing_words;
use crate::agent::{AgentSetup, AgentUnderTest};
use crate::command;
use crate::console::{Console, items, state_word};
use crate::log::CaseLog;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let program = stage.agent_program(&task.log)?;
    let engine = stage.engine_program(&task.log)?;
    full_disk(&AgentSetup::dev(program.clone(), engine.clone()), task, result)?;
    full_from_the_start(&AgentSetup::dev(program.clone(), engine), task, result)?;
    no_bus(stage, program, task, result)
}

/// A small file system of its own, in memory; unmounted when dropped.
struct SmallDisk {
    folder: tempfile::TempDir,
    log: CaseLog,
}

impl SmallDisk {
    fn mount(mebibytes: u32, log: &CaseLog) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("wardn").tempdir_in("/tmp").map_err(|e| format!("no temporary folder: {e}"))?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={mebibytes}m,mode=0700"), "warden-small-disk"]).arg(folder.path());
        command::run_ok("mounting a small disk (this case must run as root)", mount, Duration::from_secs(20), log)?;
        Ok(Self { folder, log: log.clone() })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes until nothing more fits; returns the file to remove.
    fn fill(&self) -> Result<PathBuf, String> {
        let path = self.path().join("filler");
        let mut file = std::fs::File::create(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut size = 1 << 20;
        let block = vec![0_u8; size];
        while size > 0 {
            if file.write_all(&block[..size]).is_err() {
                size /= 2;
            }
        }
        self.log.line(format!("filled the small disk with {} bytes", file.metadata().map(|m| m.len()).unwrap_or_default()));
        Ok(path)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let mut umount = Command::new("umount");
        umount.arg("--lazy").arg(self.folder.path());
        let _reported_in_the_log = command::run(umount, Duration::from_secs(20), &self.log);
    }
}

/// The disk fills while the agent works: writes are refused with a sentence until there is room again.
fn full_disk(setup: &AgentSetup, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let disk = SmallDisk::mount(24, &task.log)?;
    let mut setup = setup.clone();
    setup.home = Some(disk.path().to_path_buf());
    let mut agent = AgentUnderTest::start(setup, &task.log)?;
    let console = agent.claimed()?;
    let filler = disk.fill()?;

    // The database may still have room inside its own files: go on until a write is refused.
    let mut made = 0;
    let mut refusal = None;
    for n in 0..3000 {
        let reply = console.call("POST", "/api/tokens", Some(&json!({"name": format!("key {n}")})))?;
        match reply.status {
            201 => made += 1,
            _ => {
                refusal = Some(reply);
                break;
            }
        }
    }
    let Some(refusal) = refusal else { return Err(format!("{made} keys were made on a full disk and none was refused")) };
    let body = refusal.json();
    let sentence = format!("{} {}", body["detail"]["message"].as_str().unwrap_or_default(), body["detail"]["hint"].as_str().unwrap_or_default());
    result.expect(
        refusal.status == 507
            && body["detail"]["error_code"] == "disk_full"
            && missing_words(&sentence, &[&["disk"], &["full"], &["free"]]).is_none(),
        format!("a key on a full disk is refused (status {}): {sentence}", refusal.status),
    );
    let listed = count_keys(&console)?;
    result.expect(listed == made, format!("the list holds the {made} keys that were made and no half one (it holds {listed})"));
    result.expect(console.http.get("/healthz").is_ok_and(|r| r.status == 200), "the agent still answers");

    std::fs::remove_file(&filler).map_err(|e| format!("{}: {e}", filler.display()))?;
    let again = console.call("POST", "/api/tokens", Some(&json!({"name": "after"})))?;
    result.expect(again.status == 201, "with room again a key is made");
    let code = agent.stop(Duration::from_secs(30))?;
    result.expect(code == Some(0), format!("the agent ends cleanly (exit code {code:?})"));

    agent.launch()?;
    agent.wait_healthy(Duration::from_secs(30))?;
    let mut back = agent.console();
    back.login()?;
    let kept = count_keys(&back)?;
    result.expect(kept == made + 1, format!("after a restart the database holds all {} keys (it holds {kept})", made + 1));
    result.expect(!agent.said().contains("panicked"), "no panic on a full disk");
    Ok(())
}

/// The disk is full before the agent ever started: it ends with a sentence, and starts once there is room.
fn full_from_the_start(setup: &AgentSetup, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let disk = SmallDisk::mount(8, &task.log)?;
    let mut setup = setup.clone();
    setup.home = Some(disk.path().to_path_buf());
    let mut agent = AgentUnderTest::prepare(setup, &task.log)?;
    let filler = disk.fill()?;
    agent.launch()?;
    let code = agent.wait_end(Duration::from_secs(20))?;
    let said = agent.said();
    let missing = missing_words(&said, &[&["disk"], &["full"]]);
    result.expect(
        code.is_some_and(|c| c != 0) && missing.is_none() && !said.contains("panicked"),
        format!("a start on a full disk ends with a sentence (exit code {code:?}): {said}"),
    );
    std::fs::remove_file(&filler).map_err(|e| format!("{}: {e}", filler.display()))?;
    agent.launch()?;
    agent.wait_healthy(Duration::from_secs(30))?;
    result.expect(agent.claimed().is_ok(), "with room again the same folders start and can be claimed");
    Ok(())
}

/// The appliance's agent without a system bus: it answers, and a load says what is missing.
fn no_bus(stage: &Stage, program: PathBuf, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let setup = AgentSetup {
        program,
        engine: None,
        profile: "appliance",
        stop_engines: false,
        environment: vec![("DBUS_SYSTEM_BUS_ADDRESS".to_owned(), "unix:path=/nonexistent/system_bus_socket".to_owned())],
        home: None,
        more: String::new(),
    };
    let mut agent = AgentUnderTest::prepare(setup, &task.log)?;
    stage.write_tiny_model(&agent.model_path("tiny.gguf"))?;
    lay_pack(agent.home()).map_err(|e| format!("the pack cannot be laid: {e}"))?;
    agent.launch()?;
    agent.wait_healthy(Duration::from_secs(30))?;
    let status = local_status(&agent.home().join("run/console.sock"))?;
    let code = status["claim_code"].as_str().ok_or("the local socket shows no claim code")?;
    let mut console = agent.console();
    console.claim(code)?;
    let id = console.register("tiny.gguf", "tiny")?;
    let sentence = load_refusal(&console, &id)?;
    result.expect(
        missing_words(&sentence, &[&["d-bus", "dbus", "system bus", "bus"]]).is_none(),
        format!("a load without a system bus says so: {sentence}"),
    );
    result.expect(console.http.get("/healthz").is_ok_and(|r| r.status == 200), "the agent still answers");
    result.expect(!agent.said().contains("panicked"), "no panic without a system bus");
    let ended = agent.stop(Duration::from_secs(30))?;
    result.expect(ended == Some(0), format!("the agent ends cleanly (exit code {ended:?})"));
    Ok(())
}

fn load_refusal(console: &Console, id: &str) -> Result<String, String> {
    let reply = console.call("POST", &format!("/api/models/{id}/load"), None)?;
    let body = reply.json();
    if reply.status != 202 {
        return Ok(format!("{} {}", body["detail"]["message"].as_str().unwrap_or_default(), body["detail"]["hint"].as_str().unwrap_or_default()));
    }
    for _ in 0..300 {
        let model = console.model(id)?;
        let reason = &model["state"]["reason"];
        match state_word(&model) {
            "failed" | "waiting" if !reason.is_null() => {
                return Ok(format!("{} {}", reason["message"].as_str().unwrap_or_default(), reason["hint"].as_str().unwrap_or_default()));
            }
            "running" => return Err("the model runs without a system bus, which cannot be".to_owned()),
            _ => std::thread::sleep(Duration::from_millis(100)),
        }
    }
    Err("the load said nothing within 30 s".to_owned())
}

fn count_keys(console: &Console) -> Result<usize, String> {
    let listed = console.expect("GET", "/api/tokens", None, &[200])?.json();
    items(&listed).map(|keys| keys.len()).ok_or_else(|| format!("the list of keys is none: {listed}"))
}

/// A pack as the agent finds it; its content is never looked at, because there is no bus to activate it.
fn lay_pack(home: &Path) -> std::io::Result<()> {
    let packs = home.join("data/packs");
    std::fs::create_dir_all(&packs)?;
    let content = b"a pack for a box without a bus";
    let digest = hex::encode(Sha256::digest(content));
    std::fs::write(packs.join(format!("{digest}.raw")), content)?;
    std::fs::write(packs.join(format!("{digest}.json")), json!({"engine": "llama.cpp", "version": "b11434", "digest": digest}).to_string())
}

/// The document of the agent's local socket.
fn local_status(socket: &Path) -> Result<Value, String> {
    let said = |e: std::io::Error| format!("the local socket {}: {e}", socket.display());
    let mut stream = UnixStream::connect(socket).map_err(said)?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).map_err(said)?;
    stream.write_all(b"GET /console/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").map_err(said)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(said)?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    serde_json::from_str(body).map_err(|e| format!("the local socket's answer is not JSON ({e}): {answer}"))
}
