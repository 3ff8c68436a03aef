//! Codex: `codex exec --json` with a provider of its own, over `/v1/responses`.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::room::{Room, Said, What};
use super::round;
use crate::cases::dialects::desk::{Behind, MODEL};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

const PROGRAM: &str = "node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex";
/// A run takes one to ten seconds.
const LIMIT: Duration = Duration::from_secs(180);

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let room = Room::open(stage, task, Behind::Scripted, What::All, "")?;
    configure(&room, "")?;
    room.desk.script(&round::script("exec_command", "cmd"))?;
    tools(&room, result)?;
    resume(&room, result)?;
    trouble(&room, result)?;
    refusals(&room, result)?;
    room.leave(result)?;

    let room = Room::open(stage, task, Behind::Wide, What::All, "")?;
    configure(&room, "")?;
    let said = room.run(command(&room, "Say something."), LIMIT)?;
    let usage = end(&said);
    let (put, got) = (usage["input_tokens"].as_u64().unwrap_or_default(), usage["output_tokens"].as_u64().unwrap_or_default());
    result.expect(said.code == Some(0), format!("genuine llama.cpp: the run ends with exit code 0 ({:?}: {})", said.code, said.tail()));
    result.expect(put > 1000 && got > 0, format!("genuine llama.cpp: it counts {put} tokens of the prompt and {got} of the answer"));
    result.figure("genuine_s", said.took.as_secs_f64());
    room.leave(result)
}

/// Writes its configuration; `more` are further lines of the provider's.
pub fn configure(room: &Room, more: &str) -> Result<(), String> {
    let base = room.desk.agent.base();
    room.put(
        ".codex/config.toml",
        &format!(
            "model = \"{MODEL}\"\nmodel_provider = \"box\"\napproval_policy = \"never\"\nsandbox_mode = \"danger-full-access\"\n\
             check_for_update_on_startup = false\n[analytics]\nenabled = false\n\
             [model_providers.box]\nname = \"box\"\nbase_url = \"{base}/v1\"\nenv_key = \"BOX_KEY\"\nwire_api = \"responses\"\n{more}\n"
        ),
    )
}

/// One run that says `text`.
pub fn command(room: &Room, text: &str) -> Command {
    words(room, &["exec", "--json", "--skip-git-repo-check", text])
}

fn words(room: &Room, words: &[&str]) -> Command {
    let mut codex = room.command(PROGRAM);
    codex.args(words).env("BOX_KEY", &room.desk.key);
    codex
}

/// Usage at the end of a run.
fn end(said: &Said) -> Value {
    said.of_type("turn.completed").last().map(|e| e["usage"].clone()).unwrap_or(Value::Null)
}

fn items<'a>(said: &'a Said, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    said.of_type("item.completed").map(|e| &e["item"]).filter(move |item| item["type"] == kind)
}

/// Whether a run ended well with that answer.
pub fn answered(said: &Said, text: &str) -> bool {
    said.code == Some(0) && items(said, "agent_message").last().is_some_and(|item| item["text"] == text) && !end(said).is_null()
}

fn tools(room: &Room, result: &mut CaseResult) -> Result<(), String> {
    let said = room.run(command(room, round::ROUND), LIMIT)?;
    result.figure("round_s", said.took.as_secs_f64());
    result.expect(
        answered(&said, round::DONE),
        format!("a round of tools ends with exit code 0 and the model's answer ({:?}: {})", said.code, said.tail()),
    );
    let ran = items(&said, "command_execution").filter(|item| item["exit_code"] == 0).count();
    result.expect(ran == 3, format!("it ran three commands ({ran})"));
    let usage = end(&said);
    let told = ["input_tokens", "cached_input_tokens", "output_tokens"].map(|name| usage[name].as_u64().unwrap_or_default());
    result.expect(told == [round::PROMPT, round::CACHED, round::COMPLETION], format!("it counts the tokens that the engine counted ({told:?})"));
    round::was_played(&room.chats(0, 3)?, result, "Codex");
    Ok(())
}

fn resume(room: &Room, result: &mut CaseResult) -> Result<(), String> {
    let before = room.count()?;
    let again = words(room, &["exec", "--json", "--skip-git-repo-check", "resume", "--last", round::AGAIN]);
    let said = room.run(again, LIMIT)?;
    result.expect(answered(&said, round::AGAIN_DONE), format!("a session that is taken up again is answered ({:?}: {})", said.code, said.tail()));
    let asked = room.chats(before, 1)?;
    let history = asked.last().map(|a| a["body"]["messages"].to_string()).unwrap_or_default();
    result.expect(asked.len() == 1 && history.contains(round::DONE), "its history holds the first round");
    Ok(())
}

fn trouble(room: &Room, result: &mut CaseResult) -> Result<(), String> {
    for (what, wish) in [("an engine that is busy (503)", round::BUSY), ("an engine that breaks off in mid-stream", round::BREAK)] {
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
    let told = said.text.contains("prompt is too long: 200000 tokens > 131072 maximum") || said.text.contains("context window");
    result
        .expect(said.code == Some(1) && told, format!("a prompt that is too long ends the run with the numbers ({:?}: {})", said.code, said.tail()));
    round::turns_asked(&room.chats(before, 1)?, 1, result, "a prompt that is too long");

    let before = room.count()?;
    let said = room.run(words(room, &["exec", "--json", "--skip-git-repo-check", "-m", "gpt-nope", "Hello."]), LIMIT)?;
    result.expect(
        said.code == Some(1) && said.text.contains("is not loaded"),
        format!("a model that is not there ends the run with a sentence ({:?}: {})", said.code, said.tail()),
    );
    let mut stranger = command(room, "Hello.");
    stranger.env("BOX_KEY", format!("vw_{}", "A".repeat(43)));
    let said = room.run(stranger, LIMIT)?;
    result.expect(
        said.code == Some(1) && said.text.contains("401"),
        format!("a wrong key ends the run and is named as the cause ({:?}: {})", said.code, said.tail()),
    );
    result.expect(room.chats(before, 0)?.is_empty(), "no engine is asked for either");
    Ok(())
}
