//! Registered models: what the admin wants of them and what their files said when they were registered.

use std::path::PathBuf;

use rusqlite::{Connection, OptionalExtension, Row, params};
use warden_domain::{
    engine::EngineKind,
    ids::ModelId,
    model::{Layout, Model, ModelConfig, ModelFacts},
    units::Tokens,
};

use crate::{
    StoreError,
    moment::{from_ms, to_ms},
};

/// How often and on what a model runs, and with which settings it was loaded last. An older program leaves both empty.
pub(crate) const LAYOUT: &str = "
ALTER TABLE models ADD COLUMN layout TEXT;
ALTER TABLE desired ADD COLUMN config TEXT;
";

/// The columns of a model, in the order `from_row` reads them.
const COLUMNS: &str = "id, created_at, served_name, path, engine, context, slots, facts, layout";

/// Adds a model.
///
/// # Errors
/// One that `is_taken` when the served name is in use, `Sqlite` when the path is not UTF-8, `DiskFull`.
pub fn insert(db: &Connection, model: &Model) -> Result<(), StoreError> {
    let path = model.config.path.to_str().ok_or_else(|| unreadable(PATH_COLUMN, "the path is not UTF-8".to_owned()))?;
    let facts = serde_json::to_string(&model.facts).map_err(|cause| unreadable(FACTS_COLUMN, cause.to_string()))?;
    let context = model.config.context.map(|tokens| i64::try_from(tokens.0).unwrap_or(i64::MAX));
    db.execute(
        &format!("INSERT INTO models ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"),
        params![
            model.id.as_str(),
            to_ms(model.created_at),
            model.config.served_name,
            path,
            model.config.engine.as_str(),
            context,
            model.config.slots,
            facts,
            layout_text(&model.config.layout)?
        ],
    )?;
    Ok(())
}

/// Replaces what can be changed of a model's settings: window, slots, layout. `false` when there is no such model.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn update(db: &Connection, id: &ModelId, config: &ModelConfig) -> Result<bool, StoreError> {
    let context = config.context.map(|tokens| i64::try_from(tokens.0).unwrap_or(i64::MAX));
    let layout = layout_text(&config.layout)?;
    Ok(db.execute("UPDATE models SET context = ?2, slots = ?3, layout = ?4 WHERE id = ?1", params![id.as_str(), context, config.slots, layout])? > 0)
}

fn layout_text(layout: &Layout) -> Result<String, StoreError> {
    serde_json::to_string(layout).map_err(|cause| unreadable(LAYOUT_COLUMN, cause.to_string()))
}

/// All models that this version can run, oldest first. A row of an engine or with facts that only another version knows is left out
/// and logged, so that one such row does not hide the others.
///
/// # Errors
/// Only SQLite's own.
pub fn list(db: &Connection) -> Result<Vec<Model>, StoreError> {
    let mut statement = db.prepare(&format!("SELECT {COLUMNS} FROM models ORDER BY created_at, id"))?;
    let mut rows = statement.query([])?;
    let mut models = Vec::new();
    while let Some(row) = rows.next()? {
        match from_row(row) {
            Ok(model) => models.push(model),
            Err(cause) => {
                let id: String = row.get(0)?;
                tracing::warn!(model = %id, error = %cause, "a registered model cannot be read and is left out");
            }
        }
    }
    Ok(models)
}

/// One model.
///
/// # Errors
/// Only SQLite's own, or `Sqlite` when the row cannot be read by this version.
pub fn by_id(db: &Connection, id: &ModelId) -> Result<Option<Model>, StoreError> {
    Ok(db.query_row(&format!("SELECT {COLUMNS} FROM models WHERE id = ?1"), [id.as_str()], from_row).optional()?)
}

/// Whether a served name is in use.
///
/// # Errors
/// Only SQLite's own.
pub fn name_is_taken(db: &Connection, served_name: &str) -> Result<bool, StoreError> {
    Ok(db.query_row("SELECT EXISTS (SELECT 1 FROM models WHERE served_name = ?1)", [served_name], |row| row.get(0))?)
}

/// Forgets a model, and with it whether it was wanted. `false` when there was none.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn delete(db: &Connection, id: &ModelId) -> Result<bool, StoreError> {
    Ok(db.execute("DELETE FROM models WHERE id = ?1", [id.as_str()])? > 0)
}

const PATH_COLUMN: usize = 3;
const ENGINE_COLUMN: usize = 4;
const FACTS_COLUMN: usize = 7;
const LAYOUT_COLUMN: usize = 8;

fn from_row(row: &Row<'_>) -> rusqlite::Result<Model> {
    let engine: String = row.get(ENGINE_COLUMN)?;
    let facts: String = row.get(FACTS_COLUMN)?;
    let layout = match row.get::<_, Option<String>>(LAYOUT_COLUMN)? {
        None => Layout::default(),
        Some(text) => serde_json::from_str(&text).map_err(|cause| conversion(LAYOUT_COLUMN, cause.to_string()))?,
    };
    Ok(Model {
        id: ModelId::from_stored(row.get::<_, String>(0)?),
        created_at: from_ms(row.get(1)?),
        config: ModelConfig {
            served_name: row.get(2)?,
            path: PathBuf::from(row.get::<_, String>(PATH_COLUMN)?),
            engine: EngineKind::from_stored(&engine).ok_or_else(|| conversion(ENGINE_COLUMN, format!("unknown engine {engine:?}")))?,
            context: row.get::<_, Option<i64>>(5)?.and_then(|n| u64::try_from(n).ok()).map(Tokens),
            slots: row.get(6)?,
            layout,
        },
        facts: serde_json::from_str::<ModelFacts>(&facts).map_err(|cause| conversion(FACTS_COLUMN, cause.to_string()))?,
    })
}

fn conversion(column: usize, cause: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, cause.into())
}

fn unreadable(column: usize, cause: String) -> StoreError {
    StoreError::Sqlite(conversion(column, cause))
}

#[cfg(test)]
pub(crate) mod tests {
    use warden_domain::{clock, ids::GpuId, model::RunawayGuard, units::Bytes};

    use super::*;
    use crate::{Store, desired};

    pub(crate) fn model(name: &str) -> Model {
        Model {
            id: ModelId::random(),
            created_at: clock::now(),
            config: ModelConfig {
                served_name: name.to_owned(),
                path: format!("/data/models/{name}.gguf").into(),
                engine: EngineKind::LlamaCpp,
                context: Some(Tokens(2048)),
                slots: 4,
                layout: Layout::default(),
            },
            facts: ModelFacts { size: Bytes(7), trained_context: Some(Tokens(4096)), ..ModelFacts::default() },
        }
    }

    #[tokio::test]
    async fn a_model_comes_back_as_it_was_registered_and_its_name_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let (tiny, twin) = (model("tiny"), model("tiny"));
        let (given, id) = (tiny.clone(), tiny.id.clone());
        store.write(move |tx| insert(tx, &given)).await.unwrap();
        assert!(store.write(move |tx| insert(tx, &twin)).await.unwrap_err().is_taken());
        assert_eq!(store.read(list).await.unwrap(), std::slice::from_ref(&tiny));
        assert_eq!(store.read(move |db| by_id(db, &id)).await.unwrap(), Some(tiny));
    }

    #[tokio::test]
    async fn changed_settings_come_back_and_a_row_of_an_older_program_has_the_usual_ones() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let tiny = model("tiny");
        let mut config = tiny.config.clone();
        config.context = None;
        config.layout = Layout {
            replicas: 2,
            gpus: vec![GpuId::from_stored("GPU-a"), GpuId::from_stored("GPU-b")],
            extra_args: vec!["-x".to_owned()],
            on_request: true,
            trust_remote_code: true,
            runaway: RunawayGuard::Enforce,
        };
        let (id, changed) = (tiny.id.clone(), config.clone());
        store.write(move |tx| insert(tx, &tiny).and_then(|()| update(tx, &tiny.id, &changed))).await.unwrap();
        let asked = id.clone();
        assert_eq!(store.read(move |db| by_id(db, &asked)).await.unwrap().unwrap().config, config);
        let asked = id.clone();
        store.write(move |tx| Ok(tx.execute("UPDATE models SET layout = NULL WHERE id = ?1", [asked.as_str()])?)).await.unwrap();
        assert_eq!(store.read(move |db| by_id(db, &id)).await.unwrap().unwrap().config.layout, Layout::default());
    }

    #[tokio::test]
    async fn forgetting_a_model_forgets_that_it_was_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let tiny = model("tiny");
        let id = tiny.id.clone();
        store
            .write(move |tx| {
                insert(tx, &tiny)?;
                desired::set(tx, &tiny.id, true, clock::now())
            })
            .await
            .unwrap();
        assert_eq!(store.read(desired::wanted).await.unwrap(), std::slice::from_ref(&id));
        let gone = id.clone();
        assert!(store.write(move |tx| delete(tx, &gone)).await.unwrap());
        assert!(store.read(desired::wanted).await.unwrap().is_empty());
        assert!(!store.write(move |tx| delete(tx, &id)).await.unwrap());
    }

    #[tokio::test]
    async fn one_row_that_cannot_be_read_does_not_hide_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let (good, bad) = (model("good"), model("bad"));
        let kept = good.id.clone();
        store
            .write(move |tx| {
                insert(tx, &good)?;
                insert(tx, &bad)?;
                tx.execute("UPDATE models SET facts = '{' WHERE id = ?1", [bad.id.as_str()])?;
                Ok(())
            })
            .await
            .unwrap();
        let ids: Vec<_> = store.read(list).await.unwrap().into_iter().map(|m| m.id).collect();
        assert_eq!(ids, [kept]);
    }
}
