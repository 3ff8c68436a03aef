//! Bounds: how large a request may be, how long a client may not read.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::desk::Dialect;
use super::bench::{Bench, SOON, Wish};
use super::raw::{Raw, head};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

const MB: usize = 1 << 20;
/// The product's bound of all bodies together.
const ALL: usize = 1 << 30;

/// What is within the bounds arrives whole; what is not is told while it is read.
pub fn size(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::start(stage, task, &Wish::default())?;
    for dialect in Dialect::ALL {
        for mb in [1, 31] {
            let question = sized(dialect, mb * MB);
            let before = bench.engine.asked().len();
            let answer = Raw::post(bench.agent.port(), dialect.path(), &bench.key, &question)?.end(Duration::from_secs(60));
            let seen = bench.engine.wait("the engine has it", SOON, |engine| engine.asked().get(before).cloned())?;
            let there = seen["body_bytes"].as_u64().unwrap_or_default();
            result.expect(
                answer.status == 200 && answer.clean && there > (mb as u64 - 1) * MB as u64,
                format!("{dialect:?}: {mb} MB are answered {} and the engine got {there} bytes", answer.status),
            );
        }
        let chunked = pour(&bench, dialect, 33 * MB)?;
        result.expect(
            chunked.status == 413 && chunked.sent < 40 * MB,
            format!("{dialect:?}: a body without end is answered {} after {} MB, while it is sent", chunked.status, chunked.sent / MB),
        );
    }
    together(&bench, result)?;
    bench.expect_idle(result);
    let after = bench.ask(Dialect::Chat, &Dialect::Chat.question("Hello?", false))?;
    result.expect(after.status == 200, "afterwards requests are answered as before");
    bench.end(result).map(drop)
}

/// A question of about that many bytes.
fn sized(dialect: Dialect, bytes: usize) -> Vec<u8> {
    dialect.question(&"word ".repeat(bytes / 5), false).to_string().into_bytes()
}

/// What a body without an announced length met.
struct Poured {
    status: u16,
    sent: usize,
}

/// Sends chunks without end, and looks for an answer after each.
fn pour(bench: &Bench, dialect: Dialect, least: usize) -> Result<Poured, String> {
    let begin = format!("{}transfer-encoding: chunked\r\n\r\n", head("POST", dialect.path(), &bench.key));
    let mut raw = Raw::send(bench.agent.port(), begin.as_bytes())?;
    let chunk = [format!("{:x}\r\n", MB).into_bytes(), vec![b' '; MB], b"\r\n".to_vec()].concat();
    let mut sent = 0;
    while sent < 2 * least {
        if raw.began() || raw.write(&chunk).is_err() {
            break;
        }
        sent += MB;
    }
    Ok(Poured { status: raw.end(SOON).status, sent })
}

/// Many large bodies that do not end: together they may hold the bound, the next one is told to come back.
fn together(bench: &Bench, result: &mut CaseResult) -> Result<(), String> {
    let piece = 31 * MB;
    let body = vec![b' '; piece];
    let mut held: Vec<Raw> = Vec::new();
    let mut refused = None;
    for n in 0..=ALL / piece + 1 {
        let dialect = Dialect::ALL[n % 3];
        let begin = format!("{}content-length: {}\r\n\r\n", head("POST", dialect.path(), &bench.key), piece + 1);
        let mut raw = Raw::send(bench.agent.port(), begin.as_bytes())?;
        let written = raw.write(&body);
        // Its last byte is missing, so whoever answers now refuses.
        if written.is_err() || raw.began() {
            refused = Some((n, dialect, raw.end(SOON)));
            break;
        }
        held.push(raw);
    }
    let together = held.len() * piece;
    let Some((n, dialect, answer)) = refused else {
        result.expect(false, format!("{} bodies of 31 MB are held together, none was refused", held.len()));
        return Ok(());
    };
    let status = if dialect == Dialect::Messages { 529 } else { 503 };
    let later = answer.header("retry-after").is_some();
    result.expect(
        answer.status == status && later && together <= ALL && n >= ALL / piece - 2,
        format!("with {} MB held, the next body is answered {} with retry-after ({later}): {}", together / MB, answer.status, answer.short()),
    );
    let memory = resident(bench)?;
    result.figure("bodies_held_rss_mb", memory);
    for raw in held {
        raw.leave();
    }
    let until = Instant::now() + SOON;
    loop {
        let answer = bench.ask(Dialect::Chat, &json!({"model": "tiny", "messages": [{"role": "user", "content": "x".repeat(MB)}]}))?;
        if answer.status == 200 || Instant::now() > until {
            result.expect(answer.status == 200, format!("once they are gone a large body is taken again: {}", answer.status));
            return Ok(());
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Memory of the agent, in MB.
fn resident(bench: &Bench) -> Result<f64, String> {
    let pid = bench.agent.pid()?;
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).map_err(|e| e.to_string())?;
    let kb = text.lines().find_map(|l| l.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok());
    kb.map(|kb| kb / 1024.0).ok_or_else(|| "the agent's memory cannot be read".to_owned())
}

/// The product's bound of a client that does not read, and what it may take beyond it.
const PAUSE_S: f64 = 60.0;
const BEYOND_S: f64 = 10.0;

/// A client that reads nothing for a minute is given up and the engine is let go; one that reads slowly is not.
pub fn stalled(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::start(stage, task, &Wish::default())?;
    let text = "x".repeat(4000);
    bench.script(&json!([
        {"when": {"contains": "slow reader"}, "act": {"chat": {"say": [{"text": text, "repeat": 1_000_000}], "between_ms": 20}}},
        {"act": {"chat": {"say": [{"text": text}], "between_ms": 1, "endless": true}}},
    ]))?;
    let before = resident(&bench)?;
    let mut stalled: Vec<Raw> = Vec::new();
    for dialect in Dialect::ALL {
        let mut raw = bench.post(dialect, &dialect.question("the stalled one", true))?;
        raw.until("xxxx", SOON)?;
        stalled.push(raw);
    }
    let mut slow = bench.post(Dialect::Chat, &Dialect::Chat.question("slow reader", true))?;
    slow.until("xxxx", SOON)?;
    thread::sleep(Duration::from_secs(5));
    let grown = resident(&bench)? - before;
    result.expect(grown < 40.0, format!("three endless answers that nobody reads take {grown:.0} MB of the agent's memory"));
    let begun = Instant::now();
    let limit = Duration::from_secs_f64(PAUSE_S + BEYOND_S);
    // The agent's own looks at the engine are noted too when they come to nothing.
    let questions = || bench.engine.asked().into_iter().filter(|asked| asked["method"] == "POST").collect::<Vec<Value>>();
    while begun.elapsed() < limit && questions().len() < 3 {
        slow.began();
        thread::sleep(Duration::from_secs(1));
    }
    let over = questions();
    for end in &over {
        let after = end["after_ms"].as_f64().unwrap_or_default() / 1000.0;
        result.expect(
            end["ended"] == "client_gone"
                && end["body"].as_str().is_some_and(|b| b.contains("stalled"))
                && (PAUSE_S..PAUSE_S + BEYOND_S).contains(&after),
            format!("an answer that nobody reads: the engine is let go after {after:.1} s"),
        );
    }
    result.expect(over.len() == 3, format!("all three were given up, the slow reader was not ({})", over.len()));
    slow.leave();
    drop(stalled);
    bench.expect_idle(result);
    let usage = bench.charged(4)?;
    result.expect(usage["requests"] == 4, format!("each was charged once: {}", usage["requests"]));
    bench.end(result).map(drop)
}
