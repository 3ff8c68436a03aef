//! `screen-states`: what stands on tty1 and on the serial line before and after the claim, in a small window and in the menu.

use std::time::{Duration, Instant};

use serde_json::Value;
use warden_vm::quiet;

use crate::appliance::Appliance;
use crate::images::{Flavour, PackKind};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    if stage.appliance(Flavour::Test, PackKind::Signed, &task.log).and_then(done)? {
        // A case before this one has claimed the machine; this one needs one that nobody has.
        stage.unplug();
    }
    let appliance = stage.appliance(Flavour::Test, PackKind::Signed, &task.log)?;
    let code = appliance.claim_code()?;
    // The code may be there before the address is; what counts is the screen once both are.
    let complete = |text: &str| ["Claim code", "Network address: 10.0.2.15", "fingerprint", "Press Enter"].iter().all(|part| text.contains(part));
    let before = tty1(appliance, complete)?;
    appliance.guest().wait(r"Network address: 10\.0\.2\.15[\s\S]*Press Enter", quiet(20)).map_err(|e| e.to_string())?;
    let serial = appliance.serial_text();
    for (place, text) in [("tty1", &before), ("the serial line", &serial)] {
        result.expect(text.contains(&format!("Claim code: {code}")), format!("{place} shows the claim code"));
        result.expect(text.contains("Network address: 10.0.2.15"), format!("{place} shows the address"));
        result.expect(text.contains("Console: http") && text.contains("/ui/"), format!("{place} shows where the console is"));
        if text.contains("Console: https") {
            result.expect(shows_fingerprint(text), format!("{place} shows the certificate's fingerprint whole"));
        } else {
            result.note(format!("{place} shows no fingerprint: the console has no certificate yet"));
        }
        let version = text.split("LM Warden ").nth(1).and_then(|rest| rest.chars().next());
        result.expect(version.is_some_and(|letter| letter.is_ascii_digit()), format!("{place} shows the version"));
        result.expect(text.contains("Press Enter for the menu"), format!("{place} offers the menu"));
    }

    appliance.root_ok("stty -F /dev/tty1 cols 50 rows 20")?;
    // The sentence under the code is longer than the window: only a screen that was drawn anew shows its end.
    let small = tty1(appliance, |text| text.contains("Claim code") && text.contains("this machine") && fits_in(text, 50))?;
    result.expect(small.contains("this machine") && fits_in(&small, 50), "in a window of 50 columns it is drawn anew and nothing is cut off");
    result.expect(small.contains(&format!("Claim code: {code}")) && small.contains("menu"), "a small window still shows the code and the menu");
    appliance.root_ok("stty -F /dev/tty1 cols 80 rows 25")?;

    menu(appliance, result)?;

    appliance.ensure_claimed()?;
    let mark = appliance.serial_text().len();
    let after = tty1(appliance, |text| text.contains("Health"))?;
    result.expect(after.contains("Health: ") && !after.contains(&code), "after the claim tty1 shows the health and the code is gone");
    result.expect(!appliance.serial_text()[mark..].contains(&code), "the serial line does not repeat it");
    Ok(())
}

fn fits_in(text: &str, columns: usize) -> bool {
    text.lines().all(|line| line.chars().count() <= columns)
}

fn done(appliance: &mut Appliance) -> Result<bool, String> {
    let state: Value = appliance.console().expect("GET", "/api/setup/state", None, &[200])?.json();
    Ok(state["done"] == true)
}

/// The menu over the serial line: it lists what it should, a wrong word does nothing, the way back is open.
fn menu(appliance: &mut Appliance, result: &mut CaseResult) -> Result<(), String> {
    let shown = typed(appliance, "m", "Press a number")?;
    for line in ["1  Network reset", "2  Admin password reset", "3  Restart", "4  Switch the machine off", "5  Factory reset"] {
        result.expect(shown.contains(line), format!("the menu offers {line:?}"));
    }
    let shown = typed(appliance, "4", "Type the word off")?;
    result.expect(shown.contains("power button"), "the question says what will happen");
    let shown = typed(appliance, "yes\r", "another word")?;
    result.expect(shown.contains("Nothing was done"), "a wrong word does nothing");
    typed(appliance, "\x03", "Press Enter for the menu")?;
    result.expect(true, "and the way back is open");
    Ok(())
}

/// Types on the serial line and gives what came up to the text awaited (a pattern).
pub fn typed(appliance: &mut Appliance, keys: &str, awaited: &str) -> Result<String, String> {
    let mark = appliance.serial_text().len();
    appliance.guest().type_serial(keys).map_err(|e| e.to_string())?;
    appliance.guest().wait_after(mark, awaited, quiet(10)).map_err(|e| e.to_string())?;
    Ok(appliance.serial_text()[mark..].to_owned())
}

/// The letters on tty1 once they fit; the last ones when they never do.
pub fn tty1(appliance: &mut Appliance, fits: impl Fn(&str) -> bool) -> Result<String, String> {
    let until = Instant::now() + quiet(10);
    loop {
        let columns = appliance.root_ok("stty -F /dev/tty1 size | cut -d' ' -f2")?;
        let text = appliance.root_ok(&format!("fold -w {} /dev/vcs1 | sed 's/ *$//'", columns.trim()))?;
        if fits(&text) || Instant::now() >= until {
            return Ok(text);
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// 32 bytes in hexadecimal behind the words, over as many lines as the window makes of them.
fn shows_fingerprint(text: &str) -> bool {
    let Some((_, behind)) = text.split_once("Certificate fingerprint:") else { return false };
    let letters: String = behind.chars().filter(|c| !c.is_whitespace()).take(32 * 3 - 1).collect();
    letters.split(':').count() == 32 && letters.split(':').all(|pair| pair.len() == 2 && pair.chars().all(|c| c.is_ascii_hexdigit()))
}
