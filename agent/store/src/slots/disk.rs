//! The driver: reads the state folder, makes copies, takes the steps of a plan. Every step is on disk (fsync of file and folder)
//! before the next one begins.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OpenFlags};

use super::{CopyInfo, Files, Found, Opening, Plan, RecordFacts, Situation, Step, open_plan};
use crate::{DATA_SCHEMA, StoreError, schema, store::FILE};

/// Name of the kept file of a fall-back that belongs to no trial.
const LATER: &str = "later";

/// Makes a copy of the database, named after the running slot, that is whole and on disk when this returns. Call it right before the
/// restart into a trial; may be called while the store is open, and again. Removes what earlier fall-backs kept. Blocking.
///
/// # Errors
/// `DiskFull`, `Damaged` when the copy cannot be read back, `Open` for everything else of the file system.
pub fn prepare_trial(state_dir: &Path, running_slot: &str) -> Result<CopyInfo, StoreError> {
    let slot = plain(running_slot, state_dir)?;
    let (live, copy) = (state_dir.join(FILE), copy_path(state_dir, slot));
    let half = beside(&copy, ".new");
    drop_file(&half)?;
    drop_file(&beside(&half, "-journal"))?;
    let source = open_there(&live)?;
    source.busy_timeout(std::time::Duration::from_secs(5))?;
    let filled = source.execute("VACUUM INTO ?1", [half.to_string_lossy()]).map_err(StoreError::from).and_then(|_| finish_copy(&half));
    let schema = match filled {
        Ok(schema) => schema,
        Err(cause) => {
            // Room on a full disk is worth more than half a copy.
            drop_file(&half)?;
            return Err(cause);
        }
    };
    let on_disk = || -> io::Result<u64> {
        fs::set_permissions(&half, fs::Permissions::from_mode(0o600))?;
        let file = File::open(&half)?;
        file.sync_all()?;
        fs::rename(&half, &copy)?;
        sync_folder(state_dir)?;
        Ok(file.metadata()?.len())
    };
    let bytes = on_disk().map_err(|e| StoreError::from_file(&copy, e))?;
    for kept in kept_files(state_dir) {
        drop_database(&kept)?;
    }
    Ok(CopyInfo { path: copy, made_at: warden_domain::clock::now(), bytes, schema })
}

/// Says in the copy which program made it (what a trial may do to the database depends on what that one knows, not on what it happened
/// to find), reads it through and returns its schema.
fn finish_copy(half: &Path) -> Result<i64, StoreError> {
    let made = open_there(half)?;
    made.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))?;
    made.pragma_update(None, "user_version", DATA_SCHEMA)?;
    let said: String = made.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    let schema = schema::found(&made)?.0;
    made.close().map_err(|(_, e)| e)?;
    if said == "ok" { Ok(schema) } else { Err(StoreError::Damaged { path: half.to_owned() }) }
}

/// Reads what lies in the state folder. The database must not be open. Blocking.
#[must_use]
pub fn look(state_dir: &Path, facts: &RecordFacts) -> Files {
    let own_copy = found_copy(state_dir, &facts.running_slot);
    let previous_copy = match &facts.situation {
        Situation::OnTrial { previous_slot } => found_copy(state_dir, previous_slot),
        Situation::Usual | Situation::RolledBack { .. } => own_copy,
    };
    Files {
        live: found(&state_dir.join(FILE)),
        own_copy,
        previous_copy,
        kept: kept_path(state_dir, facts).exists(),
        traces: names(state_dir).iter().any(|name| name != FILE && is_database(name)),
    }
}

/// Takes the steps of a plan and says how to open the database. Blocking.
///
/// # Errors
/// `Stuck` when the plan says that nothing may be opened, `DiskFull`, `Open` for everything else of the file system. Whatever it is,
/// no file is lost, and looking and planning again goes on from there.
pub fn apply(state_dir: &Path, facts: &RecordFacts, plan: Plan) -> Result<Opening, StoreError> {
    let (steps, limit, note) = match plan {
        Plan::Stuck(cause) => return Err(cause.into_error(state_dir)),
        Plan::Open { steps, limit, note } => (steps, limit, note),
    };
    for step in &steps {
        take(state_dir, facts, step)?;
    }
    let kept = kept_path(state_dir, facts);
    let kept = (note == Some(super::Note::CopyOpened) && kept.exists()).then_some(kept);
    if let Some(note) = &note {
        tracing::warn!(?note, ?steps, kept = ?kept, "the database of this start is not the usual one");
    }
    Ok(Opening { limit, note, kept })
}

/// Looks, plans, applies and opens the store: all of it in one call. Blocking.
///
/// # Errors
/// As [`apply`] and [`crate::Store::open_limited`].
pub fn open(state_dir: &Path, facts: &RecordFacts) -> Result<(crate::Store, Opening), StoreError> {
    let plan = open_plan(facts, &look(state_dir, facts), DATA_SCHEMA);
    let opening = apply(state_dir, facts, plan)?;
    Ok((crate::Store::open_limited(state_dir, opening.limit)?, opening))
}

pub(super) fn take(state_dir: &Path, facts: &RecordFacts, step: &Step) -> Result<(), StoreError> {
    let (live, kept) = (state_dir.join(FILE), kept_path(state_dir, facts));
    if *step == Step::KeepLog && kept.exists() {
        drop_database(&kept)?;
    }
    let done = || -> io::Result<()> {
        match step {
            Step::KeepLog => {
                // The shared index is made anew by whoever opens the file next.
                absent_is_fine(fs::remove_file(beside(&live, "-shm")))?;
                absent_is_fine(fs::rename(beside(&live, "-wal"), beside(&kept, "-wal")))?;
            }
            Step::KeepLive => fs::rename(&live, &kept)?,
            Step::Restore => {
                let half = beside(&live, ".new");
                fs::copy(copy_path(state_dir, plain(&facts.running_slot, state_dir).map_err(io::Error::other)?), &half)?;
                fs::set_permissions(&half, fs::Permissions::from_mode(0o600))?;
                File::open(&half)?.sync_all()?;
                fs::rename(&half, &live)?;
            }
        }
        sync_folder(state_dir)
    };
    done().map_err(|e| StoreError::from_file(&live, e))
}

fn found_copy(state_dir: &Path, slot: &str) -> Found {
    let Ok(slot) = plain(slot, state_dir) else { return Found::Missing };
    let path = copy_path(state_dir, slot);
    match found(&path) {
        // A copy is opened without a question later, so it is read through now.
        Found::Schema { .. } if !whole(&path) => Found::Damaged,
        other => other,
    }
}

fn whole(path: &Path) -> bool {
    open_there(path).and_then(|db| Ok(db.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))?)).is_ok_and(|said| said == "ok")
}

fn found(path: &Path) -> Found {
    match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Found::Missing,
        Ok(about) if about.is_file() && about.len() == 0 => return Found::Missing,
        Ok(about) if about.is_file() => {}
        _ => return Found::Damaged,
    }
    let read = || -> Result<Found, StoreError> {
        let db = open_there(path)?;
        let (version, readable_from) = schema::found(&db)?;
        let made_by = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
        Ok(Found::Schema { version, readable_from, made_by })
    };
    read().unwrap_or_else(|cause| {
        tracing::warn!(path = %path.display(), %cause, "a database cannot be read");
        Found::Damaged
    })
}

/// Opens a file that is there; never makes one.
pub(super) fn open_there(path: &Path) -> Result<Connection, StoreError> {
    Ok(Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?)
}

/// A slot or transaction is part of a file name and nothing else.
fn plain<'a>(word: &'a str, state_dir: &Path) -> Result<&'a str, StoreError> {
    if !word.is_empty() && word.len() <= 64 && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Ok(word);
    }
    Err(StoreError::from_file(state_dir, io::Error::new(io::ErrorKind::InvalidInput, "not the name of a slot")))
}

fn copy_path(state_dir: &Path, slot: &str) -> PathBuf {
    state_dir.join(format!("config.{slot}.db"))
}

fn kept_path(state_dir: &Path, facts: &RecordFacts) -> PathBuf {
    let word = match &facts.situation {
        Situation::RolledBack { transaction } => plain(transaction, state_dir).unwrap_or(LATER),
        Situation::Usual | Situation::OnTrial { .. } => LATER,
    };
    state_dir.join(format!("config.kept-{word}.db"))
}

fn kept_files(state_dir: &Path) -> Vec<PathBuf> {
    names(state_dir).iter().filter(|name| name.starts_with("config.kept-") && is_database(name)).map(|name| state_dir.join(name)).collect()
}

fn is_database(name: &str) -> bool {
    name.starts_with("config.") && Path::new(name).extension().is_some_and(|end| end == "db")
}

fn names(state_dir: &Path) -> Vec<String> {
    fs::read_dir(state_dir).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn drop_file(path: &Path) -> Result<(), StoreError> {
    absent_is_fine(fs::remove_file(path)).map_err(|e| StoreError::from_file(path, e))
}

fn drop_database(path: &Path) -> Result<(), StoreError> {
    // The log goes first, for certain: left alone it would be taken for the log of the next file of this name.
    drop_file(&beside(path, "-wal"))?;
    drop_file(&beside(path, "-shm"))?;
    path.parent().map_or(Ok(()), sync_folder).map_err(|e| StoreError::from_file(path, e))?;
    drop_file(path)
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
