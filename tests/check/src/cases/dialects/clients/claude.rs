//! Claude Code: `claude -p` with its own tools, over `/v1/messages`.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::room::{Room, Said, What};
use super::round;
use crate::cases::dialects::desk::{Behind, MODEL};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

const PROGRAM: &str = "node_modules/@anthropic-ai/claude-code-linux-x64/claude";
/// A run takes two to fifteen seconds.
const LIMIT: Duration = Duration::from_secs(180);

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let room = Room::open(stage, task, Behind::Scripted, What::All, "")?;
    room.desk.script(&round::script("Bash", "command"))?;
    let session = tools(&room, result)?;
    resume(&room, &session, result)?;
    trouble(&room, result)?;
    refusals(&room, result)?;
    room.leave(result)?;

    let room = Room::open(stage, task, Behind::Wide, What::All, "")?;
    genuine(&room, result)?;
    room.leave(result)
}

/// One run that says `text`.
pub fn command(room: &Room, text: &str) -> Command {
    let mut claude = room.command(PROGRAM);
    claude
        .args(["-p", text, "--model", MODEL, "--output-format", "stream-json", "--verbose", "--permission-mode", "bypassPermissions"])
        .env("ANTHROPIC_BASE_URL", room.desk.agent.base())
        .env("ANTHROPIC_API_KEY", &room.desk.key)
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("DISABLE_AUTOUPDATER", "1")
        // Otherwise root may not let tools run unasked.
        .env("IS_SANDBOX", "1");
    claude
}

/// The document that ends a run.
pub fn end(said: &Said) -> Value {
    said.of_type("result").last().cloned().unwrap_or(Value::Null)
}

/// Whether a run ended well with that answer.
pub fn answered(said: &Said, text: &str) -> bool {
    let end = end(said);
    said.code == Some(0) && end["subtype"] == "success" && end["is_error"] == false && end["result"].as_str().is_some_and(|r| r.contains(text))
}

fn tools(room: &Room, result: &mut CaseResult) -> Result<String, String> {
    let said = room.run(command(room, round::ROUND), LIMIT)?;
    result.figure("round_s", said.took.as_secs_f64());
    result.expect(
        answered(&said, round::DONE),
        format!("a round of tools ends with exit code 0 and the model's answer ({:?}: {})", said.code, said.tail()),
    );
    let blocks = |kind: &str| {
        said.of_type("assistant").flat_map(|e| e["message"]["content"].as_array().cloned().unwrap_or_default()).filter(|b| b["type"] == kind).count()
    };
    result.expect(blocks("tool_use") == 3, format!("it saw three uses of tools ({})", blocks("tool_use")));
    result.expect(blocks("thinking") == 1, format!("it saw the model's thinking ({})", blocks("thinking")));
    let models: Vec<&Value> = said.of_type("assistant").map(|e| &e["message"]["model"]).filter(|m| **m != MODEL).collect();
    result.expect(models.is_empty(), "every answer bears the name of the model asked for");
    let usage = &end(&said)["usage"];
    let told = [&usage["input_tokens"], &usage["cache_read_input_tokens"], &usage["output_tokens"]].map(|n| n.as_u64().unwrap_or_default());
    result.expect(
        told == [round::PROMPT - round::CACHED, round::CACHED, round::COMPLETION],
        format!("it counts the tokens that the engine counted ({told:?})"),
    );
    round::was_played(&room.chats(0, 3)?, result, "Claude Code");
    let session = end(&said)["session_id"].as_str().unwrap_or_default().to_owned();
    if session.is_empty() { Err("Claude Code told no session".to_owned()) } else { Ok(session) }
}

fn resume(room: &Room, session: &str, result: &mut CaseResult) -> Result<(), String> {
    let before = room.count()?;
    let mut again = command(room, round::AGAIN);
    again.args(["--resume", session]);
    let said = room.run(again, LIMIT)?;
    result.expect(answered(&said, round::AGAIN_DONE), format!("a session that is taken up again is answered ({:?}: {})", said.code, said.tail()));
    let asked = room.chats(before, 1)?;
    let history = asked.last().map(|a| a["body"]["messages"].to_string()).unwrap_or_default();
    result.expect(asked.len() == 1 && history.contains(round::DONE), "its history holds the first round");
    Ok(())
}

fn trouble(room: &Room, result: &mut CaseResult) -> Result<(), String> {
    for (what, wish) in [("an engine that is busy (529)", round::BUSY), ("an engine that breaks off in mid-stream", round::BREAK)] {
        let before = room.count()?;
        let said = room.run(command(room, wish), LIMIT)?;
        result.expect(answered(&said, round::HERE), format!("{what} is asked again, and the answer is whole ({:?}: {})", said.code, said.tail()));
        round::turns_asked(&room.chats(before, 2)?, 2, result, what);
    }
    Ok(())
}

fn refusals(room: &Room, result: &mut CaseResult) -> Result<(), String> {
    let before = room.count()?;
    let said = room.run(command(room, round::TOO_LONG), LIMIT)?;
    let told = end(&said)["result"].as_str().unwrap_or_default().to_owned();
    result.expect(
        said.code == Some(1) && told.starts_with("Prompt is too long"),
        format!("a prompt that is too long is understood as such ({:?}: {told})", said.code),
    );
    result.expect(told.contains("200000") && told.contains("131072"), "its numbers are read");
    round::turns_asked(&room.chats(before, 1)?, 1, result, "a prompt that is too long");

    let before = room.count()?;
    let mut other = command(room, "Hello.");
    other.args(["--model", "claude-nope"]);
    let said = room.run(other, LIMIT)?;
    result.expect(
        said.code == Some(1) && said.text.contains("claude-nope"),
        format!("a model that is not there ends the run with a sentence ({:?}: {})", said.code, said.tail()),
    );
    result.expect(room.chats(before, 0)?.is_empty(), "no engine is asked for it");
    Ok(())
}

/// The genuine engine talks nonsense; what counts is that the client takes it.
fn genuine(room: &Room, result: &mut CaseResult) -> Result<(), String> {
    let said = room.run(command(room, "Say something."), LIMIT)?;
    let end = end(&said);
    result.expect(
        said.code == Some(0) && end["subtype"] == "success",
        format!("genuine llama.cpp: the run ends with exit code 0 ({:?}: {})", said.code, said.tail()),
    );
    let usage = &end["usage"];
    let put = usage["input_tokens"].as_u64().unwrap_or_default() + usage["cache_read_input_tokens"].as_u64().unwrap_or_default();
    let got = usage["output_tokens"].as_u64().unwrap_or_default();
    result.expect(put > 1000 && got > 0, format!("genuine llama.cpp: it counts {put} tokens of the prompt and {got} of the answer"));
    result.figure("genuine_s", said.took.as_secs_f64());
    Ok(())
}
