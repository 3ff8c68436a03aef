//! The file a target is fetched into: checked part by part while it is written, on a thread of its own.
//!
//! Pieces go in; the place where the next one belongs comes out. What an earlier run left is read again and believed only as far as its parts
//! match; the file's length says nothing.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use warden_trust::{Entry, PartCheck};

use crate::fault::Fault;

enum Order {
    Piece(Bytes),
    /// Forget a fault and say where the next byte belongs.
    Stand(oneshot::Sender<u64>),
    /// The target ends here.
    Finish(oneshot::Sender<Result<(), Fault>>),
}

/// The writing end of a target's file.
pub(crate) struct Writer {
    orders: mpsc::Sender<Order>,
    at: Arc<AtomicU64>,
    fault: Arc<Mutex<Option<Fault>>>,
}

impl Writer {
    /// Opens `<folder>/<digest>.part` and reads what is there already.
    pub(crate) async fn open(folder: &Path, entry: &Entry) -> Result<Self, Fault> {
        let (orders, inbox) = mpsc::channel(8);
        let (at, fault) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None)));
        let (ready, opened) = oneshot::channel();
        let hand =
            Hand { path: unfinished(folder, entry), done: folder.join(entry.sha256.to_string()), at: at.clone(), fault: fault.clone(), safe: 0 };
        let entry = entry.clone();
        tokio::task::spawn_blocking(move || hand.work(&entry, inbox, ready));
        opened.await.unwrap_or_else(|_| Err(gone()))?;
        Ok(Self { orders, at, fault })
    }

    /// Bytes taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.at.load(Ordering::Relaxed)
    }

    /// Hands over the next bytes. A fault is told with one of the next pieces, or at the end.
    pub(crate) async fn piece(&self, bytes: Bytes) -> Result<(), Fault> {
        self.orders.send(Order::Piece(bytes)).await.map_err(|_| gone())?;
        match self.fault.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }

    /// Where the next byte belongs. After a damaged part that is its begin.
    pub(crate) async fn stand(&self) -> Result<u64, Fault> {
        let (tell, told) = oneshot::channel();
        self.orders.send(Order::Stand(tell)).await.map_err(|_| gone())?;
        told.await.map_err(|_| gone())
    }

    /// A fault that no piece was told of yet.
    pub(crate) async fn settle(&self) -> Result<(), Fault> {
        self.stand().await?;
        match self.fault.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }

    /// Ends the file: whole, right, on the medium, under its digest.
    pub(crate) async fn finish(self) -> Result<(), Fault> {
        let (tell, told) = oneshot::channel();
        self.orders.send(Order::Finish(tell)).await.map_err(|_| gone())?;
        told.await.map_err(|_| gone())?
    }
}

/// Where a target lies until it is whole.
pub(crate) fn unfinished(folder: &Path, entry: &Entry) -> PathBuf {
    folder.join(format!("{}.part", entry.sha256))
}

fn gone() -> Fault {
    Fault::Io { doing: "the download cannot be written".to_owned(), source: std::io::Error::other("its writer ended") }
}

/// So many checked bytes are at risk at most.
const SYNC_EVERY: u64 = 4 << 20;

struct Hand {
    path: PathBuf,
    done: PathBuf,
    at: Arc<AtomicU64>,
    fault: Arc<Mutex<Option<Fault>>>,
    /// Up to here the file is on the medium.
    safe: u64,
}

impl Hand {
    fn work(mut self, entry: &Entry, mut inbox: mpsc::Receiver<Order>, ready: oneshot::Sender<Result<(), Fault>>) {
        let (mut file, mut check) = match self.resume(entry) {
            Ok(both) => {
                let _nobody_waits = ready.send(Ok(()));
                both
            }
            Err(fault) => {
                let _nobody_waits = ready.send(Err(fault));
                return;
            }
        };
        let mut broken = false;
        while let Some(order) = inbox.blocking_recv() {
            match order {
                Order::Piece(_) if broken => {}
                Order::Piece(bytes) => {
                    if let Err(fault) = self.take(&mut file, &mut check, &bytes) {
                        broken = true;
                        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
                    }
                    self.at.store(check.taken(), Ordering::Relaxed);
                }
                Order::Stand(tell) => {
                    broken = false;
                    let _nobody_waits = tell.send(check.taken());
                }
                Order::Finish(tell) => {
                    let _nobody_waits = tell.send(self.end(&file, check));
                    return;
                }
            }
        }
        // Dropped in the middle: what is written stays for the next run.
        let _best_effort = file.sync_data();
    }

    fn resume<'a>(&mut self, entry: &'a Entry) -> Result<(File, PartCheck<'a>), Fault> {
        let failed = || Fault::io(format!("{} cannot be opened", self.path.display()));
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&self.path).map_err(failed())?;
        let check = PartCheck::resume(entry, &mut file).map_err(failed())?;
        self.cut(&mut file, check.good())?;
        self.at.store(check.taken(), Ordering::Relaxed);
        self.safe = check.good();
        Ok((file, check))
    }

    fn cut(&self, file: &mut File, at: u64) -> Result<(), Fault> {
        let failed = || Fault::io(format!("{} cannot be cut", self.path.display()));
        file.set_len(at).map_err(failed())?;
        file.seek(SeekFrom::Start(at)).map_err(failed())?;
        Ok(())
    }

    fn take(&mut self, file: &mut File, check: &mut PartCheck<'_>, bytes: &[u8]) -> Result<(), Fault> {
        if let Err(refusal) = check.feed(bytes) {
            self.cut(file, check.good())?;
            return Err(refusal.into());
        }
        if let Err(source) = file.write_all(bytes) {
            check.step_back();
            self.cut(file, check.good())?;
            return Err(Fault::io("the download cannot be written")(source));
        }
        self.keep_safe(file, check.good())
    }

    /// Puts the parts that were checked onto the medium now and then: a power cut costs the newest few, not the whole transfer.
    fn keep_safe(&mut self, file: &File, good: u64) -> Result<(), Fault> {
        if good.saturating_sub(self.safe) >= SYNC_EVERY {
            file.sync_data().map_err(Fault::io("the download cannot be written"))?;
            self.safe = good;
        }
        Ok(())
    }

    fn end(&self, file: &File, check: PartCheck<'_>) -> Result<(), Fault> {
        check.finish().inspect_err(|_| {
            // Every part was right and the whole is not: the release contradicts itself, and nothing of this is of use.
            let _gone_already = std::fs::remove_file(&self.path);
        })?;
        file.sync_all().map_err(Fault::io("the download cannot be written"))?;
        std::fs::rename(&self.path, &self.done).map_err(Fault::io("the download cannot be named"))?;
        let folder = self.done.parent().unwrap_or(Path::new("/"));
        warden_durable::sync_folder(folder).map_err(Fault::io("the download's folder cannot be written"))
    }
}
