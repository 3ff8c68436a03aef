//! What a start of the agent makes of the record it finds: after a restart, a power cut at any point, a trial, a fall-back. Pure: the record
//! and what the system says in, a named record and what to do next out.

use jiff::Timestamp;
use warden_update_record::{Attempt, Fallback, Outcome, Reason, Record, Slot, Standing, Verdict, standing};

use crate::machine::{Event, next};

/// An install that was cut off so often is not begun again by itself.
pub const MOST_INTERRUPTIONS: u32 = 2;

/// What RAUC says about the slot an install was to fill.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetFacts {
    /// The transaction of the last install into it.
    pub transaction: Option<String>,
    /// True when that install was complete.
    pub complete: bool,
    /// True when it is the next one to start.
    pub primary: bool,
}

impl TargetFacts {
    /// Whether the image of this attempt lies there whole and starts next.
    #[must_use]
    pub fn holds(&self, attempt: &Attempt) -> bool {
        self.complete && self.primary && self.transaction.as_deref() == Some(attempt.transaction.as_str())
    }
}

/// What the system says at a start.
#[derive(Clone, Debug)]
pub struct StartFacts {
    /// The slot that runs.
    pub running: Option<Slot>,
    /// This boot.
    pub boot_id: String,
    /// Whether the boot loader counts this start; it does not once the slot was marked good.
    pub counted: bool,
    /// The last word of the health gate.
    pub verdict: Option<Verdict>,
    /// The last fall-back of the initrd.
    pub fallback: Option<Fallback>,
    /// The target slot; `None` while RAUC is at work or does not answer.
    pub target: Option<TargetFacts>,
    /// Now.
    pub now: Timestamp,
}

/// What is to be done then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing by itself.
    Nothing,
    /// Go on fetching.
    Fetch,
    /// Install what lies here, if it may still be.
    Install,
    /// The install was cut off too often: say so.
    GaveUp,
    /// The slot on trial runs: wait for the health gate's word.
    AwaitVerdict,
    /// The trial ended well: note it.
    TellGood,
    /// The box went back: note it and do not try this image again by itself.
    TellBad,
}

/// What a start comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The record to write, where it differs.
    pub record: Record,
    /// What to do after that.
    pub then: Then,
}

/// Decides.
#[must_use]
pub fn at_start(record: &Record, facts: &StartFacts) -> Start {
    let stay = |then| Start { record: record.clone(), then };
    // Every event below follows from the phase it stands under, so a misstep cannot happen; if it did, the record stays as it is.
    let go = |event, then| next(record, event).map_or_else(|_| stay(Then::Nothing), |record| Start { record, then });
    match record {
        Record::Idle | Record::Confirmed { .. } | Record::RolledBack { .. } => stay(Then::Nothing),
        Record::Available { .. } | Record::Downloading { .. } => stay(Then::Fetch),
        Record::Verified { attempt } => stay(if (1..=MOST_INTERRUPTIONS).contains(&attempt.interruptions) { Then::Install } else { Then::Nothing }),
        Record::Installing { attempt, target_slot } => {
            if facts.running == Some(*target_slot) {
                // Power was cut between the last step of the install and our note of it, and the loader already tried the new slot.
                let staged = next(record, Event::Written { boot_id: "unknown".to_owned() });
                let trial = staged.and_then(|staged| next(&staged, Event::Restarting { boot_id: "unknown".to_owned() }));
                return trial.map_or_else(|_| stay(Then::Nothing), |trial| on_trial(trial, facts));
            }
            // Without RAUC's word it is not known whether the slot goes first; it is asked again.
            let Some(target) = &facts.target else { return stay(Then::Nothing) };
            if target.holds(attempt) {
                return go(Event::Written { boot_id: facts.boot_id.clone() }, Then::Nothing);
            }
            go(Event::Interrupted, if attempt.interruptions < MOST_INTERRUPTIONS { Then::Install } else { Then::GaveUp })
        }
        Record::Staged { target_slot, staged_boot_id, .. } => {
            if *staged_boot_id == facts.boot_id {
                return stay(Then::Nothing);
            }
            // Somebody restarted the machine without telling us: that was the trial.
            match next(record, Event::Restarting { boot_id: staged_boot_id.clone() }) {
                Ok(trial) if facts.running == Some(*target_slot) => on_trial(trial, facts),
                Ok(trial) => went_back(&trial, facts),
                Err(_) => stay(Then::Nothing),
            }
        }
        Record::Trial { .. } => match standing(record, facts.running, &facts.boot_id) {
            Standing::OnTrial => on_trial(record.clone(), facts),
            Standing::WentBack => went_back(record, facts),
            Standing::Asked | Standing::Settled => go(Event::NotRestarted, Then::Nothing),
        },
    }
}

/// Why a system that had been confirmed does not run any more: the initrd gave it up. The record stays, because the data of both systems is
/// the same since then; only taking that image again by itself must end.
#[must_use]
pub fn fell_later(record: &Record, facts: &StartFacts) -> Option<Reason> {
    let Record::Confirmed { target_slot, .. } = record else { return None };
    let fallback = facts.fallback.as_ref().filter(|f| f.from_slot == *target_slot && facts.running == Some(target_slot.other()))?;
    let words = fallback.reason.trim().trim_end_matches('.');
    Some(Reason { code: "boot_count".to_owned(), sentence: format!("The system did not come up any more: {words}.") })
}

/// The verdict about the attempt, if the health gate has spoken.
#[must_use]
pub fn verdict_on<'a>(record: &Record, verdict: Option<&'a Verdict>) -> Option<&'a Verdict> {
    let (attempt, target) = (record.attempt()?, record.target_slot()?);
    verdict.filter(|v| v.transaction.as_ref() == Some(&attempt.transaction) && v.slot == target)
}

fn on_trial(trial: Record, facts: &StartFacts) -> Start {
    // The gate marks a slot good also where its word found no room on the disk; the next start is then not counted, and no word follows.
    let good = verdict_on(&trial, facts.verdict.as_ref()).map_or(!facts.counted, |v| v.outcome == Outcome::Good);
    match next(&trial, Event::FoundGood { at: facts.now }) {
        Ok(record) if good => Start { record, then: Then::TellGood },
        _ => Start { record: trial, then: Then::AwaitVerdict },
    }
}

fn went_back(trial: &Record, facts: &StartFacts) -> Start {
    let reason = reason(trial, facts);
    match next(trial, Event::WentBack { reason, at: facts.now }) {
        Ok(record) => Start { record, then: Then::TellBad },
        Err(_) => Start { record: trial.clone(), then: Then::Nothing },
    }
}

/// Why the box went back: the gate's word, else the initrd's, else that nobody knows.
fn reason(trial: &Record, facts: &StartFacts) -> Reason {
    if let Some(verdict) = verdict_on(trial, facts.verdict.as_ref()).filter(|v| v.outcome == Outcome::Bad) {
        let silent = || Reason { code: "gate".to_owned(), sentence: "The health check found the new system bad and gave no reason.".to_owned() };
        return verdict.reason.clone().unwrap_or_else(silent);
    }
    if let Some(fallback) = facts.fallback.as_ref().filter(|f| Some(f.from_slot) == trial.target_slot()) {
        let words = fallback.reason.trim().trim_end_matches('.');
        let sentence = format!("The new system did not come up: {words}.");
        return Reason { code: "boot_count".to_owned(), sentence };
    }
    let sentence = "The new system did not come up, and nothing was left behind that says why.".to_owned();
    Reason { code: "unknown".to_owned(), sentence }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::attempt;
    use warden_update_record::{Phase, TransactionId};

    fn facts(running: Slot, boot: &str) -> StartFacts {
        StartFacts {
            running: Some(running),
            boot_id: boot.to_owned(),
            counted: true,
            verdict: None,
            fallback: None,
            target: None,
            now: Timestamp::UNIX_EPOCH,
        }
    }

    fn verdict(outcome: Outcome, transaction: &TransactionId) -> Verdict {
        let reason = (outcome == Outcome::Bad).then(|| Reason { code: "console".into(), sentence: "The console did not answer.".into() });
        Verdict {
            transaction: Some(transaction.clone()),
            boot_id: "two".into(),
            slot: Slot::B,
            version: "1.4.0".into(),
            at: Timestamp::UNIX_EPOCH,
            outcome,
            reason,
            checks: Vec::new(),
        }
    }

    fn installing() -> Record {
        Record::Installing { attempt: attempt(), target_slot: Slot::B }
    }

    fn staged() -> Record {
        Record::Staged { attempt: attempt(), target_slot: Slot::B, staged_boot_id: "one".into() }
    }

    fn trial() -> Record {
        Record::Trial { attempt: attempt(), target_slot: Slot::B, staged_boot_id: "one".into(), asked_boot_id: "one".into() }
    }

    fn comes_to(record: &Record, facts: &StartFacts) -> (Phase, Then) {
        let start = at_start(record, facts);
        (start.record.phase(), start.then)
    }

    #[test]
    fn a_cut_while_fetching_goes_on_fetching() {
        for record in [Record::Available { attempt: attempt() }, Record::Downloading { attempt: attempt() }] {
            assert_eq!(comes_to(&record, &facts(Slot::A, "two")), (record.phase(), Then::Fetch));
        }
    }

    #[test]
    fn a_checked_image_waits_over_a_restart() {
        assert_eq!(comes_to(&Record::Verified { attempt: attempt() }, &facts(Slot::A, "two")), (Phase::Verified, Then::Nothing));
    }

    #[test]
    fn a_cut_in_the_middle_of_the_write_installs_again_and_not_for_ever() {
        let idle = StartFacts { target: Some(TargetFacts::default()), ..facts(Slot::A, "two") };
        let mut record = installing();
        for _ in 0..MOST_INTERRUPTIONS {
            let start = at_start(&record, &idle);
            assert_eq!((start.record.phase(), start.then), (Phase::Verified, Then::Install));
            let Record::Verified { attempt } = start.record else { unreachable!() };
            record = Record::Installing { attempt, target_slot: Slot::B };
        }
        let start = at_start(&record, &idle);
        assert_eq!((start.record.phase(), start.then), (Phase::Verified, Then::GaveUp));
        assert_eq!(comes_to(&start.record, &idle), (Phase::Verified, Then::Nothing), "the next start does not begin it again");
    }

    #[test]
    fn a_cut_between_the_write_and_its_note_finds_the_slot_staged() {
        let whole = TargetFacts { transaction: Some(attempt().transaction.to_string()), complete: true, primary: true };
        let with = |target| StartFacts { target: Some(target), ..facts(Slot::A, "two") };
        assert_eq!(comes_to(&installing(), &with(whole.clone())), (Phase::Staged, Then::Nothing));
        let not_ours = TargetFacts { transaction: Some("another".into()), ..whole.clone() };
        assert_eq!(comes_to(&installing(), &with(not_ours)), (Phase::Verified, Then::Install));
        let not_first = TargetFacts { primary: false, ..whole };
        assert_eq!(comes_to(&installing(), &with(not_first)), (Phase::Verified, Then::Install));
    }

    #[test]
    fn an_install_that_rauc_does_not_tell_of_yet_is_left_open() {
        assert_eq!(comes_to(&installing(), &facts(Slot::A, "two")), (Phase::Installing, Then::Nothing));
    }

    #[test]
    fn a_confirmed_system_that_fell_later_is_told_from_one_that_runs() {
        let confirmed = Record::Confirmed { attempt: attempt(), target_slot: Slot::B, at: Timestamp::UNIX_EPOCH };
        let fallback = Some(Fallback { from_slot: Slot::B, reason: "slot b was started 3 times.".into(), at_boot: "nine".into() });
        let fell = StartFacts { fallback: fallback.clone(), ..facts(Slot::A, "ten") };
        assert_eq!(fell_later(&confirmed, &fell).unwrap().sentence, "The system did not come up any more: slot b was started 3 times.");
        assert_eq!(comes_to(&confirmed, &fell), (Phase::Confirmed, Then::Nothing));
        assert_eq!(fell_later(&confirmed, &StartFacts { fallback, ..facts(Slot::B, "ten") }), None);
        assert_eq!(fell_later(&confirmed, &facts(Slot::A, "ten")), None);
        assert_eq!(fell_later(&trial(), &fell), None);
    }

    #[test]
    fn a_cut_after_the_write_that_started_the_new_slot_is_a_trial() {
        assert_eq!(comes_to(&installing(), &facts(Slot::B, "two")), (Phase::Trial, Then::AwaitVerdict));
    }

    #[test]
    fn a_staged_slot_stays_staged_while_the_machine_was_not_restarted() {
        assert_eq!(comes_to(&staged(), &facts(Slot::A, "one")), (Phase::Staged, Then::Nothing));
    }

    #[test]
    fn a_machine_that_somebody_switched_off_and_on_is_on_trial_too() {
        assert_eq!(comes_to(&staged(), &facts(Slot::B, "two")), (Phase::Trial, Then::AwaitVerdict));
        assert_eq!(comes_to(&staged(), &facts(Slot::A, "two")), (Phase::RolledBack, Then::TellBad));
    }

    #[test]
    fn a_restart_that_did_not_happen_leaves_the_slot_staged() {
        assert_eq!(comes_to(&trial(), &facts(Slot::A, "one")), (Phase::Staged, Then::Nothing));
    }

    #[test]
    fn a_trial_waits_for_the_gates_word_and_takes_only_its_own() {
        assert_eq!(comes_to(&trial(), &facts(Slot::B, "two")), (Phase::Trial, Then::AwaitVerdict));
        let of = |verdict| StartFacts { verdict: Some(verdict), ..facts(Slot::B, "two") };
        assert_eq!(comes_to(&trial(), &of(verdict(Outcome::Good, &attempt().transaction))), (Phase::Confirmed, Then::TellGood));
        assert_eq!(comes_to(&trial(), &of(verdict(Outcome::Good, &TransactionId::from("another")))), (Phase::Trial, Then::AwaitVerdict));
        assert_eq!(comes_to(&trial(), &of(verdict(Outcome::Bad, &attempt().transaction))), (Phase::Trial, Then::AwaitVerdict));
    }

    #[test]
    fn a_slot_that_was_marked_good_without_a_word_is_confirmed_at_its_next_start() {
        let uncounted = StartFacts { counted: false, ..facts(Slot::B, "three") };
        assert_eq!(comes_to(&trial(), &uncounted), (Phase::Confirmed, Then::TellGood));
        assert_eq!(comes_to(&staged(), &uncounted), (Phase::Confirmed, Then::TellGood));
        let bad = StartFacts { verdict: Some(verdict(Outcome::Bad, &attempt().transaction)), ..uncounted.clone() };
        assert_eq!(comes_to(&trial(), &bad), (Phase::Trial, Then::AwaitVerdict), "its own word stands");
        let of_another = StartFacts { verdict: Some(verdict(Outcome::Bad, &TransactionId::from("another"))), ..uncounted };
        assert_eq!(comes_to(&trial(), &of_another), (Phase::Confirmed, Then::TellGood));
    }

    #[test]
    fn a_fall_back_says_why_from_the_gate_the_initrd_or_not_at_all() {
        let why = |facts: StartFacts| match at_start(&trial(), &facts).record {
            Record::RolledBack { reason, .. } => reason,
            other => unreachable!("{other:?}"),
        };
        let gate = StartFacts { verdict: Some(verdict(Outcome::Bad, &attempt().transaction)), ..facts(Slot::A, "three") };
        assert_eq!(why(gate).sentence, "The console did not answer.");
        let fallback = Fallback { from_slot: Slot::B, reason: "slot b was started 3 times.".into(), at_boot: "three".into() };
        let initrd = why(StartFacts { fallback: Some(fallback.clone()), ..facts(Slot::A, "three") });
        assert_eq!((initrd.code.as_str(), initrd.sentence.as_str()), ("boot_count", "The new system did not come up: slot b was started 3 times."));
        let of_another = Fallback { from_slot: Slot::A, ..fallback };
        assert_eq!(why(StartFacts { fallback: Some(of_another), ..facts(Slot::A, "three") }).code, "unknown");
    }
}
