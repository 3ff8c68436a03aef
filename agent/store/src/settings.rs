//! Small values by name. Names are chosen by the rooms that own them; `access.claim` is the first.

use rusqlite::{Connection, OptionalExtension};

use crate::StoreError;

/// The value of a name, if it is set.
///
/// # Errors
/// Only SQLite's own.
pub fn get(db: &Connection, name: &str) -> Result<Option<String>, StoreError> {
    Ok(db.query_row("SELECT value FROM settings WHERE name = ?1", [name], |row| row.get(0)).optional()?)
}

/// Sets a value, replacing the one before.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn set(db: &Connection, name: &str, value: &str) -> Result<(), StoreError> {
    db.execute("INSERT INTO settings (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value", [name, value])?;
    Ok(())
}

/// Removes a value; removing none is fine.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn remove(db: &Connection, name: &str) -> Result<(), StoreError> {
    db.execute("DELETE FROM settings WHERE name = ?1", [name])?;
    Ok(())
}
