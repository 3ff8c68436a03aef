//! Issues: which are open, and which were. One row per appearance; at most one open row per code and subject.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use warden_domain::{
    ids::{AccountId, IssueId, ModelId},
    issue::{Dismissal, Finding, Fix, Issue, IssueCode, Said},
};

use crate::{
    StoreError,
    moment::{from_ms, to_ms},
};

/// The table; part of the schema's migrations.
pub(crate) const SCHEMA: &str = "
CREATE TABLE issues (
    id TEXT PRIMARY KEY,
    code TEXT NOT NULL,
    subject TEXT NOT NULL,
    sentence TEXT NOT NULL,
    hint TEXT NOT NULL,
    fix TEXT,
    fix_subject TEXT,
    first_seen INTEGER NOT NULL,
    last_seen INTEGER NOT NULL,
    resolved_at INTEGER,
    dismissed_at INTEGER,
    dismissed_by TEXT,
    dismiss_reason TEXT
) STRICT;
CREATE UNIQUE INDEX issues_open ON issues (code, subject) WHERE resolved_at IS NULL;
CREATE INDEX issues_by_end ON issues (resolved_at) WHERE resolved_at IS NOT NULL;
";

/// What the sentence is made of, so that it can be said in other languages; a migration of the schema. `sentence` stays the English one.
pub(crate) const SAID: &str = "ALTER TABLE issues ADD COLUMN said TEXT;";

/// Rows of resolved issues that are kept.
const KEPT: i64 = 500;

const COLUMNS: &str =
    "id, code, subject, sentence, hint, fix, fix_subject, first_seen, last_seen, resolved_at, dismissed_at, dismissed_by, dismiss_reason, said";

/// All open issues. A row with a code this version does not know is left out: it was written by a newer one.
///
/// # Errors
/// Only SQLite's own.
pub fn open(db: &Connection) -> Result<Vec<Issue>, StoreError> {
    rows(db, "WHERE resolved_at IS NULL ORDER BY first_seen, rowid", params![])
}

/// Issues that are over, newest first.
///
/// # Errors
/// Only SQLite's own.
pub fn resolved(db: &Connection, most: usize) -> Result<Vec<Issue>, StoreError> {
    let most = i64::try_from(most).unwrap_or(KEPT).min(KEPT);
    rows(db, "WHERE resolved_at IS NOT NULL ORDER BY resolved_at DESC, rowid DESC LIMIT ?1", params![most])
}

/// Adds an appearance. False when that very issue is open already; nothing is changed then.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn insert(db: &Connection, issue: &Issue) -> Result<bool, StoreError> {
    let finding = &issue.finding;
    let (fix, fix_subject) = fix_words(finding.fix.as_ref());
    let added = db.execute(
        "INSERT INTO issues (id, code, subject, sentence, hint, fix, fix_subject, first_seen, last_seen, said)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
         ON CONFLICT DO NOTHING",
        params![
            issue.id.as_str(),
            finding.code.as_str(),
            finding.subject,
            finding.said.to_string(),
            finding.hint,
            fix,
            fix_subject,
            to_ms(issue.first_seen),
            to_ms(issue.last_seen),
            blanks(&finding.said)
        ],
    )?;
    Ok(added > 0)
}

/// Ends an appearance with what was last known of it. False when it is not open.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn resolve(db: &Connection, issue: &Issue, at: Timestamp) -> Result<bool, StoreError> {
    let ended = db.execute(
        "UPDATE issues SET resolved_at = ?2, last_seen = ?3, sentence = ?4, said = ?5 WHERE id = ?1 AND resolved_at IS NULL",
        params![issue.id.as_str(), to_ms(at), to_ms(issue.last_seen), issue.finding.said.to_string(), blanks(&issue.finding.said)],
    )?;
    db.execute(
        "DELETE FROM issues WHERE resolved_at IS NOT NULL AND rowid NOT IN
         (SELECT rowid FROM issues WHERE resolved_at IS NOT NULL ORDER BY resolved_at DESC, rowid DESC LIMIT ?1)",
        [KEPT],
    )?;
    Ok(ended > 0)
}

/// Notes, or takes back, that somebody knows. False when it is not open.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn dismiss(db: &Connection, id: &IssueId, dismissal: Option<&Dismissal>) -> Result<bool, StoreError> {
    let changed = db.execute(
        "UPDATE issues SET dismissed_at = ?2, dismissed_by = ?3, dismiss_reason = ?4 WHERE id = ?1 AND resolved_at IS NULL",
        params![id.as_str(), dismissal.map(|d| to_ms(d.at)), dismissal.map(|d| d.by.as_str()), dismissal.and_then(|d| d.reason.as_deref())],
    )?;
    Ok(changed > 0)
}

/// One issue.
///
/// # Errors
/// Only SQLite's own.
pub fn get(db: &Connection, id: &IssueId) -> Result<Option<Issue>, StoreError> {
    let found = db.query_row(&format!("SELECT {COLUMNS} FROM issues WHERE id = ?1"), [id.as_str()], from_row).optional()?;
    Ok(found.flatten())
}

fn rows(db: &Connection, rest: &str, values: &[&dyn rusqlite::ToSql]) -> Result<Vec<Issue>, StoreError> {
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} FROM issues {rest}"))?;
    let found = statement.query_map(values, from_row)?.collect::<Result<Vec<_>, _>>()?;
    Ok(found.into_iter().flatten().collect())
}

fn fix_words(fix: Option<&Fix>) -> (Option<&'static str>, Option<&str>) {
    match fix {
        None => (None, None),
        Some(Fix::LoadModel(id)) => (Some("load_model"), Some(id.as_str())),
        Some(Fix::StartTimeService) => (Some("start_time_service"), None),
        Some(Fix::SendAlerts) => (Some("send_alerts"), None),
    }
}

fn fix_of(word: Option<&str>, subject: Option<String>) -> Option<Fix> {
    match (word?, subject) {
        ("load_model", Some(id)) => Some(Fix::LoadModel(ModelId::from_stored(id))),
        ("start_time_service", _) => Some(Fix::StartTimeService),
        ("send_alerts", _) => Some(Fix::SendAlerts),
        _ => None,
    }
}

fn blanks(said: &Said) -> Option<String> {
    serde_json::to_string(said).ok()
}

/// A sentence of another version has blanks that this one does not know: its English stands for it.
fn said_of(blanks: Option<&str>, english: String) -> Said {
    blanks.and_then(|blanks| serde_json::from_str(blanks).ok()).unwrap_or(Said::Text { text: english })
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<Option<Issue>> {
    let Some(code) = IssueCode::from_stored(&row.get::<_, String>(1)?) else { return Ok(None) };
    let dismissed = match (row.get::<_, Option<i64>>(10)?, row.get::<_, Option<String>>(11)?) {
        (Some(at), Some(by)) => Some(Dismissal { at: from_ms(at), by: AccountId::from_stored(by), reason: row.get(12)? }),
        _ => None,
    };
    Ok(Some(Issue {
        id: IssueId::from_stored(row.get::<_, String>(0)?),
        finding: Finding {
            code,
            subject: row.get(2)?,
            said: said_of(row.get::<_, Option<String>>(13)?.as_deref(), row.get(3)?),
            hint: row.get(4)?,
            fix: fix_of(row.get::<_, Option<String>>(5)?.as_deref(), row.get(6)?),
        },
        first_seen: from_ms(row.get(7)?),
        last_seen: from_ms(row.get(8)?),
        resolved_at: row.get::<_, Option<i64>>(9)?.map(from_ms),
        dismissed,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database() -> Connection {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(SCHEMA).unwrap();
        db.execute_batch(SAID).unwrap();
        db
    }

    fn issue(id: &str, at: i64) -> Issue {
        let at = from_ms(at);
        let finding = Finding {
            code: IssueCode::ModelFailed,
            subject: "mdl_1".into(),
            said: Said::ModelFailed { model: "tiny".into(), why: "It died.".into() },
            hint: "Load it.".into(),
            fix: Some(Fix::LoadModel(ModelId::from_stored("mdl_1"))),
        };
        Issue { id: IssueId::from_stored(id), finding, first_seen: at, last_seen: at, resolved_at: None, dismissed: None }
    }

    #[test]
    fn an_issue_that_is_open_does_not_appear_twice() {
        let db = database();
        assert!(insert(&db, &issue("iss_1", 10)).unwrap());
        assert!(!insert(&db, &issue("iss_2", 20)).unwrap());
        assert_eq!(open(&db).unwrap(), [issue("iss_1", 10)]);
    }

    #[test]
    fn an_issue_that_comes_back_is_a_new_one_and_the_old_one_is_history() {
        let db = database();
        let first = issue("iss_1", 10);
        insert(&db, &first).unwrap();
        assert!(resolve(&db, &first, from_ms(30)).unwrap());
        assert!(!resolve(&db, &first, from_ms(40)).unwrap());
        assert!(insert(&db, &issue("iss_2", 50)).unwrap());
        assert_eq!(open(&db).unwrap().len(), 1);
        assert_eq!(resolved(&db, 10).unwrap()[0].resolved_at, Some(from_ms(30)));
    }

    #[test]
    fn who_dismissed_it_and_why_is_kept_and_can_be_taken_back() {
        let db = database();
        insert(&db, &issue("iss_1", 10)).unwrap();
        let known = Dismissal { at: from_ms(20), by: AccountId::from_stored("acc_1"), reason: Some("disk ordered".into()) };
        assert!(dismiss(&db, &IssueId::from_stored("iss_1"), Some(&known)).unwrap());
        assert_eq!(open(&db).unwrap()[0].dismissed, Some(known));
        assert!(dismiss(&db, &IssueId::from_stored("iss_1"), None).unwrap());
        assert_eq!(open(&db).unwrap()[0].dismissed, None);
        assert!(!dismiss(&db, &IssueId::from_stored("iss_9"), None).unwrap());
    }

    #[test]
    fn a_code_of_a_newer_version_is_left_alone() {
        let db = database();
        db.execute(
            "INSERT INTO issues (id, code, subject, sentence, hint, first_seen, last_seen) VALUES ('iss_n', 'gremlins', '', '', '', 1, 1)",
            [],
        )
        .unwrap();
        assert!(open(&db).unwrap().is_empty());
    }

    #[test]
    fn a_sentence_of_an_older_or_newer_version_is_shown_as_it_was_written() {
        let db = database();
        insert(&db, &issue("iss_1", 10)).unwrap();
        for blanks in [None, Some(r#"{"form":"gremlins"}"#)] {
            db.execute("UPDATE issues SET said = ?1", [blanks]).unwrap();
            assert_eq!(open(&db).unwrap()[0].finding.said, Said::text("The model tiny failed. It died."));
        }
    }

    #[test]
    fn years_of_issues_do_not_fill_the_disk() {
        let db = database();
        for number in 0..(KEPT + 20) {
            let one = issue(&format!("iss_{number}"), number);
            insert(&db, &one).unwrap();
            resolve(&db, &one, from_ms(number)).unwrap();
        }
        let count: i64 = db.query_row("SELECT count(*) FROM issues", [], |row| row.get(0)).unwrap();
        assert_eq!(count, KEPT);
        assert_eq!(resolved(&db, 1).unwrap()[0].id.as_str(), format!("iss_{}", KEPT + 19));
    }
}
