//! Clients that leave, in the queue, while the prompt is computed, and in the middle of the answer; and everything at once.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::desk::Dialect;
use super::bench::{Bench, SOON, Wish, counters};
use super::raw::{Raw, now};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Longest time from the client's leaving to the end of the engine's connection, in milliseconds: the list's `abort_ms`.
const LIMIT_MS: f64 = 100.0;
/// How often each way of leaving is tried.
const ROUNDS: usize = 5;
/// An answer that nobody waits for to its end.
const LONG_MS: u64 = 600_000;

/// A client that leaves the queue: the engine never hears of it.
pub fn abort_queue(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::start(stage, task, &Wish { slots: 1, ..Wish::default() })?;
    bench.script(&json!([{"when": {"contains": "long one"}, "act": {"chat": {"before_ms": LONG_MS}}}]))?;
    let first = bench.post(Dialect::Chat, &Dialect::Chat.question("the long one", true))?;
    bench.engine.wait("the first request reaches the engine", SOON, |engine| (engine.arrived().len() == 1).then_some(()))?;
    let (mut slowest, mut charged) = (0.0_f64, 0);
    for dialect in Dialect::ALL {
        for stream in [true, false] {
            let mut waiting = bench.post(dialect, &dialect.question("who waits", stream))?;
            until(&bench, "it waits", |routing| counters(routing).1 == 1)?;
            let answered = waiting.began();
            let left = waiting.leave();
            until(&bench, "it left the queue", |routing| counters(routing).1 == 0)?;
            let ms = (now() - left) * 1000.0;
            slowest = slowest.max(ms);
            charged += 1;
            result.expect(
                !answered && bench.engine.arrived().len() == 1,
                format!("{dialect:?}, streamed {stream}: it waited without an answer, left after {ms:.0} ms, and the engine was never asked"),
            );
        }
    }
    result.figure("queue_left_ms", slowest);
    first.leave();
    bench.expect_idle(result);
    let usage = bench.charged(charged + 1)?;
    result.expect(usage["requests"] == charged + 1, format!("{} requests were charged, one of them ran", usage["requests"]));
    result.expect(bench.engine.arrived().len() == 1, "in all the engine saw one request");
    let rows = bench.end(result)?;
    let gone = rows.iter().filter(|row| row.outcome == "client_gone").count();
    result.expect(gone as u64 == charged + 1 && rows.len() == gone, format!("all {} are noted as left by their clients ({gone})", rows.len()));
    Ok(())
}

fn until(bench: &Bench, what: &str, holds: impl Fn(&Value) -> bool) -> Result<(), String> {
    let end = Instant::now() + SOON;
    loop {
        let routing = bench.routing()?;
        if holds(&routing) {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(format!("{what}: not within {} s: {routing}", SOON.as_secs()));
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// A client that leaves while its prompt is computed.
pub fn abort_prefill(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::start(stage, task, &Wish::default())?;
    bench.script(&json!([
        {"when": {"contains": "head at once"}, "act": {"chat": {"before_ms": LONG_MS, "early_head": true, "role": false}}},
        {"act": {"chat": {"before_ms": LONG_MS}}},
    ]))?;
    let mut all = Lefts::default();
    for dialect in Dialect::ALL {
        for stream in [true, false] {
            for round in 0..ROUNDS {
                // Some engines send the head of a stream before they compute.
                let text = if round % 2 == 1 { "head at once" } else { "head later" };
                let raw = bench.post(dialect, &dialect.question(text, stream))?;
                came(&bench, all.len())?;
                thread::sleep(Duration::from_millis(30));
                all.left(&bench, dialect, stream, raw);
            }
        }
    }
    // After a while of silence a client is told that its request lives; it may leave then, too.
    let committed: Vec<(Dialect, Raw)> =
        Dialect::ALL.into_iter().map(|d| Ok((d, bench.post(d, &d.question("head later", true))?))).collect::<Result<_, String>>()?;
    for (dialect, mut raw) in committed {
        let told = raw.until("\r\n\r\n", Duration::from_secs(15));
        result.expect(told.is_ok(), format!("{dialect:?}: a silent engine, and the client hears something within 15 s ({told:?})"));
        all.left(&bench, dialect, true, raw);
    }
    all.judge(&bench, result)?;
    bench.end(result).map(drop)
}

/// A client that leaves in the middle of the answer.
pub fn abort_decode(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::start(stage, task, &Wish::default())?;
    bench.script(&json!([{"act": {"chat": {"say": [{"text": "word ", "repeat": 1_000_000}], "between_ms": 5}}}]))?;
    let mut all = Lefts::default();
    'all: for dialect in Dialect::ALL {
        for stream in [true, false] {
            for _ in 0..ROUNDS {
                let mut raw = bench.post(dialect, &dialect.question("go on", stream))?;
                if stream {
                    raw.until("word", SOON)?;
                } else {
                    came(&bench, all.len())?;
                    thread::sleep(Duration::from_millis(60));
                }
                if !all.left(&bench, dialect, stream, raw) {
                    // Its engine stays busy for nobody, and those to come would only wait.
                    break 'all;
                }
            }
        }
    }
    all.judge(&bench, result)?;
    bench.end(result).map(drop)
}

fn came(bench: &Bench, before: usize) -> Result<(), String> {
    bench.engine.wait("the request reaches the engine", SOON, |engine| (engine.arrived().len() > before).then_some(()))
}

/// How clients left so far.
#[derive(Default)]
struct Lefts(Vec<(Dialect, bool, Option<f64>)>);

impl Lefts {
    fn len(&self) -> usize {
        self.0.len()
    }

    /// Leaves, and waits shortly for the engine's connection to end; false: it does not.
    fn left(&mut self, bench: &Bench, dialect: Dialect, stream: bool, raw: Raw) -> bool {
        let before = bench.engine.asked().len();
        let left = raw.leave();
        let over = bench.engine.wait("the engine is let go", Duration::from_secs(2), |engine| engine.asked().get(before).cloned());
        let ms = over.ok().filter(|over| over["ended"] == "client_gone").and_then(|over| over["ended_at"].as_f64()).map(|at| (at - left) * 1000.0);
        self.0.push((dialect, stream, ms));
        ms.is_some()
    }

    /// All were let go in time, were charged once, and nothing is counted any more.
    fn judge(&self, bench: &Bench, result: &mut CaseResult) -> Result<(), String> {
        for dialect in Dialect::ALL {
            for stream in [true, false] {
                let of: Vec<Option<f64>> = self.0.iter().filter(|(d, s, _)| (*d, *s) == (dialect, stream)).map(|(_, _, ms)| *ms).collect();
                let worst = of.iter().flatten().copied().fold(0.0_f64, f64::max);
                let holds = !of.is_empty() && of.iter().all(|ms| ms.is_some_and(|ms| ms <= LIMIT_MS));
                let never = of.iter().filter(|ms| ms.is_none()).count();
                result.expect(
                    holds,
                    format!("{dialect:?}, streamed {stream}: {} clients left, the engine was let go after {worst:.1} ms at most ({never} never within 2 s)", of.len()),
                );
            }
        }
        let worst = self.0.iter().map(|(_, _, ms)| ms.unwrap_or(2000.0)).fold(0.0_f64, f64::max);
        result.figure("abort_ms", worst);
        bench.expect_idle(result);
        let requests = self.len() as u64;
        let usage = bench.charged(requests)?;
        result.expect(usage["requests"] == requests, format!("each of the {requests} was charged once: {}", usage["requests"]));
        Ok(())
    }
}
