//! The calls of updates, as a page or a program makes them, and the waits between them.
//!
//! In: a signed-in console. Out: documents, or a sentence that quotes the refusal. It knows no machine: the agent on this machine and the one
//! in a guest are driven alike.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::console::Console;

/// Bytes of one piece of an upload.
const PIECE: usize = 4 << 20;

/// Everything about updates.
///
/// # Errors
/// A sentence that quotes the refusal.
pub fn document(console: &Console) -> Result<Value, String> {
    Ok(console.expect("GET", "/api/updates", None, &[200])?.json()["state"].take())
}

/// Follows this channel; nothing happens by itself unless `automatic` says so.
///
/// # Errors
/// A sentence that quotes the refusal.
pub fn follow(console: &Console, address: &str, automatic: &str) -> Result<(), String> {
    settings(console, &json!({"channel_url": address, "channel": super::publisher::CHANNEL, "automatic": automatic}))
}

/// Stores settings.
///
/// # Errors
/// A sentence that quotes the refusal.
pub fn settings(console: &Console, settings: &Value) -> Result<(), String> {
    let reply = once_free(console, "PUT", "/api/updates", Some(settings))?;
    if reply.status == 200 { Ok(()) } else { Err(format!("PUT /api/updates answered {}: {}", reply.status, crate::console::short(&reply))) }
}

/// Makes a call as soon as nothing else is being done about updates: a look of the clock has the turn for a moment, too.
fn once_free(console: &Console, method: &str, path: &str, body: Option<&Value>) -> Result<crate::http::Reply, String> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let reply = console.call(method, path, body)?;
        if reply.status != 409 || !reply.text().contains("being worked on") || Instant::now() > until {
            return Ok(reply);
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// What a task came to.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Whether it was done.
    pub done: bool,
    /// The stable code of its failure.
    pub code: String,
    /// The sentence of its failure.
    pub sentence: String,
}

/// Waits until a task is over.
///
/// # Errors
/// A sentence when it does not end, or nobody answers for it.
pub fn ended(console: &Console, task: &str, limit: Duration) -> Result<Ended, String> {
    let until = Instant::now() + limit;
    loop {
        let document = console.expect("GET", &format!("/api/tasks/{task}"), None, &[200])?.json();
        if document["state"] != "running" {
            let told = document_fault(&document);
            return Ok(Ended { done: document["state"] == "done", code: told.0, sentence: told.1 });
        }
        if Instant::now() > until {
            return Err(format!("the task did not end within {} s: {document}", limit.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Code and sentence of a task's failure, whichever form it has.
fn document_fault(task: &Value) -> (String, String) {
    let failure = &task["failure"];
    if let Some(text) = failure.as_str() {
        return (String::new(), text.to_owned());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&failure["code"]), format!("{} {}", text(&failure["message"]), text(&failure["hint"])).trim().to_owned())
}

/// Makes a call that begins a task and waits for its end. A refusal of the call itself is an end, too.
///
/// # Errors
/// A sentence when nobody answers.
pub fn run(console: &Console, method: &str, path: &str, body: Option<&Value>, limit: Duration) -> Result<Ended, String> {
    let reply = once_free(console, method, path, body)?;
    let said = reply.json();
    if reply.status != 202 {
        let detail = &said["detail"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let sentence = format!("{} {}", text(&detail["message"]), text(&detail["hint"])).trim().to_owned();
        return Ok(Ended { done: reply.status == 200, code: text(&detail["code"]), sentence });
    }
    let task = said["task"].as_str().ok_or_else(|| format!("{method} {path} began no task: {said}"))?;
    ended(console, task, limit)
}

/// Asks the channel.
///
/// # Errors
/// A sentence when nobody answers.
pub fn check(console: &Console) -> Result<Ended, String> {
    run(console, "POST", "/api/updates/check", None, Duration::from_secs(150))
}

/// Fetches and installs what has this SHA-256.
///
/// # Errors
/// A sentence when nobody answers.
pub fn install(console: &Console, sha256: &str, limit: Duration) -> Result<Ended, String> {
    run(console, "POST", "/api/updates/install", Some(&json!({"sha256": sha256})), limit)
}

/// The same without waiting; the task.
///
/// # Errors
/// A sentence that quotes the refusal.
pub fn begin_install(console: &Console, sha256: &str) -> Result<String, String> {
    let said = console.expect("POST", "/api/updates/install", Some(&json!({"sha256": sha256})), &[202])?.json();
    said["task"].as_str().map(str::to_owned).ok_or_else(|| format!("the install began no task: {said}"))
}

/// Restarts into what is staged.
///
/// # Errors
/// A sentence that quotes the refusal.
pub fn restart(console: &Console) -> Result<(), String> {
    console.expect("POST", "/api/updates/restart", None, &[200, 202, 204]).map(drop)
}

/// Gives up what is at work or waits; having nothing to give up is fine.
///
/// # Errors
/// A sentence when nobody answers.
pub fn cancel(console: &Console) -> Result<(), String> {
    console.call("POST", "/api/updates/cancel", None).map(drop)
}

/// The SHA-256 of an offered system.
///
/// # Errors
/// A sentence with what is offered.
pub fn offered(document: &Value, version: &str) -> Result<String, String> {
    let found = document["offers"].as_array().and_then(|all| all.iter().find(|o| o["kind"] == "os" && o["version"] == version));
    let sha256 = found.and_then(|offer| offer["sha256"].as_str());
    sha256.map(str::to_owned).ok_or_else(|| format!("OS {version} is not offered: {}", document["offers"]))
}

/// Waits until the update is in one of these phases.
///
/// # Errors
/// A sentence with the present document.
pub fn wait_phase(console: &Console, phases: &[&str], limit: Duration) -> Result<Value, String> {
    wait(console, &format!("the phase {}", phases.join(" or ")), limit, |document| {
        document["phase"].as_str().is_some_and(|phase| phases.contains(&phase))
    })
}

/// Waits until the document satisfies `done`. A box that does not answer for a moment is asked again.
///
/// # Errors
/// A sentence with the last document or answer.
pub fn wait(console: &Console, what: &str, limit: Duration, done: impl Fn(&Value) -> bool) -> Result<Value, String> {
    let until = Instant::now() + limit;
    let mut last;
    loop {
        match document(console) {
            Ok(document) if done(&document) => return Ok(document),
            Ok(document) => last = document.to_string(),
            Err(cause) => last = cause,
        }
        if Instant::now() > until {
            return Err(format!("{what} did not come within {} s; last: {last}", limit.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// As [`wait_phase`] for the end of a trial: the document once it is confirmed.
///
/// # Errors
/// A sentence with the reason when the box went back, or with the present document.
pub fn wait_confirmed(console: &Console, limit: Duration) -> Result<Value, String> {
    let document = wait(console, "the end of the trial", limit, |document| {
        ["confirmed", "rolled_back"].iter().any(|phase| document["phase"] == *phase) && has_slots(document)
    })?;
    if document["phase"] == "confirmed" { Ok(document) } else { Err(format!("the box went back: {}", document["went_back"]["message"])) }
}

/// The document once the update service has said which slots there are; at a start that takes a moment.
///
/// # Errors
/// A sentence with the last document.
pub fn with_slots(console: &Console) -> Result<Value, String> {
    wait(console, "the list of slots", warden_vm::quiet(20), has_slots)
}

fn has_slots(document: &Value) -> bool {
    document["slots"].as_array().is_some_and(|slots| !slots.is_empty())
}

/// Uploads a bundle in pieces, from wherever the box says; its handle.
///
/// # Errors
/// A sentence that quotes the refusal.
pub fn upload(console: &Console, file: &Path) -> Result<String, String> {
    let bytes = std::fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
    upload_bytes(console, &file.file_name().unwrap_or_default().to_string_lossy(), &bytes)
}

/// As [`upload`].
///
/// # Errors
/// A sentence that quotes the refusal.
pub fn upload_bytes(console: &Console, name: &str, bytes: &[u8]) -> Result<String, String> {
    let begun = console.expect("POST", "/api/updates/uploads", Some(&json!({"name": name, "size_bytes": bytes.len()})), &[201])?.json();
    let id = begun["id"].as_str().ok_or_else(|| format!("the upload has no handle: {begun}"))?.to_owned();
    upload_rest(console, &id, bytes, None)?;
    Ok(id)
}

/// Sends what is missing of an upload; with `stop_at` only up to there.
///
/// # Errors
/// A sentence that quotes the refusal.
pub fn upload_rest(console: &Console, id: &str, bytes: &[u8], stop_at: Option<usize>) -> Result<(), String> {
    let stands = console.expect("GET", &format!("/api/updates/uploads/{id}"), None, &[200])?.json();
    let mut at = stands["received_bytes"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let end = stop_at.unwrap_or(bytes.len());
    while at < end {
        let next = (at + PIECE).min(end);
        let path = format!("/api/updates/uploads/{id}?offset={at}");
        let reply = console.call_raw("PUT", &path, &[("content-type", "application/octet-stream")], bytes.get(at..next))?;
        if reply.status != 200 {
            return Err(format!("PUT {path} answered {}: {}", reply.status, crate::console::short(&reply)));
        }
        at = next;
    }
    Ok(())
}

/// Has a whole upload checked and taken over, and installed with `install`.
///
/// # Errors
/// A sentence when nobody answers.
pub fn take(console: &Console, id: &str, install: bool, limit: Duration) -> Result<Ended, String> {
    run(console, "POST", &format!("/api/updates/uploads/{id}/take"), Some(&json!({"install": install})), limit)
}

/// Throws an upload away.
///
/// # Errors
/// A sentence when nobody answers.
pub fn drop_upload(console: &Console, id: &str) -> Result<(), String> {
    console.call("DELETE", &format!("/api/updates/uploads/{id}"), None).map(drop)
}
