//! Installing from a stick: the production stick in a machine with firmware, driven by answer files, by its serial line and by pulling the
//! plug. Disks are files that are written in place; "unchanged" means that their content has the same hash.
//!
//! The deliberate break swaps the serial numbers of two disks, so that the installer picks the first disk instead of the second.

mod bench;
mod serves;

use warden_vm::quiet;

use bench::{Bench, Blank, bench};
use serves::MAC;

use crate::cases::{Case, Tier, case};
use crate::console::ADMIN;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

pub use bench::strike;

/// The rows of the table.
pub const CASES: &[Case] = &[
    case("install-second-disk", Tier::Vm, second_disk),
    case("install-stick-left-in", Tier::Vm, stick_left_in),
    case("install-old-system-beside", Tier::Vm, old_system_beside),
    case("install-never-own-stick", Tier::Vm, never_own_stick),
    case("install-small-disk", Tier::Vm, small_disk),
    case("install-answer-bad", Tier::Vm, answer_bad),
    case("install-power-cut", Tier::Vm, power_cut),
];

/// Hash of [`PASSWORD`](crate::console::PASSWORD), as an owner makes it beforehand.
const PHC: &str = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHRzYWx0c2FsdA$QKHrg5tayLGcN+Y0HVPNaBqykOVLUxlMkZycXE1uWRM";

fn answer(serial: &str) -> String {
    format!(
        "# For the test.\ninstall_id = \"box-7\"\nhostname = \"box-7\"\n[target]\nserial = \"{serial}\"\n\
         [network]\nmac = \"{MAC}\"\naddress = \"10.0.2.15/24\"\ngateway = \"10.0.2.2\"\ndns = [\"10.0.2.3\"]\n\
         [admin]\nusername = \"{ADMIN}\"\npassword_hash = \"{PHC}\"\n"
    )
}

/// An unattended installation beside a blank disk and an older installation, seen from all sides.
fn second_disk(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut guard = bench(stage, task)?;
    let bench = guard.get()?;
    if task.sabotage {
        bench.swap_serials = true;
        bench.three = None;
    }
    let seen = bench.three(task, result)?;
    let [first, second, older] = seen.installed.map(|after| after.changed);
    result.expect(second, "the second disk was written");
    result.expect(!first, "the first disk has the same hash as before");
    result.expect(!older, "the third disk, with an older installation, has the same hash as before");
    let told = &seen.first_result;
    result.expect(told["outcome"] == "installed", format!("the result on the stick says installed ({}, {})", told["outcome"], told["failure"]));
    result.expect(told["disk"]["serial"] == "TARGET2" && told["install_id"] == "box-7", format!("it names disk and installation ({})", told["disk"]));
    let steps = told["steps"]["steps"].as_array().map_or(0, |steps| steps.iter().filter(|s| s["state"] == "done").count());
    result.expect(steps == 10, format!("it lists every step as done ({steps} of 10)"));
    let engines = told["engines"].as_array().cloned().unwrap_or_default();
    result.expect(engines.len() == 1, format!("it names the engine that came along ({})", told["engines"]));
    result.expect(!seen.answer_after.contains("argon2id"), "the password hash is gone from the answer file");
    result.figure("install_s", seen.install_seconds);
    result.note(format!("installed and switched off {:.0} s after power-on", seen.install_seconds));
    if first || !second {
        // Not the disk that was asked for: there is nothing to start.
        return Ok(());
    }
    let started = bench.start_installed(task)?;
    let served = started.served.map_err(|cause| format!("the installed box does not serve: {cause}"))?;
    let pack = &served.packs["packs"][0];
    result.expect(pack["state"] == "ready", format!("the engine pack of the stick is ready on the box ({pack})"));
    let answered = &served.answer["usage"]["completion_tokens"];
    result.expect(answered.as_u64().is_some_and(|count| count > 0), format!("a model loaded with it answers a chat request ({answered} tokens)"));
    let port = &served.ports["interfaces"][0];
    let fixed = &port["config"]["ipv4"];
    result.expect(
        fixed["method"] == "static" && fixed["address"] == "10.0.2.15" && fixed["gateway"] == "10.0.2.2" && port["config"]["dns"][0] == "10.0.2.3",
        format!("the port has the settings of the answer file, and the console shows them ({})", port["config"]),
    );
    result.figure("first_answer_s", served.seconds);
    Ok(())
}

/// The stick stays in: the second start installs nothing.
fn stick_left_in(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut guard = bench(stage, task)?;
    let bench = guard.get()?;
    bench.three(task, result)?;
    let again = bench.start_again(task, result)?;
    result.expect(again.changed.iter().all(|changed| !changed), format!("no disk changed at the second start ({:?})", again.changed));
    let told = &again.result;
    result.expect(told["outcome"] == "refused", format!("the result says refused ({})", told["outcome"]));
    let said = told["failure"].as_str().unwrap_or_default();
    result.expect(said.contains("box-7") && said.contains("reinstall"), format!("it says why and what to do: {said}"));
    result.expect(told["earlier"][0]["outcome"] == "installed", "the first outcome is still on the stick");
    result.note("the machine switched itself off both times");
    Ok(())
}

/// The machine without the stick: the new disk starts, the older one neither starts nor is written to.
fn old_system_beside(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut guard = bench(stage, task)?;
    let bench = guard.get()?;
    bench.three(task, result)?;
    let started = bench.start_installed(task)?;
    result.expect(started.slot.contains("slot a on vdb"), format!("the new disk's system is the one that starts ({})", started.slot));
    result.expect(
        started.screen == "Health:",
        format!("its agent answers with the administrator of the answer file; the older system would show its claim code ({})", started.screen),
    );
    result.expect(!started.older_changed, "the older installation has the same hash after the start");
    result.figure("installed_boot_s", started.seconds);
    Ok(())
}

/// By hand: the list has every disk but the stick.
fn never_own_stick(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut guard = bench(stage, task)?;
    let talk = guard.get()?.talk(task)?;
    result.expect(talk.list.contains("serial SMALL1") && talk.list.contains("serial BLANK2"), format!("both disks are listed: {}", talk.list));
    result.expect(!talk.list.contains("serial STICK"), "the stick is not in the list");
    result.expect(talk.third.contains("no disk"), format!("there is no third number to choose: {}", talk.third));
    result.expect(talk.wrong.contains("Nothing was written"), format!("a wrong proof of the serial number writes nothing: {}", talk.wrong));
    result.expect(talk.changed == [false, false], format!("no disk changed ({:?})", talk.changed));
    Ok(())
}

/// By hand: a disk of 1 GiB.
fn small_disk(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut guard = bench(stage, task)?;
    let talk = guard.get()?.talk(task)?;
    result.expect(talk.small.contains("too small"), format!("the small disk is refused: {}", talk.small));
    result
        .expect(talk.small.contains("1073741824 bytes") && talk.small.matches("bytes").count() >= 2, "with what it has and what is needed, in bytes");
    result.expect(!talk.changed[0], "its content has the same hash as before");
    Ok(())
}

/// Answer files that must not be acted on, each at a start of its own.
fn answer_bad(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut guard = bench(stage, task)?;
    let bench = guard.get()?;
    let twins = [Blank { serial: "TWIN", bytes: 3 << 30 }, Blank { serial: "TWIN", bytes: 3 << 30 }];
    for (what, text, words) in [
        ("an unknown key", answer("TWIN").replace("hostname", "hostnam"), ["hostnam", "answer.toml"]),
        ("a disk that is not there", answer("NOPE"), ["NOPE", "TWIN"]),
        ("a serial number that two disks have", answer("TWIN"), ["2 disks", "TWIN"]),
    ] {
        let mut stand = bench.stand("bad", &twins, None)?;
        stand.answer(&text)?;
        let seen = stand.run_to_its_end(task, quiet(60))?;
        let told = stand.result()?;
        let said = told["failure"].as_str().unwrap_or_default().to_owned();
        result.expect(told["outcome"] == "refused", format!("{what} is refused ({})", told["outcome"]));
        result.expect(words.iter().all(|word| said.contains(word)), format!("with a sentence that names it: {said}"));
        result.expect(seen.changed.iter().all(|changed| !changed), format!("nothing was written before ({:?})", seen.changed));
        result.expect(stand.answer_text()?.contains("argon2id"), "the answer file is as it was, to be corrected");
    }
    Ok(())
}

/// The plug is pulled three times; the firmware tries the disk before the stick each time.
fn power_cut(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut guard = bench(stage, task)?;
    let bench = guard.get()?;
    let mut stand = bench.stand("cut", &[Blank { serial: "TARGET2", bytes: 3 << 30 }], None)?;
    stand.disks_first = true;
    // Keys are offered to a firmware in setup mode only; the others of this case have no use for them.
    stand.answer(&format!("secure_boot = \"enroll\"\n{}", answer("TARGET2")))?;
    for percent in [10, 50, 90] {
        let serial = stand.cut_at(task, &format!("Progress {percent} %"), quiet(120))?;
        result.expect(
            serial.contains("initrd: the installer") && !serial.contains("initrd: slot"),
            format!("before the cut at {percent} % the firmware found nothing to start on the disk and took the stick"),
        );
    }
    stand.setup_mode = true;
    let seen = stand.run_to_its_end(task, quiet(180))?;
    result.expect(!seen.serial.contains("initrd: slot"), "after the cut at 90 % the disk did not start either");
    let told = stand.result()?;
    result.expect(told["outcome"] == "installed", format!("the stick installed at the fourth start ({}, {})", told["outcome"], told["failure"]));
    let serial = stand.cut_at(task, "(Health:|Claim code:|initrd: the installer)", quiet(120))?;
    result.expect(serial.contains("initrd: slot a"), "then the disk starts, with the stick still in");
    let (asked, started) = (serial.to_lowercase().find("successfully enrolled"), serial.find("initrd: slot a"));
    result.expect(
        asked.is_some() && asked < started,
        "the firmware, which was in setup mode, took the keys as the answer file wished, and started the disk's system with them",
    );
    Ok(())
}

impl Bench {
    fn three_blanks() -> [Blank; 2] {
        [Blank { serial: "BLANK1", bytes: 3 << 30 }, Blank { serial: "TARGET2", bytes: 3 << 30 }]
    }
}
