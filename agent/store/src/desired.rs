//! Which models are wanted running. Survives restarts: what was wanted before is wanted again.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::{Connection, params};
use warden_domain::{ids::ModelId, model::ModelConfig};

use crate::{StoreError, moment::to_ms};

/// Records that a model is wanted, or no longer.
///
/// # Errors
/// `DiskFull`; SQLite's own when the model does not exist.
pub fn set(db: &Connection, model: &ModelId, wanted: bool, at: Timestamp) -> Result<(), StoreError> {
    db.execute(
        "INSERT INTO desired (model_id, wanted, changed_at) VALUES (?1, ?2, ?3)
         ON CONFLICT (model_id) DO UPDATE SET wanted = excluded.wanted, changed_at = excluded.changed_at",
        params![model.as_str(), wanted, to_ms(at)],
    )?;
    Ok(())
}

/// Records with which settings a model is loaded, so that what is found running later is known for what it is.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn remember(db: &Connection, model: &ModelId, config: &ModelConfig) -> Result<(), StoreError> {
    let text = serde_json::to_string(config).ok();
    db.execute("UPDATE desired SET config = ?2 WHERE model_id = ?1", params![model.as_str(), text])?;
    Ok(())
}

/// The settings that wanted models were loaded with, as far as they were recorded and can be read.
///
/// # Errors
/// Only SQLite's own.
pub fn remembered(db: &Connection) -> Result<BTreeMap<ModelId, ModelConfig>, StoreError> {
    let mut statement = db.prepare("SELECT model_id, config FROM desired WHERE wanted = 1 AND config IS NOT NULL")?;
    let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    let mut found = BTreeMap::new();
    for row in rows {
        let (id, text) = row?;
        found.extend(serde_json::from_str(&text).ok().map(|config| (ModelId::from_stored(id), config)));
    }
    Ok(found)
}

/// The models wanted running, the longest wanted first.
///
/// # Errors
/// Only SQLite's own.
pub fn wanted(db: &Connection) -> Result<Vec<ModelId>, StoreError> {
    let mut statement = db.prepare("SELECT model_id FROM desired WHERE wanted = 1 ORDER BY changed_at, model_id")?;
    let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
    rows.map(|id| Ok(ModelId::from_stored(id?))).collect()
}
