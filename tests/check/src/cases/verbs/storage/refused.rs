//! The system disk is out of reach: for the agent's user through polkit, and for an admin through the agent.

use serde_json::json;

use super::bench::{self, BLANK, Bench};
use crate::console::short;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

const RULE: &str = "/run/polkit-1/rules.d/05-warden-boot-disk.rules";
const QUIET: &str = "auth.no_user_interaction b true";

/// Whether a call was refused for want of a right, not for another cause.
fn unauthorised(reply: &(i32, String)) -> bool {
    reply.0 != 0 && (reply.1.contains("Not authorized") || reply.1.contains("NotAuthorized"))
}

/// `disk-system-refused-polkit`
pub fn by_polkit(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut held = bench::machine(stage, task)?;
    let outcome = polkit(held.bench()?, task.sabotage, result);
    if task.sabotage {
        // The system disk may be damaged now.
        held.give_up();
    }
    outcome
}

fn polkit(machine: &mut Bench, sabotage: bool, result: &mut CaseResult) -> Result<(), String> {
    if sabotage {
        machine.root_ok(&format!("echo 'polkit.wardenBootDisk = [\"/dev/none\"];' > {RULE} && systemctl restart polkit"))?;
    }
    let rule = machine.root_ok(&format!("cat {RULE}; ls -ld /run/polkit-1/rules.d {RULE}"))?;
    result.note(format!("the rule of this start: {}", rule.split_whitespace().collect::<Vec<_>>().join(" ")));
    let boot = machine.root_ok("readlink -f /dev/warden/root-b; readlink -f /dev/warden/state")?;
    let parts: Vec<String> = boot.split_whitespace().map(|p| p.trim_start_matches("/dev/").to_owned()).collect();
    let [root_b, state] = parts.as_slice() else { return Err(format!("the boot disk's partitions are not there: {boot}")) };
    let whole = root_b.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
    // What would be done to the partition that is not in use comes first: nothing but the rule is in its way.
    for (block, interface, call) in [
        (root_b.as_str(), "Partition", format!("SetName sa{{sv}} planted 1 {QUIET}")),
        (root_b, "Block", format!("Format sa{{sv}} ext4 1 {QUIET}")),
        (state, "Filesystem", format!("Unmount a{{sv}} 1 {QUIET}")),
        (state, "Filesystem", format!("SetLabel sa{{sv}} planted 1 {QUIET}")),
        (&whole, "Block", format!("Format sa{{sv}} gpt 1 {QUIET}")),
        (&whole, "PartitionTable", format!("CreatePartition ttssa{{sv}} 0 0 '' planted 1 {QUIET}")),
        (root_b, "Block", format!("OpenDevice sa{{sv}} r 1 {QUIET}")),
    ] {
        let reply = machine.udisks(block, interface, &call)?;
        let name = call.split_whitespace().next().unwrap_or_default();
        result.expect(unauthorised(&reply), format!("warden calls {interface}.{name} on {block}: {}", reply.1.trim()));
    }
    let blank = machine.device(BLANK)?;
    for (interface, call) in [("Block", format!("OpenDevice sa{{sv}} r 1 {QUIET}")), ("Block", format!("Rescan a{{sv}} 1 {QUIET}"))] {
        let reply = machine.udisks(&blank, interface, &call)?;
        let name = call.split_whitespace().next().unwrap_or_default();
        result.expect(unauthorised(&reply), format!("{name}, which model storage does not need, on the blank disk: {}", reply.1.trim()));
    }
    let reply = machine.udisks(&blank, "Block", &format!("Format sa{{sv}} ext4 2 {QUIET} mkfs-args as 2 -d /state"))?;
    result
        .expect(reply.0 != 0 && reply.1.contains("not allowed"), format!("arguments slipped to the format program are refused: {}", reply.1.trim()));
    let reply = machine.udisks(&blank, "Block", &format!("Format sa{{sv}} vfat 1 {QUIET}"))?;
    result.expect(reply.0 != 0, format!("another file system than that of model storage is refused: {}", reply.1.trim()));
    let reply = machine.udisks(&blank, "Block", &format!("Format sa{{sv}} gpt 1 {QUIET}"))?;
    result.expect(reply.0 == 0, format!("the same user may write a partition table on the blank disk: {}", reply.1.trim()));
    let reply = machine.udisks(&blank, "Block", &format!("Format sa{{sv}} empty 1 {QUIET}"))?;
    result.expect(reply.0 == 0, format!("and make it blank again: {}", reply.1.trim()));
    // Without a trace, so that the next case finds a disk as it left the factory.
    machine.root_ok(&format!("dd if=/dev/zero of=/dev/{blank} bs=1M count=8 && dd if=/dev/zero of=/dev/{blank} bs=1M seek=1016 count=8; sync; udevadm trigger --action=change /dev/{blank}"))?;
    Ok(())
}

/// `disk-system-refused-agent`
pub fn by_agent(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut held = bench::machine(stage, task)?;
    let machine = held.bench()?;
    let (document, _) = machine.storage_when("the system disk", warden_vm::quiet(10), |d| d["state"]["disks"][0]["role"] == "system")?;
    let disk = document["state"]["disks"][0].clone();
    let key = disk["key"].as_str().unwrap_or_default();
    let serial = disk["serial"].as_str().unwrap_or_default();
    let systems = document["state"]["disks"].as_array().map_or(0, |all| all.iter().filter(|d| d["role"] == "system").count());
    result.expect(systems == 1 && serial == "DISK0", format!("exactly one disk is the system disk: {key} (serial {serial})"));
    result.expect(disk["importable"] == false, "nothing is imported from it, although its boot partition is FAT");
    let console = machine.console()?;
    for (what, path, body) in [
        ("the plan", "/api/storage/adopt?plan=1", json!({"disk": key})),
        ("the adoption", "/api/storage/adopt", json!({"disk": key})),
        ("the adoption with its serial number", "/api/storage/adopt", json!({"disk": key, "serial": serial})),
    ] {
        let reply = console.call("POST", path, Some(&body))?;
        result.expect(reply.status == 403 && reply.text().contains("system disk"), format!("{what} is refused: {} {}", reply.status, short(&reply)));
    }
    let reply = console.call("GET", &format!("/api/storage/sources/{key}/models"), None)?;
    result.expect(reply.status == 403, format!("it is no source: {} {}", reply.status, short(&reply)));
    let reply = console.call("POST", "/api/storage/adopt", Some(&json!({"disk": "no_such_disk"})))?;
    result.expect(reply.status == 404, format!("a disk that is not there: {}", reply.status));
    Ok(())
}
