//! What a start has to do about resets. Facts of the machine, the epoch, the waiting record and the list go in; a plan comes out.
//! Pure, so that every replay can be tried without a disk.

use thiserror::Error;

use super::journal::{Entry, Journal};
use super::record::{Here, Record};

/// Why a record that lies there is not followed. Each is written to the log; the record is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Ignored {
    /// Not a record, or one of another version.
    #[error("it is damaged or of another version")]
    Unreadable,
    /// It was accepted before.
    #[error("it was consumed before; somebody put it back")]
    Consumed,
    /// It was asked for on another machine.
    #[error("it was asked for on another machine or another disk")]
    OtherMachine,
    /// A start went by since it was asked for.
    #[error("it is from an earlier start; somebody put it back")]
    OtherStart,
    /// The list of consumed records cannot be read, so nothing can be told about this one.
    #[error("the list of consumed resets cannot be read, so that nobody can tell whether it was consumed before")]
    NoList,
}

/// What to do with the waiting record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// There is none.
    Nothing,
    /// Follow it.
    Follow(Record),
    /// Remove it without following it.
    Ignore(Ignored),
}

/// What this start has to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Finish this first: it was accepted and broke off.
    pub resume: Option<Entry>,
    /// Then look at the waiting record.
    pub request: Verdict,
}

/// What lies on the state partition.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// The waiting record's text; nothing when there is none.
    pub request: Option<&'a str>,
    /// The list; nothing when it is there but cannot be read.
    pub journal: Option<&'a Journal>,
    /// The epoch since the last finished start; nothing before the first.
    pub epoch: Option<&'a str>,
}

/// Makes the plan.
#[must_use]
pub fn plan(here: &Here, found: &Found<'_>) -> Plan {
    // A reset that was accepted is finished even if the machine's id went with it. It is bound by its epoch: a list that somebody
    // put back from an earlier start is of an earlier epoch.
    let resume = found.journal.and_then(Journal::unfinished).filter(|entry| Some(entry.record.epoch.as_str()) == found.epoch).cloned();
    Plan { resume, request: judge(here, found) }
}

fn judge(here: &Here, found: &Found<'_>) -> Verdict {
    let Some(text) = found.request else { return Verdict::Nothing };
    let Some(journal) = found.journal else { return Verdict::Ignore(Ignored::NoList) };
    let Some(record) = Record::parse(text) else { return Verdict::Ignore(Ignored::Unreadable) };
    if journal.knows(&record.id) {
        Verdict::Ignore(Ignored::Consumed)
    } else if record.machine != here.seal() {
        Verdict::Ignore(Ignored::OtherMachine)
    } else if Some(record.epoch.as_str()) != found.epoch {
        Verdict::Ignore(Ignored::OtherStart)
    } else {
        Verdict::Follow(record)
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::id;
    use super::super::scope::{Asker, Scope};
    use super::*;

    const EPOCH: Option<&str> = Some("epoch-1");

    fn here() -> Here {
        Here { machine_id: Some("a".repeat(32)), product: None, state: 7 }
    }

    fn record() -> Record {
        Record::new(id([1; 16]), Scope::Network, Asker::Screen, &here(), "epoch-1")
    }

    fn judged(text: &str, journal: &Journal, epoch: Option<&str>) -> Verdict {
        plan(&here(), &Found { request: Some(text), journal: Some(journal), epoch }).request
    }

    #[test]
    fn a_fresh_record_of_this_machine_is_followed() {
        assert_eq!(judged(&record().render(), &Journal::default(), EPOCH), Verdict::Follow(record()));
    }

    #[test]
    fn a_record_put_back_is_ignored_while_it_is_on_the_list_and_after_it_fell_off() {
        let text = record().render();
        let journal = Journal::default().begun(&record());
        assert_eq!(judged(&text, &journal, EPOCH), Verdict::Ignore(Ignored::Consumed));
        assert_eq!(judged(&text, &journal.finished(&record().id, None), Some("epoch-2")), Verdict::Ignore(Ignored::Consumed));
        assert_eq!(judged(&text, &Journal::default(), Some("epoch-2")), Verdict::Ignore(Ignored::OtherStart));
        assert_eq!(judged(&text, &Journal::default(), None), Verdict::Ignore(Ignored::OtherStart));
    }

    #[test]
    fn a_record_of_another_machine_is_ignored() {
        for other in [Here { machine_id: Some("b".repeat(32)), ..here() }, Here { product: Some("x".into()), ..here() }, Here { state: 8, ..here() }]
        {
            let journal = Journal::default();
            let text = record().render();
            let found = Found { request: Some(&text), journal: Some(&journal), epoch: EPOCH };
            assert_eq!(plan(&other, &found).request, Verdict::Ignore(Ignored::OtherMachine));
        }
    }

    #[test]
    fn without_a_readable_list_nothing_is_followed() {
        let text = record().render();
        let plan = plan(&here(), &Found { request: Some(&text), journal: None, epoch: EPOCH });
        assert_eq!(plan, Plan { resume: None, request: Verdict::Ignore(Ignored::NoList) });
    }

    #[test]
    fn what_a_cut_broke_off_is_finished_although_the_machine_s_id_went_with_it() {
        let journal = Journal::default().begun(&record());
        let renamed = Here { machine_id: Some("c".repeat(32)), ..here() };
        let found = Found { request: None, journal: Some(&journal), epoch: EPOCH };
        assert_eq!(plan(&renamed, &found).resume.unwrap().record, record());
    }

    #[test]
    fn an_old_list_put_back_does_not_repeat_its_reset() {
        let journal = Journal::default().begun(&record());
        let found = Found { request: None, journal: Some(&journal), epoch: Some("epoch-2") };
        assert_eq!(plan(&here(), &found), Plan { resume: None, request: Verdict::Nothing });
    }

    #[test]
    fn a_cut_between_the_list_and_the_removal_does_not_do_it_twice() {
        let text = record().render();
        let journal = Journal::default().begun(&record());
        let plan = plan(&here(), &Found { request: Some(&text), journal: Some(&journal), epoch: EPOCH });
        assert!(plan.resume.is_some());
        assert_eq!(plan.request, Verdict::Ignore(Ignored::Consumed));
    }
}
