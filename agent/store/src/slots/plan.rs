//! The decision: which file is the database of this start, and how far it may be migrated. Values in, values out.

use super::{Files, Found, Limit, Note, Plan, RecordFacts, Situation, Step, Stuck};

/// Plans the opening. `known` is the newest schema this program knows.
#[must_use]
pub fn open_plan(facts: &RecordFacts, files: &Files, known: i64) -> Plan {
    match &facts.situation {
        Situation::OnTrial { .. } => on_trial(files, known),
        Situation::RolledBack { .. } => rolled_back(files, known),
        Situation::Usual => usual(files, known),
    }
}

/// A database this program reads right.
fn readable(found: Found, known: i64) -> bool {
    matches!(found, Found::Schema { version, readable_from, .. } if version <= known || readable_from <= known)
}

const fn opened(limit: Limit) -> Plan {
    Plan::Open { steps: Vec::new(), limit, note: None }
}

/// The copy in place of whatever is there.
fn restored(files: &Files) -> Plan {
    let mut steps = Vec::new();
    if files.live != Found::Missing {
        steps.extend([Step::KeepLog, Step::KeepLive]);
    }
    steps.push(Step::Restore);
    Plan::Open { steps, limit: Limit::All, note: Some(Note::CopyOpened) }
}

/// What cannot be opened here stays a problem with a name; an empty database is only for a box that never had one.
fn unreadable(files: &Files, known: i64) -> Plan {
    match files.live {
        Found::Missing if !files.traces => opened(Limit::All),
        Found::Missing => Plan::Stuck(Stuck::Gone),
        Found::Schema { version, .. } => Plan::Stuck(Stuck::NewerWithoutCopy { found: version, known }),
        Found::Damaged => Plan::Stuck(Stuck::Damaged),
    }
}

fn usual(files: &Files, known: i64) -> Plan {
    match files.live {
        live if readable(live, known) => opened(Limit::All),
        // Damage outside a trial is told by the store itself; an old copy in its place would hide what was lost.
        Found::Damaged => opened(Limit::All),
        _ if readable(files.own_copy, known) => restored(files),
        _ => unreadable(files, known),
    }
}

fn on_trial(files: &Files, known: i64) -> Plan {
    // The database of a trial must stay readable for the release that asked for it. Where its copy does not tell what that one knew,
    // what it left is all that is certain.
    let before = match (files.previous_copy, files.live) {
        (Found::Schema { made_by, .. }, _) if made_by > 0 => made_by,
        (_, Found::Schema { version, .. }) => version,
        _ => 0,
    };
    match files.live {
        live if readable(live, known) => opened(Limit::ReadableBy(before)),
        Found::Damaged => opened(Limit::ReadableBy(before)),
        // A trial never reaches for another slot's copy: the release before it would lose what it wrote since. It fails, and falls back.
        _ => unreadable(files, known),
    }
}

fn rolled_back(files: &Files, known: i64) -> Plan {
    match (files.live, files.kept) {
        // This fall-back was dealt with in an earlier start that ended before it could say so.
        (live, true) if readable(live, known) => Plan::Open { steps: Vec::new(), limit: Limit::All, note: Some(Note::CopyOpened) },
        // Damage that came after it: the store names it. A second restore would cost the newer file that is kept.
        (Found::Damaged, true) => opened(Limit::All),
        _ if readable(files.own_copy, known) => restored(files),
        (live, _) if readable(live, known) => Plan::Open { steps: Vec::new(), limit: Limit::All, note: Some(Note::CopyMissing) },
        (Found::Missing, _) => Plan::Stuck(Stuck::Gone),
        _ => unreadable(files, known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Found = Found::Schema { version: 4, readable_from: 1, made_by: 0 };
    const NEWER_READABLE: Found = Found::Schema { version: 6, readable_from: 3, made_by: 0 };
    const NEWER: Found = Found::Schema { version: 6, readable_from: 6, made_by: 0 };
    const COPY: Found = Found::Schema { version: 4, readable_from: 1, made_by: 4 };

    fn facts(situation: Situation) -> RecordFacts {
        RecordFacts { running_slot: "a".into(), situation }
    }

    fn back() -> RecordFacts {
        facts(Situation::RolledBack { transaction: "t1".into() })
    }

    fn trial() -> RecordFacts {
        facts(Situation::OnTrial { previous_slot: "b".into() })
    }

    fn files(live: Found, copy: Found) -> Files {
        Files { live, own_copy: copy, previous_copy: copy, kept: false, traces: copy != Found::Missing }
    }

    const SWAP: [Step; 3] = [Step::KeepLog, Step::KeepLive, Step::Restore];

    #[test]
    fn a_fresh_box_gets_its_empty_database_and_one_that_was_set_up_never_does() {
        let fresh = files(Found::Missing, Found::Missing);
        assert_eq!(open_plan(&facts(Situation::Usual), &fresh, 4), opened(Limit::All));
        let lost = Files { traces: true, ..fresh.clone() };
        assert_eq!(open_plan(&facts(Situation::Usual), &lost, 4), Plan::Stuck(Stuck::Gone));
        assert_eq!(open_plan(&back(), &fresh, 4), Plan::Stuck(Stuck::Gone), "a box with an update behind it was set up");
    }

    #[test]
    fn a_rolled_back_system_opens_its_copy_whatever_the_trial_left() {
        for live in [OLD, NEWER_READABLE, NEWER, Found::Damaged] {
            let plan = open_plan(&back(), &files(live, COPY), 4);
            assert_eq!(plan, Plan::Open { steps: SWAP.to_vec(), limit: Limit::All, note: Some(Note::CopyOpened) }, "{live:?}");
        }
    }

    #[test]
    fn a_fall_back_that_was_dealt_with_is_not_dealt_with_again() {
        let done = Files { kept: true, ..files(OLD, COPY) };
        assert!(matches!(open_plan(&back(), &done, 4), Plan::Open { steps, .. } if steps.is_empty()));
        let half = Files { kept: true, ..files(Found::Missing, COPY) };
        assert!(matches!(open_plan(&back(), &half, 4), Plan::Open { steps, .. } if steps == [Step::Restore]));
    }

    #[test]
    fn without_a_copy_a_readable_database_serves_and_another_is_named() {
        let plan = open_plan(&back(), &files(NEWER_READABLE, Found::Missing), 4);
        assert_eq!(plan, Plan::Open { steps: Vec::new(), limit: Limit::All, note: Some(Note::CopyMissing) });
        assert_eq!(open_plan(&back(), &files(NEWER, Found::Damaged), 4), Plan::Stuck(Stuck::NewerWithoutCopy { found: 6, known: 4 }));
        assert_eq!(open_plan(&back(), &files(Found::Damaged, Found::Missing), 4), Plan::Stuck(Stuck::Damaged));
    }

    #[test]
    fn a_database_of_a_later_version_never_stops_a_system_that_has_its_copy() {
        let plan = open_plan(&facts(Situation::Usual), &files(NEWER, COPY), 4);
        assert_eq!(plan, Plan::Open { steps: SWAP.to_vec(), limit: Limit::All, note: Some(Note::CopyOpened) });
        let plan = open_plan(&facts(Situation::Usual), &files(NEWER_READABLE, COPY), 4);
        assert_eq!(plan, opened(Limit::All), "what can be read is newer than any copy");
    }

    #[test]
    fn a_trial_migrates_only_as_far_as_the_release_before_it_can_follow() {
        assert_eq!(open_plan(&trial(), &files(OLD, COPY), 6), opened(Limit::ReadableBy(4)));
        let after_manual_rollback = Found::Schema { version: 6, readable_from: 3, made_by: 4 };
        assert_eq!(
            open_plan(&trial(), &files(NEWER_READABLE, after_manual_rollback), 7),
            opened(Limit::ReadableBy(4)),
            "what it knew, not what it read"
        );
        assert_eq!(open_plan(&trial(), &files(OLD, Found::Missing), 6), opened(Limit::ReadableBy(4)));
    }

    #[test]
    fn a_trial_that_cannot_read_the_database_fails_instead_of_opening_an_old_one() {
        assert!(matches!(open_plan(&trial(), &files(NEWER, COPY), 4), Plan::Stuck(Stuck::NewerWithoutCopy { .. })));
    }
}
