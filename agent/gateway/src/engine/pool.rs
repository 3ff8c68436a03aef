//! Connections that are kept for the next request to the same engine.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use warden_domain::replica::Endpoint;

use super::wire::Wire;

/// Engines close idle connections after about 5 s; ours are given up before.
const IDLE: Duration = Duration::from_secs(3);
/// Idle connections kept per engine.
const IDLE_EACH: usize = 32;

/// All that are kept.
#[derive(Default)]
pub(super) struct Pool(Mutex<Shelves>);

#[derive(Default)]
struct Shelves {
    each: HashMap<Endpoint, Arc<Shelf>>,
    /// Somebody looks after those that nobody wanted for too long.
    swept: bool,
}

/// Those of one engine, the last one on top.
#[derive(Default)]
pub(super) struct Shelf(Mutex<Vec<(Wire, Instant)>>);

impl Pool {
    /// Those of an engine.
    pub(super) fn of(self: &Arc<Self>, endpoint: &Endpoint) -> Arc<Shelf> {
        let mut shelves = self.shelves();
        if !std::mem::replace(&mut shelves.swept, true) {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
        if let Some(shelf) = shelves.each.get(endpoint) {
            return Arc::clone(shelf);
        }
        Arc::clone(shelves.each.entry(endpoint.clone()).or_default())
    }

    fn shelves(&self) -> MutexGuard<'_, Shelves> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of what lay too long; false when nothing is left to look after.
    fn tidy(&self) -> bool {
        let mut shelves = self.shelves();
        shelves.each.retain(|_, shelf| {
            let mut kept = shelf.kept();
            kept.retain(|(_, since)| since.elapsed() < IDLE);
            !kept.is_empty() || Arc::strong_count(shelf) > 1
        });
        shelves.swept = !shelves.each.is_empty();
        shelves.swept
    }
}

impl Shelf {
    /// One that can be used, the freshest first.
    pub(super) async fn take(&self) -> Option<Wire> {
        loop {
            let (mut wire, since) = self.kept().pop()?;
            if since.elapsed() < IDLE && wire.is_free().await {
                return Some(wire);
            }
        }
    }

    /// Keeps one whose answer came to its end.
    pub(super) fn keep(&self, wire: Wire) {
        let mut kept = self.kept();
        if kept.len() < IDLE_EACH {
            kept.push((wire, Instant::now()));
        }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<(Wire, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn sweep(pool: Weak<Pool>) {
    loop {
        tokio::time::sleep(IDLE / 2).await;
        match pool.upgrade() {
            Some(pool) if pool.tidy() => {}
            _ => return,
        }
    }
}
