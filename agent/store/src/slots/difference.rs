//! What one database holds that another does not: told to the owner after a fall-back. Names only; no hash, key or setting's value.

use std::{collections::BTreeMap, path::Path};

use rusqlite::{Connection, types::Value};

use super::disk::open_there;
use crate::StoreError;

/// What a difference is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An account of the console.
    Account,
    /// An inference key.
    Key,
    /// A registered model.
    Model,
    /// A setting.
    Setting,
}

/// How it differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeKind {
    /// Only the newer database has it.
    Added,
    /// Only the older database has it.
    Removed,
    /// Both have it, not alike.
    Changed,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// What it is.
    pub kind: Kind,
    /// Its name as the owner knows it.
    pub name: String,
    /// How it differs.
    pub change: ChangeKind,
}

/// All differences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// By kind and name.
    pub changes: Vec<Change>,
    /// Kinds that could not be compared, because a later version keeps them differently.
    pub unknown: Vec<Kind>,
}

/// Where a kind is kept. Columns that change by mere use say nothing.
struct Table {
    kind: Kind,
    table: &'static str,
    id: &'static str,
    name: &'static str,
    ignored: &'static [&'static str],
}

const TABLES: [Table; 4] = [
    Table { kind: Kind::Account, table: "accounts", id: "id", name: "username", ignored: &[] },
    Table { kind: Kind::Key, table: "keys", id: "id", name: "name", ignored: &["last_used_at"] },
    Table { kind: Kind::Model, table: "models", id: "id", name: "served_name", ignored: &[] },
    Table { kind: Kind::Setting, table: "settings", id: "name", name: "name", ignored: &[] },
];

/// Compares `newer` (the kept file) with `older` (the copy that was opened): accounts, keys, models and settings that differ. Blocking.
///
/// # Errors
/// `Damaged` when one of the files is no database.
pub fn changed_since(older: &Path, newer: &Path) -> Result<Differences, StoreError> {
    let (old, new) = (open_there(older).map_err(|_| damaged(older))?, open_there(newer).map_err(|_| damaged(newer))?);
    let mut found = Differences::default();
    for table in &TABLES {
        // Only columns that both know: a column of a later version is no change of the owner's.
        let (ours, theirs) = (columns(&old, table.table), columns(&new, table.table));
        let ours = ours.map_err(|_| damaged(older))?;
        let theirs = theirs.map_err(|_| damaged(newer))?;
        let shared: Vec<&str> = ours.iter().filter(|c| theirs.contains(c) && !table.ignored.contains(&c.as_str())).map(String::as_str).collect();
        if !shared.contains(&table.id) || !shared.contains(&table.name) {
            found.unknown.push(table.kind);
            continue;
        }
        let before = rows(&old, table, &shared).map_err(|_| damaged(older))?;
        let after = rows(&new, table, &shared).map_err(|_| damaged(newer))?;
        let mut tell = |name: &str, change| found.changes.push(Change { kind: table.kind, name: name.to_owned(), change });
        for (id, (name, row)) in &after {
            match before.get(id) {
                None => tell(name, ChangeKind::Added),
                Some((_, known)) if known != row => tell(name, ChangeKind::Changed),
                Some(_) => {}
            }
        }
        before.iter().filter(|(id, _)| !after.contains_key(*id)).for_each(|(_, (name, _))| tell(name, ChangeKind::Removed));
    }
    found.changes.sort();
    Ok(found)
}

fn damaged(path: &Path) -> StoreError {
    StoreError::Damaged { path: path.to_owned() }
}

fn columns(db: &Connection, table: &str) -> Result<Vec<String>, rusqlite::Error> {
    db.prepare("SELECT name FROM pragma_table_info(?1)")?.query_map([table], |row| row.get(0))?.collect()
}

type Rows = BTreeMap<String, (String, Vec<Value>)>;

fn rows(db: &Connection, table: &Table, columns: &[&str]) -> Result<Rows, rusqlite::Error> {
    let text = format!("SELECT {}, {}, {} FROM {}", table.id, table.name, columns.join(", "), table.table);
    let mut statement = db.prepare(&text)?;
    let read = statement.query_map([], |row| {
        let values = (0..columns.len()).map(|place| row.get::<_, Value>(place + 2)).collect::<Result<Vec<_>, _>>()?;
        Ok((row.get::<_, String>(0)?, (row.get::<_, String>(1)?, values)))
    })?;
    read.collect()
}
