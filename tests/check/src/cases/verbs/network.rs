//! Addresses, names, time; changes that undo themselves.
//!
//! The network cases run in a container with the image's root and the real network service, on a network that the test plays. The
//! clock is nothing a container may set, so name and time are looked at in a virtual machine.

mod bench;
mod client;
mod host;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cases::{Case, Tier, case};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

use bench::{Bench, OLD, PORT, ROUTER, TAKEN, TAKEN_FAR, fixed};
use client::{Answer, Client};

/// The rows of the table.
pub const CASES: &[Case] = &[
    case("net-validation", Tier::Nspawn, validation),
    case("net-static-confirmed", Tier::Nspawn, static_confirmed),
    case("net-bad-gateway", Tier::Nspawn, bad_gateway),
    case("net-power-cut", Tier::Nspawn, power_cut),
    case("net-agent-dies", Tier::Nspawn, agent_dies),
    case("host-name-ntp", Tier::Vm, host::name_and_clock),
];

/// Where the cases move the box to.
const NEW: &str = "10.77.0.50";
/// An address where no router is.
const NO_ROUTER: &str = "10.77.0.9";
/// The window the cases give.
const WINDOW_S: u64 = 60;
/// Time for a port to take its settings on a busy machine.
const TAKES: Duration = Duration::from_secs(30);

fn path() -> String {
    format!("/api/network/interfaces/{PORT}?confirm={WINDOW_S}s")
}

fn apply(admin: &Client<'_>, wanted: &Value) -> Result<String, String> {
    let begun = admin.call("PUT", &path(), Some(wanted))?;
    if begun.status != 202 {
        return Err(format!("the change was not begun: {} {}", begun.status, begun.text));
    }
    begun.json["token"].as_str().map(str::to_owned).ok_or_else(|| format!("the answer holds no token: {}", begun.text))
}

fn confirm(at: &Client<'_>, token: &str) -> Result<Answer, String> {
    at.call("POST", "/api/network/confirm", Some(&json!({"token": token})))
}

/// Moves the box for good; what follows a trouble must still work.
fn moves_for_good(bench: &Bench, from: &str, to: &str, result: &mut CaseResult) -> Result<(), String> {
    let admin = bench.admin_at(from)?;
    let token = apply(&admin, &fixed(to, 24, Some(ROUTER)))?;
    let new = bench.client(to);
    let reached = new.wait(TAKES);
    result.expect(reached.is_some(), format!("the next change takes the box to {to}"));
    let kept = confirm(&new, &token)?;
    result.expect(kept.status == 200 && kept.json["kept"] == true, format!("and is confirmed there ({} {})", kept.status, kept.text));
    Ok(())
}

fn with_bench(
    stage: &mut Stage,
    task: &Task,
    result: &mut CaseResult,
    look: impl FnOnce(&mut Bench, &mut CaseResult) -> Result<(), String>,
) -> Result<(), String> {
    let mut bench = Bench::new(stage, task)?;
    let outcome = look(&mut bench, result);
    if outcome.is_err() || !result.passed {
        bench.keep_journal();
    }
    outcome
}

fn static_confirmed(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    with_bench(stage, task, result, |bench, result| {
        let admin = bench.admin()?;
        let wanted = fixed(NEW, 24, Some(ROUTER));
        let plan = admin.call("PUT", &format!("/api/network/interfaces/{PORT}?plan=1"), Some(&wanted))?;
        let says = plan.json["changes"][0].as_str().unwrap_or_default().to_owned();
        let to = plan.json["console_urls"][0].as_str().unwrap_or_default().to_owned();
        result.expect(
            plan.status == 200 && says.contains(OLD) && says.contains(NEW) && to.contains(NEW),
            format!("the plan says: {says} The console will be at {to}"),
        );
        let token = apply(&admin, &wanted)?;
        let new = bench.client(NEW);
        let took = new.wait(TAKES);
        result.expect(took.is_some(), format!("the box answers at {NEW}"));
        result.figure("net_apply_s", took.unwrap_or(TAKES).as_secs_f64());
        result.expect(!bench.profiles()?.iter().any(|p| p.contains("warden-")), "nothing is on the disk before the confirmation");
        let wrong = confirm(&new, "not-the-token")?;
        result.expect(wrong.status == 404, format!("a wrong token is refused ({})", wrong.status));
        let kept = confirm(&new, &token)?;
        result.expect(
            kept.status == 200 && kept.json["kept"] == true,
            format!("the token confirms on the new address ({} {})", kept.status, kept.text),
        );
        let again = confirm(&new, &token)?;
        result.expect(again.status == 404, format!("the token works once ({})", again.status));
        result.expect(bench.checkpoints()?.is_empty(), "no checkpoint is left");
        // The power goes at once: what was confirmed must be on the disk.
        bench.power_cut();
        bench.power_on()?;
        let new = bench.client(NEW);
        result.expect(new.wait(Duration::from_secs(90)).is_some(), format!("after a reboot the box answers at {NEW}"));
        let document = bench.admin_at(NEW)?.get("/api/network")?;
        let config = &document["interfaces"][0]["config"]["ipv4"];
        result.expect(config["address"] == NEW && config["method"] == "static", format!("and its document says so ({config})"));
        result.expect(!bench.client(OLD).answers(), format!("{OLD} is given up"));
        Ok(())
    })
}

fn bad_gateway(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    with_bench(stage, task, result, |bench, result| {
        let admin = bench.admin()?;
        let applied = Instant::now();
        let token = apply(&admin, &fixed(NEW, 24, Some(NO_ROUTER)))?;
        if task.sabotage {
            for path in bench.checkpoints()? {
                bench.stop_checkpoint(&path)?;
            }
        }
        let new = bench.client(NEW);
        std::thread::sleep(Duration::from_secs(6));
        let there = bench.addresses()?;
        result.expect(there.iter().any(|a| a.starts_with(NEW)), format!("the box took {NEW} ({there:?})"));
        result.expect(!new.answers(), "behind the router nobody reaches it there");
        let lost = new.call_within("POST", "/api/network/confirm", Some(&json!({"token": token})), Duration::from_secs(3))?;
        result.expect(lost.status == 0, "so nobody can confirm");
        let back = bench.client(OLD).wait(Duration::from_secs(100).saturating_sub(applied.elapsed()));
        let took = applied.elapsed().as_secs_f64();
        result.expect(back.is_some(), format!("the old address answers again after {took:.1} s"));
        if back.is_none() {
            return Ok(());
        }
        result.figure("net_rollback_s", took);
        std::thread::sleep(Duration::from_secs(3));
        let document = bench.admin()?.get("/api/network")?;
        let last = &document["last_change"];
        result.expect(last["kept"] == false && document["pending"].is_null(), format!("the page says: {}", last["message"]));
        result.expect(!bench.profiles()?.iter().any(|p| p.contains("warden-")), "nothing of it is on the disk");
        moves_for_good(bench, OLD, NEW, result)
    })
}

fn power_cut(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    with_bench(stage, task, result, |bench, result| {
        let admin = bench.admin()?;
        let token = apply(&admin, &fixed(NEW, 24, Some(ROUTER)))?;
        let reached = bench.client(NEW).wait(TAKES).is_some();
        result.expect(reached, format!("the box answers at {NEW}, not confirmed"));
        if !reached {
            bench.keep_journal();
        }
        bench.power_cut();
        bench.power_on()?;
        result.expect(bench.client(OLD).wait(Duration::from_secs(90)).is_some(), format!("after the power cut it answers at {OLD}"));
        result.expect(!bench.client(NEW).answers(), format!("and not at {NEW}"));
        let late = confirm(&bench.client(OLD), &token)?;
        result.expect(late.status == 404, format!("the old token is worth nothing ({})", late.status));
        let document = bench.admin()?.get("/api/network")?;
        let last = &document["last_change"];
        result.expect(last["kept"] == false && document["pending"].is_null(), format!("the page says: {}", last["message"]));
        moves_for_good(bench, OLD, NEW, result)
    })
}

fn agent_dies(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    const UNITS: [&str; 2] = ["warden-agent.service", "warden-agent.socket"];
    with_bench(stage, task, result, |bench, result| {
        // First an agent that stays dead: the network service has to do it alone.
        let admin = bench.admin()?;
        let applied = Instant::now();
        let _token = apply(&admin, &fixed(NEW, 24, Some(ROUTER)))?;
        result.expect(bench.client(NEW).wait(TAKES).is_some(), format!("the box answers at {NEW}"));
        let kill = ["/usr/bin/systemctl", "kill", "--signal=KILL", UNITS[0]];
        bench.root(&["/usr/bin/systemctl", "mask", "--runtime", UNITS[0], UNITS[1]])?;
        bench.root(&kill)?;
        let mut back = None;
        while applied.elapsed() < Duration::from_secs(WINDOW_S + 30) {
            if bench.addresses()?.iter().any(|a| a.starts_with(OLD)) {
                back = Some(applied.elapsed());
                break;
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        let dead = bench.root(&["/usr/bin/systemctl", "is-active", UNITS[0]])?;
        result.expect(dead.stdout.trim() != "active", format!("the agent is dead ({})", dead.stdout.trim()));
        result.expect(back.is_some(), format!("without it the old address is back after {:.1} s", back.unwrap_or_default().as_secs_f64()));
        result.figure("net_rollback_agent_dead_s", back.unwrap_or_default().as_secs_f64());
        bench.root(&["/usr/bin/systemctl", "unmask", "--runtime", UNITS[0], UNITS[1]])?;
        bench.root(&["/usr/bin/systemctl", "restart", UNITS[1]])?;
        bench.root(&["/usr/bin/systemctl", "restart", UNITS[0]])?;
        let document = bench.admin()?.get("/api/network")?;
        result.expect(document["last_change"]["kept"] == false, format!("the agent that comes back says: {}", document["last_change"]["message"]));

        // Then one that comes back within the window: it undoes at once.
        let admin = bench.admin()?;
        let token = apply(&admin, &fixed(NEW, 24, Some(ROUTER)))?;
        result.expect(bench.client(NEW).wait(TAKES).is_some(), format!("the box answers at {NEW} again"));
        let killed = Instant::now();
        bench.root(&kill)?;
        let back = bench.client(OLD).wait(Duration::from_secs(WINDOW_S));
        result.expect(back.is_some(), format!("an agent that is started again undoes the change after {:.1} s", killed.elapsed().as_secs_f64()));
        let late = confirm(&bench.client(OLD), &token)?;
        result.expect(late.status == 404, format!("its token is worth nothing ({})", late.status));
        result.expect(bench.checkpoints()?.is_empty(), "no checkpoint is left");

        // Last the network service itself: it forgets its checkpoint, and keeps the new profile.
        let admin = bench.admin()?;
        let token = apply(&admin, &fixed(NEW, 24, Some(ROUTER)))?;
        result.expect(bench.client(NEW).wait(TAKES).is_some(), format!("the box answers at {NEW} once more"));
        let killed = Instant::now();
        bench.root(&["/usr/bin/systemctl", "kill", "--signal=KILL", "NetworkManager.service"])?;
        let back = bench.client(OLD).wait(Duration::from_secs(WINDOW_S + 30));
        result.expect(back.is_some(), format!("a network service that is started anew: undone after {:.1} s", killed.elapsed().as_secs_f64()));
        let late = confirm(&bench.client(OLD), &token)?;
        result.expect(late.status == 404 || late.status == 409, format!("its token is worth nothing ({})", late.status));
        let document = bench.admin()?.get("/api/network")?;
        result.expect(document["last_change"]["kept"] == false, format!("the page says: {}", document["last_change"]["message"]));
        moves_for_good(bench, OLD, NEW, result)
    })
}

fn validation(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    with_bench(stage, task, result, |bench, result| {
        let admin = bench.admin()?;
        for (what, wanted, word) in [
            ("a prefix that makes no network", fixed(NEW, 33, Some(ROUTER)), "/33"),
            ("a prefix that leaves the gateway outside", fixed(NEW, 30, Some(ROUTER)), "outside"),
            ("a gateway outside the network", fixed(NEW, 24, Some("10.78.0.1")), "outside"),
            ("the network's own address", fixed("10.77.0.0", 24, Some(ROUTER)), "network itself"),
            ("the broadcast address", fixed("10.77.0.255", 24, Some(ROUTER)), "broadcast"),
            ("an address of another machine", fixed(TAKEN, 24, Some(ROUTER)), "in use"),
            ("no address at all", json!({"ipv4": {"method": "off"}, "ipv6": {"method": "off"}}), "no address"),
        ] {
            let answer = admin.call("PUT", &path(), Some(&wanted))?;
            let refused =
                (answer.status == 422 || answer.status == 409) && answer.sentence().contains(word) && answer.json["detail"]["hint"].is_string();
            result.expect(refused, format!("{what} is refused: {}", answer.sentence()));
        }
        let unknown = admin.call("PUT", "/api/network/interfaces/nosuch0", Some(&fixed(NEW, 24, None)))?;
        result.expect(unknown.status == 404, format!("an unknown port is refused: {}", unknown.sentence()));
        let document = admin.get("/api/network")?;
        result.expect(document["pending"].is_null() && bench.checkpoints()?.is_empty(), "nothing was begun by any of them");
        result.expect(admin.answers(), format!("{OLD} still answers"));

        // In a network the box is not in yet only the network service can look, when it takes the address.
        let begun = Instant::now();
        apply(&admin, &fixed(TAKEN_FAR, 24, None))?;
        std::thread::sleep(Duration::from_secs(2));
        let back = bench.client(OLD).wait(Duration::from_secs(90));
        result.expect(
            back.is_some(),
            format!("an address that another machine has in another network is given up after {:.1} s", begun.elapsed().as_secs_f64()),
        );
        result.figure("net_duplicate_undone_s", begun.elapsed().as_secs_f64());
        std::thread::sleep(Duration::from_secs(1));
        let last = bench.admin()?.get("/api/network")?["last_change"].clone();
        result.expect(
            last["kept"] == false && last["message"].as_str().is_some_and(|m| m.contains("another machine")),
            format!("and the page says: {}", last["message"]),
        );
        Ok(())
    })
}
