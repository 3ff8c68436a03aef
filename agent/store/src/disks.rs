//! Disks recorded as model storage: what is needed to know one again, whatever port it is plugged into.

use rusqlite::{Connection, Row, params};
use warden_domain::{ids::DiskId, storage::Recorded, units::Bytes};

use crate::{
    StoreError,
    moment::{from_ms, to_ms},
};

/// The table; a migration of the schema.
pub(crate) const SCHEMA: &str = "
CREATE TABLE model_disks (
    id TEXT PRIMARY KEY,
    label TEXT NOT NULL UNIQUE,
    fs_uuid TEXT NOT NULL UNIQUE,
    serial TEXT NOT NULL,
    wwn TEXT,
    model TEXT,
    size INTEGER NOT NULL,
    filesystem TEXT NOT NULL,
    adopted_at INTEGER NOT NULL
) STRICT;
";

/// Remembers a disk.
///
/// # Errors
/// One that `is_taken` when its label or UUID is remembered already, `DiskFull`.
pub fn insert(db: &Connection, disk: &Recorded) -> Result<(), StoreError> {
    db.execute(
        "INSERT INTO model_disks (id, label, fs_uuid, serial, wwn, model, size, filesystem, adopted_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            disk.id.as_str(),
            disk.label,
            disk.fs_uuid,
            disk.serial,
            disk.wwn,
            disk.model,
            i64::try_from(disk.size.0).unwrap_or(i64::MAX),
            disk.filesystem,
            to_ms(disk.adopted_at)
        ],
    )?;
    Ok(())
}

/// All remembered disks, the oldest first.
///
/// # Errors
/// Only SQLite's own.
pub fn list(db: &Connection) -> Result<Vec<Recorded>, StoreError> {
    let mut statement =
        db.prepare("SELECT id, label, fs_uuid, serial, wwn, model, size, filesystem, adopted_at FROM model_disks ORDER BY adopted_at, id")?;
    let rows = statement.query_map([], from_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Forgets a disk; `false` when it was not remembered.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn delete(db: &Connection, id: &DiskId) -> Result<bool, StoreError> {
    Ok(db.execute("DELETE FROM model_disks WHERE id = ?1", [id.as_str()])? > 0)
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<Recorded> {
    Ok(Recorded {
        id: DiskId::from_stored(row.get::<_, String>(0)?),
        label: row.get(1)?,
        fs_uuid: row.get(2)?,
        serial: row.get(3)?,
        wwn: row.get(4)?,
        model: row.get(5)?,
        size: Bytes(u64::try_from(row.get::<_, i64>(6)?).unwrap_or(0)),
        filesystem: row.get(7)?,
        adopted_at: from_ms(row.get(8)?),
    })
}

#[cfg(test)]
mod tests {
    use warden_domain::clock;

    use super::*;
    use crate::Store;

    #[tokio::test]
    async fn a_disk_is_remembered_whole_and_its_file_system_only_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let disk = Recorded {
            id: DiskId::random(),
            label: "wm-00112233".to_owned(),
            fs_uuid: "uuid-1".to_owned(),
            serial: "S1".to_owned(),
            wwn: None,
            model: Some("Disk".to_owned()),
            size: Bytes(7),
            filesystem: "ext4".to_owned(),
            adopted_at: clock::now(),
        };
        let (row, twin, id) = (disk.clone(), Recorded { id: DiskId::random(), ..disk.clone() }, disk.id.clone());
        store.write(move |tx| insert(tx, &row)).await.unwrap();
        assert!(store.write(move |tx| insert(tx, &twin)).await.unwrap_err().is_taken());
        assert_eq!(store.read(list).await.unwrap(), [disk]);
        assert!(store.write(move |tx| delete(tx, &id)).await.unwrap());
        assert!(store.read(list).await.unwrap().is_empty());
    }
}
