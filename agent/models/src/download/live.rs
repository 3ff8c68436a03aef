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
    /// A record that was removed, or is about to be, is not written again by a late hand. Held while somebody decides between going on,
    /// coming to rest and giving up, so that these never pass each other.
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

    /// Says what is wanted; whoever waits for bytes or time hears it at once. What was given up is not only paused.
    pub(crate) fn want(&self, wish: Wish) {
        self.wish.send_if_modified(|now| {
            let heard = !(*now == Wish::Cancel && wish == Wish::Pause);
            if heard {
                *now = wish;
            }
            heard
        });
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
        self.write(*gone, change)
    }

    /// The caller holds `gone`.
    fn write(&self, gone: bool, change: impl FnOnce(&mut Record)) -> Result<(), Problem> {
        let record = {
            let mut record = lock(&self.record);
            change(&mut record);
            record.clone()
        };
        if gone { Ok(()) } else { record.save(&self.models_dir) }
    }

    /// Removes the record for good. Blocking.
    pub(crate) fn forget(&self) -> Result<(), Problem> {
        let mut gone = lock(&self.gone);
        *gone = true;
        lock(&self.record).remove(&self.models_dir)
    }

    /// Another state, written down. Blocking.
    pub(crate) fn enter(&self, state: DownloadState, problem: Option<&Problem>) {
        let gone = lock(&self.gone);
        self.turn(*gone, state, problem);
    }

    /// Comes to rest in a state; `false`, and nothing is written, when somebody wants it given up. Blocking.
    pub(crate) fn rest(&self, state: DownloadState, problem: Option<&Problem>) -> bool {
        let gone = lock(&self.gone);
        let rests = self.wish() != Wish::Cancel;
        if rests {
            self.turn(*gone, state, problem);
        }
        rests
    }

    /// Queues it again when it was paused or failed; else tells where it stands. Of several who ask at once one is heard. Blocking.
    pub(crate) fn again(&self) -> Result<(), DownloadState> {
        let gone = lock(&self.gone);
        match self.state() {
            DownloadState::Paused | DownloadState::Failed if !*gone => {
                self.want(Wish::Go);
                self.turn(*gone, DownloadState::Queued, None);
                Ok(())
            }
            other => Err(other),
        }
    }

    /// Gives it up: `true` when nobody works at it, so that whoever asks clears it away; else its worker hears it. Blocking.
    pub(crate) fn give_up(&self) -> bool {
        let mut gone = lock(&self.gone);
        let works = matches!(self.state(), DownloadState::Queued | DownloadState::Running | DownloadState::Waiting);
        if works {
            self.want(Wish::Cancel);
        } else {
            *gone = true;
        }
        !works
    }

    /// The caller holds `gone`.
    fn turn(&self, gone: bool, state: DownloadState, problem: Option<&Problem>) {
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
        let done = self.write(gone, |record| {
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
    use warden_domain::{clock, engine::EngineKind, ids::DownloadId, model::Layout};

    use super::*;

    fn live(folder: &std::path::Path) -> Arc<Live> {
        let record = Record {
            id: DownloadId::random(),
            created_at: clock::now(),
            repo: "lab/one".into(),
            revision: "main".into(),
            commit: "0011223344".into(),
            served_name: "one".into(),
            context: None,
            slots: None,
            layout: Layout::default(),
            load: false,
            engine: EngineKind::LlamaCpp,
            folder: "lab--one-00112233".into(),
            files: Vec::new(),
            state: DownloadState::Running,
            reason: None,
            model: None,
        };
        Live::new(record, folder.to_owned(), Changes::new())
    }

    #[test]
    fn who_gives_up_at_the_moment_of_a_failure_is_heard() {
        let dir = tempfile::tempdir().unwrap();
        let live = live(dir.path());
        assert!(!live.give_up(), "its worker clears it away");
        live.want(Wish::Pause);
        assert!(!live.rest(DownloadState::Failed, Some(&Problem::internal("x"))));
        assert!(!live.rest(DownloadState::Paused, None));
        assert_eq!(live.again(), Err(DownloadState::Running));
    }

    #[test]
    fn one_resume_is_heard_and_none_after_it_was_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let live = live(dir.path());
        live.want(Wish::Pause);
        assert!(live.rest(DownloadState::Paused, None));
        assert_eq!(live.again(), Ok(()));
        assert_eq!((live.again(), live.wish()), (Err(DownloadState::Queued), Wish::Go));
        assert!(live.rest(DownloadState::Failed, None));
        assert!(live.give_up(), "whoever asks clears it away");
        assert_eq!(live.again(), Err(DownloadState::Failed));
    }

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
