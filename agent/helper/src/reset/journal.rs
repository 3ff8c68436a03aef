//! Which resets were begun and which are done. The list is what makes a record good for one time, and what lets a start finish what a
//! power cut broke off.
//!
//! Pure: text in, list out and back. It is replaced as a whole, never appended to.

use serde::{Deserialize, Serialize};

use super::record::Record;
use super::scope::Scope;

/// How far a reset is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Accepted and under way; a start that finds it goes on with it.
    Begun,
    /// Done here; the agent has its part still to do (passwords lie in its database).
    Handed,
    /// Over.
    Done,
}

/// One reset of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// How far it is.
    pub stage: Stage,
    /// The wish as it was accepted.
    pub record: Record,
    /// What was left undone and why; a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
}

/// The list, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// Its entries.
    #[serde(default)]
    pub resets: Vec<Entry>,
}

/// Entries kept. What falls off the end is still refused: its epoch is long over.
const KEPT: usize = 64;

impl Journal {
    /// Reads a list; nothing when the text is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The list as text.
    #[must_use]
    pub fn render(&self) -> String {
        serde_json::to_string_pretty(self).map(|text| format!("{text}\n")).unwrap_or_default()
    }

    /// Whether a record of this id was ever accepted.
    #[must_use]
    pub fn knows(&self, id: &str) -> bool {
        self.resets.iter().any(|entry| entry.record.id == id)
    }

    /// The reset that was begun and not finished.
    #[must_use]
    pub fn unfinished(&self) -> Option<&Entry> {
        self.resets.iter().find(|entry| entry.stage == Stage::Begun)
    }

    /// The admin reset that waits for the agent.
    #[must_use]
    pub fn handed(&self) -> Option<&Entry> {
        self.resets.iter().rev().find(|entry| entry.stage == Stage::Handed)
    }

    /// The list with one more reset, begun.
    #[must_use]
    pub fn begun(&self, record: &Record) -> Self {
        let mut resets = self.resets.clone();
        resets.push(Entry { stage: Stage::Begun, record: record.clone(), remark: None });
        let spare = resets.len().saturating_sub(KEPT);
        resets.drain(..spare);
        Self { resets }
    }

    /// The list after the steps of a reset are done on this side.
    #[must_use]
    pub fn finished(&self, id: &str, remark: Option<String>) -> Self {
        let mut next = self.clone();
        let scope = next.resets.iter().find(|entry| entry.record.id == id).map(|entry| entry.record.scope);
        for entry in &mut next.resets {
            if entry.record.id == id {
                entry.stage = if entry.record.scope == Scope::Admin { Stage::Handed } else { Stage::Done };
                entry.remark.clone_from(&remark);
            } else if entry.stage == Stage::Handed && matches!(scope, Some(Scope::Admin | Scope::Factory { .. })) {
                // A later admin or factory reset takes an earlier one's place.
                entry.stage = Stage::Done;
            }
        }
        next
    }

    /// The list after the agent did its part of an admin reset; nothing changes for another id.
    #[must_use]
    pub fn applied(&self, id: &str) -> Self {
        let mut next = self.clone();
        for entry in &mut next.resets {
            if entry.record.id == id && entry.stage == Stage::Handed {
                entry.stage = Stage::Done;
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Here, id};
    use super::super::scope::Asker;
    use super::*;

    fn record(number: u8, scope: Scope) -> Record {
        Record::new(id([number; 16]), scope, Asker::Screen, &Here { machine_id: None, product: None, state: 1 }, "e")
    }

    #[test]
    fn an_admin_reset_waits_for_the_agent_and_a_later_one_takes_its_place() {
        let (one, two) = (record(1, Scope::Admin), record(2, Scope::Admin));
        let journal = Journal::default().begun(&one).finished(&one.id, None);
        assert_eq!(journal.handed().unwrap().record, one);
        let journal = journal.begun(&two).finished(&two.id, None);
        assert_eq!(journal.handed().unwrap().record, two);
        let journal = journal.applied(&one.id).applied(&two.id);
        assert!(journal.handed().is_none() && journal.unfinished().is_none());
        assert!(journal.knows(&one.id) && journal.knows(&two.id));
    }

    #[test]
    fn a_factory_reset_leaves_no_admin_reset_behind() {
        let (admin, all) = (record(1, Scope::Admin), record(2, Scope::Factory { keep_models: true }));
        let journal = Journal::default().begun(&admin).finished(&admin.id, None).begun(&all).finished(&all.id, None);
        assert!(journal.handed().is_none());
    }

    #[test]
    fn the_list_stays_short_and_keeps_the_newest() {
        let journal = (0..200).fold(Journal::default(), |journal, number| {
            let record = record(number, Scope::Network);
            journal.begun(&record).finished(&record.id, None)
        });
        assert_eq!(journal.resets.len(), KEPT);
        assert!(journal.knows(&id([199; 16])) && !journal.knows(&id([0; 16])));
    }

    #[test]
    fn a_list_comes_back_as_it_was_written_and_a_torn_one_does_not() {
        let record = record(1, Scope::Factory { keep_models: false });
        let journal = Journal::default().begun(&record).finished(&record.id, Some("why".into()));
        let text = journal.render();
        assert_eq!(Journal::parse(&text), Some(journal));
        assert_eq!(Journal::parse(&text[..text.len() - 3]), None);
    }
}
