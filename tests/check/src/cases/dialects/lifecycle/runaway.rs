//! Answers that repeat themselves, never stop thinking, or never end: noted in `log`, ended in `enforce`; what is only long is left alone.

use serde_json::{Value, json};

use super::super::desk::Dialect;
use super::bench::{Bench, SOON, Wish};
use super::raw::Answer;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Pieces of a giant answer or thought, of 4 KB each: 2.4 MB in all.
const GIANT: usize = 600;

/// Words that never come back in the same order, as far as a guard looks.
fn varied(seed: u64, bytes: usize) -> String {
    let (mut text, mut state) = (String::with_capacity(bytes + 16), seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(&format!("w{:x} ", state % 0x00ff_ffff));
    }
    text
}

/// What an engine says that runs away; endless but for the giant one.
fn runaways() -> [(&'static str, Value); 4] {
    let giant = |field: &str| (0..GIANT as u64).map(|n| json!({field: varied(n + 1, 4000)})).collect::<Vec<Value>>();
    let unclosed = [vec![json!("<think>\n")], giant("text")].concat();
    [
        (
            "repeats itself",
            json!({"chat": {"say": ["Once upon a time. ", {"text": "And then again the same words. ", "repeat": 100_000}], "between_ms": 1}}),
        ),
        ("never stops thinking", json!({"chat": {"say": giant("reason"), "endless": true}})),
        ("opens a think block and never closes it", json!({"chat": {"say": unclosed, "endless": true}})),
        ("never ends", json!({"chat": {"say": giant("text"), "endless": true}})),
    ]
}

/// What is only long: a table, code, a ruler of dashes.
fn long_and_normal() -> Vec<Value> {
    let table: String = (0..1500).map(|n| format!("| {n} | item {n} | {} | yes | 0 |\n", n * 7 % 101)).collect();
    let code: String = (0..800).map(|n| format!("    values[{n}] = {{ .id = {n}, .flags = 0, .next = NULL }};\n")).collect();
    let whole = format!("{}\n{table}\n{code}\n{}\n", "-".repeat(300), "0, ".repeat(300));
    whole.as_bytes().chunks(700).map(|piece| json!({"text": String::from_utf8_lossy(piece)})).collect()
}

/// See the module.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::start(stage, task, &Wish::default())?;
    let settings = format!("/api/models/{}/settings", bench.id);
    let usual = bench.console.expect("GET", &settings, None, &[200])?.json();
    result.expect(usual["runaway_guard"] == "log", format!("a model's guard only notes unless it is told otherwise: {}", usual["runaway_guard"]));
    logged(&bench, result)?;
    bench.console.expect("PATCH", &settings, Some(&json!({"runaway_guard": "enforce"})), &[200])?;
    enforced(&bench, result)?;
    left_alone(&bench, result)?;
    bench.expect_idle(result);
    let rows = bench.end(result)?;
    let cut = rows.iter().filter(|row| row.outcome == "cut_short").count();
    let wanted = runaways().len() * Dialect::ALL.len();
    result.expect(cut >= wanted, format!("{cut} requests are noted as cut short (at least {wanted})"));
    Ok(())
}

fn counted(bench: &Bench) -> Result<u64, String> {
    Ok(bench.routing()?["totals"]["runaways"].as_u64().unwrap_or_default())
}

/// In `log` the answer goes on to its own end, and is counted.
fn logged(bench: &Bench, result: &mut CaseResult) -> Result<(), String> {
    bench.script(&json!([{"act": {"chat": {"say": [{"text": "And then again the same words. ", "repeat": 1500}, "The end."]}}}]))?;
    for dialect in Dialect::ALL {
        let before = counted(bench)?;
        let answer = bench.ask(dialect, &dialect.question("Go on.", true))?;
        let after = counted(bench)?;
        result.expect(
            answer.clean && answer.text().contains("The end.") && after == before + 1,
            format!("{dialect:?}, log: an answer that repeats itself goes on to its end (clean {}) and is counted ({before}, {after})", answer.clean),
        );
    }
    Ok(())
}

/// In `enforce` it ends as if it had come to its limit of tokens, and the engine is let go.
fn enforced(bench: &Bench, result: &mut CaseResult) -> Result<(), String> {
    for (what, act) in runaways() {
        bench.script(&json!([{ "act": act }]))?;
        for dialect in Dialect::ALL {
            // An answer in one piece of the chat dialect is the engine's own, as a whole or not at all.
            let ways: &[bool] = if dialect == Dialect::Chat { &[true] } else { &[true, false] };
            for &stream in ways {
                let before = bench.engine.asked().len();
                let answer = bench.post(dialect, &dialect.question("Go on.", stream))?.end(std::time::Duration::from_secs(60));
                let over = bench.engine.wait("the engine is let go", SOON, |engine| engine.asked().get(before).cloned())?;
                let reason = reason(dialect, stream, &answer);
                let holds = answer.status == 200 && answer.clean && limit(dialect, &reason) && over["ended"] == "client_gone";
                let more = if holds {
                    String::new()
                } else {
                    format!(" {}", answer.text().chars().rev().take(300).collect::<Vec<_>>().iter().rev().collect::<String>())
                };
                result.expect(
                    holds,
                    format!(
                        "{dialect:?}, streamed {stream}, enforce: an engine that {what} is let go after {} bytes ({}), the answer ends with {reason} (clean {}){more}",
                        over["sent_bytes"], over["ended"], answer.clean
                    ),
                );
            }
        }
    }
    Ok(())
}

/// Why the answer ended, in the words of its dialect.
fn reason(dialect: Dialect, stream: bool, answer: &Answer) -> String {
    let documents: Vec<Value> = if stream { answer.events().into_iter().map(|(_, data)| data).collect() } else { vec![answer.json()] };
    let word = |d: &Value| match dialect {
        Dialect::Chat => d["choices"][0]["finish_reason"].as_str().map(str::to_owned),
        Dialect::Messages => [&d["delta"]["stop_reason"], &d["stop_reason"]].iter().find_map(|r| r.as_str()).map(str::to_owned),
        Dialect::Responses => {
            [&d["response"]["incomplete_details"]["reason"], &d["incomplete_details"]["reason"]].iter().find_map(|r| r.as_str()).map(str::to_owned)
        }
    };
    documents.iter().rev().find_map(word).unwrap_or_default()
}

fn limit(dialect: Dialect, reason: &str) -> bool {
    match dialect {
        Dialect::Chat => reason == "length",
        Dialect::Messages => reason == "max_tokens",
        Dialect::Responses => reason == "max_output_tokens",
    }
}

/// A long table, code and rulers are nobody's runaway.
fn left_alone(bench: &Bench, result: &mut CaseResult) -> Result<(), String> {
    let mut say = long_and_normal();
    say.push(json!("The end."));
    bench.script(&json!([{"act": {"chat": {"say": say}}}]))?;
    let before = counted(bench)?;
    for dialect in Dialect::ALL {
        let answer = bench.ask(dialect, &dialect.question("Go on.", true))?;
        result.expect(
            answer.clean && answer.text().contains("The end."),
            format!("{dialect:?}, enforce: {} bytes of table and code are left alone", answer.body.len()),
        );
    }
    result.expect(counted(bench)? == before, "and are not counted as runaways");
    Ok(())
}
