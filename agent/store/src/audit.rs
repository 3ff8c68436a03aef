//! The record of what was done to the box and by whom. Bounded: a flood of wrong passwords pushes out the oldest rows and cannot
//! fill the disk. Never holds a secret.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use warden_domain::ids::AccountId;

use crate::{StoreError, moment::to_ms};

/// Rows kept.
const KEPT: i64 = 20_000;

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
    db.execute("DELETE FROM audit WHERE id <= ?1", [db.last_insert_rowid() - KEPT])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_wrong_passwords_cannot_fill_the_disk() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE audit (id INTEGER PRIMARY KEY, at INTEGER, account_id TEXT, action TEXT, subject TEXT, outcome TEXT);")
            .unwrap();
        db.execute("INSERT INTO audit (id) VALUES (1), (2), (20001)", []).unwrap();
        let row = AuditRow { at: Timestamp::UNIX_EPOCH, account: None, action: "login", subject: None, outcome: "refused" };
        insert(&db, &row).unwrap();
        let left: Vec<i64> =
            db.prepare("SELECT id FROM audit ORDER BY id").unwrap().query_map([], |r| r.get(0)).unwrap().map(Result::unwrap).collect();
        assert_eq!(left, [20001, 20002]);
    }
}
