//! Sessions of the console. Only the SHA-256 of a cookie is kept: whoever reads the file cannot sign in with what is in it.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use warden_domain::{
    Secret,
    access::{Principal, Role},
    ids::AccountId,
};

use crate::{StoreError, moment::to_ms};

/// Adds a session and clears those that are over, so that the table stays small.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn insert(db: &Connection, id_hash: &[u8; 32], account: &AccountId, csrf: &str, now: Timestamp, expires_at: Timestamp) -> Result<(), StoreError> {
    db.execute("DELETE FROM sessions WHERE expires_at <= ?1", [to_ms(now)])?;
    db.execute(
        "INSERT INTO sessions (id_hash, account_id, csrf, created_at, expires_at) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![id_hash.as_slice(), account.as_str(), csrf, to_ms(now), to_ms(expires_at)],
    )?;
    Ok(())
}

/// Who a session belongs to, unless it is over or its account was disabled.
///
/// # Errors
/// Only SQLite's own.
pub fn principal(db: &Connection, id_hash: &[u8; 32], now: Timestamp) -> Result<Option<Principal>, StoreError> {
    let found = db
        .query_row(
            "SELECT a.id, a.username, a.role, s.csrf FROM sessions s JOIN accounts a ON a.id = s.account_id
             WHERE s.id_hash = ?1 AND s.expires_at > ?2 AND a.disabled_at IS NULL",
            params![id_hash.as_slice(), to_ms(now)],
            |row| {
                Ok(Principal {
                    account: AccountId::from_stored(row.get::<_, String>(0)?),
                    username: row.get(1)?,
                    role: Role::from_stored(&row.get::<_, String>(2)?).unwrap_or(Role::Viewer),
                    csrf: Secret::new(row.get(3)?),
                })
            },
        )
        .optional()?;
    Ok(found)
}

/// Ends a session; ending none is fine.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn delete(db: &Connection, id_hash: &[u8; 32]) -> Result<(), StoreError> {
    db.execute("DELETE FROM sessions WHERE id_hash = ?1", [id_hash.as_slice()])?;
    Ok(())
}
