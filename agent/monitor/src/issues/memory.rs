//! What is open, what is being watched, and what one round of looks changes about it.
//!
//! Looks and the present moment in, beginnings and ends out. Pure. An issue begins once it was seen for as long as its code's patience
//! says, without a break; it ends at the first look that does not see it; a look that could not be made changes nothing.
//!
//! Moments come twice: by the clock people read, for what is shown and kept, and by one that only ever runs on (`steady`), for patience.
//! The first jumps by years when a box without a battery hears from its first time server.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use warden_domain::{
    ids::IssueId,
    issue::{Dismissal, Finding, Issue, IssueCode, Looked, Unchecked},
};

/// One check's answer.
pub(crate) struct Look {
    /// The codes the check decides about.
    pub(crate) codes: &'static [IssueCode],
    /// What it saw.
    pub(crate) looked: Looked,
}

/// What a round changed; the order is the order in which it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A new issue.
    Opened(Issue),
    /// An issue is over; `resolved_at` is set.
    Resolved(Issue),
}

type Key = (IssueCode, String);

/// Open issues by identity, and what is not one yet.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    open: BTreeMap<Key, Issue>,
    /// Seen, but not for long enough; since when, by the steady clock.
    budding: BTreeMap<Key, Duration>,
    unchecked: BTreeMap<IssueCode, String>,
}

impl Memory {
    /// Begins with what was open before the agent started.
    pub(crate) fn new(open: Vec<Issue>) -> Self {
        let open = open.into_iter().map(|issue| ((issue.finding.code, issue.finding.subject.clone()), issue)).collect();
        Self { open, ..Self::default() }
    }

    /// Takes a round of looks in.
    pub(crate) fn take(&mut self, looks: Vec<Look>, now: Timestamp, steady: Duration) -> Vec<Event> {
        let mut events = Vec::new();
        for Look { codes, looked } in looks {
            match looked {
                Looked::NotChecked(because) => {
                    self.budding.retain(|(code, _), _| !codes.contains(code));
                    self.unchecked.extend(codes.iter().map(|code| (*code, because.clone())));
                }
                Looked::Seen(findings) => {
                    self.unchecked.retain(|code, _| !codes.contains(code));
                    self.seen(codes, findings, (now, steady), &mut events);
                }
            }
        }
        events
    }

    fn seen(&mut self, codes: &[IssueCode], findings: Vec<Finding>, (now, steady): (Timestamp, Duration), events: &mut Vec<Event>) {
        let seen: BTreeMap<Key, Finding> = findings.into_iter().map(|finding| ((finding.code, finding.subject.clone()), finding)).collect();
        self.budding.retain(|key, _| !codes.contains(&key.0) || seen.contains_key(key));
        let over: Vec<Key> = self.open.keys().filter(|key| codes.contains(&key.0) && !seen.contains_key(key)).cloned().collect();
        for key in over {
            if let Some(mut issue) = self.open.remove(&key) {
                issue.resolved_at = Some(now);
                events.push(Event::Resolved(issue));
            }
        }
        for (key, finding) in seen {
            if let Some(issue) = self.open.get_mut(&key) {
                issue.last_seen = now;
                issue.finding = finding;
                continue;
            }
            let since = *self.budding.entry(key.clone()).or_insert(steady);
            let seen_for = steady.saturating_sub(since);
            if seen_for < key.0.patience() {
                continue;
            }
            self.budding.remove(&key);
            let first_seen = now.checked_sub(seen_for).unwrap_or(now);
            let issue = Issue { id: IssueId::random(), finding, first_seen, last_seen: now, resolved_at: None, dismissed: None };
            self.open.insert(key, issue.clone());
            events.push(Event::Opened(issue));
        }
    }

    /// How long until the next issue in the making would open; `None` when there is none.
    pub(crate) fn next_opening(&self, steady: Duration) -> Option<Duration> {
        self.budding.iter().map(|((code, _), since)| code.patience().saturating_sub(steady.saturating_sub(*since))).min()
    }

    /// An open issue.
    pub(crate) fn get(&self, id: &IssueId) -> Option<&Issue> {
        self.open.values().find(|issue| issue.id == *id)
    }

    /// Notes or takes back that somebody knows.
    pub(crate) fn dismiss(&mut self, id: &IssueId, dismissal: Option<Dismissal>) -> Option<Issue> {
        let issue = self.open.values_mut().find(|issue| issue.id == *id)?;
        issue.dismissed = dismissal;
        Some(issue.clone())
    }

    /// Open issues in the order they are shown in: those that need somebody first, errors before warnings, then the oldest.
    pub(crate) fn open(&self) -> Vec<Issue> {
        let mut open: Vec<Issue> = self.open.values().cloned().collect();
        open.sort_by_key(|issue| (issue.dismissed.is_some(), issue.finding.code.severity(), issue.first_seen));
        open
    }

    /// What could not be checked, in the order of the codes' table.
    pub(crate) fn unchecked(&self) -> Vec<Unchecked> {
        self.unchecked.iter().map(|(code, because)| Unchecked { code: *code, because: because.clone() }).collect()
    }
}

#[cfg(test)]
mod tests {
    use warden_domain::issue::Said;

    use super::*;

    const MODELS: &[IssueCode] = &[IssueCode::ModelFailed, IssueCode::ModelWaiting];
    const NETWORK: &[IssueCode] = &[IssueCode::NoNetworkAddress];

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn up(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn finding(code: IssueCode, subject: &str) -> Finding {
        Finding { code, subject: subject.into(), said: Said::text("It is so."), hint: "Do this.".into(), fix: None }
    }

    fn saw(codes: &'static [IssueCode], findings: &[Finding]) -> Vec<Look> {
        vec![Look { codes, looked: Looked::Seen(findings.to_vec()) }]
    }

    #[test]
    fn an_issue_begins_once_and_ends_once_however_often_it_is_looked_at() {
        let mut memory = Memory::default();
        let dead = [finding(IssueCode::ModelFailed, "mdl_1")];
        assert_eq!(memory.take(saw(MODELS, &dead), at(1), up(1)).len(), 1);
        assert!(memory.take(saw(MODELS, &dead), at(2), up(2)).is_empty());
        assert_eq!(memory.open()[0].last_seen, at(2));
        let events = memory.take(saw(MODELS, &[]), at(3), up(3));
        assert!(matches!(&events[..], [Event::Resolved(issue)] if issue.resolved_at == Some(at(3)) && issue.first_seen == at(1)));
        assert!(memory.take(saw(MODELS, &[]), at(4), up(4)).is_empty());
    }

    #[test]
    fn two_models_that_fail_are_two_issues() {
        let mut memory = Memory::default();
        let both = [finding(IssueCode::ModelFailed, "mdl_1"), finding(IssueCode::ModelFailed, "mdl_2")];
        assert_eq!(memory.take(saw(MODELS, &both), at(1), up(1)).len(), 2);
        assert_eq!(memory.take(saw(MODELS, &both[..1]), at(2), up(2)).len(), 1);
        assert_eq!(memory.open().len(), 1);
    }

    #[test]
    fn what_passes_by_itself_is_no_issue() {
        let mut memory = Memory::default();
        let away = [finding(IssueCode::NoNetworkAddress, "network")];
        assert!(memory.take(saw(NETWORK, &away), at(0), up(0)).is_empty());
        assert_eq!(memory.next_opening(up(5)), Some(up(15)));
        assert!(memory.take(saw(NETWORK, &[]), at(15), up(15)).is_empty());
        assert!(memory.take(saw(NETWORK, &away), at(19), up(19)).is_empty(), "it counts from the new sight");
        assert_eq!(memory.take(saw(NETWORK, &away), at(39), up(39)).len(), 1);
        assert_eq!(memory.open()[0].first_seen, at(19));
        assert_eq!(memory.next_opening(up(40)), None);
    }

    #[test]
    fn what_cannot_be_looked_at_is_neither_fine_nor_over() {
        let mut memory = Memory::default();
        memory.take(saw(MODELS, &[finding(IssueCode::ModelFailed, "mdl_1")]), at(1), up(1));
        let blind = vec![Look { codes: MODELS, looked: Looked::NotChecked("The disk hangs.".into()) }];
        assert!(memory.take(blind, at(2), up(2)).is_empty());
        assert_eq!(memory.open().len(), 1);
        assert_eq!(memory.unchecked()[0].because, "The disk hangs.");
        memory.take(saw(MODELS, &[]), at(3), up(3));
        assert!(memory.unchecked().is_empty() && memory.open().is_empty());
    }

    #[test]
    fn a_restart_of_the_agent_does_not_begin_an_issue_anew() {
        let mut before = Memory::default();
        let dead = [finding(IssueCode::ModelFailed, "mdl_1")];
        before.take(saw(MODELS, &dead), at(1), up(1));
        let mut after = Memory::new(before.open());
        assert!(after.take(saw(MODELS, &dead), at(60), up(60)).is_empty());
        assert_eq!(after.open()[0].first_seen, at(1));
    }

    #[test]
    fn an_issue_of_one_check_does_not_end_by_the_look_of_another() {
        let mut memory = Memory::default();
        memory.take(saw(MODELS, &[finding(IssueCode::ModelFailed, "mdl_1")]), at(1), up(1));
        assert!(memory.take(saw(NETWORK, &[]), at(2), up(2)).is_empty());
        assert_eq!(memory.open().len(), 1);
    }

    #[test]
    fn a_clock_that_is_set_neither_hides_an_issue_nor_opens_one_early() {
        for (before, after) in [(1_000_000_000, 100), (100, 1_000_000_000)] {
            let mut memory = Memory::default();
            let away = [finding(IssueCode::NoNetworkAddress, "network")];
            assert!(memory.take(saw(NETWORK, &away), at(before), up(0)).is_empty());
            assert!(memory.take(saw(NETWORK, &away), at(after), up(5)).is_empty(), "five seconds are not twenty, whatever the clock says");
            assert_eq!(memory.next_opening(up(5)), Some(up(15)));
            assert_eq!(memory.take(saw(NETWORK, &away), at(after + 15), up(20)).len(), 1);
            assert_eq!(memory.open()[0].first_seen, at(after - 5), "by the clock that is right now");
        }
    }

    #[test]
    fn errors_come_before_warnings_and_what_somebody_knows_comes_last() {
        let mut memory = Memory::default();
        const BOTH: &[IssueCode] = &[IssueCode::DataDiskNearlyFull, IssueCode::UnitFailed];
        let found = [finding(IssueCode::DataDiskNearlyFull, "data"), finding(IssueCode::UnitFailed, "a"), finding(IssueCode::UnitFailed, "b")];
        memory.take(saw(BOTH, &found), at(1), up(1));
        let a = memory.open().into_iter().find(|issue| issue.finding.subject == "a").unwrap().id;
        let known = Dismissal { at: at(2), by: warden_domain::ids::AccountId::from_stored("acc_1"), reason: None };
        assert!(memory.dismiss(&a, Some(known)).is_some());
        let subjects: Vec<String> = memory.open().into_iter().map(|issue| issue.finding.subject).collect();
        assert_eq!(subjects, ["b", "data", "a"]);
    }
}
