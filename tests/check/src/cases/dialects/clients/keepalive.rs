//! Six silent minutes, thirty times as fast: a prompt is computed for 12 s, clients give up after 10 s without a word, the box says one
//! every third of a second.
//!
//! Each client's own limit is 300 s and can be lowered to a thirtieth (Claude Code's not further). That the limits hold is shown by the
//! same run with a box that keeps silent: every client asks a second time.

use std::time::Duration;

use serde_json::{Value, json};

use super::room::{Room, Said, What};
use super::{claude, codex, opencode, round};
use crate::cases::dialects::desk::Behind;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Six minutes.
const SILENCE_MS: u64 = 360_000 / 30;
/// Five minutes: the limit of each of the clients.
const LIMIT_MS: u64 = 300_000 / 30;
/// Ten seconds: how often the box says something.
const ALIVE_S: f64 = 10.0 / 30.0;
const LIMIT: Duration = Duration::from_secs(180);
const WISH: &str = "Please think for a long time.";

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let room = open(stage, task, ALIVE_S)?;
    for (name, asked, said, well) in all(&room)? {
        result.expect(
            well,
            format!(
                "{name}: the answer after a long silence is whole, exit code 0 ({:?} after {:.1} s: {})",
                said.code,
                said.took.as_secs_f64(),
                said.tail()
            ),
        );
        result.expect(asked == 1, format!("{name}: it was asked for once ({asked} times)"));
    }
    room.leave(result)?;

    // A client's limit counts from the head of the answer on; so here the engine says something before it falls silent.
    let room = open(stage, task, 3600.0)?;
    room.desk
        .script(&script(json!({"chat": {"say": ["Well", {"pause_ms": SILENCE_MS}, round::HERE], "usage": {"prompt": 25_000, "completion": 4}}})))?;
    for (name, asked, ..) in all(&room)? {
        result.expect(asked > 1, format!("{name}: with a box that keeps silent it asks again ({asked} times), so its limit is in force"));
    }
    room.leave(result)
}

fn open(stage: &mut Stage, task: &Task, alive_s: f64) -> Result<Room, String> {
    let room = Room::open(stage, task, Behind::Scripted, What::All, &format!("[gateway]\nkeep_alive_s = {alive_s}\n"))?;
    let act = json!({"chat": {"say": [round::HERE], "before_ms": SILENCE_MS, "early_head": true, "usage": {"prompt": 25_000, "completion": 4}}});
    room.desk.script(&script(act))?;
    codex::configure(&room, &format!("stream_idle_timeout_ms = {LIMIT_MS}"))?;
    opencode::configure(&room, &room.desk.key, json!({"chunkTimeout": LIMIT_MS}))?;
    Ok(room)
}

/// Only the first request of each client is slow, so that a second one is answered at once.
#[allow(clippy::needless_pass_by_value, reason = "it is made for this")]
fn script(act: Value) -> Value {
    json!({"rules": [
        {"when": {"contains": "You are a title"}, "act": {"chat": {"say": ["A title"]}}},
        {"when": {"contains": WISH}, "act": act}
    ]})
}

/// Each client's name, how many turns it asked for, what it said, and whether it ended well.
fn all(room: &Room) -> Result<Vec<(&'static str, usize, Said, bool)>, String> {
    let mut seen = Vec::new();
    let turns = |from: usize| -> Result<usize, String> { Ok(room.chats(from, 1)?.iter().filter(|a| round::is_turn(a)).count()) };

    let before = room.count()?;
    let mut command = claude::command(room, WISH);
    command.env("CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS", LIMIT_MS.to_string()).env("CLAUDE_ENABLE_BYTE_WATCHDOG", "1");
    let said = room.run(command, LIMIT)?;
    let well = claude::answered(&said, round::HERE);
    seen.push(("Claude Code", turns(before)?, said, well));

    let before = room.count()?;
    let said = room.run(codex::command(room, WISH), LIMIT)?;
    let well = codex::answered(&said, round::HERE);
    seen.push(("Codex", turns(before)?, said, well));

    let before = room.count()?;
    let said = room.run(opencode::command(room, "chat", WISH), LIMIT)?;
    let well = opencode::answered(&said, round::HERE);
    seen.push(("OpenCode", turns(before)?, said, well));
    Ok(seen)
}
