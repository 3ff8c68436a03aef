//! `ota-resume`: the server cuts and the machine loses power in the middle of a download; what was fetched and is right is not fetched again.
//!
//! Between the power cut and the next start one block of the unfinished file is damaged, as a disk that lied about its writes leaves it: a
//! transfer that goes on by the file's length alone would keep it. The deliberate break is an agent that does just that.

use std::time::Duration;

use serde_json::json;
use warden_vm::quiet;

use super::calls;
use super::chain::bench;
use super::machine::UpdateBox;
use super::publisher::{Target, Wanted};
use super::server::{Asked, Fault};
use super::site::{self, Site};
use super::works::Build;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Bytes a second, so that there is a middle.
const RATE: u64 = 6 << 20;
const PART: u64 = 4 << 20;
const PART_BYTES: usize = 4 << 20;

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    if site::on_this_machine(task) {
        return on_this_machine(stage, task, result);
    }
    let mut held = bench(stage, task)?;
    let bench = held.get()?;
    bench.machine(stage, task)?;
    let build = if bench.trips.len() == 1 { Build::Third } else { Build::Crash };
    let image = bench.works.update(build, stage, &task.log)?;
    bench.publish_wanted(&Wanted::version(bench.release, vec![Target::os(build.version(), &image)]))?;
    let address = bench.address();
    let console = bench.machine(stage, task)?.console()?;
    calls::settings(&console, &json!({"channel_url": address, "channel": "stable", "automatic": "off", "rate_limit_bytes_per_s": RATE}))?;
    let asked = calls::check(&console)?;
    result.expect(asked.done, format!("the channel is believed ({})", asked.sentence));
    let sha256 = calls::offered(&calls::document(&console)?, build.version())?;
    bench.server.take_asked();
    bench.server.fault(&sha256, Fault::CutAfter(3 * PART + 1000), 1);
    bench.server.fault(&sha256, Fault::ResetAfter(2 * PART + 1000), 1);
    // The box fetches by itself and installs nothing.
    calls::settings(&console, &json!({"channel_url": address, "channel": "stable", "automatic": "download", "rate_limit_bytes_per_s": RATE}))?;
    let here = |document: &serde_json::Value| document["progress"]["done"].as_u64().unwrap_or(0);
    calls::wait(&console, "a third of the download", quiet(40), |document| here(document) > 8 * PART)?;
    let machine = bench.machine(stage, task)?;
    machine.unplug();
    // The server notes a request when its connection is over.
    std::thread::sleep(Duration::from_secs(2));
    let before = bench.server.take_asked();
    result.expect(before.len() >= 3, format!("the server broke off twice, and the box went on by itself ({} requests)", before.len()));
    result.expect(resumed(&before), format!("each time from where it stood: {:?}", ranges(&before)));
    let bytes = std::fs::read(&image).map_err(|e| format!("{}: {e}", image.display()))?;
    let machine = bench.machine.as_mut().ok_or("there is no machine")?;
    let damaged = damage(machine, &bytes)?;
    result.note(format!("while the machine was off, the block at {damaged} of the unfinished file was damaged"));
    machine.switch_on()?;
    machine.wait_up()?;
    let console = machine.console()?;
    // It goes on by itself: the phase says so, and nobody calls.
    let document = calls::wait_phase(&console, &["verified"], quiet(90))?;
    let after = bench.server.take_asked();
    let first = after.iter().find(|a| a.path.contains(&sha256)).and_then(|a| a.range.clone()).unwrap_or_default();
    let from: u64 = first.trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap_or(0);
    result.expect(from > 0, format!("after the power cut it goes on from byte {from} and not from the beginning"));
    result.expect(from <= damaged, format!("and not behind the damaged block at {damaged}"));
    let sent: u64 = before.iter().chain(&after).filter(|a| a.path.contains(&sha256)).map(|a| a.sent).sum();
    let length = bytes.len() as u64;
    result.expect(sent < length + length / 2, format!("{sent} bytes were sent in all for an image of {length}"));
    result.expect(document["fault"].is_null(), format!("the image is whole ({})", document["fault"]));
    calls::settings(&console, &json!({"channel_url": address, "channel": "stable", "automatic": "off"}))?;
    calls::cancel(&console)
}

/// Changes one byte in a block of the unfinished file, as far behind as blocks reached the disk; its place in the file.
fn damage(machine: &mut UpdateBox, image: &[u8]) -> Result<u64, String> {
    use std::os::unix::fs::FileExt;
    const BLOCK: usize = 4096;
    let (first, length) = machine.drive().part("warden-data")?;
    let path = machine.drive().path().to_owned();
    let said = |e: std::io::Error| format!("{}: {e}", path.display());
    let file = std::fs::File::options().read(true).write(true).open(&path).map_err(said)?;
    let wanted: Vec<(usize, &[u8])> = (1..=5)
        .rev()
        .filter_map(|part| {
            let at = part * PART_BYTES + BLOCK;
            Some((at, image.get(at..at + BLOCK)?))
        })
        .collect();
    // Earlier transfers of the same bytes may have left the same blocks in free space: all of them are changed.
    let mut found: Vec<(usize, u64)> = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    let mut done = 0;
    while done < length {
        let room = usize::try_from((length - done).min(1 << 20)).unwrap_or(0);
        file.read_exact_at(&mut buffer[..room], first + done).map_err(said)?;
        for (n, block) in buffer[..room].chunks_exact(BLOCK).enumerate() {
            if let Some((at, _)) = wanted.iter().find(|(_, wanted)| *wanted == block) {
                found.push((*at, first + done + (n * BLOCK) as u64));
            }
        }
        done += room as u64;
    }
    let last = found.iter().map(|(at, _)| *at).max();
    let at = last.ok_or("no block of the unfinished file is on the disk: the case must be fitted to where the agent keeps it")?;
    for (_, place) in found.into_iter().filter(|(of, _)| *of == at) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, place).map_err(said)?;
        file.write_all_at(&[byte[0] ^ 0x40], place).map_err(said)?;
    }
    Ok(at as u64)
}

fn ranges(asked: &[Asked]) -> Vec<String> {
    asked.iter().map(|a| a.range.clone().unwrap_or_else(|| "whole".to_owned())).collect()
}

/// Whether every request but the first asks for a piece.
fn resumed(asked: &[Asked]) -> bool {
    asked.iter().skip(1).all(|a| a.range.is_some())
}

/// The same with an agent on this machine, which is killed instead of losing power.
fn on_this_machine(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut site = Site::host(stage, task)?;
    let image = site.dummy("1.1.0", 20 * 1024 * 1024)?;
    let publisher = site.publisher().clone();
    publisher.publish("stable", &Wanted::version(1, vec![Target::os("1.1.0", &image)]))?;
    let address = site.follow("stable", "off")?;
    let console = site.console();
    calls::settings(&console, &json!({"channel_url": address, "channel": "stable", "automatic": "off", "rate_limit_bytes_per_s": 4 << 20}))?;
    let asked = calls::check(&console)?;
    result.expect(asked.done, format!("the channel is believed ({})", asked.sentence));
    let sha256 = calls::offered(&calls::document(&console)?, "1.1.0")?;
    calls::begin_install(&console, &sha256)?;
    calls::wait(&console, "half of the download", Duration::from_secs(60), |d| d["progress"]["done"].as_u64().unwrap_or(0) > 3 * PART)?;
    site.kill_agent()?;
    let folder = site.updates_folder()?;
    let unfinished = largest(&folder)?;
    let bytes = std::fs::read(&image).map_err(|e| format!("{}: {e}", image.display()))?;
    let mut kept = std::fs::read(&unfinished).map_err(|e| format!("{}: {e}", unfinished.display()))?;
    let at = PART_BYTES + 5000;
    *kept.get_mut(at).ok_or("too little was fetched for this case")? ^= 0x40;
    std::fs::write(&unfinished, &kept).map_err(|e| format!("{}: {e}", unfinished.display()))?;
    site.server().take_asked();
    site.start_agent()?;
    let console = site.console();
    let document = calls::wait(&console, "the end of the download", Duration::from_secs(90), |d| {
        d["phase"] == "verified" || !d["fault"].is_null() || d["phase"] == "idle"
    })?;
    let first = site.server().take_asked().iter().find(|a| a.path.contains(&sha256)).and_then(|a| a.range.clone()).unwrap_or_default();
    let from: u64 = first.trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap_or(0);
    result.expect(from > 0, format!("it goes on from byte {from} and not from the beginning"));
    result.expect(from <= at as u64, format!("and not behind the damaged byte {at}"));
    result.expect(
        document["phase"] == "verified",
        format!("the image of {} bytes is whole in the end ({}, {})", bytes.len(), document["phase"], document["fault"]),
    );
    Ok(())
}

fn largest(folder: &std::path::Path) -> Result<std::path::PathBuf, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut files: Vec<_> =
        entries.flatten().filter_map(|entry| Some((entry.metadata().ok().filter(|m| m.is_file())?.len(), entry.path()))).collect();
    files.sort();
    files.pop().map(|(_, path)| path).ok_or_else(|| format!("{} holds no unfinished file", folder.display()))
}
