//! Engines are not the agent's children: they live on when the agent restarts, and their death is seen and told.
//!
//! In the test flavour, because the agent has to be restarted and the engine killed from inside.

use std::time::{Duration, Instant};

use warden_vm::quiet;

use crate::appliance::{Appliance, TINY};
use crate::console::{launch_identity, state_word};
use crate::images::{Flavour, PackKind};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

fn test_box<'a>(stage: &'a mut Stage, task: &Task) -> Result<&'a mut Appliance, String> {
    stage.appliance(Flavour::Test, PackKind::Signed, &task.log)
}

/// The unit of the first replica of a model's document.
pub fn unit_of(model: &serde_json::Value) -> Result<String, String> {
    let replica = model["state"]["replicas"][0]["id"].as_str().ok_or_else(|| format!("the model has no replica: {}", model["state"]))?;
    Ok(format!("warden-engine@{replica}.service"))
}

/// A property of a unit in the guest.
pub fn property(appliance: &mut Appliance, unit: &str, name: &str) -> Result<String, String> {
    appliance.root_ok(&format!("systemctl show --value -p {name} {unit}")).map(|s| s.trim().to_owned())
}

/// The agent restarts; the engine does not notice.
pub fn agent_restart_adopts(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let appliance = test_box(stage, task)?;
    let (id, model) = appliance.ensure_serving(TINY)?;
    let unit = unit_of(&model)?;
    let before = property(appliance, &unit, "InvocationID")?;
    let agent_before = property(appliance, "warden-agent.service", "InvocationID")?;
    result.expect(launch_identity(&model) == Some(before.as_str()), format!("the API's launch identity is the unit's InvocationID ({before})"));
    let (_, key) = appliance.console().make_key(&format!("restart {before:.8}"))?;

    let asked = Instant::now();
    appliance.root_ok("systemctl restart --no-block warden-agent.service")?;
    let until = Instant::now() + quiet(30);
    while property(appliance, "warden-agent.service", "InvocationID")? == agent_before {
        if Instant::now() >= until {
            return Err("the agent was not restarted".to_owned());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    appliance.console().wait_healthy(quiet(30))?;
    result.figure("restart_s", asked.elapsed().as_secs_f64());
    let model = appliance.console().wait_state(&id, &["running"], quiet(20))?;
    let after = property(appliance, &unit, "InvocationID")?;
    result.expect(after == before, format!("the engine's InvocationID is unchanged ({before} and {after})"));
    result.expect(launch_identity(&model) == Some(before.as_str()), "the new agent adopted that very launch");
    let answer = appliance.console().chat(&key, TINY, "Are you still there?");
    result.expect(answer.is_ok(), format!("the next request works ({})", answer.err().unwrap_or_default()));
    Ok(())
}

/// kill -9 of the engine: told on page and API; a load works again.
pub fn engine_killed(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let appliance = test_box(stage, task)?;
    let (id, model) = appliance.ensure_serving(TINY)?;
    let unit = unit_of(&model)?;
    let before = property(appliance, &unit, "InvocationID")?;
    let pid = property(appliance, &unit, "MainPID")?;
    appliance.root_ok(&format!("kill -9 {pid}"))?;
    let killed = Instant::now();
    let failed = loop {
        let model = appliance.console().model(&id)?;
        if state_word(&model) == "failed" {
            break model;
        }
        if killed.elapsed() > quiet(20) {
            result.expect(false, format!("the API reports the death of the engine (it says {})", model["state"]));
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    result.figure("death_seen_s", killed.elapsed().as_secs_f64());
    let sentence = failed["state"]["reason"]["message"].as_str().unwrap_or_default().to_owned();
    result.expect(sentence.len() > 20, format!("the API says what happened: {sentence}"));
    let page = appliance.console().page("/ui/models")?.to_lowercase();
    result.expect(page.contains("failed"), "the page of models shows it failed");
    let detail = appliance.console().page(&format!("/ui/models/{id}"))?;
    let told = plain(&sentence).is_empty() || plain(&detail).contains(&plain(&sentence));
    result.expect(told, "the model's page shows the same sentence");

    // It is started again by itself after a pause; a load by hand may come before that or after it began.
    let path = format!("/api/models/{id}/load");
    appliance.console().expect("POST", &path, None, &[202, 409])?;
    let model = appliance.console().wait_state(&id, &["running"], quiet(40))?;
    let after = property(appliance, &unit_of(&model)?, "InvocationID")?;
    result.expect(after != before && !after.is_empty(), format!("a new engine comes up ({before} then {after})"));
    let (_, key) = appliance.console().make_key(&format!("killed {after:.8}"))?;
    let answer = appliance.console().chat(&key, TINY, "And now?");
    result.expect(answer.is_ok(), format!("it answers again ({})", answer.err().unwrap_or_default()));
    Ok(())
}

/// Letters and digits only, so that escaping in a page does not matter.
fn plain(text: &str) -> String {
    let unescaped = text.replace("&#39;", "'").replace("&#x27;", "'").replace("&quot;", "\"").replace("&#34;", "\"").replace("&amp;", "&");
    unescaped.chars().filter(|c| c.is_alphanumeric()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_found_in_a_page_whatever_the_escaping() {
        assert!(plain("<p>engine &#34;tiny&#34; was killed</p>").contains(&plain("engine \"tiny\" was killed")));
    }
}
