//! `restart-no-refusal`: visitors come to the encrypted and the plain port without a pause, and two answers stream, while the agent is
//! restarted.
//!
//! A real engine answers (its pack lies open as a folder, because a container cannot attach a signed image). It is held and let go by
//! signals, so that a stream lasts exactly as long as the case needs: one ends within the drain time, one outlasts it. The deliberate
//! break restarts the sockets together with the agent.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use warden_vm::Lan;

use super::bench::Bench;
use crate::appliance::TINY;
use crate::command;
use crate::console::{Console, launch_identity};
use crate::http::Http;
use crate::images::TINY_FILE;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// How long visitors keep coming.
const CROWD: Duration = Duration::from_secs(12);
/// A visitor who has waited this long was refused for all practical purposes.
const PATIENCE: Duration = Duration::from_secs(15);
const UNITS: &str = "warden-engine@*.service";

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let (images, places) = stage.images();
    let pack = images.pack_tree(places, &task.log)?;
    let tiny = tempfile::NamedTempFile::new().map_err(|e| e.to_string())?;
    stage.write_tiny_model(tiny.path())?;
    let bench = Bench::boot(stage, task, |data| lay_out(&pack, tiny.path(), data, task))?;
    open_pack(&bench)?;
    let console = bench.claimed()?;
    let (id, model) = bench.within(|| console.serve(TINY_FILE, TINY, Duration::from_secs(60)))?;
    let (_, key) = bench.within(|| console.make_key("restart"))?;
    let before = launch_identity(&model).unwrap_or_default().to_owned();
    let tls = bench.trusting(PATIENCE)?;
    bench.within(|| console.expect("PUT", "/api/tls", Some(&json!({"plain_http": true})), &[200]))?;
    let plain = Http::new(&format!("http://{}:8080", Lan::BOX_V4), PATIENCE);

    let (over, under_way, started) = (AtomicBool::new(false), AtomicUsize::new(0), Instant::now());
    let (visits, streams) = bench.within(|| {
        std::thread::scope(|scope| {
            let crowd: Vec<_> = [&tls, &tls, &tls, &plain].map(|http| scope.spawn(|| knock(http, &over))).into();
            std::thread::sleep(Duration::from_secs(1));
            let readers = [(); 2].map(|()| scope.spawn(|| stream(&console, &key, &under_way)));
            wait_for(&under_way, 2);
            bench.root_ok(&["/usr/bin/systemctl", "kill", "--signal=STOP", UNITS])?;
            let ended = restart(&bench, task.sabotage);
            while started.elapsed() < CROWD {
                std::thread::sleep(Duration::from_millis(50));
            }
            over.store(true, Ordering::Relaxed);
            bench.root_ok(&["/usr/bin/systemctl", "kill", "--signal=CONT", UNITS])?;
            ended?;
            let visits: Vec<Visit> = crowd.into_iter().flat_map(|visitor| visitor.join().unwrap_or_default()).collect();
            let streams = readers.map(|reader| reader.join().unwrap_or_else(|_| Err("the reader panicked".to_owned())));
            Ok((visits, streams))
        })
    })?;

    let refused: Vec<&Visit> = visits.iter().filter(|visit| visit.answer != Ok(200)).collect();
    let longest = visits.iter().map(|visit| visit.took).max().unwrap_or_default().as_secs_f64();
    result.figure("restart_wait_s", longest);
    #[allow(clippy::cast_precision_loss, reason = "a count of visits")]
    result.figure("visits", visits.len() as f64);
    result.expect(
        refused.is_empty() && visits.len() > 50,
        format!("of {} visitors {} were not served ({:?})", visits.len(), refused.len(), refused.first().map(|visit| &visit.answer)),
    );
    result.expect(longest <= 5.0, format!("the longest any visitor waited is {longest:.2} s"));
    for seen in streams {
        let seen = seen?;
        result.expect(seen.events > 0, format!("a stream was under way ({} events)", seen.events));
        result.expect(
            seen.error["error"]["message"].as_str().is_some_and(|m| m.contains("stopping")) && !seen.done,
            format!("and ended with an error event of its dialect ({})", seen.error),
        );
    }
    let after = after(&bench, &console, &id, &key, &before, result);
    bench.run("root", &["/usr/bin/journalctl", "--no-pager", "--output=short-precise", "-u", "warden-agent.service"])?;
    after
}

/// The agent is there as before, its engine untouched; a stream that ends within the drain time ends well.
fn after(bench: &Bench, console: &Console, id: &str, key: &str, before: &str, result: &mut CaseResult) -> Result<(), String> {
    let model = bench.within(|| console.wait_state(id, &["running"], Duration::from_secs(30)))?;
    let launch = launch_identity(&model).unwrap_or_default().to_owned();
    result.expect(launch == before, format!("the engine is the one from before ({launch})"));
    let answer = bench.within(|| console.chat(key, TINY, "Still there?"))?;
    result.expect(answer["usage"].is_object(), "and it answers");
    let under_way = AtomicUsize::new(0);
    let seen = bench.within(|| {
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| stream(console, key, &under_way));
            wait_for(&under_way, 1);
            bench.root_ok(&["/usr/bin/systemctl", "kill", "--signal=STOP", UNITS])?;
            let restarting = scope.spawn(|| restart(bench, false));
            std::thread::sleep(Duration::from_millis(700));
            bench.root_ok(&["/usr/bin/systemctl", "kill", "--signal=CONT", UNITS])?;
            restarting.join().map_err(|_| "the restart panicked".to_owned())??;
            reader.join().map_err(|_| "the reader panicked".to_owned())?
        })
    })?;
    result.expect(
        seen.done || !seen.error.is_null(),
        format!("a stream that the engine could end within the drain time is not cut off dumb ({})", seen.error),
    );
    result.note(format!("it was {} after {} events", if seen.done { "closed by [DONE]" } else { "ended by an error event" }, seen.events));
    Ok(())
}

fn restart(bench: &Bench, sabotage: bool) -> Result<(), String> {
    if sabotage {
        let units = ["/usr/bin/systemctl", "stop", "warden-agent.socket", "warden-redirect.socket", "warden-agent.service"];
        bench.root_ok(&units)?;
        return bench.root_ok(&["/usr/bin/systemctl", "start", "warden-agent.service"]).map(drop);
    }
    bench.root_ok(&["/usr/bin/systemctl", "restart", "warden-agent.service"]).map(drop)
}

/// One visitor.
#[derive(Debug)]
struct Visit {
    took: Duration,
    answer: Result<u16, String>,
}

/// Comes again and again, each time over a new connection.
fn knock(http: &Http, over: &AtomicBool) -> Vec<Visit> {
    let mut visits = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let started = Instant::now();
        let answer = http.again(PATIENCE).get("/healthz").map(|reply| reply.status);
        visits.push(Visit { took: started.elapsed(), answer });
        std::thread::sleep(Duration::from_millis(20));
    }
    visits
}

/// What a stream showed.
#[derive(Debug, Default)]
struct Seen {
    events: usize,
    error: Value,
    done: bool,
}

/// Waits until that many streams are under way; their readers say why if they never are.
fn wait_for(under_way: &AtomicUsize, streams: usize) {
    let started = Instant::now();
    while under_way.load(Ordering::Relaxed) < streams && started.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A long answer, read to its end, whatever the end is. Its first event is counted.
fn stream(console: &Console, key: &str, under_way: &AtomicUsize) -> Result<Seen, String> {
    let body = json!({"model": TINY, "messages": [{"role": "user", "content": "Tell me everything."}], "max_tokens": 100_000, "stream": true,
        "ignore_eos": true});
    let bearer = format!("Bearer {key}");
    let headers = [("content-type", "application/json"), ("authorization", bearer.as_str())];
    let http = console.http.again(Duration::from_secs(60));
    let mut stream = http.stream("POST", "/v1/chat/completions", &headers, Some(body.to_string().as_bytes()))?;
    if stream.status != 200 {
        return Err(format!("a stream was refused with status {}", stream.status));
    }
    let mut seen = Seen::default();
    loop {
        let line = match stream.next_line() {
            Ok(Some((_, line))) => line,
            Ok(None) => break,
            // After its error event a stream is cut, so that nobody takes it for whole.
            Err(_) if seen.error.is_object() => break,
            Err(cause) => return Err(format!("{cause} after {} events, without a word", seen.events)),
        };
        let Some(data) = line.strip_prefix("data: ") else { continue };
        if data == "[DONE]" {
            seen.done = true;
            continue;
        }
        let event: Value = serde_json::from_str(data).unwrap_or_default();
        if event["error"].is_object() {
            seen.error = event;
        } else {
            if seen.events == 0 {
                under_way.fetch_add(1, Ordering::Relaxed);
            }
            seen.events += 1;
        }
    }
    Ok(seen)
}

/// The box's data folder: the model, the pack's folder, and its description with a file that stands for the image.
fn lay_out(pack: &Path, tiny: &Path, data: &Path, task: &Task) -> Result<(), String> {
    let said = |e: std::io::Error| format!("the box's data: {e}");
    let mut copy = Command::new("cp");
    copy.arg("--archive").arg(pack).arg(data.join("pack"));
    command::run_ok("laying out the pack", copy, Duration::from_secs(60), &task.log)?;
    let model = data.join("models").join(TINY_FILE);
    std::fs::copy(tiny, &model).map_err(said)?;
    readable(&model).map_err(said)?;
    let content = b"a folder stands in for it";
    let digest = hex::encode(Sha256::digest(content));
    std::fs::write(data.join(format!("packs/{digest}.raw")), content).map_err(said)?;
    let description = json!({"engine": "llama.cpp", "version": "b1", "digest": digest}).to_string();
    std::fs::write(data.join(format!("packs/{digest}.json")), description).map_err(said)
}

fn readable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644))
}

/// Has the engine's unit take the folder for its root.
fn open_pack(bench: &Bench) -> Result<(), String> {
    let folder = bench.seen("/run/systemd/system/warden-engine@.service.d");
    let said = |e: std::io::Error| format!("{}: {e}", folder.display());
    std::fs::create_dir_all(&folder).map_err(said)?;
    std::fs::write(folder.join("90-folder.conf"), "[Service]\nRootImage=\nRootImagePolicy=\nRootDirectory=/data/pack\n").map_err(said)?;
    bench.root_ok(&["/usr/bin/systemctl", "daemon-reload"]).map(drop)
}
