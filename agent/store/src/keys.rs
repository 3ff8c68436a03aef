//! Inference keys. Only the SHA-256 of a secret is kept.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use warden_domain::{
    ids::{AccountId, KeyId},
    key::{Key, Priority},
};

use crate::{
    StoreError,
    moment::{from_ms, to_ms},
    usage,
};

const COLUMNS: &str = "k.id, k.name, k.prefix, k.created_at, k.created_by, k.revoked_at, k.last_used_at, k.priority";

/// How a key's requests stand among those that wait. An older program treats all alike and makes keys of the usual priority.
pub(crate) const PRIORITY: &str = "ALTER TABLE keys ADD COLUMN priority INTEGER NOT NULL DEFAULT 5;";

/// What the hot path needs of a key.
#[derive(Clone, Debug)]
pub struct KeyEntry {
    /// SHA-256 of the secret.
    pub secret_hash: [u8; 32],
    /// Identity.
    pub id: KeyId,
    /// Its name.
    pub name: String,
    /// Whether it was revoked.
    pub revoked: bool,
    /// How its requests stand among those that wait.
    pub priority: Priority,
}

/// Adds a key. Its usage is not stored here and may be anything.
///
/// # Errors
/// One that `is_taken` when the name is in use, `DiskFull`.
pub fn insert(db: &Connection, key: &Key, secret_hash: &[u8; 32]) -> Result<(), StoreError> {
    db.execute(
        "INSERT INTO keys (id, name, prefix, secret_hash, created_at, created_by, revoked_at, last_used_at, priority)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            key.id.as_str(),
            key.name,
            key.prefix,
            secret_hash.as_slice(),
            to_ms(key.created_at),
            key.created_by.as_str(),
            key.revoked_at.map(to_ms),
            key.last_used_at.map(to_ms),
            key.priority.number()
        ],
    )?;
    Ok(())
}

/// All keys with what was charged to them, newest first.
///
/// # Errors
/// Only SQLite's own.
pub fn all(db: &Connection) -> Result<Vec<Key>, StoreError> {
    let mut sums = usage::totals_by_key(db)?;
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} FROM keys k ORDER BY k.created_at DESC, k.rowid DESC"))?;
    let mut keys = statement.query_map([], from_row)?.collect::<Result<Vec<_>, _>>()?;
    for key in &mut keys {
        key.usage = sums.remove(key.id.as_str()).unwrap_or_default();
    }
    Ok(keys)
}

/// One key with what was charged to it.
///
/// # Errors
/// Only SQLite's own.
pub fn get(db: &Connection, id: &KeyId) -> Result<Option<Key>, StoreError> {
    let found = db.query_row(&format!("SELECT {COLUMNS} FROM keys k WHERE k.id = ?1"), [id.as_str()], from_row).optional()?;
    let Some(mut key) = found else { return Ok(None) };
    key.usage = usage::totals_of_key(db, id)?;
    Ok(Some(key))
}

/// All keys as the hot path looks them up, revoked ones included.
///
/// # Errors
/// Only SQLite's own.
pub fn entries(db: &Connection) -> Result<Vec<KeyEntry>, StoreError> {
    let mut statement = db.prepare_cached("SELECT secret_hash, id, name, revoked_at IS NOT NULL, priority FROM keys")?;
    let rows = statement.query_map([], |row| {
        Ok(KeyEntry {
            secret_hash: row.get(0)?,
            id: KeyId::from_stored(row.get::<_, String>(1)?),
            name: row.get(2)?,
            revoked: row.get(3)?,
            priority: priority(row.get(4)?),
        })
    })?;
    Ok(rows.collect::<Result<Vec<_>, _>>()?)
}

/// Revokes a key; the time of the first revocation stays. False when there is no such key.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn revoke(db: &Connection, id: &KeyId, at: Timestamp) -> Result<bool, StoreError> {
    Ok(db.execute("UPDATE keys SET revoked_at = coalesce(revoked_at, ?2) WHERE id = ?1", params![id.as_str(), to_ms(at)])? > 0)
}

/// Gives a key another priority. False when there is no such key.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn set_priority(db: &Connection, id: &KeyId, priority: Priority) -> Result<bool, StoreError> {
    Ok(db.execute("UPDATE keys SET priority = ?2 WHERE id = ?1", params![id.as_str(), priority.number()])? > 0)
}

/// What another program may have written there is the usual one.
fn priority(stored: i64) -> Priority {
    u64::try_from(stored).ok().and_then(|number| Priority::new(number).ok()).unwrap_or_default()
}

/// Notes when a key was used, kept to the minute; never goes back in time.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn note_used(db: &Connection, id: &str, minute: i64) -> Result<(), StoreError> {
    db.prepare_cached("UPDATE keys SET last_used_at = max(coalesce(last_used_at, 0), ?2) WHERE id = ?1")?.execute(params![id, minute * 60_000])?;
    Ok(())
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<Key> {
    Ok(Key {
        id: KeyId::from_stored(row.get::<_, String>(0)?),
        name: row.get(1)?,
        prefix: row.get(2)?,
        created_at: from_ms(row.get(3)?),
        created_by: AccountId::from_stored(row.get::<_, String>(4)?),
        revoked_at: row.get::<_, Option<i64>>(5)?.map(from_ms),
        last_used_at: row.get::<_, Option<i64>>(6)?.map(from_ms),
        priority: priority(row.get(7)?),
        usage: warden_domain::usage::UsageTotals::default(),
    })
}
