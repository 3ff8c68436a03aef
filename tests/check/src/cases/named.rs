//! A room's own tests, run by name from the tree as it lies.

use std::time::Duration;

use crate::command;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Runs the tests that `select` names and expects at least so many to run, all of them to pass.
pub fn run(stage: &Stage, task: &Task, result: &mut CaseResult, select: &[&str], at_least: u64) -> Result<(), String> {
    let mut cargo = stage.in_tree("cargo");
    cargo.args(["nextest", "run", "--locked", "--no-fail-fast", "--color", "never"]).args(select);
    let ran = command::run(cargo, Duration::from_secs(1200), &task.log)?;
    let what = select.join(" ");
    let (run, passed) = summary(&ran.output).ok_or_else(|| format!("no test ran for {what}; last: {}", ran.tail(6)))?;
    for failed in ran.output.iter().filter(|l| l.trim_start().starts_with("FAIL")).take(5) {
        result.note(failed.trim().to_owned());
    }
    result.expect(ran.ok() && run == passed && run >= at_least, format!("{what}: {passed} of {run} tests passed, at least {at_least} are there"));
    Ok(())
}

/// Tests run and passed, from the last summary line.
fn summary(output: &[String]) -> Option<(u64, u64)> {
    let line = output.iter().rev().find(|l| l.contains("Summary [") && l.contains("run:"))?;
    let before = |word: &str| {
        let words: Vec<&str> = line.split([' ', ',', ':']).filter(|w| !w.is_empty()).collect();
        words.iter().position(|w| *w == word).and_then(|at| words.get(at.checked_sub(1)?)?.parse().ok())
    };
    Some((before("tests").or_else(|| before("test"))?, before("passed").unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_failed_or_did_not_run_are_not_taken_for_passed_ones() {
        let one = |line: &str| summary(&[line.to_owned()]);
        assert_eq!(one("     Summary [   7.153s] 64 tests run: 64 passed, 0 skipped"), Some((64, 64)));
        assert_eq!(one("     Summary [   7.153s] 3 tests run: 1 passed, 2 failed, 0 skipped"), Some((3, 1)));
        assert_eq!(one("     Summary [   0.153s] 1 test run: 1 passed, 63 skipped"), Some((1, 1)));
        assert_eq!(one("error: no tests to run"), None);
    }
}
