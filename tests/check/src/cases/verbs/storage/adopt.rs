//! A blank disk becomes model storage, a model loads from it, and both are there after a restart.

use serde_json::json;
use warden_vm::quiet;

use super::bench::{self, BLANK, Bench, MODELS};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// `disk-adopt`
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut held = bench::machine(stage, task)?;
    let machine = held.bench()?;
    let console = machine.console()?;
    let disk = machine.disk(MODELS)?;
    let key = disk["key"].as_str().unwrap_or_default().to_owned();
    if disk["role"] == "blank" {
        let plan = console.expect("POST", "/api/storage/adopt?plan=1", Some(&json!({"disk": key})), &[200])?.json();
        let first = plan["sentences"][0].as_str().unwrap_or_default();
        result.expect(first.contains("will erase") && first.contains(MODELS), format!("the plan comes first: {first}"));
        result.expect(machine.disk(MODELS)?["role"] == "blank", "showing the plan changed nothing");
        let reply = console.call("POST", "/api/storage/adopt", Some(&json!({"disk": key, "serial": BLANK})))?;
        result.expect(reply.status == 422, format!("another disk's serial number is refused: {}", reply.status));
        let begun = console.expect("POST", "/api/storage/adopt", Some(&json!({"disk": key})), &[202])?.json();
        let done = machine.task(begun["task"].as_str().unwrap_or_default(), quiet(60))?;
        let steps: Vec<String> = done["steps"].as_array().into_iter().flatten().map(|s| format!("{} {}", s["key"], s["state"])).collect();
        result.expect(done["state"] == "done", format!("adopted in steps: {} {}", steps.join(", "), done["failure"]));
    }
    let volume = machine.ensure_adopted()?;
    let path = volume["path"].as_str().unwrap_or_default().to_owned();
    let free = volume["free_bytes"].as_u64().unwrap_or(0);
    result.expect(path.starts_with("/media/wm-") && free > 500 << 20, format!("mounted at {path} with {free} bytes free"));
    let flags = machine.root_ok(&format!("grep ' {path} ' /proc/mounts; stat -c '%U:%G %a' {path}"))?;
    for word in ["nosuid", "nodev", "noexec", "ext4", "warden:warden-models 2750"] {
        result.expect(flags.contains(word), format!("it is mounted and owned as it must be: {word} ({})", flags.trim()));
    }
    let id = machine.ensure_model_on_disk()?;
    result.note("the model on it answers in its sandbox before the restart");
    let owner = machine.root_ok(&format!("stat -c '%U:%G %a' {path}/on-disk.gguf"))?;
    result.expect(owner.trim() == "warden:warden-models 640", format!("its file is for the agent and the engines only: {}", owner.trim()));

    Bench::power_cycle(&mut held, &[MODELS, BLANK])?;
    let machine = held.bench()?;
    let (document, took) =
        machine.storage_when("the adopted disk after the restart", quiet(20), |d| d["state"]["volumes"][0]["state"] == "mounted")?;
    result.figure("disk_back_seconds", took.as_secs_f64());
    let again = &document["state"]["volumes"][0];
    result.expect(
        again["path"] == path.as_str() && document["state"]["degraded"] == false,
        format!("after a restart it is mounted at {} again", again["path"]),
    );
    let console = machine.console()?;
    console.wait_state(&id, &["running"], quiet(60))?;
    result.note("the model that served from it before serves from it again by itself");
    let (_, secret) = console.make_key("after-restart")?;
    let answer = console.chat(&secret, bench::ON_DISK, "hello")?;
    result.expect(answer["choices"][0]["message"]["content"].is_string(), "and answers a request");
    machine.blank_is_blank(result)
}
