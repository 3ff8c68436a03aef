//! The database handle: one writer thread that owns the writing connection, a small pool of readers.
//!
//! In: closures. Out: their results. Each write is one transaction, on disk (fsync) before its future resolves; a write whose caller
//! went away still happens. A closure that panics loses its transaction, not the thread. Never blocks an async worker.

use std::{
    fs,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::{StoreError, reserve::Reserve, schema, slots::Limit};

/// Name of the database file inside the state folder.
pub(crate) const FILE: &str = "config.db";
/// Reading connections, and so reads at the same time.
const READERS: usize = 3;
/// Writes that may wait for the writer before callers wait themselves.
const QUEUE: usize = 256;

/// It is looked so often whether room can be kept back again.
const LOOK: Duration = Duration::from_secs(60);

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

enum Order {
    Run(Job),
    Close(oneshot::Sender<()>),
}

/// The database of the appliance; cheap to clone.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    orders: mpsc::Sender<Order>,
    readers: Mutex<Vec<Connection>>,
    free_readers: Arc<Semaphore>,
    reserve: Arc<Reserve>,
    /// When it was last looked whether room can be kept back again.
    looked: Mutex<Instant>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store")
    }
}

impl Store {
    /// Opens `<state_dir>/config.db`, making folder and file when they are missing and migrating the schema forward.
    ///
    /// # Errors
    /// `Open` when folder or file cannot be made or opened, `Damaged` when the file is no database, `Newer` when a newer version
    /// wrote it in a way this one would misread, `DiskFull`.
    pub fn open(state_dir: &Path) -> Result<Self, StoreError> {
        Self::open_limited(state_dir, Limit::All)
    }

    /// As [`Store::open`], with only the migrations that the limit allows.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_limited(state_dir: &Path, limit: Limit) -> Result<Self, StoreError> {
        let path = state_dir.join(FILE);
        make_private(state_dir, &path)?;
        let mut writing = connect(&path)?;
        whole(&writing, &path)?;
        schema::migrate(&mut writing, &path, limit).map_err(|e| say_damaged(e, &path))?;
        let readers = (0..READERS).map(|_| connect_reader(&path)).collect::<Result<Vec<_>, _>>()?;
        let (orders, queue) = mpsc::channel(QUEUE);
        std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || write_until_closed(writing, queue))
            .map_err(|cause| StoreError::Open { path, cause })?;
        let reserve = Arc::new(Reserve::beside(state_dir));
        reserve.keep();
        let (readers, free_readers) = (Mutex::new(readers), Arc::new(Semaphore::new(READERS)));
        Ok(Self { inner: Arc::new(Inner { path: state_dir.join(FILE), orders, readers, free_readers, reserve, looked: Mutex::new(Instant::now()) }) })
    }

    /// Runs `f` in one transaction and resolves once it is on disk. An `Err` from `f` rolls everything back. The write happens even
    /// when the caller stops waiting.
    ///
    /// # Errors
    /// Whatever `f` returns, `DiskFull`, `Closed` after `close`, `Broke` when `f` panicked.
    pub async fn write<T: Send + 'static>(
        &self,
        f: impl FnOnce(&rusqlite::Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (tell, told) = oneshot::channel();
        let reserve = Arc::clone(&self.inner.reserve);
        let job: Job = Box::new(move |connection| {
            if reserve.is_needed() && reserve.give() {
                tracing::error!("the disk with the settings is full; the room that was kept back for this is used now");
            }
            let _ = tell.send(in_transaction(connection, f));
        });
        self.inner.orders.send(Order::Run(job)).await.map_err(|_| StoreError::Closed)?;
        let result = told.await.unwrap_or(Err(StoreError::Broke));
        self.mind_the_room(matches!(result, Err(StoreError::DiskFull)));
        result
    }

    /// Gives away what was kept back once the disk is full, and keeps something back again when there is room.
    fn mind_the_room(&self, full: bool) {
        if full {
            if self.inner.reserve.give() {
                tracing::error!("the disk with the settings is full; the room that was kept back for this is used now");
            }
            return;
        }
        let mut looked = self.inner.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if looked.elapsed() >= LOOK {
            *looked = Instant::now();
            let reserve = Arc::clone(&self.inner.reserve);
            drop(tokio::task::spawn_blocking(move || reserve.keep()));
        }
    }

    /// Runs the migrations that an opening with a limit left out; none are left after it. Returns the versions that were run. Each is a
    /// transaction of its own; one that fails leaves the versions before it.
    ///
    /// # Errors
    /// `DiskFull`, `Closed` after `close`, or SQLite's own.
    pub async fn finish_migrations(&self) -> Result<Vec<i64>, StoreError> {
        let (tell, told) = oneshot::channel();
        let path = self.inner.path.clone();
        let job: Job = Box::new(move |connection| {
            let _ = tell.send(schema::migrate(connection, &path, Limit::All));
        });
        self.inner.orders.send(Order::Run(job)).await.map_err(|_| StoreError::Closed)?;
        told.await.unwrap_or(Err(StoreError::Broke))
    }

    /// The newest schema that a program must know to read this database right.
    ///
    /// # Errors
    /// As [`Store::read`].
    pub async fn readable_from(&self) -> Result<i64, StoreError> {
        self.read(|db| Ok(schema::found(db)?.1)).await
    }

    /// Runs `f` on a reading connection; what it tries to write is refused by SQLite.
    ///
    /// # Errors
    /// Whatever `f` returns, `Closed` when the pool is gone, `Broke` when `f` panicked.
    pub async fn read<T: Send + 'static>(&self, f: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static) -> Result<T, StoreError> {
        let permit = Arc::clone(&self.inner.free_readers).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let inner = Arc::clone(&self.inner);
        let work = tokio::task::spawn_blocking(move || {
            // Held until the connection is back in the pool, so that whoever gets a permit also finds a connection.
            let _permit = permit;
            let connection = inner.readers.lock().unwrap_or_else(PoisonError::into_inner).pop().ok_or(StoreError::Closed)?;
            let result = catch_unwind(AssertUnwindSafe(|| f(&connection))).unwrap_or(Err(StoreError::Broke));
            inner.readers.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            result
        });
        work.await.unwrap_or(Err(StoreError::Broke))
    }

    /// Finishes the writes already handed over, folds the write-ahead log into the file and closes it. Later writes get `Closed`.
    pub async fn close(&self) {
        self.inner.free_readers.close();
        let (tell, told) = oneshot::channel();
        if self.inner.orders.send(Order::Close(tell)).await.is_ok() {
            let _ = told.await;
        }
        self.inner.readers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn in_transaction<T>(connection: &mut Connection, f: impl FnOnce(&rusqlite::Transaction<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
    // A transaction that is dropped, also by a panic, rolls back.
    catch_unwind(AssertUnwindSafe(|| {
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let value = f(&tx)?;
        tx.commit()?;
        Ok(value)
    }))
    .unwrap_or(Err(StoreError::Broke))
}

fn write_until_closed(mut connection: Connection, mut queue: mpsc::Receiver<Order>) {
    while let Some(order) = queue.blocking_recv() {
        match order {
            Order::Run(job) => job(&mut connection),
            Order::Close(tell) => {
                queue.close();
                while let Ok(left) = queue.try_recv() {
                    if let Order::Run(job) = left {
                        job(&mut connection);
                    }
                }
                let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
                drop(connection);
                let _ = tell.send(());
                return;
            }
        }
    }
}

/// Folder and file are for the agent alone: the file holds password hashes. SQLite gives its side files the mode of the main file.
fn make_private(state_dir: &Path, path: &Path) -> Result<(), StoreError> {
    let said = |path: &Path| {
        let path: PathBuf = path.to_owned();
        move |cause: std::io::Error| match cause.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => StoreError::DiskFull,
            _ => StoreError::Open { path, cause },
        }
    };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(state_dir).map_err(said(state_dir))?;
    // Opening a pipe for writing would wait for a reader for ever.
    if fs::metadata(path).is_ok_and(|about| !about.is_file()) {
        return Err(StoreError::Damaged { path: path.to_owned() });
    }
    fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path).map_err(said(path))?;
    Ok(())
}

fn connect(path: &Path) -> Result<Connection, StoreError> {
    let open = || -> Result<Connection, rusqlite::Error> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(Duration::from_secs(5))?;
        connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF;")?;
        connection.query_row("PRAGMA journal_size_limit = 16777216", [], |_| Ok(()))?;
        Ok(connection)
    };
    open().map_err(|e| say_damaged(e.into(), path))
}

/// A page torn by a bad disk is found at start, where it can be said, and not in the middle of a write.
fn whole(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let said: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(|e| say_damaged(e.into(), path))?;
    if said == "ok" {
        return Ok(());
    }
    tracing::error!(path = %path.display(), said, "the database is damaged");
    Err(StoreError::Damaged { path: path.to_owned() })
}

fn connect_reader(path: &Path) -> Result<Connection, StoreError> {
    let connection = connect(path)?;
    connection.execute_batch("PRAGMA query_only = ON;")?;
    Ok(connection)
}

fn say_damaged(error: StoreError, path: &Path) -> StoreError {
    match error {
        StoreError::Sqlite(rusqlite::Error::SqliteFailure(e, _)) if matches!(e.code, ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            StoreError::Damaged { path: path.to_owned() }
        }
        other => other,
    }
}
