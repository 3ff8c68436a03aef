//! Requests that cannot be answered: each gets an error in the shape of its path that names the cause and the way out, and none of them
//! harms the agent.
//!
//! The requests are data, one row each.

use std::time::Duration;

use serde_json::Value;

use crate::agent::{AgentSetup, AgentUnderTest};
use crate::console::Console;
use crate::http::Reply;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Name the tiny model is served under.
const TINY: &str = "tiny";
/// Well formed, and nobody's.
const STRANGE_KEY: &str = "vw_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Which key a request shows.
#[derive(Clone, Copy)]
enum Shown {
    /// A good one.
    Good,
    /// None.
    Nothing,
    /// Well formed but unknown.
    Strange,
    /// Not in the form of a key.
    Malformed,
    /// One that was revoked.
    Revoked,
}

/// One bad request to the data plane.
struct Bad {
    what: &'static str,
    method: &'static str,
    path: &'static str,
    key: Shown,
    body: Option<&'static str>,
    status: u16,
    code: Option<&'static str>,
    /// Of each group, one word must be in the message (any case).
    words: &'static [&'static [&'static str]],
}

const CHAT: &str = "/v1/chat/completions";
const ASK: &str = r#"{"model":"tiny","messages":[{"role":"user","content":"hi"}]}"#;

const BAD: &[Bad] = &[
    Bad {
        what: "a body that breaks off",
        method: "POST",
        path: CHAT,
        key: Shown::Good,
        body: Some(r#"{"model":"#),
        status: 400,
        code: None,
        words: &[&["json"]],
    },
    Bad {
        what: "an empty body",
        method: "POST",
        path: CHAT,
        key: Shown::Good,
        body: Some(""),
        status: 400,
        code: None,
        words: &[&["json", "empty", "body"]],
    },
    Bad {
        what: "a body that is a list",
        method: "POST",
        path: CHAT,
        key: Shown::Good,
        body: Some("[1,2]"),
        status: 400,
        code: None,
        words: &[&["object"]],
    },
    Bad {
        what: "plain text as body",
        method: "POST",
        path: CHAT,
        key: Shown::Good,
        body: Some("hello there"),
        status: 400,
        code: None,
        words: &[&["json"]],
    },
    Bad {
        what: "no model named",
        method: "POST",
        path: CHAT,
        key: Shown::Good,
        body: Some(r#"{"messages":[]}"#),
        status: 400,
        code: None,
        words: &[&["model"]],
    },
    Bad {
        what: "a number as model",
        method: "POST",
        path: CHAT,
        key: Shown::Good,
        body: Some(r#"{"model":7,"messages":[]}"#),
        status: 400,
        code: None,
        words: &[&["model"], &["string", "text"]],
    },
    Bad {
        what: "an unknown model",
        method: "POST",
        path: CHAT,
        key: Shown::Good,
        body: Some(r#"{"model":"gpt-nope","messages":[]}"#),
        status: 404,
        code: Some("model_not_found"),
        words: &[&["gpt-nope"], &["tiny"]],
    },
    Bad {
        what: "an unknown model looked up",
        method: "GET",
        path: "/v1/models/gpt-nope",
        key: Shown::Good,
        body: None,
        status: 404,
        code: Some("model_not_found"),
        words: &[&["gpt-nope"], &["tiny"]],
    },
    Bad {
        what: "no key",
        method: "POST",
        path: CHAT,
        key: Shown::Nothing,
        body: Some(ASK),
        status: 401,
        code: None,
        words: &[&["key"], &["authorization", "bearer"]],
    },
    Bad {
        what: "an unknown key",
        method: "POST",
        path: CHAT,
        key: Shown::Strange,
        body: Some(ASK),
        status: 401,
        code: Some("invalid_api_key"),
        words: &[&["key"], &["console", "keys page", "make", "create"]],
    },
    Bad {
        what: "a key of another make",
        method: "POST",
        path: CHAT,
        key: Shown::Malformed,
        body: Some(ASK),
        status: 401,
        code: Some("invalid_api_key"),
        words: &[&["key"], &["vw_"]],
    },
    Bad { what: "a revoked key", method: "POST", path: CHAT, key: Shown::Revoked, body: Some(ASK), status: 401, code: None, words: &[&["revoked"]] },
    Bad {
        what: "no key for the list of models",
        method: "GET",
        path: "/v1/models",
        key: Shown::Nothing,
        body: None,
        status: 401,
        code: None,
        words: &[&["key"]],
    },
    Bad {
        what: "a path that is not offered",
        method: "POST",
        path: "/v1/poems",
        key: Shown::Good,
        body: Some("{}"),
        status: 404,
        code: None,
        words: &[&["/v1/poems"]],
    },
    Bad { what: "the wrong method", method: "GET", path: CHAT, key: Shown::Good, body: None, status: 405, code: None, words: &[&["post"]] },
];

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let program = stage.agent_program(&task.log)?;
    let engine = stage.engine_program(&task.log)?;
    let mut agent = AgentUnderTest::start(AgentSetup::dev(program, engine), &task.log)?;
    before_claim(&mut agent, result)?;
    let console = agent.claimed()?;
    stage.write_tiny_model(&agent.model_path("tiny.gguf"))?;
    console.serve("tiny.gguf", TINY, Duration::from_secs(60))?;
    let (_, good) = console.make_key("good")?;
    let (revoked_id, revoked) = console.make_key("revoked")?;
    console.expect("DELETE", &format!("/api/tokens/{revoked_id}"), None, &[200, 204])?;

    for bad in BAD {
        let shown = match bad.key {
            Shown::Good => Some(good.as_str()),
            Shown::Nothing => None,
            Shown::Strange => Some(STRANGE_KEY),
            Shown::Malformed => Some("sk-proj-0123456789abcdef"),
            Shown::Revoked => Some(revoked.as_str()),
        };
        let bearer = shown.map(|key| format!("Bearer {key}"));
        let mut headers = vec![("content-type", "application/json")];
        if let Some(bearer) = &bearer {
            headers.push(("authorization", bearer));
        }
        let reply = console.http.send(bad.method, bad.path, &headers, bad.body.map(str::as_bytes))?;
        task.log.line(format!("{}: {} {} -> {} {}", bad.what, bad.method, bad.path, reply.status, reply.text()));
        match fault_of(bad, &reply, shown) {
            None => result.expect(true, format!("{}: {} in OpenAI's shape with cause and way out", bad.what, bad.status)),
            Some(fault) => result.expect(false, format!("{}: {fault}", bad.what)),
        }
    }
    control_plane(&console, result)?;

    let answer = console.chat(&good, TINY, "still there?")?;
    result.expect(answer["usage"]["completion_tokens"].as_u64().unwrap_or(0) > 0, "after all of that a good request is answered");
    let said = agent.said();
    result.expect(!said.contains("panicked"), "the agent's log shows no panic");
    result.expect(![good, revoked].iter().any(|key| said.contains(key)), "no key stands in the agent's log");
    let code = agent.stop(Duration::from_secs(30))?;
    result.expect(code == Some(0), format!("the agent ends cleanly (exit code {code:?})"));
    Ok(())
}

/// The claim before anybody has claimed: wrong codes are refused with a sentence.
fn before_claim(agent: &mut AgentUnderTest, result: &mut CaseResult) -> Result<(), String> {
    let mut stranger = agent.console();
    let reply = stranger.try_claim("WRNG-CODE", "mallory")?;
    expect_detail(result, "a wrong claim code", &reply, &[403], &[&["code"]]);
    let reply = stranger.call("GET", "/api/models", None)?;
    expect_detail(result, "a call without a session", &reply, &[401], &[&["sign", "log in", "session"]]);
    Ok(())
}

/// What the control plane says to bad calls of a signed-in admin.
fn control_plane(console: &Console, result: &mut CaseResult) -> Result<(), String> {
    let mut late = console.stranger(&crate::log::CaseLog::create(&std::env::temp_dir(), "warden-late-claim")?);
    let reply = late.try_claim("ABCD-EFGH", "mallory")?;
    expect_detail(result, "a claim after the claim", &reply, &[403, 409], &[&["already", "closed", "exists", "done"]]);
    let reply = console.call_raw("POST", "/api/tokens", &[], Some(b"{\"name\":"))?;
    expect_detail(result, "an API body that breaks off", &reply, &[400], &[&["json"]]);
    let reply = console.call_raw("POST", "/api/tokens", &[], Some(b"{\"name\":\"x\",\"colour\":\"red\"}"))?;
    expect_detail(result, "an unknown field", &reply, &[400, 422], &[&["colour"], &["name"]]);
    let reply = console.call("GET", "/api/nowhere", None)?;
    expect_detail(result, "an API path that is not offered", &reply, &[404], &[&["/api/nowhere"]]);
    let reply = console.call("POST", "/api/models/00000000-0000-0000-0000-000000000000/load", None)?;
    expect_detail(result, "a load of an unknown model", &reply, &[400, 404, 422], &[&["model"]]);
    let reply = console.call_raw("POST", "/api/tokens", &[("x-csrf-token", "forged")], Some(b"{\"name\":\"x\"}"))?;
    expect_detail(result, "a changing call with a forged proof", &reply, &[403], &[&["csrf", "token", "proof"]]);
    let reply = console.http.send("GET", "/api/setup/state", &[("host", "evil.example")], None)?;
    result.expect(matches!(reply.status, 403 | 421), format!("a foreign Host name is refused (status {})", reply.status));
    Ok(())
}

/// What is wrong with the answer to a bad request, if anything is.
fn fault_of(bad: &Bad, reply: &Reply, shown: Option<&str>) -> Option<String> {
    if reply.status != bad.status {
        return Some(format!("status {} instead of {}: {}", reply.status, bad.status, reply.text()));
    }
    let body = reply.json();
    let error = &body["error"];
    let Some(message) = error["message"].as_str() else { return Some(format!("no error.message: {}", reply.text())) };
    if !error["type"].is_string() || error.get("code").is_none() || error.get("param").is_none() {
        return Some(format!("type, code or param is missing: {}", reply.text()));
    }
    if let Some(code) = bad.code
        && error["code"] != Value::String(code.to_owned())
    {
        return Some(format!("code {} instead of {code}", error["code"]));
    }
    if let Some(missing) = missing_words(message, bad.words) {
        return Some(format!("the message names none of {missing:?}: {message}"));
    }
    if shown.is_some_and(|key| message.contains(key)) {
        return Some("the message repeats the whole key".to_owned());
    }
    if reply.header("x-request-id").is_none_or(str::is_empty) {
        return Some("no x-request-id".to_owned());
    }
    None
}

/// The first group of words of which the text holds none.
pub fn missing_words<'a>(text: &str, groups: &'a [&'a [&'a str]]) -> Option<&'a [&'a str]> {
    let text = text.to_lowercase();
    groups.iter().copied().find(|group| !group.iter().any(|word| text.contains(&word.to_lowercase())))
}

/// Expects a control-plane error: status, a code, a sentence with the words given.
pub fn expect_detail(result: &mut CaseResult, what: &str, reply: &Reply, statuses: &[u16], words: &[&[&str]]) {
    let body = reply.json();
    let detail = &body["detail"];
    let sentence = format!("{} {}", detail["message"].as_str().unwrap_or_default(), detail["hint"].as_str().unwrap_or_default());
    let missing = missing_words(&sentence, words);
    let good = statuses.contains(&reply.status) && detail["error_code"].is_string() && sentence.trim().len() > 12 && missing.is_none();
    let seen = if good { String::new() } else { format!(" (status {}, lacks {missing:?}: {})", reply.status, reply.text()) };
    result.expect(good, format!("{what} is refused with a sentence{seen}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: u16, body: &str) -> Reply {
        Reply { status, headers: vec![("x-request-id".into(), "r1".into())], body: body.as_bytes().to_vec() }
    }

    #[test]
    fn an_error_that_does_not_name_what_is_loaded_is_seen() {
        let unknown = BAD.iter().find(|b| b.what == "an unknown model").unwrap();
        let poor =
            reply(404, r#"{"error":{"message":"gpt-nope does not exist","type":"invalid_request_error","param":"model","code":"model_not_found"}}"#);
        assert!(fault_of(unknown, &poor, None).unwrap().contains("tiny"));
        let good = reply(
            404,
            r#"{"error":{"message":"gpt-nope is not loaded; loaded: tiny","type":"invalid_request_error","param":"model","code":"model_not_found"}}"#,
        );
        assert_eq!(fault_of(unknown, &good, None), None);
    }

    #[test]
    fn an_error_that_repeats_the_key_is_seen() {
        let strange = BAD.iter().find(|b| b.what == "an unknown key").unwrap();
        let leaky = format!(
            r#"{{"error":{{"message":"key {STRANGE_KEY} unknown, make one in the console","type":"t","param":null,"code":"invalid_api_key"}}}}"#
        );
        assert!(fault_of(strange, &reply(401, &leaky), Some(STRANGE_KEY)).unwrap().contains("repeats"));
    }
}
