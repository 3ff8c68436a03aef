//! OpenCode: `opencode run --format json`, over each of the three dialects.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::room::{Room, Said, What};
use super::round;
use crate::cases::dialects::desk::{Behind, MODEL};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

const PROGRAM: &str = "node_modules/opencode-linux-x64-baseline/bin/opencode";
/// A run takes five to fifteen seconds.
const LIMIT: Duration = Duration::from_secs(180);
/// The packages that speak for it, by the dialect they speak. They are part of the program.
const PROVIDERS: [(&str, &str); 3] = [("chat", "@ai-sdk/openai-compatible"), ("responses", "@ai-sdk/openai"), ("messages", "@ai-sdk/anthropic")];

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let room = Room::open(stage, task, Behind::Scripted, What::All, "")?;
    configure(&room, &room.desk.key, json!({}))?;
    room.desk.script(&round::script("bash", "command"))?;
    for (dialect, _) in PROVIDERS {
        tools(&room, dialect, result)?;
    }
    resume(&room, result)?;
    trouble(&room, result)?;
    refusals(&room, result)?;
    room.leave(result)?;

    let room = Room::open(stage, task, Behind::Wide, What::All, "")?;
    configure(&room, &room.desk.key, json!({}))?;
    let said = room.run(command(&room, "chat", "Say something."), LIMIT)?;
    let (put, got) = (tokens(&said, "input"), tokens(&said, "output"));
    result.expect(said.code == Some(0), format!("genuine llama.cpp: the run ends with exit code 0 ({:?}: {})", said.code, said.tail()));
    result.expect(put > 1000 && got > 0, format!("genuine llama.cpp: it counts {put} tokens of the prompt and {got} of the answer"));
    result.figure("genuine_s", said.took.as_secs_f64());
    room.leave(result)
}

/// Writes its configuration: a provider per dialect with a key; `more` are further options of each.
pub fn configure(room: &Room, key: &str, more: Value) -> Result<(), String> {
    let mut providers = json!({});
    for (dialect, package) in PROVIDERS {
        let mut options = json!({"baseURL": format!("{}/v1", room.desk.agent.base()), "apiKey": key});
        if let (Some(options), Some(more)) = (options.as_object_mut(), more.as_object()) {
            options.extend(more.clone());
        }
        providers[dialect] = json!({"npm": package, "name": dialect, "options": options,
            "models": {MODEL: {"name": MODEL, "limit": {"context": 131_072, "output": 8192}}}});
    }
    let config = json!({"autoupdate": false, "share": "disabled", "provider": providers});
    room.put(".config/opencode/opencode.json", &config.to_string())
}

/// One run that says `text` in a dialect.
pub fn command(room: &Room, dialect: &str, text: &str) -> Command {
    let mut opencode = room.command(PROGRAM);
    opencode
        .args(["run", "--format", "json", "-m", &format!("{dialect}/{MODEL}"), text])
        .env("OPENCODE_DISABLE_AUTOUPDATE", "1")
        .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
        .env("OPENCODE_DISABLE_LSP_DOWNLOAD", "1");
    opencode
}

fn part<'a>(said: &'a Said, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    said.of_type(kind).map(|e| &e["part"])
}

/// Tokens of a kind, all steps together.
fn tokens(said: &Said, kind: &str) -> u64 {
    part(said, "step_finish").filter_map(|p| p["tokens"][kind].as_u64()).sum()
}

/// Whether a run ended well with that answer.
pub fn answered(said: &Said, text: &str) -> bool {
    said.code == Some(0) && part(said, "text").last().is_some_and(|p| p["text"] == text)
}

fn tools(room: &Room, dialect: &str, result: &mut CaseResult) -> Result<(), String> {
    let before = room.count()?;
    let said = room.run(command(room, dialect, round::ROUND), LIMIT)?;
    result.figure(&format!("round_{dialect}_s"), said.took.as_secs_f64());
    let name = format!("OpenCode, {dialect}");
    result.expect(
        answered(&said, round::DONE),
        format!("{name}: a round of tools ends with exit code 0 and the model's answer ({:?}: {})", said.code, said.tail()),
    );
    let ran = part(&said, "tool_use").filter(|p| p["state"]["status"] == "completed").count();
    result.expect(ran == 3, format!("{name}: it ran three commands ({ran})"));
    let cached: u64 = part(&said, "step_finish").filter_map(|p| p["tokens"]["cache"]["read"].as_u64()).sum();
    let told = [tokens(&said, "input") + cached, cached, tokens(&said, "output") + tokens(&said, "reasoning")];
    result.expect(
        told == [round::PROMPT, round::CACHED, round::COMPLETION],
        format!("{name}: it counts the tokens that the engine counted ({told:?})"),
    );
    round::was_played(&room.chats(before, 4)?, result, &name);
    Ok(())
}

fn resume(room: &Room, result: &mut CaseResult) -> Result<(), String> {
    let before = room.count()?;
    let mut again = command(room, "messages", round::AGAIN);
    again.arg("-c");
    let said = room.run(again, LIMIT)?;
    result.expect(answered(&said, round::AGAIN_DONE), format!("a session that is taken up again is answered ({:?}: {})", said.code, said.tail()));
    let asked = room.chats(before, 1)?;
    let history = asked.last().map(|a| a["body"]["messages"].to_string()).unwrap_or_default();
    result.expect(history.contains(round::DONE), "its history holds the first round");
    round::turns_asked(&asked, 1, result, "a session that is taken up again");
    Ok(())
}

fn trouble(room: &Room, result: &mut CaseResult) -> Result<(), String> {
    for (what, wish) in [("an engine that is busy (503)", round::BUSY), ("an engine that breaks off in mid-stream", round::BREAK)] {
        let before = room.count()?;
        let said = room.run(command(room, "chat", wish), LIMIT)?;
        result.expect(answered(&said, round::HERE), format!("{what} is asked again, and the answer is whole ({:?}: {})", said.code, said.tail()));
        round::turns_asked(&room.chats(before, 3)?, 2, result, what);
    }
    Ok(())
}

fn refusals(room: &Room, result: &mut CaseResult) -> Result<(), String> {
    let said = room.run(command(room, "chat", round::TOO_LONG), LIMIT)?;
    let told = said.text.contains("ContextOverflowError") && said.text.contains("prompt is too long: 200000 tokens > 131072 maximum");
    result.expect(said.code == Some(1) && told, format!("a prompt that is too long is understood as such ({:?}: {})", said.code, said.tail()));
    let before = room.count()?;
    configure(room, &format!("vw_{}", "A".repeat(43)), json!({}))?;
    let said = room.run(command(room, "chat", "Hello."), LIMIT)?;
    result.expect(
        said.code == Some(1) && said.text.contains("key"),
        format!("a wrong key ends the run and is named as the cause ({:?}: {})", said.code, said.tail()),
    );
    result.expect(room.chats(before, 0)?.is_empty(), "no engine is asked for it");
    Ok(())
}
