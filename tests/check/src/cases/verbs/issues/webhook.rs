//! An issue reaches a webhook: once, signed, tried again, also across a kill of the agent in between.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use super::receiver::{Heard, Receiver};
use crate::agent::{AgentSetup, AgentUnderTest};
use crate::console::Console;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

const OPENED: &str = "issue.opened";
const RESOLVED: &str = "issue.resolved";
const CODE: &str = "model_file_missing";

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let program = stage.agent_program(&task.log)?;
    // No engine: a second issue is open all the time, and must not be told, because its code is not chosen.
    let setup = AgentSetup { engine: None, ..AgentSetup::dev(program, "/nonexistent".into()) };
    let mut agent = AgentUnderTest::start(setup, &task.log)?;
    let console = agent.claimed()?;
    let file = agent.model_path("told.gguf");
    stage.write_tiny_model(&file)?;
    console.register("told.gguf", "told")?;

    let receiver = Receiver::start(0, 2, &task.log)?;
    refused_addresses(&console, result)?;
    let secret = set_up(&console, &receiver, result)?;

    let away = file.with_extension("away");
    let caused = Instant::now();
    std::fs::rename(&file, &away).map_err(|e| format!("{}: {e}", file.display()))?;
    console.expect("POST", "/api/issues/check", None, &[200])?;
    let twice = receiver.wait(Duration::from_secs(30), |heard| heard.len() >= 2);
    result.expect(twice, format!("a receiver that answers 503 is tried again ({} tries so far)", receiver.heard().len()));

    // In the pause before the third try.
    agent.process()?.signal(Signal::SIGKILL);
    agent.wait_end(Duration::from_secs(10))?;
    let at_death = receiver.heard().len();
    agent.launch()?;
    agent.wait_healthy(Duration::from_secs(30))?;
    let arrived = receiver.wait(Duration::from_secs(40), |heard| heard.iter().any(|h| h.status == 200));
    result.expect(arrived, "after a kill of the agent in between, the message still arrives");
    result.figure("alert_delivered_s", caused.elapsed().as_secs_f64());
    result.note(format!("{at_death} tries before the kill, {} in all", receiver.heard().len()));

    // Longer than any of the first pauses, over more rounds of checks and another start.
    agent.stop(Duration::from_secs(20))?;
    agent.launch()?;
    agent.wait_healthy(Duration::from_secs(30))?;
    for _ in 0..3 {
        console.expect("POST", "/api/issues/check", None, &[200])?;
        std::thread::sleep(Duration::from_secs(2));
    }
    once(&receiver, OPENED, &secret, result);

    std::fs::rename(&away, &file).map_err(|e| format!("{}: {e}", away.display()))?;
    console.expect("POST", "/api/issues/check", None, &[200])?;
    let told = receiver.wait(Duration::from_secs(20), |heard| heard.iter().any(|h| h.event == RESOLVED && h.status == 200));
    result.expect(told, "the end of the issue is told as well");
    once(&receiver, RESOLVED, &secret, result);
    let others: Vec<String> = receiver.heard().iter().map(Heard::code).filter(|code| code != CODE).collect();
    let open = console.expect("GET", "/api/issues", None, &[200])?.text();
    result.expect(
        open.contains("engine_missing") && others.is_empty(),
        format!("an open issue of a code that was not chosen is not told ({others:?})"),
    );

    test_message(&console, &receiver, &secret, result)?;
    no_redirect(&console, &receiver, result)?;
    let document = console.expect("GET", "/api/alerts", None, &[200])?.text();
    let page = console.page("/ui/alerts")?;
    let said = agent.said();
    result.expect(
        ![&document, &page, &said].iter().any(|text| text.contains(&secret) || text.contains(&secret[6..])),
        "the secret is in no later answer, on no page and in no log line",
    );
    result.expect(page.contains("status 200") && document.contains("delivered"), "page and API show what became of the messages");
    Ok(())
}

fn refused_addresses(console: &Console, result: &mut CaseResult) -> Result<(), String> {
    for url in ["file:///etc/passwd", "gopher://127.0.0.1/", "http://user:pass@127.0.0.1/", "http://", "127.0.0.1:80"] {
        let reply = console.call("PUT", "/api/alerts", Some(&json!({"enabled": true, "url": url})))?;
        result.expect(reply.status == 422, format!("the address {url} is refused with 422 ({})", reply.status));
    }
    let early = console.call("POST", "/api/alerts/test", None)?;
    result.expect(early.status == 409, format!("no test while alerts are off ({})", early.status));
    let unknown = console.call("PUT", "/api/alerts", Some(&json!({"enabled": true, "url": "http://127.0.0.1:1/", "codes": ["gremlins"]})))?;
    result.expect(unknown.status == 422 && unknown.text().contains("gremlins"), "an unknown code is refused and named");
    Ok(())
}

/// Turns alerts on for one code; returns the secret that was shown once.
fn set_up(console: &Console, receiver: &Receiver, result: &mut CaseResult) -> Result<String, String> {
    let wanted = json!({"enabled": true, "url": receiver.url(), "codes": [CODE]});
    let made = console.expect("PUT", "/api/alerts", Some(&wanted), &[200])?.json();
    let secret = made["secret"].as_str().ok_or("turning alerts on made no secret")?.to_owned();
    let again = console.expect("PUT", "/api/alerts", Some(&wanted), &[200])?.json();
    result.expect(again["secret"].is_null() && secret.len() > 30, "the secret is shown once, when it is made");
    Ok(secret)
}

/// One message of the event was taken; all its tries had the same id, the same body and a right signature.
fn once(receiver: &Receiver, event: &str, secret: &str, result: &mut CaseResult) {
    let taken = receiver.taken(event);
    let tries: Vec<Heard> = receiver.heard().into_iter().filter(|heard| heard.event == event).collect();
    result.expect(taken.len() == 1, format!("exactly one {event} was taken ({} of {} tries)", taken.len(), tries.len()));
    let Some(first) = taken.first() else { return };
    result.expect(
        tries.iter().all(|heard| heard.delivery == first.delivery && heard.body == first.body),
        format!("all tries carried the delivery id {} and the same body", first.delivery),
    );
    let now = warden_domain::clock::now().as_second();
    result.expect(tries.iter().all(|heard| heard.is_signed_with(secret, now)), format!("every try of {event} is signed"));
    result.expect(!first.is_signed_with("another secret", now), "another secret does not fit the signature");
    let about = first.json();
    result.expect(
        first.code() == CODE && about["event"] == event && about["issue"]["sentence"].as_str().is_some_and(|s| s.contains("told")),
        format!("it says what happened: {}", about["issue"]["sentence"]),
    );
}

fn test_message(console: &Console, receiver: &Receiver, secret: &str, result: &mut CaseResult) -> Result<(), String> {
    let queued = console.expect("POST", "/api/alerts/test", None, &[202])?.json();
    let came = receiver.wait(Duration::from_secs(10), |heard| heard.iter().any(|h| h.event == "test"));
    let test = receiver.taken("test");
    let fits = test.first().is_some_and(|h| h.delivery == queued["delivery"].as_str().unwrap_or_default());
    let now = warden_domain::clock::now().as_second();
    result.expect(came && fits && test.iter().all(|h| h.is_signed_with(secret, now)), "a test message arrives, signed");
    Ok(())
}

fn no_redirect(console: &Console, receiver: &Receiver, result: &mut CaseResult) -> Result<(), String> {
    let moved = receiver.url().replace("/warden?box=1", "/moved");
    console.expect("PUT", "/api/alerts", Some(&json!({"enabled": true, "url": moved, "codes": [CODE]})), &[200])?;
    console.expect("POST", "/api/alerts/test", None, &[202])?;
    let asked = receiver.wait(Duration::from_secs(10), |heard| heard.iter().any(|h| h.path == "/moved"));
    std::thread::sleep(Duration::from_millis(300));
    let followed = receiver.heard().iter().any(|h| h.path == "/elsewhere");
    result.expect(asked && !followed, "a redirect is not followed");
    console.expect("PUT", "/api/alerts", Some(&json!({"enabled": false, "url": ""})), &[200])?;
    Ok(())
}
