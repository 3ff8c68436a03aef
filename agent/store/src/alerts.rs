//! Alerts on their way: an outbox that a restart neither loses nor repeats. A row is written in the transaction of the event it tells
//! of. Bounded: when nobody takes them, the oldest are given up. Never holds the secret they are signed with.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use warden_domain::{
    alert::{Delivery, DeliveryState},
    ids::{DeliveryId, IssueId},
};

use crate::{
    StoreError,
    moment::{from_ms, to_ms},
};

/// The table; part of the schema's migrations.
pub(crate) const SCHEMA: &str = "
CREATE TABLE alerts (
    id TEXT PRIMARY KEY,
    issue_id TEXT,
    event TEXT NOT NULL,
    code TEXT,
    body TEXT NOT NULL,
    made_at INTEGER NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    next_at INTEGER,
    delivered_at INTEGER,
    given_up_at INTEGER,
    last_result TEXT
) STRICT;
CREATE INDEX alerts_waiting ON alerts (next_at) WHERE next_at IS NOT NULL;
";

/// Most that wait at the same time.
const MOST_WAITING: i64 = 200;
/// No pause between two tries is longer.
const LONGEST_PAUSE_MS: i64 = 2 * 3_600_000;
/// Rows that are through and kept to be looked at.
const KEPT: i64 = 100;

/// A new row of the outbox.
#[derive(Clone, Debug)]
pub struct NewAlert {
    /// Identity over all tries.
    pub id: DeliveryId,
    /// The issue it is about; `None` for a test.
    pub issue: Option<IssueId>,
    /// `issue.opened`, `issue.resolved` or `test`.
    pub event: &'static str,
    /// The issue's code.
    pub code: Option<&'static str>,
    /// What is sent, as it stands.
    pub body: String,
    /// Now; also when its first try is due.
    pub made_at: Timestamp,
}

/// A row whose try is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueAlert {
    /// Identity over all tries.
    pub id: DeliveryId,
    /// `issue.opened`, `issue.resolved` or `test`.
    pub event: String,
    /// What is sent.
    pub body: String,
    /// Tries so far.
    pub tries: u32,
}

/// What a try came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver took it.
    Delivered,
    /// Try again then.
    Again(Timestamp),
    /// No further try.
    GiveUp,
}

/// Queues an alert. When too many wait, the oldest are given up.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn enqueue(db: &Connection, alert: &NewAlert) -> Result<(), StoreError> {
    db.execute(
        "INSERT INTO alerts (id, issue_id, event, code, body, made_at, next_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)",
        params![alert.id.as_str(), alert.issue.as_ref().map(IssueId::as_str), alert.event, alert.code, alert.body, to_ms(alert.made_at)],
    )?;
    db.execute(
        "UPDATE alerts SET next_at = NULL, given_up_at = ?1, last_result = 'Pushed out by newer alerts.' WHERE next_at IS NOT NULL AND rowid NOT IN
         (SELECT rowid FROM alerts WHERE next_at IS NOT NULL ORDER BY rowid DESC LIMIT ?2)",
        params![to_ms(alert.made_at), MOST_WAITING],
    )?;
    Ok(())
}

/// The oldest row whose try is due, such that nothing older about the same issue still waits: an end is never told before its beginning.
/// A row that is due further away than any pause between tries was written under another clock and counts as due.
///
/// # Errors
/// Only SQLite's own.
pub fn due(db: &Connection, now: Timestamp) -> Result<Option<DueAlert>, StoreError> {
    let found = db
        .prepare_cached(
            "SELECT id, event, body, tries FROM alerts a WHERE (next_at <= ?1 OR next_at > ?2) AND NOT EXISTS
             (SELECT 1 FROM alerts b WHERE b.issue_id = a.issue_id AND b.next_at IS NOT NULL AND b.rowid < a.rowid) ORDER BY rowid LIMIT 1",
        )?
        .query_row([to_ms(now), to_ms(now) + LONGEST_PAUSE_MS], |row| {
            Ok(DueAlert { id: DeliveryId::from_stored(row.get::<_, String>(0)?), event: row.get(1)?, body: row.get(2)?, tries: row.get(3)? })
        })
        .optional()?;
    Ok(found)
}

/// When the next try after `now` is due; `None` when nothing waits for one.
///
/// # Errors
/// Only SQLite's own.
pub fn next_due(db: &Connection, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
    Ok(db.query_row("SELECT min(next_at) FROM alerts WHERE next_at > ?1", [to_ms(now)], |row| row.get::<_, Option<i64>>(0))?.map(from_ms))
}

/// Notes what a try came to.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn tried(db: &Connection, id: &DeliveryId, outcome: Outcome, said: &str, now: Timestamp) -> Result<(), StoreError> {
    let (next, delivered, given_up) = match outcome {
        Outcome::Delivered => (None, Some(to_ms(now)), None),
        Outcome::Again(at) => (Some(to_ms(at)), None, None),
        Outcome::GiveUp => (None, None, Some(to_ms(now))),
    };
    db.execute(
        "UPDATE alerts SET tries = tries + 1, next_at = ?2, delivered_at = ?3, given_up_at = ?4, last_result = ?5 WHERE id = ?1 AND next_at IS NOT NULL",
        params![id.as_str(), next, delivered, given_up, said],
    )?;
    db.execute(
        "DELETE FROM alerts WHERE next_at IS NULL AND rowid NOT IN (SELECT rowid FROM alerts WHERE next_at IS NULL ORDER BY rowid DESC LIMIT ?1)",
        [KEPT],
    )?;
    Ok(())
}

/// Makes everything that waits due now.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn hurry(db: &Connection, now: Timestamp) -> Result<(), StoreError> {
    db.execute("UPDATE alerts SET next_at = ?1 WHERE next_at > ?1", [to_ms(now)])?;
    Ok(())
}

/// Gives up everything that waits, with the reason.
///
/// # Errors
/// `DiskFull`, or SQLite's own.
pub fn give_up_all(db: &Connection, said: &str, now: Timestamp) -> Result<(), StoreError> {
    db.execute("UPDATE alerts SET next_at = NULL, given_up_at = ?1, last_result = ?2 WHERE next_at IS NOT NULL", params![to_ms(now), said])?;
    Ok(())
}

/// How many wait, and the tries and last result of the one that was tried most.
///
/// # Errors
/// Only SQLite's own.
pub fn waiting(db: &Connection) -> Result<(usize, u32, Option<String>), StoreError> {
    let count: i64 = db.query_row("SELECT count(*) FROM alerts WHERE next_at IS NOT NULL", [], |row| row.get(0))?;
    let most = db
        .query_row("SELECT tries, last_result FROM alerts WHERE next_at IS NOT NULL ORDER BY tries DESC, rowid LIMIT 1", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    let (tries, said) = most.unwrap_or((0, None));
    Ok((usize::try_from(count).unwrap_or(0), tries, said))
}

/// The latest rows, newest first.
///
/// # Errors
/// Only SQLite's own.
pub fn latest(db: &Connection, most: usize) -> Result<Vec<Delivery>, StoreError> {
    let mut statement = db.prepare_cached(
        "SELECT id, event, code, made_at, tries, next_at, delivered_at, given_up_at, last_result FROM alerts ORDER BY rowid DESC LIMIT ?1",
    )?;
    let rows = statement.query_map([i64::try_from(most).unwrap_or(KEPT)], from_row)?;
    Ok(rows.collect::<Result<Vec<_>, _>>()?)
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<Delivery> {
    let moment = |place| row.get::<_, Option<i64>>(place).map(|at| at.map(from_ms));
    let made_at = from_ms(row.get(3)?);
    let state = match (moment(5)?, moment(6)?, moment(7)?) {
        (Some(next_at), _, _) => DeliveryState::Waiting { next_at },
        (None, Some(at), _) => DeliveryState::Delivered { at },
        (None, None, at) => DeliveryState::GivenUp { at: at.unwrap_or(made_at) },
    };
    Ok(Delivery {
        id: DeliveryId::from_stored(row.get::<_, String>(0)?),
        event: row.get(1)?,
        code: row.get(2)?,
        made_at,
        tries: row.get(4)?,
        state,
        last_result: row.get(8)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database() -> Connection {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(SCHEMA).unwrap();
        db
    }

    fn alert(id: &str, issue: &str, event: &'static str, at: i64) -> NewAlert {
        let issue = Some(IssueId::from_stored(issue));
        NewAlert { id: DeliveryId::from_stored(id), issue, event, code: Some("model_failed"), body: "{}".into(), made_at: from_ms(at) }
    }

    fn next(db: &Connection, now: i64) -> Option<String> {
        due(db, from_ms(now)).unwrap().map(|due| due.id.to_string())
    }

    #[test]
    fn the_end_of_an_issue_is_never_told_before_its_beginning() {
        let db = database();
        enqueue(&db, &alert("dlv_1", "iss_1", "issue.opened", 10)).unwrap();
        enqueue(&db, &alert("dlv_2", "iss_1", "issue.resolved", 20)).unwrap();
        enqueue(&db, &alert("dlv_3", "iss_2", "issue.opened", 30)).unwrap();
        let first = DeliveryId::from_stored("dlv_1");
        tried(&db, &first, Outcome::Again(from_ms(500)), "refused", from_ms(40)).unwrap();
        assert_eq!(next(&db, 50).as_deref(), Some("dlv_3"), "another issue does not wait for it");
        tried(&db, &DeliveryId::from_stored("dlv_3"), Outcome::Delivered, "200", from_ms(50)).unwrap();
        assert_eq!(next(&db, 60), None);
        assert_eq!(next_due(&db, from_ms(60)).unwrap(), Some(from_ms(500)));
        assert_eq!(next(&db, 500).as_deref(), Some("dlv_1"));
        tried(&db, &first, Outcome::Delivered, "200", from_ms(501)).unwrap();
        assert_eq!(next(&db, 501).as_deref(), Some("dlv_2"));
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_hold_an_alert_for_years() {
        let db = database();
        enqueue(&db, &alert("dlv_1", "iss_1", "issue.opened", 1_000_000_000_000)).unwrap();
        assert_eq!(next(&db, 1_000).as_deref(), Some("dlv_1"));
    }

    #[test]
    fn what_was_delivered_is_not_sent_again() {
        let db = database();
        enqueue(&db, &alert("dlv_1", "iss_1", "issue.opened", 10)).unwrap();
        let id = DeliveryId::from_stored("dlv_1");
        tried(&db, &id, Outcome::Delivered, "200", from_ms(11)).unwrap();
        tried(&db, &id, Outcome::Again(from_ms(12)), "late", from_ms(12)).unwrap();
        assert_eq!(next(&db, 9_999), None);
        assert_eq!(latest(&db, 5).unwrap()[0].state, DeliveryState::Delivered { at: from_ms(11) });
    }

    #[test]
    fn a_receiver_that_is_away_for_ever_does_not_fill_the_disk() {
        let db = database();
        for number in 0..(MOST_WAITING + 5) {
            enqueue(&db, &alert(&format!("dlv_{number}"), &format!("iss_{number}"), "issue.opened", number)).unwrap();
        }
        let (count, _, _) = waiting(&db).unwrap();
        assert_eq!(count, usize::try_from(MOST_WAITING).unwrap());
        assert_eq!(next(&db, 9_999).as_deref(), Some("dlv_5"), "the oldest went");
        give_up_all(&db, "off", from_ms(1)).unwrap();
        let extra = alert("dlv_x", "iss_x", "test", 1);
        enqueue(&db, &extra).unwrap();
        tried(&db, &extra.id, Outcome::GiveUp, "no", from_ms(2)).unwrap();
        let rows: i64 = db.query_row("SELECT count(*) FROM alerts", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, KEPT);
    }
}
