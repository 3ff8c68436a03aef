//! Everything at once: normal ends, errors, cuts, clients that leave at any moment, engines that die. Each request is charged exactly once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::desk::Dialect;
use super::bench::{Bench, Wish};
use super::raw::Answer;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Requests in all.
const REQUESTS: usize = 240;
/// Clients at the same time; more than there are slots, so that some wait.
const CLIENTS: usize = 12;
/// Every so many requests one kills the engine that answers it.
const KILLS: usize = 60;

/// What becomes of a request; the words are in its question, and the script does the rest.
const FATES: [(&str, &str); 9] = [
    ("ends well", r#"{"chat": {"say": [{"text": "well ", "repeat": 6}], "before_ms": 10, "between_ms": 4}}"#),
    (
        "ends with an error",
        r#"{"chat": {"say": ["a ", {"pause_ms": 5}, {"error": {"code": 500, "message": "no", "type": "server_error"}}], "finish": null, "done": false}}"#,
    ),
    ("ends cut", r#"{"chat": {"say": ["a ", {"pause_ms": 5}, {"cut": true}]}}"#),
    ("ends without a reason", r#"{"chat": {"say": ["a "], "finish": null, "done": false}}"#),
    (
        "is refused",
        r#"{"answer": {"status": 400, "before_ms": 5, "json": {"error": {"code": 400, "message": "no", "type": "invalid_request_error"}}}}"#,
    ),
    (
        "breaks the engine",
        r#"{"answer": {"status": 500, "before_ms": 5, "json": {"error": {"code": 500, "message": "no", "type": "server_error"}}}}"#,
    ),
    ("is closed", r#""close""#),
    ("is no HTTP", r#"{"bytes": "nonsense\r\n\r\n"}"#),
    ("goes on", r#"{"chat": {"say": [{"text": "on ", "repeat": 400}], "before_ms": 20, "between_ms": 5}}"#),
];

/// What a client saw.
struct Seen {
    left: bool,
    answer: Option<Answer>,
}

/// See the module.
pub fn once(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let wish = Wish { replicas: 2, slots: 3, more: "[serving]\nrestart_pause_s = 0.2\nrestarts = 50\n" };
    let bench = Bench::start(stage, task, &wish)?;
    let mut rules: Vec<Value> = Vec::new();
    for (word, act) in FATES {
        let act: Value = serde_json::from_str(act).map_err(|e| format!("{word}: {e}"))?;
        rules.push(json!({"when": {"contains": word}, "act": act}));
    }
    rules.push(json!({"when": {"contains": "kills at once"}, "times": 2, "act": {"die": -9}}));
    rules.push(json!({"when": {"contains": "kills in the middle"}, "act": {"chat": {"say": ["a ", {"pause_ms": 10}, {"die": -9}]}}}));
    bench.script(&json!(rules))?;
    let seen = storm(&bench);
    let sent = seen.len() as u64;
    bench.expect_idle(result);
    let mut told: BTreeMap<u16, usize> = BTreeMap::new();
    seen.iter().filter_map(|s| s.answer.as_ref()).for_each(|a| *told.entry(a.status).or_default() += 1);
    let left = seen.iter().filter(|s| s.left).count();
    result.note(format!("{sent} requests in three dialects, {left} clients left at any moment; statuses: {told:?}"));
    result.figure("requests", sent as f64);
    settle(&bench)?;
    let usage = bench.charged(0)?["requests"].as_u64().unwrap_or_default();
    let at_engines: BTreeSet<String> = bench.engine.asked().iter().filter_map(|a| a["headers"]["x-request-id"].as_str().map(str::to_owned)).collect();
    // Refused before they were admitted: nothing was begun, nothing is charged.
    let refused = |a: &&Answer| a.status == 404 || (matches!(a.status, 503 | 529) && a.header("retry-after").is_some());
    let ids: BTreeSet<String> = seen
        .iter()
        .filter_map(|s| s.answer.as_ref())
        .filter(|a| a.status != 0 && !refused(a))
        .filter_map(|a| a.header("x-request-id").map(str::to_owned))
        .collect();
    let rows = bench.end(result)?;
    let charged: BTreeSet<String> = rows.iter().map(|row| row.id.clone()).collect();
    result.expect(
        usage == rows.len() as u64 && charged.len() == rows.len() && usage <= sent,
        format!("{usage} requests are charged in the sums, {} rows stand for {} requests, {sent} were sent", rows.len(), charged.len()),
    );
    let lost: Vec<&String> = ids.union(&at_engines).filter(|id| !charged.contains(*id)).collect();
    result.expect(
        lost.is_empty(),
        format!("each of {} that were answered and {} that reached an engine is charged (missing: {lost:?})", ids.len(), at_engines.len()),
    );
    let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
    rows.iter().for_each(|row| *outcomes.entry(row.outcome.as_str()).or_default() += 1);
    let often = |word: &str| outcomes.get(word).copied().unwrap_or_default() >= REQUESTS / 80;
    let all = ["completed", "client_gone", "refused", "engine_failed"].iter().all(|word| often(word));
    result.expect(all, format!("every way to end was met often: {outcomes:?}"));
    Ok(())
}

/// Waits until the sums stand still: they are written in batches.
fn settle(bench: &Bench) -> Result<(), String> {
    let mut last = u64::MAX;
    for _ in 0..20 {
        let now = bench.console.expect("GET", &format!("/api/tokens/{}", bench.key_id), None, &[200])?.json()["usage"]["requests"].as_u64();
        if now == Some(last) {
            return Ok(());
        }
        last = now.unwrap_or(u64::MAX);
        thread::sleep(Duration::from_millis(500));
    }
    Ok(())
}

/// All requests, from several clients at once. The same in each run: what becomes of a request hangs on its number alone.
fn storm(bench: &Bench) -> Vec<Seen> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let mut seen = Vec::new();
                    loop {
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        if n >= REQUESTS {
                            return seen;
                        }
                        seen.extend(one(bench, n));
                    }
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap_or_default()).collect()
    })
}

/// One request; `None` when the agent took no connection.
fn one(bench: &Bench, n: usize) -> Option<Seen> {
    let mut dice = Dice(n as u64 + 1);
    let dialect = Dialect::ALL[dice.roll(3)];
    let stream = dice.roll(3) > 0;
    let word = match n {
        n if n % KILLS == KILLS / 2 => "kills at once",
        n if n % KILLS == KILLS - 1 => "kills in the middle",
        _ => FATES[dice.roll(FATES.len())].0,
    };
    let raw = bench.post(dialect, &dialect.question(&format!("request {n} {word}"), stream)).ok()?;
    // What goes on is always left; of the rest every third.
    if word == "goes on" || dice.roll(3) == 0 {
        thread::sleep(Duration::from_millis(dice.roll(150) as u64));
        let (answer, raw) = raw.answer(Duration::from_millis(1));
        raw.leave();
        let answer = Some(answer).filter(|a| a.status != 0);
        return Some(Seen { left: true, answer });
    }
    let answer = raw.end(Duration::from_secs(60));
    if matches!(answer.status, 404 | 502 | 503 | 529) {
        // No engine is left at this moment: the next requests are for those that are coming back.
        thread::sleep(Duration::from_millis(300));
    }
    Some(Seen { left: false, answer: Some(answer) })
}

/// A small generator of numbers that look random (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        for _ in 0..3 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
        }
        usize::try_from((self.0 >> 11) % sides as u64).unwrap_or(0)
    }
}
