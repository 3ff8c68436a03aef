//! `download-faults`, `download-kill`, `disk-check`: whatever the line, the hub or a killed agent does, a file has its name only when it is
//! the promised one, and what was fetched and checked is not fetched again.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use warden_fixtures::TinyModel;

use super::bench::{Bench, words};
use super::hub::{Fault, Gate, Held, TOKEN};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

const LIMIT: Duration = Duration::from_secs(30);
const REPO: &str = "lab/files";

/// A fault with the file it happens to, and what must come of it.
struct Row {
    file: &'static str,
    what: &'static str,
    /// Faults in turn, each once.
    faults: Vec<Fault>,
    /// A word of the sentence when it must fail; `None`: it must come through.
    fails: Option<&'static str>,
}

fn rows() -> Vec<Row> {
    let row = |file, what, faults, fails| Row { file, what, faults, fails };
    let patience = Fault::Status(429, vec![("ratelimit", "\"resolvers\";r=0;t=3")]);
    vec![
        row("drop.gguf", "a line that drops twice", vec![Fault::CutAfter(300_000), Fault::ResetAfter(200_000)], None),
        row("beyond.gguf", "416 in the middle", vec![Fault::CutAfter(300_000), Fault::Status(416, Vec::new())], None),
        row("whole.gguf", "200 for 206", vec![Fault::CutAfter(300_000), Fault::IgnoresRange], None),
        row("stall.gguf", "a line that goes silent", vec![Fault::StallAfter(200_000)], None),
        row("patience.gguf", "429 with a wait of 3 s", vec![Fault::CutAfter(300_000), patience], None),
        row("ill.gguf", "503 in between", vec![Fault::Status(503, Vec::new())], None),
        row("wrong.gguf", "a wrong byte", vec![Fault::WrongByte(500_000)], Some("checksum")),
        row("changed.gguf", "another checksum than the list promised", vec![Fault::OtherTag], Some("another checksum now")),
        row("gone.gguf", "a file that is taken away", vec![Fault::Status(404, vec![("x-error-code", "EntryNotFound")])], Some("not there any more")),
    ]
}

fn content(seed: u64) -> Vec<u8> {
    TinyModel { seed, ..TinyModel::default() }.bytes()
}

/// Runs `download-faults`.
pub fn faults(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::start(stage, task)?;
    bench.console.expect("PUT", "/api/hub", Some(&json!({"token": TOKEN})), &[200])?;
    let rows = rows();
    let files = rows.iter().enumerate().map(|(seed, row)| (row.file, Held::large(content(seed as u64 + 10)))).collect();
    bench.hub.add(REPO, Gate::Gated, files);
    for (seed, row) in rows.iter().enumerate() {
        one(&bench, row, &content(seed as u64 + 10), result)?;
    }
    let asked = bench.hub.asked("/resolve/");
    result.expect(asked.iter().all(|a| !a.storage || a.authorization.is_none()), "no redirect to another host took the token along");
    result.expect(asked.iter().any(|a| !a.storage && a.authorization.is_some()), "the hub itself was told it");

    for (file, path) in
        bench.files().iter().filter(|(file, _)| file.ends_with(".gguf") && !file.rsplit('/').next().unwrap_or_default().starts_with('.'))
    {
        let seed = rows.iter().position(|row| file.ends_with(row.file)).map(|seed| seed as u64 + 10);
        let right = seed.is_some_and(|seed| std::fs::read(path).is_ok_and(|bytes| bytes == content(seed)));
        result.expect(right, format!("{file} is what was promised"));
    }
    loads_at_once(&bench, result)?;
    small_files(&bench, result)?;
    let said = bench.agent.said();
    result.expect(!said.contains("panicked") && !said.contains(TOKEN), "the agent's log shows neither a panic nor the token");
    result.expect(!said.contains("signature="), "nor a signed address");
    Ok(())
}

fn one(bench: &Bench, row: &Row, content: &[u8], result: &mut CaseResult) -> Result<(), String> {
    let name = row.file.trim_end_matches(".gguf");
    for (turn, fault) in row.faults.iter().enumerate() {
        bench.hub.fault(row.file, fault.clone(), goes_right_before(row, turn), 1);
    }
    let id = bench.fetch(&json!({"hf_repo": REPO, "filename": row.file, "served_model_name": name}))?;
    let over = bench.over(&id, LIMIT)?;
    let asked = bench.hub.asked(row.file);
    let sent: u64 = asked.iter().filter(|a| a.storage).map(|a| a.sent).sum();
    let what = row.what;
    if let Some(word) = row.fails {
        let said = words(&over);
        result.expect(over["status"] == "failed" && said.contains(word), format!("{what}: {} with a sentence: {said}", over["status"]));
        let named = bench.files().keys().any(|file| file.ends_with(&format!("/{}", row.file)));
        result.expect(!named, format!("{what}: no file has the name {}", row.file));
        if word == "checksum" {
            result.expect(bench.files().keys().any(|file| file.ends_with(".wrong.gguf.damaged")), "the damaged file was put aside");
        }
        bench.hub.mend();
        bench.console.expect("POST", &format!("/api/models/downloads/{id}/resume"), None, &[202])?;
        let again = bench.over(&id, LIMIT)?;
        result.expect(again["status"] == "done", format!("{what}: once the hub is right again, its button brings it ({})", again["status"]));
        return Ok(());
    }
    result.expect(over["status"] == "done", format!("{what}: {} ({sent} bytes sent for {}) {}", over["status"], content.len(), words(&over)));
    result.expect(over["done_bytes"] == over["size_bytes"] && !over["model_id"].is_null(), format!("{what}: it is registered"));
    let resumed = asked.iter().filter(|a| a.from() > 0).count();
    match name {
        "drop" => {
            result.expect(resumed >= 2, format!("{what}: it went on in the middle ({resumed} times)"));
            result.expect(sent <= content.len() as u64 + 200_000 + 65_536, format!("{what}: what was here was not fetched again ({sent} bytes)"));
        }
        "beyond" | "whole" => result.expect(resumed >= 1 && sent > content.len() as u64, format!("{what}: it began anew ({sent} bytes)")),
        "patience" => {
            let refused = asked.iter().position(|a| a.status == 429).ok_or("no request was refused with 429")?;
            let next = asked.get(refused + 1).map(|next| next.at.duration_since(asked[refused].at));
            result.expect(next.is_some_and(|wait| wait >= Duration::from_secs(3)), format!("{what}: it waited as long as it was told ({next:?})"));
        }
        _ => {}
    }
    Ok(())
}

/// How many requests go right before a fault has its turn. The first one reads the header; a fault of the hub itself
/// then comes after the transfers before it, one of the storage server after the faults of that server before it.
fn goes_right_before(row: &Row, turn: usize) -> u32 {
    let at_hub = |fault: &Fault| matches!(fault, Fault::Status(..) | Fault::OtherTag);
    if at_hub(&row.faults[turn]) {
        return u32::try_from(turn + 1).unwrap_or(1);
    }
    u32::from(row.faults[..turn].iter().all(at_hub))
}

fn loads_at_once(bench: &Bench, result: &mut CaseResult) -> Result<(), String> {
    bench.hub.add("lab/open", Gate::Open, vec![("sub folder/ready.gguf", Held::large(content(3)))]);
    let id = bench.fetch(&json!({"hf_repo": "lab/open", "load": true}))?;
    let over = bench.over(&id, LIMIT)?;
    result.expect(over["status"] == "done" && over["served_model_name"] == "ready", format!("the only file of a repository needs no name: {over}"));
    let model = over["model_id"].as_str().ok_or("the download made no model")?.to_owned();
    let document = bench.console.wait_state(&model, &["running"], Duration::from_secs(60))?;
    result.expect(document["state"]["state"] == "running", "a download that is to be loaded at once is");
    let taken = bench.console.call("POST", "/api/models/downloads", Some(&json!({"hf_repo": "lab/open"})))?;
    result.expect(taken.status == 409 && words(&taken.json()).contains("ready"), format!("its name is taken then: {}", words(&taken.json())));
    bench.console.unload(&model)
}

/// Safetensors with their small files: checked as git does, put into one folder.
fn small_files(bench: &Bench, result: &mut CaseResult) -> Result<(), String> {
    let config = r#"{"architectures":["LlamaForCausalLM"]}"#;
    bench.hub.add(
        "lab/tensors",
        Gate::Open,
        vec![("model.safetensors", Held::large(vec![7; 5000])), ("config.json", Held::small(config)), ("README.md", Held::small("x"))],
    );
    // The discovery reads it too, and is the first to.
    bench.console.expect("GET", "/api/models/discover?repo_id=lab/tensors", None, &[200])?;
    bench.hub.fault("config.json", Fault::WrongByte(3), 0, 1);
    let id = bench.fetch(&json!({"hf_repo": "lab/tensors", "served_model_name": "tensors"}))?;
    let over = bench.over(&id, LIMIT)?;
    let named = |file: &str| bench.files().keys().any(|path| path.starts_with("lab--tensors") && path.ends_with(file));
    result.expect(
        over["status"] == "failed" && !named("/config.json"),
        format!("a small file with a wrong byte is found out by its git checksum: {}", words(&over)),
    );
    bench.console.expect("POST", &format!("/api/models/downloads/{id}/resume"), None, &[202])?;
    bench.over(&id, LIMIT)?;
    let right = bench.files().iter().any(|(path, at)| path.ends_with("/config.json") && std::fs::read_to_string(at).is_ok_and(|text| text == config));
    result.expect(right && named("/model.safetensors") && !named("README.md"), "weights and settings are there, the rest is not");
    Ok(())
}

/// Runs `download-kill`.
pub fn kill(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut bench = Bench::start(stage, task)?;
    let mut bytes = content(5);
    // Behind its tensors a file may hold anything; it makes the transfer long enough to be killed in its middle.
    let mut noise = 1u32;
    bytes.extend((0..60 << 20).map(|_| {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        noise.to_be_bytes()[0]
    }));
    let size = bytes.len() as u64;
    bench.hub.add("lab/long", Gate::Open, vec![("long.gguf", Held::large(bytes.clone()))]);
    bench.hub.fault("long.gguf", Fault::Drip(16 << 20), 1, 1);
    let id = bench.fetch(&json!({"hf_repo": "lab/long", "served_model_name": "long"}))?;
    let done = |document: &Value| document["done_bytes"].as_u64().unwrap_or(0);
    let seen = bench.wait(&id, LIMIT, "in its middle", |document| done(document) > 36 << 20)?;
    result.expect(
        seen["status"] == "running" && seen["bytes_per_second"].as_u64().is_some_and(|rate| rate > 1 << 20),
        format!("it tells its speed: {seen}"),
    );
    result.expect(seen["seconds_left"].as_u64().is_some(), "and the time that is left");

    bench.agent.process()?.signal(Signal::SIGKILL);
    bench.agent.wait_end(Duration::from_secs(10))?;
    let part = bench.files().into_iter().find(|(file, _)| file.ends_with(".long.gguf.part"));
    let there = part.as_ref().and_then(|(_, path)| std::fs::metadata(path).ok()).map_or(0, |about| about.len());
    result.expect(there > 0, format!("kill -9 leaves {there} bytes under a hidden name"));
    result.expect(!bench.files().keys().any(|file| file.ends_with("/long.gguf")), "and nothing under the file's own name");
    bench.hub.take_asked();
    bench.agent.launch()?;
    bench.agent.wait_healthy(Duration::from_secs(30))?;
    bench.console.login()?;
    // It goes on by itself: nobody presses a button here.
    let over = bench.over(&id, LIMIT)?;
    let asked = bench.hub.asked("long.gguf");
    let from = asked.iter().find(|a| a.storage).map_or(0, super::hub::Asked::from);
    let sent: u64 = asked.iter().filter(|a| a.storage).map(|a| a.sent).sum();
    result.figure("resumed_from_bytes", u32::try_from(from >> 10).map_or(0.0, f64::from) * 1024.0);
    result.expect(from >= 16 << 20, format!("after the restart it goes on by itself, from {from} bytes"));
    result.expect(sent <= size - from + 65536, format!("what was on the disk is not fetched again ({sent} of {size} bytes)"));
    result.expect(over["status"] == "done", format!("it ends well ({}) {}", over["status"], words(&over)));
    let whole = bench.files().iter().any(|(file, path)| file.ends_with("/long.gguf") && std::fs::read(path).is_ok_and(|found| found == bytes));
    result.expect(whole, "the file is the promised one, byte for byte");
    pause(&bench, result)
}

/// Pause, resume, cancel, and the limit of speed.
fn pause(bench: &Bench, result: &mut CaseResult) -> Result<(), String> {
    bench.console.expect("PUT", "/api/hub", Some(&json!({"limit_bytes_per_second": 2 << 20})), &[200])?;
    bench.hub.add(
        "lab/second",
        Gate::Open,
        vec![(
            "second.gguf",
            Held::large({
                let mut bytes = content(6);
                bytes.resize(8 << 20, 7);
                bytes
            }),
        )],
    );
    let began = Instant::now();
    let id = bench.fetch(&json!({"hf_repo": "lab/second", "served_model_name": "second"}))?;
    let seen = bench.wait(&id, LIMIT, "in its middle", |document| document["done_bytes"].as_u64().unwrap_or(0) > 3 << 20)?;
    let took = began.elapsed();
    result.expect(took >= Duration::from_secs(1), format!("the limit of 2 MiB/s is kept ({} bytes after {took:?})", seen["done_bytes"]));
    bench.console.expect("POST", &format!("/api/models/downloads/{id}/pause"), None, &[202])?;
    let paused = bench.wait(&id, LIMIT, "paused", |document| document["status"] == "paused")?;
    bench.console.expect("PUT", "/api/hub", Some(&json!({"limit_bytes_per_second": 0})), &[200])?;
    bench.hub.take_asked();
    bench.console.expect("POST", &format!("/api/models/downloads/{id}/resume"), None, &[202])?;
    let over = bench.over(&id, LIMIT)?;
    let from = bench.hub.asked("second.gguf").iter().find(|a| a.storage).map_or(0, super::hub::Asked::from);
    result.expect(over["status"] == "done" && Some(from) == paused["done_bytes"].as_u64(), format!("a pause keeps every byte ({from})"));

    bench.hub.add("lab/third", Gate::Open, vec![("third.gguf", Held::large(content(7)))]);
    bench.hub.fault("third.gguf", Fault::StallAfter(100_000), 1, 9);
    let id = bench.fetch(&json!({"hf_repo": "lab/third", "served_model_name": "third"}))?;
    bench.wait(&id, LIMIT, "begun", |document| document["status"] == "running")?;
    bench.console.expect("DELETE", &format!("/api/models/downloads/{id}"), None, &[204])?;
    let until = Instant::now() + Duration::from_secs(10);
    let mut left;
    loop {
        left = bench.files().keys().filter(|file| file.contains("third") || file.contains(&id)).cloned().collect::<Vec<_>>();
        if left.is_empty() || Instant::now() >= until {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    result.expect(left.is_empty(), format!("a cancelled download leaves nothing behind ({left:?})"));
    Ok(())
}

/// Runs `disk-check`.
pub fn disk_check(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::start(stage, task)?;
    bench.hub.add("lab/huge", Gate::Open, vec![("huge-Q8_0.gguf", Held::claiming(1 << 50)), ("tiny-Q4_0.gguf", Held::large(content(8)))]);
    let before = bench.files();
    let reply = bench.console.call("POST", "/api/models/downloads", Some(&json!({"hf_repo": "lab/huge", "filename": "huge-Q8_0.gguf"})))?;
    let said = words(&reply.json());
    result.expect(
        reply.status == 507 && reply.json()["detail"]["error_code"] == "disk_full",
        format!("a file of 1 PiB is refused ({}): {said}", reply.status),
    );
    for number in ["1024.0 TiB are needed", "free", "512.0 MiB are kept free", "Nothing was fetched"] {
        result.expect(said.contains(number), format!("the sentence tells: {number}"));
    }
    let asked = bench.hub.asked("huge-Q8_0.gguf");
    result.expect(asked.is_empty(), format!("not one byte of it was asked for ({} requests)", asked.len()));
    result.expect(bench.files() == before, "the models folder is as it was");
    let list = bench.console.expect("GET", "/api/models/downloads", None, &[200])?.json();
    result.expect(list["downloads"].as_array().is_some_and(Vec::is_empty), "no download is on the list");
    let id = bench.fetch(&json!({"hf_repo": "lab/huge", "filename": "tiny-Q4_0.gguf"}))?;
    let over = bench.over(&id, LIMIT)?;
    result.expect(over["status"] == "done", format!("the small file of the same repository comes ({})", over["status"]));
    Ok(())
}
