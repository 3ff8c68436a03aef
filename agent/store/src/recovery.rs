//! Getting back in: what an admin reset changes about accounts and sessions.

use rusqlite::{Connection, params};
use warden_domain::ids::AccountId;

use crate::StoreError;

/// Names of the admins that may sign in, in their order.
///
/// # Errors
/// Only SQLite's own.
pub fn admin_names(db: &Connection) -> Result<Vec<String>, StoreError> {
    let mut rows = db.prepare("SELECT username FROM accounts WHERE role = 'admin' AND disabled_at IS NULL ORDER BY username")?;
    let names = rows.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(names)
}

/// Gives every admin the same password hash; nobody knows a password of it.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn replace_admin_passwords(db: &Connection, unknown_hash: &str) -> Result<(), StoreError> {
    db.execute("UPDATE accounts SET password_hash = ?1 WHERE role = 'admin'", [unknown_hash])?;
    Ok(())
}

/// Sets the password of one account.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn set_password(db: &Connection, account: &AccountId, hash: &str) -> Result<(), StoreError> {
    db.execute("UPDATE accounts SET password_hash = ?2 WHERE id = ?1", params![account.as_str(), hash])?;
    Ok(())
}

/// Signs everybody out.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn end_all_sessions(db: &Connection) -> Result<(), StoreError> {
    db.execute("DELETE FROM sessions", [])?;
    Ok(())
}
