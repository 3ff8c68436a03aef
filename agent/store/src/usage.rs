//! What was used: totals per minute, key and model (kept), and one row per request (kept for a while).
//!
//! A charge without a key (the console's own chat) is kept under the empty key id. There is no foreign key, so that history
//! outlives keys and models.

use std::collections::HashMap;

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};
use warden_domain::{
    ids::{KeyId, ModelId},
    units::Tokens,
    usage::{Finished, UsageTotals},
};

use crate::{StoreError, moment::to_ms};

/// What a total is kept by: minute since the epoch, key id (empty for the console's chat), model id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// Minute since the epoch.
    pub minute: i64,
    /// Key id; empty for the console's own chat.
    pub key: String,
    /// Model id.
    pub model: String,
}

/// Adds to the totals of one slot.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn charge(db: &Connection, slot: &Slot, sums: &UsageTotals) -> Result<(), StoreError> {
    db.prepare_cached(
        "INSERT INTO usage_minute (minute, key_id, model_id, requests, requests_without_counts, prompt, cached, completion)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
         ON CONFLICT (minute, key_id, model_id) DO UPDATE SET
            requests = requests + excluded.requests,
            requests_without_counts = requests_without_counts + excluded.requests_without_counts,
            prompt = prompt + excluded.prompt, cached = cached + excluded.cached, completion = completion + excluded.completion",
    )?
    .execute(params![
        slot.minute,
        slot.key,
        slot.model,
        whole(sums.requests),
        whole(sums.requests_without_counts),
        whole(sums.prompt.0),
        whole(sums.cached.0),
        whole(sums.completion.0)
    ])?;
    Ok(())
}

/// Keeps the row of one finished request; keeping it twice is the same as once.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn keep_request(db: &Connection, f: &Finished) -> Result<(), StoreError> {
    db.prepare_cached(
        "INSERT OR IGNORE INTO requests (id, key_id, model_id, started_at, duration_ms, first_byte_ms, prompt, cached, completion, outcome, status)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?
    .execute(params![
        f.request.as_str(),
        f.key.as_ref().map_or("", KeyId::as_str),
        f.model.as_str(),
        to_ms(f.started_at),
        whole(f.duration.0),
        f.first_byte.map(|ms| whole(ms.0)),
        f.prompt.map(|t| whole(t.0)),
        f.cached.map(|t| whole(t.0)),
        f.completion.map(|t| whole(t.0)),
        f.outcome.as_str(),
        f.status
    ])?;
    Ok(())
}

/// Forgets the rows of requests that began before a moment; totals stay.
///
/// # Errors
/// Only SQLite's own.
pub fn forget_requests_before(db: &Connection, before: Timestamp) -> Result<usize, StoreError> {
    Ok(db.execute("DELETE FROM requests WHERE started_at < ?1", [to_ms(before)])?)
}

/// What was charged to one key since it was made.
///
/// # Errors
/// Only SQLite's own.
pub fn totals_of_key(db: &Connection, key: &KeyId) -> Result<UsageTotals, StoreError> {
    Ok(db.query_row(&format!("SELECT {SUMS} FROM usage_minute WHERE key_id = ?1"), [key.as_str()], |row| sums_at(row, 0))?)
}

/// What was charged to each key, by key id.
///
/// # Errors
/// Only SQLite's own.
pub fn totals_by_key(db: &Connection) -> Result<HashMap<String, UsageTotals>, StoreError> {
    let mut statement = db.prepare_cached(&format!("SELECT key_id, {SUMS} FROM usage_minute GROUP BY key_id"))?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, sums_at(row, 1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// What was charged for one model, by all keys and the console's chat.
///
/// # Errors
/// Only SQLite's own.
pub fn totals_of_model(db: &Connection, model: &ModelId) -> Result<UsageTotals, StoreError> {
    Ok(db.query_row(&format!("SELECT {SUMS} FROM usage_minute WHERE model_id = ?1"), [model.as_str()], |row| sums_at(row, 0))?)
}

const SUMS: &str = "coalesce(sum(requests), 0), coalesce(sum(requests_without_counts), 0), coalesce(sum(prompt), 0), coalesce(sum(cached), 0), coalesce(sum(completion), 0)";

fn sums_at(row: &Row<'_>, first: usize) -> rusqlite::Result<UsageTotals> {
    let at = |i: usize| -> rusqlite::Result<u64> { Ok(u64::try_from(row.get::<_, i64>(first + i)?).unwrap_or(0)) };
    Ok(UsageTotals { requests: at(0)?, requests_without_counts: at(1)?, prompt: Tokens(at(2)?), cached: Tokens(at(3)?), completion: Tokens(at(4)?) })
}

/// SQLite counts in signed 64 bits; what does not fit was not counted right anyway.
fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
