//! What one acceptance case hands back.
//!
//! In: nothing. Out: a verdict, the sentences that explain it, the figures that are compared with the list's thresholds, and where
//! the full log lies. A case builds its result step by step with [`CaseResult::expect`]; the first unmet expectation makes the verdict.
//! It never prints and never writes: the harness does both.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The verdict of one case with its evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseResult {
    /// True when every expectation held and the case ran to its end.
    pub passed: bool,
    /// What was seen, one plain sentence each, in the order in which it was seen.
    pub sentences: Vec<String>,
    /// Measured values by name; the unit is the suffix of the name (`_s`, `_bytes`, `_tokens`).
    pub figures: BTreeMap<String, f64>,
    /// The file with everything the case said and heard.
    pub log: PathBuf,
}

impl CaseResult {
    /// A result that has met every expectation so far.
    #[must_use]
    pub fn new(log: impl Into<PathBuf>) -> Self {
        Self { passed: true, sentences: Vec::new(), figures: BTreeMap::new(), log: log.into() }
    }

    /// Notes a fact that decides nothing.
    pub fn note(&mut self, sentence: impl Into<String>) {
        self.sentences.push(sentence.into());
    }

    /// Notes an expectation; one that does not hold fails the case and its sentence is marked.
    pub fn expect(&mut self, holds: bool, sentence: impl Into<String>) {
        let sentence = sentence.into();
        if holds {
            self.sentences.push(sentence);
        } else {
            self.passed = false;
            self.sentences.push(format!("NOT MET: {sentence}"));
        }
    }

    /// Fails the case for a cause outside its expectations (a tool missing, a guest that never answered).
    pub fn fail(&mut self, cause: impl Into<String>) {
        self.passed = false;
        self.sentences.push(format!("FAILED: {}", cause.into()));
    }

    /// Keeps a measured value.
    pub fn figure(&mut self, name: &str, value: f64) {
        self.figures.insert(name.to_owned(), value);
    }

    /// True when an expectation was not met and nothing outside the expectations went wrong: the case did its work and found a fault.
    #[must_use]
    pub fn detected_a_fault(&self) -> bool {
        !self.passed && !self.sentences.iter().any(|s| s.starts_with("FAILED"))
    }

    /// The first sentence that explains a failure, or the last one of a success.
    #[must_use]
    pub fn headline(&self) -> &str {
        let marked = self.sentences.iter().find(|s| s.starts_with("NOT MET") || s.starts_with("FAILED"));
        marked.or(self.sentences.last()).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_unmet_expectation_fails_the_case_for_good() {
        let mut result = CaseResult::new("x.log");
        result.expect(true, "first holds");
        result.expect(false, "second holds");
        result.expect(true, "third holds");
        assert!(!result.passed);
        assert_eq!(result.headline(), "NOT MET: second holds");
    }

    #[test]
    fn a_tool_that_is_missing_is_not_taken_for_a_detected_break() {
        let mut result = CaseResult::new("x.log");
        result.fail("no such program");
        assert!(!result.detected_a_fault());
        let mut other = CaseResult::new("x.log");
        other.expect(false, "the stranger is refused");
        assert!(other.detected_a_fault());
    }

    #[test]
    fn a_passing_case_is_headed_by_its_last_sentence() {
        let mut result = CaseResult::new("x.log");
        result.note("a");
        result.expect(true, "b");
        assert_eq!(result.headline(), "b");
    }
}
