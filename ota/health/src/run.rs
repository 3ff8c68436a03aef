//! Puts eyes, decisions and hands together. One deadline covers everything, the looking included; the verdict is on the medium before the
//! slot is marked, so that whoever starts next knows why.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use warden_domain::clock;
use warden_update_record::{Check, Outcome, Reason, Slot, TransactionId, Verdict};

use crate::checks::{self, Expected};
use crate::facts::Facts;
use crate::hands::Hands;
use crate::times::Times;
use crate::watch::{Next, Watch};

/// The gate's eyes; a test has others.
pub trait Eyes {
    /// Looks at the whole system once.
    fn look(&self, expected: &Expected) -> impl Future<Output = Facts> + Send;
    /// Whether the agent answers on this machine.
    fn agent_answers(&self) -> impl Future<Output = Result<(), String>> + Send;
}

/// One trial.
#[derive(Debug)]
pub struct Trial {
    /// What the system is compared with.
    pub expected: Expected,
    /// Of the update that led here.
    pub transaction: Option<TransactionId>,
    /// The slot that runs.
    pub slot: Slot,
    /// This boot.
    pub boot_id: String,
    /// How long it may take.
    pub times: Times,
    /// How long the gate has been at it in this boot before it was started again.
    pub spent: Duration,
    /// Where the verdict is left.
    pub folder: PathBuf,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The slot is marked good.
    Good,
    /// The slot is marked bad, and the machine restarts.
    Bad(Reason),
    /// The slot is bad, but there is no other to start: the machine is left as it is.
    NowhereToGo(Reason),
}

/// Pause between two tries to mark or to restart.
const AGAIN: Duration = Duration::from_secs(2);
/// How often marking is tried.
const TRIES: u32 = 15;

/// Watches a slot that is not counted: marks it good once the agent answers, so that the initrd's own count ends. A system that is not
/// healthy is left to that count and to whoever looks at its screen.
///
/// # Errors
/// Why the slot could not be marked.
pub async fn settle(eyes: &impl Eyes, hands: &impl Hands, pause: Duration) -> Result<(), String> {
    let mut told = String::new();
    while let Err(cause) = eyes.agent_answers().await {
        if cause != told {
            tracing::info!("the agent does not answer yet: {cause}");
            told = cause;
        }
        sleep(pause).await;
    }
    mark(hands, true).await
}

/// Watches a slot on trial to its verdict.
///
/// # Errors
/// Why the slot could not be marked good. A slot that cannot be marked bad is restarted all the same: the boot loader counts it.
pub async fn watch(trial: &Trial, eyes: &impl Eyes, hands: &impl Hands) -> Result<Ended, String> {
    let start = Instant::now();
    let deadline = start + trial.times.deadline.saturating_sub(trial.spent);
    let mut watch = Watch::new(trial.times);
    let mut last: Vec<Check> = Vec::new();
    let next = loop {
        let Ok(facts) = timeout_at(deadline, eyes.look(&trial.expected)).await else { break Next::Bad(watch.overdue()) };
        let checks = checks::judge(&trial.expected, &facts);
        tell(&last, &checks);
        last = checks;
        let now = trial.spent + start.elapsed();
        match watch.take(now, &last, facts.agent.as_ref().ok().map(|unit| unit.restarts)) {
            Next::Look => sleep(trial.times.pause()).await,
            done => break done,
        }
    };
    match next {
        Next::Bad(reason) => Ok(give_up(trial, hands, reason, last).await),
        Next::Good | Next::Look => {
            leave(trial, Outcome::Good, None, last);
            mark(hands, true).await?;
            Ok(Ended::Good)
        }
    }
}

async fn give_up(trial: &Trial, hands: &impl Hands, reason: Reason, checks: Vec<Check>) -> Ended {
    tracing::error!(code = reason.code, "this system is not good: {}", reason.sentence);
    leave(trial, Outcome::Bad, Some(reason.clone()), checks);
    match hands.other_is_good().await {
        Ok(true) => {}
        Ok(false) => {
            tracing::error!("there is no other system to start; this one is left running for whoever looks after it");
            return Ended::NowhereToGo(reason);
        }
        // Not knowing must not keep a bad system: the boot loader will not start a slot that has no tries left.
        Err(cause) => tracing::error!("whether the other slot is good cannot be told: {cause}"),
    }
    if let Err(cause) = mark(hands, false).await {
        tracing::error!("the slot cannot be marked bad, the boot loader counts on: {cause}");
    }
    while let Err(cause) = hands.restart().await {
        tracing::error!("the machine does not restart: {cause}");
        sleep(AGAIN).await;
    }
    Ended::Bad(reason)
}

async fn mark(hands: &impl Hands, good: bool) -> Result<(), String> {
    let mut tries = 1;
    loop {
        match hands.mark(good).await {
            Ok(()) => return Ok(()),
            Err(cause) if tries >= TRIES => return Err(cause),
            Err(cause) => tracing::warn!("marking the slot failed, trying again: {cause}"),
        }
        tries += 1;
        sleep(AGAIN).await;
    }
}

/// Leaves the verdict. Without a place for it the slot is judged all the same.
fn leave(trial: &Trial, outcome: Outcome, reason: Option<Reason>, checks: Vec<Check>) {
    let verdict = Verdict {
        transaction: trial.transaction.clone(),
        boot_id: trial.boot_id.clone(),
        slot: trial.slot,
        version: trial.expected.version.clone(),
        at: clock::now(),
        outcome,
        reason,
        checks,
    };
    if let Err(cause) = warden_update_record::write(&trial.folder, &verdict) {
        tracing::error!("the verdict is not on record: {cause}");
    }
}

/// One line in the journal for each check that changed.
fn tell(before: &[Check], now: &[Check]) {
    for check in now {
        if before.iter().find(|old| old.code == check.code).is_none_or(|old| old.outcome != check.outcome) {
            tracing::info!(check = check.code, outcome = ?check.outcome, "{}", check.sentence);
        }
    }
}
