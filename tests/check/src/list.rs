//! Acceptance lists: what a check must show, and whether a copy of a list is at least as strict as its floor.
//!
//! In: the text of a list. Out: ids with their sentences, thresholds, and complaints when a copy dropped an id, dropped a deliberate
//! break or made a number easier. It never reads a file and never runs anything.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// A list as it is written.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct AcceptList {
    /// The name of the check, which is also the name of its evidence file.
    pub check: String,
    /// Numbers that a measured figure of the same name may not pass.
    #[serde(default)]
    pub thresholds: BTreeMap<String, f64>,
    /// What must be shown.
    #[serde(default, rename = "case")]
    pub cases: Vec<AcceptCase>,
}

/// One thing to be shown.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct AcceptCase {
    /// Its name.
    pub id: String,
    /// What is shown, in words.
    pub says: String,
    /// The deliberate break under which it must fail, if it has one.
    pub sabotage: Option<String>,
}

/// Why a list cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The text is not a list.
    #[error("{name} is not an acceptance list: {source}. Compare it with tests/accept/slice.toml.")]
    NotAList {
        /// Which text.
        name: String,
        /// What the parser said.
        source: Box<toml::de::Error>,
    },
    /// An id stands in it twice.
    #[error("{name} has the id {id} twice; rename or remove one of them.")]
    Twice {
        /// Which text.
        name: String,
        /// The id.
        id: String,
    },
}

/// Reads a list. `name` is only used in error sentences.
///
/// # Errors
/// `ListError` when the text is not a list or repeats an id.
pub fn parse(name: &str, text: &str) -> Result<AcceptList, ListError> {
    let list: AcceptList = toml::from_str(text).map_err(|e| ListError::NotAList { name: name.to_owned(), source: Box::new(e) })?;
    let mut seen = BTreeSet::new();
    if let Some(case) = list.cases.iter().find(|c| !seen.insert(c.id.as_str())) {
        return Err(ListError::Twice { name: name.to_owned(), id: case.id.clone() });
    }
    Ok(list)
}

/// Everything in which `copy` is weaker than `floor`, one sentence each; empty when it is at least as strict.
#[must_use]
pub fn weaknesses(copy: &AcceptList, floor: &AcceptList) -> Vec<String> {
    let mut complaints = Vec::new();
    if copy.check != floor.check {
        complaints.push(format!("the copy is named {}, the floor {}", copy.check, floor.check));
    }
    for wanted in &floor.cases {
        match copy.cases.iter().find(|c| c.id == wanted.id) {
            None => complaints.push(format!("the copy lacks the id {}", wanted.id)),
            Some(found) if wanted.sabotage.is_some() && found.sabotage.is_none() => {
                complaints.push(format!("the copy lacks the deliberate break of {}", wanted.id));
            }
            Some(_) => {}
        }
    }
    for (name, &number) in &floor.thresholds {
        match copy.thresholds.get(name) {
            None => complaints.push(format!("the copy lacks the threshold {name}")),
            Some(&mine) if mine > number => complaints.push(format!("the copy's threshold {name} = {mine} is easier than {number}")),
            Some(_) => {}
        }
    }
    complaints
}

/// How a threshold stands against the figures of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Standing {
    /// Measured and not above the number.
    Met(f64),
    /// Measured and above the number.
    Missed(f64),
    /// Nobody measured it.
    NotMeasured,
}

/// Compares one threshold with the figures. All thresholds of this list are upper bounds.
#[must_use]
pub fn standing(name: &str, limit: f64, figures: &BTreeMap<String, f64>) -> Standing {
    match figures.get(name) {
        Some(&value) if value <= limit => Standing::Met(value),
        Some(&value) => Standing::Missed(value),
        None => Standing::NotMeasured,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOOR: &str = "check = 'x'\n[thresholds]\na_s = 5\n[[case]]\nid = 'one'\nsays = 's'\nsabotage = 'b'\n[[case]]\nid = 'two'\nsays = 's'\n";

    fn list(text: &str) -> AcceptList {
        parse("test", text).unwrap()
    }

    #[test]
    fn a_stricter_copy_with_more_ids_is_accepted() {
        let copy = FLOOR.replace("a_s = 5", "a_s = 4") + "[[case]]\nid = 'three'\nsays = 's'\n";
        assert_eq!(weaknesses(&list(&copy), &list(FLOOR)), Vec::<String>::new());
    }

    #[test]
    fn a_copy_cannot_drop_an_id_or_a_break_or_ease_a_number_unseen() {
        let copy = "check = 'x'\n[thresholds]\na_s = 6\n[[case]]\nid = 'one'\nsays = 's'\n";
        let complaints = weaknesses(&list(copy), &list(FLOOR));
        assert_eq!(complaints.len(), 3, "{complaints:?}");
    }

    #[test]
    fn a_missing_threshold_is_a_weakness() {
        let copy = FLOOR.replace("a_s = 5\n", "");
        assert_eq!(weaknesses(&list(&copy), &list(FLOOR)), vec!["the copy lacks the threshold a_s".to_owned()]);
    }

    #[test]
    fn an_id_written_twice_is_refused() {
        let twice = FLOOR.replace("'two'", "'one'");
        assert!(parse("test", &twice).unwrap_err().to_string().contains("one twice"));
    }

    #[test]
    fn a_figure_at_the_limit_is_met_and_an_absent_one_is_not_zero() {
        let figures = BTreeMap::from([("a_s".to_owned(), 5.0)]);
        assert_eq!(standing("a_s", 5.0, &figures), Standing::Met(5.0));
        assert_eq!(standing("a_s", 4.9, &figures), Standing::Missed(5.0));
        assert_eq!(standing("b_s", 4.9, &figures), Standing::NotMeasured);
    }

    #[test]
    fn the_projects_own_list_can_be_read() {
        let own = list(include_str!("../../accept/slice.toml"));
        assert_eq!(own.check, "slice");
        assert_eq!(own.cases.len(), 25);
    }
}
