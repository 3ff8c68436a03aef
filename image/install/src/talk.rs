//! Installing by hand: a list of disks, a number, a proof that the right one is meant.

use warden_install::answer::Seed;
use warden_install::choose;
use warden_install::disk::Disk;
use warden_install::report::Outcome;
use warden_install::secureboot::Posture;
use warden_install::terminal::Screens;

use crate::{Bench, Wishes};

/// Shows the disks with the numbers by which they are chosen.
pub(crate) fn show(screens: &mut Screens, disks: &[Disk]) {
    if let Some(stick) = disks.iter().find(|disk| disk.own_stick) {
        screens.say(&format!("Started from {} ({}), which is never offered.", stick.called(), stick.name));
    }
    screens.say("Disks of this machine:");
    for (number, disk) in (1..).zip(choose::offered(disks)) {
        screens.say(&format!("  {number}  {}", disk.line()));
    }
    if choose::offered(disks).is_empty() {
        screens.say("  none; check that the disks are connected and their controller is switched on in the firmware");
    }
}

/// Asks until an installation is done or the machine shall be switched off.
pub(crate) fn talk(bench: &Bench, screens: &mut Screens) {
    loop {
        let disks = bench.disks();
        screens.say("");
        show(screens, &disks);
        screens.say("");
        let Some(typed) = screens.ask("Number of the disk to install on, R to look again, P to switch off: ") else { return };
        match typed.to_ascii_lowercase().as_str() {
            "p" => return,
            "" | "r" => continue,
            _ => {}
        }
        let chosen = typed.parse::<usize>().ok().and_then(|number| choose::offered(&disks).get(number.checked_sub(1)?).copied());
        let Some(disk) = chosen else {
            screens.say(&format!("There is no disk {typed:?} in the list."));
            continue;
        };
        if let Err(refusal) = choose::admit(disk, bench.needed()) {
            screens.say(&format!("Refused: {refusal}. Nothing was written to any disk."));
            continue;
        }
        if confirmed(screens, disk) && install(bench, screens, disk) {
            return;
        }
    }
}

fn confirmed(screens: &mut Screens, disk: &Disk) -> bool {
    screens.say(&format!("EVERYTHING on {} will be erased ({}).", disk.line(), disk.holds.words()));
    let what = if disk.serial.is_some() { "the last 4 characters of its serial number" } else { "the word ERASE" };
    let typed = screens.ask(&format!("Type {what} to go on, or Enter to go back: ")).unwrap_or_default();
    if typed == disk.proof() {
        return true;
    }
    screens.say("That is something else. Nothing was written to any disk.");
    false
}

/// Installs; true when it is done and the machine may be switched off.
fn install(bench: &Bench, screens: &mut Screens, disk: &Disk) -> bool {
    let enroll = bench.posture == Posture::SetupMode && {
        screens.say("The firmware is in Secure Boot setup mode. With the keys of LM Warden it starts nothing else afterwards; cards whose own");
        screens.say("firmware is signed by others (some graphics and network cards) then show nothing before the system starts.");
        screens.ask("Type KEYS to have them taken at the first start, or Enter to leave it as it is: ").is_some_and(|typed| typed == "KEYS")
    };
    let wishes = Wishes { install_id: None, seed: Seed::default(), port: None, enroll };
    let (steps, result) = bench.install(screens, disk, wishes);
    let outcome = if result.is_ok() { Outcome::Installed } else { Outcome::Failed };
    let failure = result.as_ref().err().map(warden_domain::Problem::full_text);
    if let Err(problem) = bench.leave(&bench.report(outcome, None, Some(disk), Some(steps), failure), None) {
        screens.say(&problem.full_text());
    }
    if result.is_err() {
        return false;
    }
    let _ = screens.ask("Press Enter to switch the machine off. ");
    true
}
