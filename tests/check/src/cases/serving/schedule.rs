//! Where a conversation goes: the scheduler's properties, identities, and two real replicas.
//!
//! What is pure is shown by the rooms' own tests, run by name; the rest by a real agent with two genuine engines of one model. The drain is
//! among the cases of the replicas.

mod two;

use std::time::Duration;

use serde_json::{Value, json};

use super::super::{Case, Tier, case, named};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};
use two::{Talk, Two, number};

/// The cases of this room.
pub const CASES: &[Case] = &[
    case("schedule-properties", Tier::Host, properties),
    case("identity-chain", Tier::Host, identities),
    case("sticky-real", Tier::Host, sticky),
    case("replica-killed", Tier::Host, killed),
    case("replica-returns", Tier::Host, returns),
];

/// Conversations of a case; with homes by hash instead of balanced ones they are spread 5 to 3.
const TALKS: usize = 8;

fn properties(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    named::run(stage, task, result, &["-p", "warden-schedule", "--test", "properties"], 3)?;
    named::run(stage, task, result, &["-p", "warden-schedule", "--test", "sticky"], 8)
}

fn identities(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    named::run(stage, task, result, &["-p", "warden-schedule", "--test", "clients"], 11)
}

/// Turns stay, homes are balanced, and the cache of each conversation grows with it.
fn sticky(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let two = Two::start(stage, task)?;
    let mut talks = two.talks(0..TALKS);
    let (mut grew, mut turns) = (0, 0);
    let mut cached = vec![0; talks.len()];
    for round in 0..4 {
        for (talk, before) in talks.iter_mut().zip(&mut cached) {
            let answer = two.turn(talk, 8)?;
            let now = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
            let now = now.ok_or_else(|| format!("the engine did not say how many tokens came from its cache: {answer}"))?;
            if round > 0 {
                turns += 1;
                grew += usize::from(now > *before);
            }
            *before = now;
        }
    }
    result.expect(grew == turns, format!("cached_tokens grew in {grew} of {turns} later turns"));
    let routing = two.routing()?;
    let homes: Vec<u64> = ranks(&routing).iter().map(|r| number(r, "assigned_sessions")).collect();
    let even = homes.len() == 2 && homes.iter().max() == homes.iter().min() && homes.iter().sum::<u64>() == TALKS as u64;
    result.expect(even, format!("{TALKS} conversations are at home on two replicas, the same number on each: {homes:?}"));
    let (stayed, moved) = (number(&routing["totals"], "sticky"), number(&routing["totals"], "spilled"));
    result.expect(stayed == turns as u64 && moved == 0, format!("{stayed} of {turns} later turns stayed, {moved} moved"));
    let share: Vec<f64> = ranks(&routing).iter().filter_map(|r| r["cached_ratio"].as_f64()).collect();
    result.expect(share.len() == 2 && share.iter().all(|s| *s > 0.0 && *s <= 1.0), format!("each replica shows the share from its cache: {share:?}"));
    two.page_shows(result, &routing)?;
    two.end(result)
}

/// kill -9 of a replica under load: nobody whose answer had not begun is told of it, and its conversations move.
fn killed(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let two = Two::start(stage, task)?;
    let mut talks = two.talks(0..TALKS);
    for talk in &mut talks {
        two.turn(talk, 4)?;
    }
    let victim = two.kill_under_load(&mut talks, result)?;
    for talk in &mut talks {
        two.turn(talk, 4)?;
    }
    let routing = two.routing()?;
    let other = ranks(&routing).into_iter().find(|r| r["replica"] != victim.as_str()).unwrap_or(Value::Null);
    result.expect(number(&other, "spilled_in") > 0, format!("conversations moved to the other replica ({})", number(&other, "spilled_in")));
    two.end(result)
}

/// A replica that was killed comes back cold and gets new conversations; those that moved stay where they are.
fn returns(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let two = Two::start(stage, task)?;
    let mut talks = two.talks(0..4);
    for talk in &mut talks {
        two.turn(talk, 4)?;
    }
    let before = two.routing()?;
    let victim = ranks(&before)[0].clone();
    let (name, launch) = (victim["replica"].as_str().unwrap_or_default(), victim["launch"].as_str().unwrap_or_default());
    two.kill(name)?;
    for talk in &mut talks {
        two.turn(talk, 4)?;
    }
    let back = two.wait_back(name, launch, Duration::from_secs(60))?;
    let homes = number(&back, "assigned_sessions");
    result.expect(homes == 0, format!("the replica {name} is back as another launch and has {homes} conversations"));
    let mut new = two.talks(100..104);
    for talk in new.iter_mut().chain(&mut talks) {
        two.turn(talk, 4)?;
    }
    let now = two.rank(name)?;
    result.expect(number(&now, "assigned_sessions") == 4, format!("the new conversations are at home on it ({})", number(&now, "assigned_sessions")));
    two.end(result)
}

/// The replicas of a routing document.
fn ranks(routing: &Value) -> Vec<Value> {
    routing["ranks"].as_array().cloned().unwrap_or_default()
}

/// A request's messages as they grow.
fn opening(session: &str) -> Vec<Value> {
    // Its own from the first word on: llama.cpp gives a slot to whom its prompt resembles, and would throw one talk out for another.
    vec![json!({"role": "system", "content": format!("{session} asks you. ").repeat(12)})]
}

impl Talk {
    fn new(n: usize) -> Self {
        let session = format!("check-session-{n}");
        Self { messages: opening(&session), session }
    }
}
