//! Importing from sticks with FAT and exFAT.

use serde_json::{Value, json};
use warden_vm::quiet;

use super::bench::{self, Bench, STICK, STICK_EXFAT};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// `stick-import`
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut held = bench::machine(stage, task)?;
    let machine = held.bench()?;
    machine.plug(STICK, true)?;
    let key = importable(machine, STICK)?;
    let console = machine.console()?;
    let models = console.expect("GET", &format!("/api/storage/sources/{key}/models"), None, &[200])?.json();
    let listed = models["models"][0].clone();
    result.expect(listed["file"] == "stick-model.gguf" && listed["has_checksum"] == true, format!("the model on the stick is listed: {models}"));
    let mounts = machine.root_ok("cat /proc/mounts")?;
    result.expect(!mounts.contains("/media/warden/"), "after the look the stick is given back");

    // The mount is seen while the import runs: a watcher in the guest writes down every mount below /media/warden.
    machine.root_ok(
        "rm -f /run/seen; (for n in $(seq 1 400); do grep /media/warden/ /proc/mounts; sleep 0.05; done > /run/seen) > /dev/null 2>&1 & sleep 0.2",
    )?;
    let done = import(machine, &key, "stick-model.gguf", "from-stick")?;
    result.expect(done["state"] == "done", format!("imported: {} {}", steps(&done), done["failure"]));
    let seen = machine.root_ok("cat /run/seen")?;
    let line = seen.lines().find(|line| line.contains("/media/warden/")).unwrap_or_default();
    let options: Vec<&str> = line.split_whitespace().nth(3).unwrap_or_default().split(',').collect();
    for option in ["ro", "nosuid", "nodev", "noexec"] {
        result.expect(options.contains(&option), format!("while it was read the stick was mounted {option} ({line})"));
    }
    let sums = machine.root_ok("sha256sum /data/models/stick-model.gguf /data/models/tiny.gguf; stat -c '%U:%G %a' /data/models/stick-model.gguf")?;
    let words: Vec<&str> = sums.split_whitespace().collect();
    result.expect(words.first() == words.get(2), format!("the copy has the SHA-256 of the original ({})", words.first().unwrap_or(&"")));
    result.expect(sums.contains("warden:warden-models 640"), "the copy is for the agent and the engines only");
    result.expect(!machine.root_ok("cat /proc/mounts")?.contains("/media/warden/"), "after the import the stick is given back");
    let id = registered(machine, "from-stick")?;
    console.load(&id)?;
    console.wait_state(&id, &["running"], quiet(40))?;
    result.note("the imported model runs");
    console.unload(&id)?;

    // A promise that does not hold: the same stick with a wrong checksum file beside the model.
    let name = machine.device(STICK)?;
    machine.root_ok(&format!("mkdir -p /run/stick && mount -t vfat /dev/{name}1 /run/stick && sed -i s/^...../00000/ /run/stick/stick-model.gguf.sha256 && mv /run/stick/stick-model.gguf /run/stick/b.gguf && mv /run/stick/stick-model.gguf.sha256 /run/stick/b.gguf.sha256; sync; umount /run/stick"))?;
    let refused = import(machine, &key, "b.gguf", "damaged")?;
    result.expect(
        refused["state"] == "failed" && refused["failure"].as_str().unwrap_or_default().contains("SHA-256"),
        format!("a model that is not what its checksum promises is refused: {}", refused["failure"]),
    );
    let left = machine.root_ok("ls -a /data/models")?;
    result.expect(!left.contains("b.gguf") && !left.contains("importing"), "and leaves nothing behind");
    machine.pull(STICK)?;

    machine.plug(STICK_EXFAT, true)?;
    machine.disk(STICK_EXFAT)?;
    let name = machine.device(STICK_EXFAT)?;
    machine.root_ok(&format!(
        "/usr/sbin/mkfs.exfat -L EXSTICK /dev/{name} && mkdir -p /run/stick && mount -t exfat /dev/{name} /run/stick && cp /data/models/tiny.gguf /run/stick/ex.gguf; sync; umount /run/stick && udevadm trigger --action=change /dev/{name}"
    ))?;
    let key = importable(machine, STICK_EXFAT)?;
    let done = import(machine, &key, "ex.gguf", "from-exfat")?;
    result.expect(done["state"] == "done", format!("the same from exFAT: {} {}", steps(&done), done["failure"]));
    machine.pull(STICK_EXFAT)
}

fn importable(machine: &mut Bench, serial: &str) -> Result<String, String> {
    let there = |d: &Value| bench::disk_of(d, serial).is_some_and(|disk| disk["importable"] == true);
    let (document, _) = machine.storage_when(&format!("the stick {serial}"), quiet(10), there)?;
    let key = bench::disk_of(&document, serial).and_then(|d| d["key"].as_str().map(str::to_owned));
    key.ok_or_else(|| format!("the stick {serial} has no handle"))
}

fn import(machine: &mut Bench, key: &str, file: &str, name: &str) -> Result<Value, String> {
    let body = json!({"source": key, "file": file, "served_model_name": name});
    let begun = machine.console()?.expect("POST", "/api/storage/import", Some(&body), &[202])?.json();
    machine.task(begun["task"].as_str().unwrap_or_default(), quiet(40))
}

fn registered(machine: &mut Bench, name: &str) -> Result<String, String> {
    let listed = machine.console()?.expect("GET", "/api/models", None, &[200])?.json();
    let found = listed["models"].as_array().and_then(|all| all.iter().find(|m| m["served_model_name"] == name).cloned());
    found.and_then(|m| m["id"].as_str().map(str::to_owned)).ok_or_else(|| format!("no model {name} is registered"))
}

fn steps(task: &Value) -> String {
    task["steps"].as_array().into_iter().flatten().map(|s| format!("{} {}", s["key"], s["state"])).collect::<Vec<_>>().join(", ")
}
