//! How long the phases of earlier loads took, for telling what is typical. The last few per model and engine are kept.

use jiff::Timestamp;
use rusqlite::{Connection, params};
use warden_domain::{engine::EngineKind, ids::ModelId, units::Millis};

use crate::{StoreError, moment::to_ms};

pub(crate) const SCHEMA: &str = "
CREATE TABLE loads (
    id INTEGER PRIMARY KEY,
    model_id TEXT NOT NULL REFERENCES models (id) ON DELETE CASCADE,
    engine TEXT NOT NULL,
    at INTEGER NOT NULL,
    phases TEXT NOT NULL
) STRICT;
CREATE INDEX loads_by_model ON loads (model_id, engine, id);
";

/// Loads kept of one model on one engine.
pub const KEPT: usize = 5;

/// The phases of one load, in order, with what each took.
pub type Phases = Vec<(String, Millis)>;

/// Records a load that succeeded, and forgets those beyond the last few.
///
/// # Errors
/// `DiskFull`; SQLite's own when the model does not exist.
pub fn record(db: &Connection, model: &ModelId, engine: EngineKind, at: Timestamp, phases: &Phases) -> Result<(), StoreError> {
    let text = serde_json::to_string(phases).unwrap_or_else(|_| "[]".to_owned());
    db.execute(
        "INSERT INTO loads (model_id, engine, at, phases) VALUES (?1, ?2, ?3, ?4)",
        params![model.as_str(), engine.as_str(), to_ms(at), text],
    )?;
    db.execute(
        "DELETE FROM loads WHERE model_id = ?1 AND engine = ?2 AND id NOT IN
         (SELECT id FROM loads WHERE model_id = ?1 AND engine = ?2 ORDER BY id DESC LIMIT ?3)",
        params![model.as_str(), engine.as_str(), i64::try_from(KEPT).unwrap_or(i64::MAX)],
    )?;
    Ok(())
}

/// The last loads of a model on an engine, newest first. A row that cannot be read is passed over.
///
/// # Errors
/// Only SQLite's own.
pub fn recent(db: &Connection, model: &ModelId, engine: EngineKind) -> Result<Vec<Phases>, StoreError> {
    let mut statement = db.prepare("SELECT phases FROM loads WHERE model_id = ?1 AND engine = ?2 ORDER BY id DESC")?;
    let rows = statement.query_map([model.as_str(), engine.as_str()], |row| row.get::<_, String>(0))?;
    let mut loads = Vec::new();
    for row in rows {
        loads.extend(serde_json::from_str::<Phases>(&row?).ok());
    }
    Ok(loads)
}

#[cfg(test)]
mod tests {
    use warden_domain::clock;

    use super::*;
    use crate::{Store, models};

    #[tokio::test]
    async fn only_the_last_loads_of_each_engine_are_kept_and_go_with_the_model() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let model = models::tests::model("tiny");
        let id = model.id.clone();
        let asked = id.clone();
        store
            .write(move |tx| {
                models::insert(tx, &model)?;
                for took in 1..=7 {
                    record(tx, &model.id, EngineKind::LlamaCpp, clock::now(), &vec![("weights".to_owned(), Millis(took))])?;
                }
                record(tx, &model.id, EngineKind::Vllm, clock::now(), &Vec::new())
            })
            .await
            .unwrap();
        let seen = store.read(move |db| recent(db, &asked, EngineKind::LlamaCpp)).await.unwrap();
        let took: Vec<u64> = seen.iter().map(|load| load[0].1.0).collect();
        assert_eq!(took, [7, 6, 5, 4, 3]);
        let gone = id.clone();
        store.write(move |tx| models::delete(tx, &gone)).await.unwrap();
        assert!(store.read(move |db| recent(db, &id, EngineKind::Vllm)).await.unwrap().is_empty());
    }
}
