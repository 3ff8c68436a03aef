//! Accounts: who may sign in to the console.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use warden_domain::{access::Role, ids::AccountId};

use crate::{
    StoreError,
    moment::{from_ms, to_ms},
};

/// One account as stored.
#[derive(Clone, Debug)]
pub struct Account {
    /// Identity.
    pub id: AccountId,
    /// Name to sign in with; upper and lower case are the same name.
    pub username: String,
    /// What it may do.
    pub role: Role,
    /// The password as an argon2id PHC string.
    pub password_hash: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// Since when it may not sign in.
    pub disabled_at: Option<Timestamp>,
}

/// The columns of an account, in the order `from_row` reads them.
const COLUMNS: &str = "id, username, role, password_hash, created_at, disabled_at";

/// Whether an admin exists, and setup with it is closed.
///
/// # Errors
/// Only SQLite's own.
pub fn admin_exists(db: &Connection) -> Result<bool, StoreError> {
    Ok(db.query_row("SELECT EXISTS (SELECT 1 FROM accounts WHERE role = 'admin')", [], |row| row.get(0))?)
}

/// Adds an account.
///
/// # Errors
/// One that `is_taken` when the name is in use, `DiskFull`.
pub fn insert(db: &Connection, account: &Account) -> Result<(), StoreError> {
    db.execute(
        "INSERT INTO accounts (id, username, role, password_hash, created_at, disabled_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            account.id.as_str(),
            account.username,
            account.role.as_str(),
            account.password_hash,
            to_ms(account.created_at),
            account.disabled_at.map(to_ms)
        ],
    )?;
    Ok(())
}

/// The account of a name, whatever its case.
///
/// # Errors
/// Only SQLite's own.
pub fn by_username(db: &Connection, username: &str) -> Result<Option<Account>, StoreError> {
    Ok(db.query_row(&format!("SELECT {COLUMNS} FROM accounts WHERE username = ?1"), [username], from_row).optional()?)
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<Account> {
    let role: String = row.get(2)?;
    Ok(Account {
        id: AccountId::from_stored(row.get::<_, String>(0)?),
        username: row.get(1)?,
        // A role of a newer version is read as the one that may do least.
        role: Role::from_stored(&role).unwrap_or(Role::Viewer),
        password_hash: row.get(3)?,
        created_at: from_ms(row.get(4)?),
        disabled_at: row.get::<_, Option<i64>>(5)?.map(from_ms),
    })
}
