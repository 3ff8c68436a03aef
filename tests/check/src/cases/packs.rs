//! Engine packs that nobody signed, or that were changed after signing: the appliance refuses to run them and says why.
//!
//! Both run on the production flavour. The deliberate break relaxes the engine unit's image policy in the test flavour, whose shell can
//! do that; then the unsigned pack comes up, and the case fails.

use std::time::Duration;

use serde_json::Value;
use warden_vm::quiet;

use super::bad_requests::missing_words;
use crate::appliance::{Appliance, TINY};
use crate::console::state_word;
use crate::images::{Flavour, PackKind};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// The pack without a signature.
pub fn unsigned(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let flavour = if task.sabotage { Flavour::Test } else { Flavour::Production };
    let appliance = stage.appliance(flavour, PackKind::Unsigned, &task.log)?;
    if task.sabotage {
        appliance.root_ok(
            "mkdir -p /run/systemd/system/warden-engine@.service.d && \
             printf '[Service]\\nRootImagePolicy=*\\n' \
             > /run/systemd/system/warden-engine@.service.d/99-sabotage.conf && systemctl daemon-reload",
        )?;
    }
    refused(appliance, "an unsigned pack", result)?;
    if task.sabotage {
        // For whoever wonders why a break was not seen.
        appliance
            .root("systemctl show -p RootImagePolicy -p Result -p ExecMainStatus 'warden-engine@*'; journalctl -b --no-pager -n 60", quiet(20))?;
    }
    stage.unplug();
    Ok(())
}

/// The pack with one byte changed.
pub fn flipped(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let appliance = stage.appliance(Flavour::Production, PackKind::Flipped, &task.log)?;
    refused(appliance, "a pack with a flipped byte", result)?;
    stage.unplug();
    Ok(())
}

/// The load must end in `failed` with a sentence about the pack, and nothing may be served.
fn refused(appliance: &mut Appliance, what: &str, result: &mut CaseResult) -> Result<(), String> {
    let id = appliance.ensure_registered(TINY)?;
    let console = appliance.console();
    let asked = console.call("POST", &format!("/api/models/{id}/load"), None)?;
    let (word, sentence) = if asked.status == 202 {
        let ended = settle(console, &id)?;
        let reason = &ended["state"]["reason"];
        let said = format!("{} {}", reason["message"].as_str().unwrap_or_default(), reason["hint"].as_str().unwrap_or_default());
        (state_word(&ended).to_owned(), said)
    } else {
        let body = asked.json();
        let said = format!("{} {}", body["detail"]["message"].as_str().unwrap_or_default(), body["detail"]["hint"].as_str().unwrap_or_default());
        ("refused".to_owned(), said)
    };
    result.expect(word == "failed" || word == "refused", format!("{what} is not run (state {word}): {sentence}"));
    result.expect(
        missing_words(&sentence, &[&["pack"], &["sign", "verif", "damaged", "changed"]]).is_none(),
        format!("the sentence names the pack and its signature: {sentence}"),
    );
    let (_, key) = console.make_key("packs")?;
    let refused = console.chat(&key, TINY, "hello");
    result.expect(refused.is_err(), "nothing answers under the model's name");
    result.expect(console.http.get("/healthz").is_ok_and(|r| r.status == 200), "the agent still answers");
    Ok(())
}

fn settle(console: &crate::console::Console, id: &str) -> Result<Value, String> {
    let until = std::time::Instant::now() + quiet(30);
    loop {
        let model = console.model(id)?;
        if matches!(state_word(&model), "failed" | "running") || std::time::Instant::now() >= until {
            return Ok(model);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
