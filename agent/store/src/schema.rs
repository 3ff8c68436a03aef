//! The schema and its way forward. Each migration runs in one transaction and says from which version on its result can still be
//! read, so that an older agent (after a rollback of the OS) opens a newer database whenever that is safe, and refuses it with a
//! sentence when it is not. Never goes backward.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior, params};

use crate::{StoreError, slots::Limit};

struct Migration {
    version: i64,
    /// The oldest version of this program that can work with a database after this migration.
    readable_from: i64,
    sql: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, readable_from: 1, sql: FIRST },
    Migration { version: 2, readable_from: 1, sql: crate::issues::SCHEMA },
    Migration { version: 3, readable_from: 1, sql: crate::alerts::SCHEMA },
    Migration { version: 4, readable_from: 1, sql: crate::disks::SCHEMA },
    Migration { version: 5, readable_from: 1, sql: crate::issues::SAID },
    // An older program runs such a model once and on processors, which is safe, and writes rows that this one reads.
    Migration { version: 6, readable_from: 1, sql: crate::models::LAYOUT },
    Migration { version: 7, readable_from: 1, sql: crate::loads::SCHEMA },
    Migration { version: 8, readable_from: 1, sql: crate::keys::PRIORITY },
];

/// The newest version of the schema that this program brings.
pub const DATA_SCHEMA: i64 = MIGRATIONS[MIGRATIONS.len() - 1].version;

const FIRST: &str = "
CREATE TABLE accounts (
    id TEXT PRIMARY KEY,
    username TEXT NOT NULL UNIQUE COLLATE NOCASE,
    role TEXT NOT NULL,
    password_hash TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    disabled_at INTEGER
) STRICT;
CREATE TABLE sessions (
    id_hash BLOB PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    csrf TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX sessions_by_expiry ON sessions (expires_at);
CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    prefix TEXT NOT NULL,
    secret_hash BLOB NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL REFERENCES accounts (id),
    revoked_at INTEGER,
    last_used_at INTEGER
) STRICT;
CREATE UNIQUE INDEX keys_name_in_use ON keys (name) WHERE revoked_at IS NULL;
CREATE TABLE models (
    id TEXT PRIMARY KEY,
    created_at INTEGER NOT NULL,
    served_name TEXT NOT NULL UNIQUE,
    path TEXT NOT NULL,
    engine TEXT NOT NULL,
    context INTEGER,
    slots INTEGER NOT NULL,
    facts TEXT NOT NULL
) STRICT;
CREATE TABLE desired (
    model_id TEXT PRIMARY KEY REFERENCES models (id) ON DELETE CASCADE,
    wanted INTEGER NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT;
CREATE TABLE usage_minute (
    minute INTEGER NOT NULL,
    key_id TEXT NOT NULL,
    model_id TEXT NOT NULL,
    requests INTEGER NOT NULL,
    requests_without_counts INTEGER NOT NULL,
    prompt INTEGER NOT NULL,
    cached INTEGER NOT NULL,
    completion INTEGER NOT NULL,
    PRIMARY KEY (minute, key_id, model_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_by_key ON usage_minute (key_id);
CREATE TABLE requests (
    id TEXT PRIMARY KEY,
    key_id TEXT NOT NULL,
    model_id TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    first_byte_ms INTEGER,
    prompt INTEGER,
    cached INTEGER,
    completion INTEGER,
    outcome TEXT NOT NULL,
    status INTEGER NOT NULL
) STRICT;
CREATE INDEX requests_by_start ON requests (started_at);
CREATE TABLE settings (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;
CREATE TABLE audit (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    account_id TEXT,
    action TEXT NOT NULL,
    subject TEXT,
    outcome TEXT NOT NULL
) STRICT;
";

/// Version of a database and the oldest program that reads it right; zeros when nothing was run on it yet.
pub(crate) fn found(connection: &Connection) -> Result<(i64, i64), StoreError> {
    let there: bool =
        connection.query_row("SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'schema')", [], |row| row.get(0))?;
    if !there {
        return Ok((0, 0));
    }
    Ok(connection
        .query_row("SELECT coalesce(max(version), 0), coalesce(max(readable_from), 0) FROM schema", [], |row| Ok((row.get(0)?, row.get(1)?)))?)
}

/// Brings the database to the newest known version as far as the limit allows, or accepts a newer one that says it can be read.
/// Returns the versions that were run.
pub(crate) fn migrate(connection: &mut Connection, path: &Path, limit: Limit) -> Result<Vec<i64>, StoreError> {
    migrate_with(connection, path, MIGRATIONS, limit)
}

fn migrate_with(connection: &mut Connection, path: &Path, migrations: &[Migration], limit: Limit) -> Result<Vec<i64>, StoreError> {
    let known = migrations.last().map_or(0, |m| m.version);
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute_batch(
        "CREATE TABLE IF NOT EXISTS schema (version INTEGER PRIMARY KEY, readable_from INTEGER NOT NULL, applied_at INTEGER NOT NULL) STRICT;",
    )?;
    tx.commit()?;
    let (found, readable_from) = self::found(connection)?;
    if found > known && readable_from > known {
        return Err(StoreError::Newer { path: path.to_owned(), found, readable_from, known });
    }
    // In their order: what comes after one that has to wait, waits as well.
    let allowed = |m: &&Migration| match limit {
        Limit::All => true,
        Limit::ReadableBy(before) => m.readable_from <= before,
    };
    let mut run = Vec::new();
    for step in migrations.iter().filter(|m| m.version > found).take_while(allowed) {
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tx.execute_batch(step.sql)?;
        tx.execute(
            "INSERT INTO schema (version, readable_from, applied_at) VALUES (?1, ?2, ?3)",
            params![step.version, step.readable_from, crate::moment::to_ms(warden_domain::clock::now())],
        )?;
        tx.commit()?;
        tracing::info!(version = step.version, "database schema migrated");
        run.push(step.version);
    }
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXT: Migration = Migration { version: 2, readable_from: 1, sql: "CREATE TABLE more (id INTEGER PRIMARY KEY) STRICT;" };
    const FAR: Migration = Migration { version: 3, readable_from: 3, sql: "DROP TABLE settings;" };
    const ONE: Migration = Migration { version: 1, readable_from: 1, sql: FIRST };

    fn newest(c: &Connection) -> i64 {
        c.query_row("SELECT max(version) FROM schema", [], |r| r.get(0)).unwrap()
    }

    #[test]
    fn a_rolled_back_agent_still_opens_a_database_that_says_it_may() {
        let mut c = Connection::open_in_memory().unwrap();
        migrate_with(&mut c, Path::new("x"), &[ONE, NEXT], Limit::All).unwrap();
        migrate_with(&mut c, Path::new("x"), &[ONE], Limit::All).unwrap();
        assert_eq!(newest(&c), 2);
    }

    #[test]
    fn a_rolled_back_agent_refuses_a_database_it_would_misread_and_names_it() {
        let mut c = Connection::open_in_memory().unwrap();
        migrate_with(&mut c, Path::new("x"), &[ONE, NEXT, FAR], Limit::All).unwrap();
        let text = migrate_with(&mut c, Path::new("/state/config.db"), &[ONE], Limit::All).unwrap_err().to_string();
        assert!(text.contains("/state/config.db") && text.contains("newer"), "{text}");
    }

    #[test]
    fn a_trial_stops_before_the_first_migration_the_release_before_cannot_read() {
        const AFTER: Migration = Migration { version: 4, readable_from: 1, sql: "CREATE TABLE late (id INTEGER PRIMARY KEY) STRICT;" };
        let all = [ONE, NEXT, FAR, AFTER];
        let mut c = Connection::open_in_memory().unwrap();
        assert_eq!(migrate_with(&mut c, Path::new("x"), &all, Limit::ReadableBy(1)).unwrap(), [1, 2]);
        migrate_with(&mut c, Path::new("x"), &[ONE], Limit::All).unwrap();
        assert_eq!(migrate_with(&mut c, Path::new("x"), &all, Limit::All).unwrap(), [3, 4], "the rest comes once it is confirmed");
    }

    #[test]
    fn versions_go_up_and_no_migration_claims_a_reader_that_cannot_be() {
        for pair in MIGRATIONS.windows(2) {
            assert!(pair[0].version < pair[1].version && pair[0].readable_from <= pair[1].readable_from);
        }
        assert!(MIGRATIONS.iter().all(|m| m.readable_from >= 1 && m.readable_from <= m.version));
    }

    #[test]
    fn a_migration_that_fails_leaves_the_version_before_it() {
        let mut c = Connection::open_in_memory().unwrap();
        let broken = Migration { version: 2, readable_from: 1, sql: "CREATE TABLE half (id INTEGER) STRICT; CREATE NONSENSE;" };
        assert!(migrate_with(&mut c, Path::new("x"), &[ONE, broken], Limit::All).is_err());
        assert_eq!(newest(&c), 1);
        assert!(c.prepare("SELECT * FROM half").is_err(), "the first half of the migration must be gone");
        migrate_with(&mut c, Path::new("x"), &[ONE, NEXT], Limit::All).unwrap();
        assert_eq!(newest(&c), 2);
    }
}
