//! The table of `docs/issues.md` and the code tell of the same issues.
#![allow(clippy::unwrap_used, reason = "tests")]

use warden_domain::issue::{IssueCode, Severity};

const PAGE: &str = include_str!("../../../docs/issues.md");

/// Code, severity and patience of each row.
fn rows() -> Vec<(String, String, u64)> {
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    PAGE.lines()
        .filter(|line| line.starts_with("| `"))
        .map(cells)
        .map(|cells| (cells[1].trim_matches('`').to_owned(), cells[2].clone(), cells[3].trim_end_matches(" s").parse().unwrap()))
        .collect()
}

#[test]
fn every_issue_has_its_row_in_the_documentation_and_every_row_its_issue() {
    let told: Vec<(String, String, u64)> =
        IssueCode::ALL.iter().map(|code| (code.as_str().to_owned(), code.severity().as_str().to_owned(), code.patience().as_secs())).collect();
    assert_eq!(rows(), told);
}

#[test]
fn every_row_says_what_it_means_why_it_happens_and_what_to_do() {
    for line in PAGE.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 9, "{line}");
        assert!(cells[4..7].iter().all(|cell| cell.len() > 3), "{line}");
    }
    assert!(IssueCode::ALL.iter().any(|code| code.severity() == Severity::Warning));
}
