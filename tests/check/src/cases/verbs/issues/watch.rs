//! One visitor who causes a condition and watches what the box says about it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::console::Console;
use crate::result::CaseResult;

/// What was caused and cured so far.
pub struct Watch<'a> {
    /// The signed-in visitor.
    pub console: &'a Console,
    /// Codes that came and went as they should.
    pub seen: BTreeSet<String>,
    /// The longest look of all checks, in seconds.
    pub slowest_look_s: f64,
}

impl<'a> Watch<'a> {
    /// Nothing seen yet.
    #[must_use]
    pub const fn new(console: &'a Console) -> Self {
        Self { console, seen: BTreeSet::new(), slowest_look_s: 0.0 }
    }

    /// All issues as the API has them after a look made now.
    ///
    /// # Errors
    /// A sentence that quotes the refusal.
    pub fn look(&mut self) -> Result<Value, String> {
        let list = self.console.expect("POST", "/api/issues/check", None, &[200])?.json();
        self.slowest_look_s = self.slowest_look_s.max(list["check_seconds"].as_f64().unwrap_or(0.0));
        Ok(list)
    }

    /// Waits until an issue of that code (and subject, unless empty) is open.
    ///
    /// # Errors
    /// A sentence that quotes the refusal. An issue that does not come is `None`.
    pub fn opened(&mut self, code: &str, subject: &str, limit: Duration) -> Result<Option<Value>, String> {
        let until = Instant::now() + limit;
        loop {
            let found = find(&self.look()?["open"], code, subject);
            if found.is_some() || Instant::now() >= until {
                return Ok(found);
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Waits until no issue of that code and subject is open.
    ///
    /// # Errors
    /// A sentence that quotes the refusal.
    pub fn over(&mut self, code: &str, subject: &str, limit: Duration) -> Result<bool, String> {
        let until = Instant::now() + limit;
        loop {
            let list = self.look()?;
            if find(&list["open"], code, subject).is_none() {
                return Ok(find(&list["resolved"], code, subject).is_some());
            }
            if Instant::now() >= until {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Causes, expects the issue with its words on API and page, cures, expects its end.
    ///
    /// # Errors
    /// What `cause` or `cure` say, or a refusal of the box.
    pub fn caused(
        &mut self,
        result: &mut CaseResult,
        code: &str,
        subject: &str,
        cause: impl FnOnce() -> Result<(), String>,
        cure: impl FnOnce(&Console, &Value) -> Result<(), String>,
    ) -> Result<(), String> {
        let limit = Duration::from_secs(45);
        if let Some(before) = find(&self.look()?["open"], code, subject) {
            result.expect(false, format!("{code} is open before it is caused: {before}"));
            return Ok(());
        }
        let begun = Instant::now();
        cause()?;
        let Some(issue) = self.opened(code, subject, limit)? else {
            result.expect(false, format!("{code} was caused and is not among the issues after {} s", limit.as_secs()));
            return cure(self.console, &Value::Null);
        };
        let after = begun.elapsed().as_secs_f64();
        let words = |name: &str| issue[name].as_str().unwrap_or_default().to_owned();
        result.expect(words("sentence").len() > 20 && words("hint").len() > 10, format!("{code} after {after:.1} s: {}", words("sentence")));
        let page = self.console.page("/ui/issues")?;
        result.expect(page.contains(&format!("data-issue=\"{code}\"")) && page.contains(&words("id")), format!("the page shows {code}"));
        cure(self.console, &issue)?;
        let gone = self.over(code, subject, limit)?;
        result.expect(gone, format!("{code} is over once it is cured, and is in the history"));
        if gone {
            self.seen.insert(code.to_owned());
        }
        Ok(())
    }
}

/// The issue of a code and subject in a list of the API.
fn find(list: &Value, code: &str, subject: &str) -> Option<Value> {
    let fits = |issue: &&Value| issue["code"] == code && (subject.is_empty() || issue["subject"] == subject);
    list.as_array()?.iter().find(fits).cloned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_issue_about_another_subject_is_not_taken_for_the_one_that_was_caused() {
        let list = json!([{"code": "unit_failed", "subject": "a.service"}]);
        assert!(find(&list, "unit_failed", "a.service").is_some() && find(&list, "unit_failed", "").is_some());
        assert!(find(&list, "unit_failed", "b.service").is_none() && find(&Value::Null, "unit_failed", "").is_none());
    }
}
