//! The record of what was done to the box and by whom. Bounded, deeds and refusals apart: a flood of wrong passwords pushes out older
//! refusals only. It can neither fill the disk nor wash away what somebody did. Never holds a secret.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use warden_domain::ids::AccountId;

use crate::{StoreError, moment::to_ms};

/// Rows kept of what was done.
const DEEDS: i64 = 16_000;
/// Rows kept of what was refused: anybody on the network can make these.
const REFUSALS: i64 = 4_000;
/// Surplus rows are looked for every so many rows.
const LOOK: i64 = 64;

/// One thing that was done or tried.
#[derive(Clone, Debug)]
pub struct AuditRow {
    /// When.
    pub at: Timestamp,
    /// By whom, when known.
    pub account: Option<AccountId>,
    /// What, such as `key.create`.
    pub action: &'static str,
    /// To what: an id or a name.
    pub subject: Option<String>,
    /// `ok` or `refused`.
    pub outcome: &'static str,
}

/// Adds a row, in the transaction of the deed itself.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn insert(db: &Connection, row: &AuditRow) -> Result<(), StoreError> {
    db.execute(
        "INSERT INTO audit (at, account_id, action, subject, outcome) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![to_ms(row.at), row.account.as_ref().map(AccountId::as_str), row.action, row.subject, row.outcome],
    )?;
    if db.last_insert_rowid() % LOOK == 0 {
        for (kept, refused) in [(DEEDS, false), (REFUSALS, true)] {
            db.execute(
                "DELETE FROM audit WHERE (outcome = 'refused') = ?2 AND id <=
                 (SELECT id FROM audit WHERE (outcome = 'refused') = ?2 ORDER BY id DESC LIMIT 1 OFFSET ?1)",
                params![kept, refused],
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_wrong_passwords_neither_fills_the_disk_nor_washes_away_what_was_done() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE audit (id INTEGER PRIMARY KEY, at INTEGER, account_id TEXT, action TEXT, subject TEXT, outcome TEXT);")
            .unwrap();
        let row = |action, outcome| AuditRow { at: Timestamp::UNIX_EPOCH, account: None, action, subject: None, outcome };
        let count = |what: &str| db.query_row(&format!("SELECT count(*) FROM audit WHERE {what}"), [], |r| r.get::<_, i64>(0)).unwrap();
        insert(&db, &row("key.create", "ok")).unwrap();
        for _ in 0..REFUSALS * 6 {
            insert(&db, &row("login", "refused")).unwrap();
        }
        assert_eq!(count("action = 'key.create'"), 1);
        assert!((REFUSALS..REFUSALS + LOOK).contains(&count("outcome = 'refused'")));
        for _ in 0..DEEDS + LOOK {
            insert(&db, &row("key.revoke", "ok")).unwrap();
        }
        assert!((DEEDS..DEEDS + LOOK).contains(&count("outcome = 'ok'")));
        assert_eq!(count("action = 'key.create'"), 0, "the oldest goes first");
    }
}
