//! A download at work: its record, what was asked of it since, and how fast it is.

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use tokio::sync::watch;
use warden_domain::{
    Problem,
    change::{Changes, Topic},
    download::{Download, DownloadFile, DownloadState},
    ids::TaskId,
    units::Bytes,
};

use super::record::{Reason, Record};

/// Speed is taken over so long.
const OVER: Duration = Duration::from_secs(5);

/// What somebody wants of a download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Go on.
    Go,
    /// Keep what is here.
    Pause,
    /// Give it up.
    Cancel,
}

#[derive(Default)]
struct Moving {
    /// Bytes of the file at work, beyond those in the record.
    here: Vec<u64>,
    seen: VecDeque<(Instant, u64)>,
    waits_until: Option<Timestamp>,
    task: Option<TaskId>,
    problem: Option<Problem>,
}

/// A download.
pub(crate) struct Live {
    record: Mutex<Record>,
    moving: Mutex<Moving>,
    wish: watch::Sender<Wish>,
    models_dir: PathBuf,
    changes: Changes,
    /// A record that was removed is not written again by a late hand.
    gone: Mutex<bool>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Live {
    pub(crate) fn new(record: Record, models_dir: PathBuf, changes: Changes) -> Arc<Self> {
        let here = record.files.iter().map(|file| if file.done { file.size.0 } else { file.safe }).collect();
        let moving = Mutex::new(Moving { here, ..Moving::default() });
        Arc::new(Self { record: Mutex::new(record), moving, wish: watch::channel(Wish::Go).0, models_dir, changes, gone: Mutex::new(false) })
    }

    /// A copy of the record.
    pub(crate) fn record(&self) -> Record {
        lock(&self.record).clone()
    }

    pub(crate) fn state(&self) -> DownloadState {
        lock(&self.record).state
    }

    /// Says what is wanted; whoever waits for bytes or time hears it at once.
    pub(crate) fn want(&self, wish: Wish) {
        self.wish.send_replace(wish);
    }

    pub(crate) fn wish(&self) -> Wish {
        *self.wish.borrow()
    }

    /// Comes back when it should not go on.
    pub(crate) async fn stopped(&self) {
        let mut wish = self.wish.subscribe();
        let _the_sender_is_ours = wish.wait_for(|wish| *wish != Wish::Go).await;
    }

    /// Changes the record and writes it. Blocking.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Record)) -> Result<(), Problem> {
        let gone = lock(&self.gone);
        let record = {
            let mut record = lock(&self.record);
            change(&mut record);
            record.clone()
        };
        let saved = if *gone { Ok(()) } else { record.save(&self.models_dir) };
        drop(gone);
        saved
    }

    /// Removes the record for good. Blocking.
    pub(crate) fn forget(&self) -> Result<(), Problem> {
        let mut gone = lock(&self.gone);
        *gone = true;
        lock(&self.record).remove(&self.models_dir)
    }

    /// Another state, written down. Blocking.
    pub(crate) fn enter(&self, state: DownloadState, problem: Option<&Problem>) {
        {
            let mut moving = lock(&self.moving);
            moving.problem = problem.cloned();
            if state != DownloadState::Waiting {
                moving.waits_until = None;
            }
            if state != DownloadState::Running {
                moving.seen.clear();
            }
        }
        let done = self.change(|record| {
            record.state = state;
            record.reason = problem.map(Reason::from);
        });
        if let Err(problem) = done {
            tracing::warn!(%problem, "the state of a download cannot be written down");
        }
        self.changes.publish(Topic::Models);
    }

    /// Until when it waits.
    pub(crate) fn waits_until(&self, until: Timestamp) {
        lock(&self.moving).waits_until = Some(until);
    }

    pub(crate) fn task(&self, task: TaskId) {
        lock(&self.moving).task = Some(task);
    }

    /// A file got so far; the bytes of all of them.
    pub(crate) fn moved(&self, index: usize, at: u64) -> u64 {
        let mut moving = lock(&self.moving);
        if let Some(here) = moving.here.get_mut(index) {
            *here = at;
        }
        let total = moving.here.iter().sum();
        let now = Instant::now();
        let due = moving.seen.back().is_none_or(|(at, _)| now.duration_since(*at) >= Duration::from_millis(100));
        if due {
            moving.seen.push_back((now, total));
        }
        while moving.seen.len() > 2 && moving.seen.front().is_some_and(|(at, _)| now.duration_since(*at) > OVER) {
            moving.seen.pop_front();
        }
        total
    }

    /// As pages and API show it.
    pub(crate) fn shown(&self) -> Download {
        let record = self.record();
        let moving = lock(&self.moving);
        let size = record.size();
        let done: u64 = moving.here.iter().sum();
        let rate = (record.state == DownloadState::Running).then(|| rate(&moving.seen)).flatten();
        let file = |(file, here): (&super::record::RecordFile, &u64)| DownloadFile { path: file.path.clone(), size: file.size, done: Bytes(*here) };
        Download {
            files: record.files.iter().zip(&moving.here).map(file).collect(),
            size,
            done: Bytes(done),
            state: record.state,
            rate: rate.map(Bytes),
            seconds_left: rate.filter(|rate| *rate > 0).map(|rate| size.0.saturating_sub(done).div_ceil(rate)),
            reason: moving.problem.clone().or_else(|| record.reason.as_ref().map(Reason::problem)),
            waits_until: moving.waits_until,
            model: record.model,
            task: moving.task.clone(),
            created_at: record.created_at,
            id: record.id,
            repo: record.repo,
            commit: record.commit,
            served_name: record.served_name,
            load: record.load,
        }
    }
}

/// Bytes a second between the first and the last look.
fn rate(seen: &VecDeque<(Instant, u64)>) -> Option<u64> {
    let ((from, first), (to, last)) = (seen.front()?, seen.back()?);
    let millis = u64::try_from(to.duration_since(*from).as_millis()).ok().filter(|millis| *millis >= 200)?;
    // A file that began anew has fewer bytes than before.
    last.checked_sub(*first).map(|bytes| bytes.saturating_mul(1000) / millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_unknown_before_there_are_two_moments_and_after_a_begin_anew() {
        let now = Instant::now();
        let at = |millis| now + Duration::from_millis(millis);
        assert_eq!(rate(&VecDeque::from([(now, 5)])), None);
        assert_eq!(rate(&VecDeque::from([(now, 0), (at(100), 5)])), None);
        assert_eq!(rate(&VecDeque::from([(now, 1000), (at(2000), 5000)])), Some(2000));
        assert_eq!(rate(&VecDeque::from([(now, 1000), (at(2000), 0)])), None);
    }
}
