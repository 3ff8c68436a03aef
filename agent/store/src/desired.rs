//! Which models are wanted running. Survives restarts: what was wanted before is wanted again.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use warden_domain::ids::ModelId;

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

/// The models wanted running, the longest wanted first.
///
/// # Errors
/// Only SQLite's own.
pub fn wanted(db: &Connection) -> Result<Vec<ModelId>, StoreError> {
    let mut statement = db.prepare("SELECT model_id FROM desired WHERE wanted = 1 ORDER BY changed_at, model_id")?;
    let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
    rows.map(|id| Ok(ModelId::from_stored(id?))).collect()
}
