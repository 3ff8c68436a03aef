//! The update room: what is known in memory, the one turn in which something is done, and the steps of the record, written before they are
//! taken. What is done in a turn lies in `work`, `install`, `offline` and `trial`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::OwnedMutexGuard;
use warden_domain::change::{Changes, Topic};
use warden_domain::ids::TaskId;
use warden_domain::tasks::{Task, Tasks};
use warden_domain::update::{HistoryLine, UpdatePhase, UpdateProgress, UpdateSettings};
use warden_domain::{Problem, ProblemKind, clock};
use warden_trust::{Digest, Freshness, Identity, Installed, Quarantine, Release, Trusted};
use warden_update_record::{Phase, Record, Verdict};

use crate::download::Rules;
use crate::fault::Fault;
use crate::host::{Build, Host, Machine, Places, number};
use crate::http::Client;
use crate::keep::{Channel, History, Keep, Trouble};
use crate::machine::{Event, next};
use crate::trust::Beginning;

/// News of a running step are told at most so often.
const TOLD_EVERY: Duration = Duration::from_millis(300);
/// A rate is measured over so long.
const RATE_OVER: Duration = Duration::from_secs(10);

/// What the room is made of.
pub struct Parts {
    /// Where it reads and writes.
    pub places: Places,
    /// What this machine is.
    pub machine: Machine,
    /// The machine and the other rooms.
    pub host: Arc<dyn Host>,
    /// News.
    pub changes: Changes,
    /// Long work.
    pub tasks: Tasks,
    /// The rules of a transfer.
    pub rules: Rules,
    /// How long an install may stand still.
    pub stall: Duration,
    /// What only the database of a system that was gone back from holds, as a sentence; `None` without one.
    pub left_behind: Option<String>,
}

/// What is known.
pub(crate) struct Known {
    pub(crate) record: Record,
    pub(crate) settings: UpdateSettings,
    pub(crate) trusted: Option<Trusted>,
    pub(crate) failed: Quarantine,
    pub(crate) history: History,
    pub(crate) channel: Channel,
    pub(crate) trouble: Trouble,
    /// Freshness of the last look at the channel in this run; `None` before it.
    pub(crate) fresh: Option<Freshness>,
    pub(crate) verdict: Option<Verdict>,
    pub(crate) progress: Option<UpdateProgress>,
    pub(crate) task: Option<TaskId>,
}

/// The room.
pub struct UpdateRoom {
    pub(crate) places: Places,
    pub(crate) machine: Machine,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) changes: Changes,
    pub(crate) tasks: Tasks,
    pub(crate) rules: Rules,
    pub(crate) stall: Duration,
    pub(crate) left_behind: Option<String>,
    pub(crate) build: Result<Build, Problem>,
    pub(crate) client: Client,
    pub(crate) keep: Keep,
    pub(crate) known: Mutex<Known>,
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
    pub(crate) cancel: Mutex<Arc<AtomicBool>>,
    /// Where the update stands could not be told or written; the clock tries again.
    pub(crate) unsettled: AtomicBool,
    pub(crate) uploads: tokio::sync::Mutex<()>,
    pub(crate) started: Timestamp,
    pub(crate) this: Weak<Self>,
    pub(crate) sources: Mutex<Option<crate::offline::Sticks>>,
    /// The slots as they were last told, and when.
    pub(crate) slots: Mutex<(Option<Instant>, Vec<warden_domain::update::SlotView>)>,
}

impl UpdateRoom {
    /// Reads what is remembered, finds out where the update stands, and goes on with it.
    ///
    /// # Errors
    /// Folders cannot be made or remembered files cannot be read.
    pub async fn open(parts: Parts) -> Result<Arc<Self>, Problem> {
        let Parts { places, machine, host, changes, tasks, rules, stall, left_behind } = parts;
        let client = Client::new(&machine.version)?;
        let keep = Keep::new(&places.state);
        let (known, build, beginning) = {
            let (keep, places) = (keep.clone(), places.clone());
            blocking(move || {
                for folder in [&places.state, &places.files, &places.files.join("targets"), &places.files.join("uploads")] {
                    make_folder(folder);
                }
                Ok(load(&keep, &places))
            })
            .await
            .map_err(|fault| fault.problem())?
        };
        let room = Arc::new_cyclic(|this| Self {
            client,
            keep,
            known: Mutex::new(known),
            turn: Arc::default(),
            cancel: Mutex::default(),
            unsettled: AtomicBool::new(false),
            uploads: tokio::sync::Mutex::default(),
            started: clock::now(),
            this: this.clone(),
            sources: Mutex::new(None),
            slots: Mutex::default(),
            places,
            machine,
            host,
            changes,
            tasks,
            rules,
            stall,
            left_behind,
            build,
        });
        room.begin_trust(beginning).await;
        Ok(room)
    }

    /// Looks at or changes what is known; never across an await.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut Known) -> T) -> T {
        look(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn settings(&self) -> UpdateSettings {
        self.with(|known| known.settings.clone())
    }

    pub(crate) fn record(&self) -> Record {
        self.with(|known| known.record.clone())
    }

    /// Takes a step: written and on the medium before it counts.
    pub(crate) async fn step(&self, event: Event) -> Result<Record, Fault> {
        let record = next(&self.record(), event)?;
        self.put(record.clone()).await?;
        Ok(record)
    }

    /// Writes a record that was decided elsewhere.
    pub(crate) async fn put(&self, record: Record) -> Result<(), Fault> {
        let (keep, written) = (self.keep.clone(), record.clone());
        blocking(move || Ok(keep.write_record(&written)?)).await?;
        tracing::info!(phase = record.phase().name(), version = record.attempt().map(|a| a.entry.version.as_str()), "update");
        self.with(|known| known.record = record);
        // Where the update stands has moved, so the slots may have, too.
        self.forget_slots();
        self.told();
        Ok(())
    }

    /// The slots are asked for anew at the next look.
    pub(crate) fn forget_slots(&self) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).0 = None;
    }

    pub(crate) async fn store_failed(&self, failed: Quarantine) -> Result<(), Fault> {
        let (keep, written) = (self.keep.clone(), failed.clone());
        blocking(move || Ok(keep.write(&written)?)).await?;
        self.with(|known| known.failed = failed);
        Ok(())
    }

    pub(crate) async fn store_channel(&self, channel: Channel) -> Result<(), Fault> {
        let (keep, written) = (self.keep.clone(), channel.clone());
        blocking(move || Ok(keep.write(&written)?)).await?;
        self.with(|known| known.channel = channel);
        self.told();
        Ok(())
    }

    /// Notes what happened.
    pub(crate) async fn note(&self, outcome: &str, version: &str, from: &str, sentence: Option<String>) {
        let line = HistoryLine { at: clock::now(), version: version.to_owned(), from: from.to_owned(), outcome: outcome.to_owned(), sentence };
        let history = self.with(|known| known.history.clone()).with(line);
        let (keep, written) = (self.keep.clone(), history.clone());
        if let Err(fault) = blocking(move || Ok::<_, Fault>(keep.write(&written)?)).await {
            tracing::error!(%fault, "the history of updates cannot be written");
        }
        self.with(|known| known.history = history);
        self.told();
    }

    pub(crate) async fn set_trouble(&self, fault: &Fault) {
        self.put_trouble(Trouble { fault: Some(fault.shown()), passes: fault.passes() }).await;
    }

    pub(crate) async fn clear_trouble(&self) {
        if self.with(|known| known.trouble.fault.is_some()) {
            self.put_trouble(Trouble::default()).await;
        }
    }

    async fn put_trouble(&self, trouble: Trouble) {
        let (keep, written) = (self.keep.clone(), trouble.clone());
        if let Err(fault) = blocking(move || Ok::<_, Fault>(keep.write(&written)?)).await {
            tracing::error!(%fault, "the trouble of an update cannot be written");
        }
        self.with(|known| known.trouble = trouble);
        self.told();
    }

    pub(crate) fn told(&self) {
        self.changes.publish(Topic::Updates);
    }

    /// The turn in which something is done, or a sentence that somebody else has it.
    pub(crate) fn take_turn(&self) -> Result<OwnedMutexGuard<()>, Problem> {
        self.turn.clone().try_lock_owned().map_err(|_| {
            Problem::new(ProblemKind::Conflict, "An update is being worked on.").hint("Wait until the step is done, or cancel it first.")
        })
    }

    /// A fresh cancel flag for the turn.
    pub(crate) fn fresh_cancel(&self, task: Option<&Task>) -> Arc<AtomicBool> {
        let flag = task.map_or_else(Arc::default, Task::flag);
        *self.cancel.lock().unwrap_or_else(PoisonError::into_inner) = flag.clone();
        flag
    }

    pub(crate) fn ask_cancel(&self) {
        self.cancel.lock().unwrap_or_else(PoisonError::into_inner).store(true, Ordering::Relaxed);
    }

    /// What the box is.
    pub(crate) fn identity(&self) -> Result<Identity, Fault> {
        let build = self.build.as_ref().map_err(|problem| Fault::Problem(problem.clone()))?;
        Ok(build.identity(&self.settings().channel))
    }

    /// The trusted state, or why there is none.
    /// What runs here, as targets are weighed against it.
    pub(crate) fn installed(&self) -> Installed {
        Installed { os: number(&self.machine.version), driver: None, data_needs: self.machine.data_needs }
    }

    pub(crate) fn targets(&self) -> PathBuf {
        self.places.files.join("targets")
    }

    /// Where a checked target lies.
    pub(crate) fn target(&self, digest: &Digest) -> PathBuf {
        self.targets().join(digest.to_string())
    }

    /// A teller of progress in bytes for the page and the task.
    pub(crate) fn teller(self: &Arc<Self>, task: TaskId, key: &'static str, total: u64) -> Teller {
        Teller { room: Arc::clone(self), task, key, total, told: Mutex::default() }
    }

    pub(crate) fn set_progress(&self, progress: Option<UpdateProgress>) {
        self.with(|known| known.progress = progress);
        self.told();
    }
}

/// Tells of bytes that moved: not too often, with a rate and the time that is left.
pub(crate) struct Teller {
    room: Arc<UpdateRoom>,
    task: TaskId,
    key: &'static str,
    total: u64,
    told: Mutex<ToldSoFar>,
}

/// When progress was told last, and the bytes of the last moments, for the rate.
#[derive(Default)]
struct ToldSoFar {
    last: Option<Instant>,
    recent: Vec<(Instant, u64)>,
}

impl Teller {
    pub(crate) fn moved(&self, done: u64) {
        let now = Instant::now();
        let per_second = {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            if done < self.total && told.last.is_some_and(|last| now.duration_since(last) < TOLD_EVERY) {
                return;
            }
            told.last = Some(now);
            told.recent.retain(|(at, _)| now.duration_since(*at) <= RATE_OVER);
            told.recent.push((now, done));
            rate(&told.recent)
        };
        let left = self.total.saturating_sub(done);
        let left_s = per_second.filter(|rate| *rate > 0).map(|rate| left.div_ceil(rate));
        self.room.tasks.advance(&self.task, self.key, done, self.total);
        self.room.set_progress(Some(UpdateProgress { done, total: self.total, bytes: true, per_second, left_s }));
    }
}

/// Bytes a second over what was seen; `None` before a second of it was.
fn rate(seen: &[(Instant, u64)]) -> Option<u64> {
    let ((first, from), (last, to)) = (seen.first()?, seen.last()?);
    let took = last.duration_since(*first).as_millis();
    (took >= 1000).then(|| u64::try_from(u128::from(to.saturating_sub(*from)) * 1000 / took).unwrap_or(u64::MAX))
}

fn make_folder(folder: &std::path::Path) {
    if let Err(cause) = std::fs::create_dir_all(folder) {
        // The data disk may be missing; what needs the folder says so when it is used.
        tracing::warn!(folder = %folder.display(), %cause, "a folder for updates cannot be made");
    }
}

fn load(keep: &Keep, places: &Places) -> (Known, Result<Build, Problem>, Beginning) {
    let build = build(places);
    let mut damage = None;
    let mut broken = |fault: warden_update_record::FileError| {
        tracing::error!(%fault, "a record of updates cannot be read and begins anew");
        damage = Some(Fault::from(fault).shown());
    };
    macro_rules! read {
        ($made:expr) => {
            $made.unwrap_or_else(|fault| {
                broken(fault);
                None
            })
        };
    }
    let record = read!(keep.record()).unwrap_or_default();
    let settings = read!(keep.read()).unwrap_or_else(|| {
        let channel = build.as_ref().map_or_else(|_| UpdateSettings::default().channel, |build| build.channel.clone());
        UpdateSettings { channel, ..UpdateSettings::default() }
    });
    let (trusted, beginning) = crate::trust::load(keep, &mut broken);
    let failed = read!(keep.read()).unwrap_or_default();
    let history = read!(keep.read()).unwrap_or_default();
    let channel = read!(keep.read()).unwrap_or_default();
    let mut trouble: Trouble = read!(keep.read()).unwrap_or_default();
    if damage.is_some() {
        trouble = Trouble { fault: damage, passes: false };
    }
    let verdict = warden_update_record::read(&places.health).ok().flatten();
    let known = Known { record, settings, trusted, failed, history, channel, trouble, fresh: None, verdict, progress: None, task: None };
    (known, build, beginning)
}

fn build(places: &Places) -> Result<Build, Problem> {
    let path = places.trust.join("build.json");
    let unusable = |why: String| {
        Problem::new(ProblemKind::SystemService, format!("This system does not say which updates belong to it: {why}."))
            .hint("The appliance's image carries that; on a development machine set update_trust_dir in the configuration.")
    };
    let text = std::fs::read(&path).map_err(|cause| unusable(format!("{} cannot be read ({cause})", path.display())))?;
    serde_json::from_slice(&text).map_err(|cause| unusable(format!("{} is damaged ({cause})", path.display())))
}

/// Runs blocking work off the async threads.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Fault> + Send + 'static) -> Result<T, Fault> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|cause| Err(Fault::Problem(Problem::internal(format!("A worker of the updater ended early: {cause}.")))))
}

/// The phase as pages know it.
pub(crate) const fn shown(phase: Phase) -> UpdatePhase {
    match phase {
        Phase::Idle => UpdatePhase::Idle,
        Phase::Available => UpdatePhase::Available,
        Phase::Downloading => UpdatePhase::Downloading,
        Phase::Verified => UpdatePhase::Verified,
        Phase::Installing => UpdatePhase::Installing,
        Phase::Staged => UpdatePhase::Staged,
        Phase::Trial => UpdatePhase::Trial,
        Phase::Confirmed => UpdatePhase::Confirmed,
        Phase::RolledBack => UpdatePhase::RolledBack,
    }
}

/// Keeps a release as the one believed last.
pub(crate) fn believed(channel: &Channel, release: &Release, digest: Digest, from_server: bool) -> Channel {
    Channel { release: Some(release.clone()), digest: Some(digest), from_server, ..channel.clone() }
}
