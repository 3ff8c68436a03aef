//! The usage ledger: charges go through a bounded channel into memory, and from there to disk twice a second.
//!
//! In: one `Finished` per admitted request. Out: totals per minute, key and model, one row per request, `last_used_at` of keys, and
//! `Topic::Keys` after each write. A charge has its place from admission on, so it can never be lost to a full channel. When the disk
//! does not take writes, totals stay in memory and only rows of single requests are dropped (and counted); when even totals have
//! no room, `open` refuses. A kill -9 loses at most what was finished since the last write. Never makes a request wait.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use warden_domain::{
    change::{Changes, Topic},
    clock,
    ids::KeyId,
    units::Tokens,
    usage::{Finished, Ledger, LedgerEntry, UsageTotals},
};

use crate::{Store, StoreError, keys, usage};

/// Requests that may be admitted and not yet taken over by the ledger's task.
const PLACES: usize = 16_384;
/// How long a charge may lie in memory while the disk takes writes.
const PACE: Duration = Duration::from_millis(500);
/// How long charges may lie in the channel before they are looked at: waking for each would cost more than taking it in.
const LULL: Duration = Duration::from_millis(20);
/// Charges taken in at once.
const HANDFUL: usize = 1024;
/// Pause after a write that failed.
const PAUSE: Duration = Duration::from_secs(2);
/// Rows of single requests kept in memory while the disk takes no writes.
const ROWS: usize = 20_000;
/// Totals kept in memory while the disk takes no writes; beyond it nothing more is taken in, and `open` refuses in the end.
const SLOTS: usize = 100_000;
/// Rows of single requests are kept this long; totals are kept.
const KEEP_ROWS_HOURS: i64 = 30 * 24;
/// Pause between two prunings of old rows.
const PRUNE_EVERY: Duration = Duration::from_secs(3600);
/// No request has more tokens than this. A larger count is an engine's fault and counts as unknown, because sums over it would overflow.
const BELIEVABLE: u64 = 1 << 36;

/// The ledger over the store's writer. Keep it until `flush` was called.
pub struct StoreLedger {
    places: mpsc::Sender<Finished>,
    flushes: mpsc::Sender<oneshot::Sender<Result<(), StoreError>>>,
    dropped: Arc<AtomicU64>,
}

impl std::fmt::Debug for StoreLedger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoreLedger")
    }
}

impl Store {
    /// Starts the ledger's task. Call it once, inside a tokio runtime.
    #[must_use]
    pub fn ledger(&self, changes: &Changes) -> Arc<StoreLedger> {
        let (places, finished) = mpsc::channel(PLACES);
        let (flushes, asked) = mpsc::channel(8);
        let dropped = Arc::new(AtomicU64::new(0));
        let keeper = Keeper { store: self.clone(), changes: changes.clone(), pending: Batch::default(), dropped: Arc::clone(&dropped), pruned: None };
        tokio::spawn(keeper.run(finished, asked));
        Arc::new(StoreLedger { places, flushes, dropped })
    }
}

impl StoreLedger {
    /// Resolves once every request finished before the call is on disk.
    ///
    /// # Errors
    /// `DiskFull` and the like: what was not written stays in memory and is tried again later; `Closed` when the task is gone.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let (tell, told) = oneshot::channel();
        self.flushes.send(tell).await.map_err(|_| StoreError::Closed)?;
        told.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Rows of single requests that were dropped since the start because the disk took no writes. Their totals were kept.
    #[must_use]
    pub fn dropped_rows(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Ledger for StoreLedger {
    fn open(&self) -> Option<Box<dyn LedgerEntry>> {
        let permit = self.places.clone().try_reserve_owned().ok()?;
        Some(Box::new(Place(permit)))
    }
}

struct Place(mpsc::OwnedPermit<Finished>);

impl LedgerEntry for Place {
    fn finish(self: Box<Self>, finished: Finished) {
        self.0.send(finished);
    }
}

#[derive(Clone, Default)]
struct Batch {
    totals: HashMap<usage::Slot, UsageTotals>,
    used: HashMap<String, i64>,
    rows: Vec<Finished>,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.totals.is_empty() && self.rows.is_empty()
    }

    /// Takes one charge in and returns how many rows were dropped for want of room (0 or 1).
    fn charge(&mut self, mut finished: Finished) -> u64 {
        for count in [&mut finished.prompt, &mut finished.cached, &mut finished.completion] {
            *count = count.filter(|t| t.0 <= BELIEVABLE);
        }
        let key = finished.key.as_ref().map_or("", KeyId::as_str).to_owned();
        // The minute it was charged, not the one it began in: a request of an hour must not change totals long read.
        let ended = finished.started_at.as_second().saturating_add(i64::try_from(finished.duration.0 / 1000).unwrap_or(0));
        let minute = ended.div_euclid(60);
        if !key.is_empty() {
            let used = self.used.entry(key.clone()).or_insert(minute);
            *used = minute.max(*used);
        }
        let slot = usage::Slot { minute, key, model: finished.model.as_str().to_owned() };
        add(self.totals.entry(slot).or_default(), &totals_of(&finished));
        self.keep(finished)
    }

    fn keep(&mut self, finished: Finished) -> u64 {
        if self.rows.len() >= ROWS {
            return 1;
        }
        self.rows.push(finished);
        0
    }

    /// Takes back what could not be written.
    fn take_back(&mut self, other: Self) -> u64 {
        for (slot, sums) in other.totals {
            add(self.totals.entry(slot).or_default(), &sums);
        }
        for (key, minute) in other.used {
            let used = self.used.entry(key).or_insert(minute);
            *used = minute.max(*used);
        }
        other.rows.into_iter().map(|row| self.keep(row)).sum()
    }

    fn write(&self, db: &rusqlite::Connection) -> Result<(), StoreError> {
        for (slot, sums) in &self.totals {
            usage::charge(db, slot, sums)?;
        }
        for (key, minute) in &self.used {
            keys::note_used(db, key, *minute)?;
        }
        for row in &self.rows {
            usage::keep_request(db, row)?;
        }
        Ok(())
    }
}

/// The charge of one request. Counts the engine did not give add nothing to sums, and the request is counted as one without counts.
fn totals_of(finished: &Finished) -> UsageTotals {
    let counted = finished.prompt.is_some() && finished.completion.is_some();
    UsageTotals {
        requests: 1,
        requests_without_counts: u64::from(!counted),
        prompt: finished.prompt.unwrap_or(Tokens(0)),
        cached: finished.cached.unwrap_or(Tokens(0)),
        completion: finished.completion.unwrap_or(Tokens(0)),
    }
}

fn add(sums: &mut UsageTotals, more: &UsageTotals) {
    sums.requests += more.requests;
    sums.requests_without_counts += more.requests_without_counts;
    sums.prompt = sums.prompt + more.prompt;
    sums.cached = sums.cached + more.cached;
    sums.completion = sums.completion + more.completion;
}

type Writing = Pin<Box<dyn Future<Output = (Arc<Batch>, Result<(), StoreError>)> + Send>>;

struct Keeper {
    store: Store,
    changes: Changes,
    pending: Batch,
    dropped: Arc<AtomicU64>,
    pruned: Option<Instant>,
}

impl Keeper {
    async fn run(mut self, mut finished: mpsc::Receiver<Finished>, mut asked: mpsc::Receiver<oneshot::Sender<Result<(), StoreError>>>) {
        let mut writing: Option<Writing> = None;
        let mut due: Option<Instant> = None;
        let mut waiting: Vec<oneshot::Sender<Result<(), StoreError>>> = Vec::new();
        let mut handful = Vec::with_capacity(HANDFUL);
        let mut rest: Option<Instant> = None;
        loop {
            if writing.is_none() && !waiting.is_empty() {
                while let Ok(one) = finished.try_recv() {
                    self.take(one);
                }
                let result = self.write_now().await;
                answer(&mut waiting, &result);
                due = result.is_err().then(|| Instant::now() + PAUSE);
                continue;
            }
            let room = self.pending.totals.len() < SLOTS;
            tokio::select! {
                (batch, result) = async { match writing.as_mut() { Some(w) => w.await, None => std::future::pending().await } } => {
                    writing = None;
                    due = self.written(batch, &result).then(|| Instant::now() + PAUSE).or_else(|| (!self.pending.is_empty()).then(|| Instant::now() + PACE));
                }
                taken = finished.recv_many(&mut handful, HANDFUL), if room && rest.is_none() => {
                    if taken == 0 {
                        break;
                    }
                    handful.drain(..).for_each(|one| self.take(one));
                    let now = Instant::now();
                    due.get_or_insert(now + PACE);
                    // A full handful means that more is there already.
                    rest = (taken < HANDFUL).then(|| now + LULL);
                }
                () = tokio::time::sleep_until(rest.unwrap_or_else(Instant::now)), if rest.is_some() => rest = None,
                Some(tell) = asked.recv() => waiting.push(tell),
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() && writing.is_none() => {
                    due = None;
                    writing = Some(self.start_writing());
                }
            }
        }
        if let Some(writing) = writing {
            let (batch, result) = writing.await;
            self.written(batch, &result);
        }
        let result = self.write_now().await;
        answer(&mut waiting, &result);
    }

    fn take(&mut self, one: Finished) {
        let dropped = self.pending.charge(one);
        self.note_dropped(dropped);
    }

    fn note_dropped(&self, rows: u64) {
        if rows > 0 && self.dropped.fetch_add(rows, Ordering::Relaxed) == 0 {
            tracing::warn!("the disk takes no writes: rows of single requests are dropped, totals are kept in memory");
        }
    }

    fn start_writing(&mut self) -> Writing {
        let batch = Arc::new(std::mem::take(&mut self.pending));
        let store = self.store.clone();
        let prune = self.pruned.is_none_or(|at| at.elapsed() >= PRUNE_EVERY);
        if prune {
            self.pruned = Some(Instant::now());
        }
        Box::pin(async move {
            let copy = Arc::clone(&batch);
            let result = store
                .write(move |tx| {
                    copy.write(tx)?;
                    if prune {
                        let before = clock::now() - jiff::SignedDuration::from_hours(KEEP_ROWS_HOURS);
                        usage::forget_requests_before(tx, before)?;
                    }
                    Ok(())
                })
                .await;
            (batch, result)
        })
    }

    /// Deals with the end of a write; true when it failed and must be tried again.
    fn written(&mut self, batch: Arc<Batch>, result: &Result<(), StoreError>) -> bool {
        match result {
            Ok(()) => {
                if !batch.used.is_empty() {
                    self.changes.publish(Topic::Keys);
                }
                false
            }
            Err(error) => {
                tracing::warn!(%error, "usage could not be written, it is kept in memory and tried again");
                let dropped = self.pending.take_back(Arc::unwrap_or_clone(batch));
                self.note_dropped(dropped);
                true
            }
        }
    }

    async fn write_now(&mut self) -> Result<(), StoreError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let (batch, result) = self.start_writing().await;
        self.written(batch, &result);
        result
    }
}

fn answer(waiting: &mut Vec<oneshot::Sender<Result<(), StoreError>>>, result: &Result<(), StoreError>) {
    for tell in waiting.drain(..) {
        let _ = tell.send(match result {
            Ok(()) => Ok(()),
            Err(StoreError::DiskFull) => Err(StoreError::DiskFull),
            Err(StoreError::Closed) => Err(StoreError::Closed),
            Err(_) => Err(StoreError::Broke),
        });
    }
}

#[cfg(test)]
mod tests {
    use warden_domain::{
        ids::{ModelId, RequestId},
        units::Millis,
        usage::Outcome,
    };

    use super::*;

    fn finished(prompt: Option<u64>, completion: Option<u64>) -> Finished {
        Finished {
            request: RequestId::random(),
            key: Some(KeyId::from_stored("key_a")),
            model: ModelId::from_stored("mdl_a"),
            started_at: jiff::Timestamp::from_second(59).unwrap(),
            duration: Millis(1500),
            first_byte: None,
            prompt: prompt.map(Tokens),
            cached: None,
            completion: completion.map(Tokens),
            outcome: Outcome::Completed,
            status: 200,
        }
    }

    fn only_totals(batch: &Batch) -> UsageTotals {
        assert_eq!(batch.totals.len(), 1);
        *batch.totals.values().next().unwrap()
    }

    #[test]
    fn a_request_without_counts_is_counted_as_such_and_adds_no_zero_that_looks_measured() {
        let mut batch = Batch::default();
        batch.charge(finished(Some(10), Some(2)));
        batch.charge(finished(None, None));
        let sums = only_totals(&batch);
        assert_eq!((sums.requests, sums.requests_without_counts, sums.prompt.0, sums.completion.0), (2, 1, 10, 2));
    }

    #[test]
    fn an_absurd_count_of_an_engine_cannot_break_the_sums_of_a_key() {
        let mut batch = Batch::default();
        batch.charge(finished(Some(u64::MAX), Some(3)));
        assert_eq!(only_totals(&batch).prompt, Tokens(0));
        assert_eq!(only_totals(&batch).requests_without_counts, 1);
    }

    #[test]
    fn a_long_request_is_charged_in_the_minute_it_ended() {
        let mut batch = Batch::default();
        batch.charge(finished(Some(1), Some(1)));
        assert_eq!(batch.totals.keys().next().unwrap().minute, 1);
    }

    #[test]
    fn what_could_not_be_written_is_charged_once_after_it_was_taken_back() {
        let mut batch = Batch::default();
        batch.charge(finished(Some(10), Some(2)));
        let failed = std::mem::take(&mut batch);
        batch.charge(finished(Some(5), Some(1)));
        batch.take_back(failed);
        assert_eq!((only_totals(&batch).requests, only_totals(&batch).prompt.0, batch.rows.len()), (2, 15, 2));
    }

    #[test]
    fn a_disk_that_takes_no_writes_for_long_costs_rows_but_no_totals() {
        let mut batch = Batch::default();
        let dropped: u64 = (0..ROWS + 5).map(|_| batch.charge(finished(Some(1), Some(1)))).sum();
        assert_eq!((dropped, batch.rows.len(), only_totals(&batch).requests), (5, ROWS, ROWS as u64 + 5));
    }
}
