//! Bundles without a network: an upload, or a file or folder on a stick. The metadata is judged and what is trusted is stored first; then each
//! target is checked while it is read and gets its name only when it is whole, right and on the medium.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::OwnedMutexGuard;
use warden_bundle::{Opened, Source};
use warden_domain::ids::TaskId;
use warden_domain::storage::{Role, Sources, Storage};
use warden_domain::tasks::Task;
use warden_domain::update::Stick;
use warden_domain::{Problem, ProblemKind, clock};
use warden_trust::{Accepted, Clock, Direction, Entry, Identity, Installed, Kind, PartCheck, Trusted};
use warden_update_record::{Asked, Origin};

use crate::additions::{hidden, is_there, name, place};
use crate::fault::Fault;
use crate::host::Places;
use crate::keep::Channel;
use crate::machine::Event;
use crate::preflight::{self, Room};
use crate::room::{Teller, UpdateRoom, believed, blocking};
use crate::uploads::is_bundle;
use crate::work::{End, Through, free};

/// Steps of a bundle.
pub(crate) const BUNDLE: &[(&str, &str)] = &[
    ("open", "Open the bundle and check its signatures"),
    ("read", "Read and check what it carries"),
    ("fetch", "Fetch the image"),
    ("check", "Check the image, and that the running system was found healthy"),
    ("install", "Write it to the other system slot"),
    ("stage", "Make it the next one to start"),
];
/// Files and folders of a stick that are looked at.
const MOST_LOOKED: usize = 64;

/// Where sticks are found.
#[derive(Clone)]
pub struct Sticks {
    /// What is plugged in.
    pub storage: Arc<dyn Storage>,
    /// How it is opened.
    pub sources: Arc<dyn Sources>,
}

/// Which bundle is taken over.
pub(crate) enum Job {
    /// A whole upload, which goes once its content is in place.
    Upload {
        /// Its handle.
        id: String,
        /// Its file.
        path: PathBuf,
    },
    /// Whatever a stick holds.
    Stick(Stick),
}

/// What a bundle is weighed against.
#[derive(Clone)]
struct Scale {
    trusted: Trusted,
    identity: Identity,
    clock: Clock,
    installed: Installed,
    places: Places,
}

impl UpdateRoom {
    /// Says where sticks are found; until then there are none.
    pub fn set_sticks(&self, sticks: Sticks) {
        *self.sources.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(sticks);
    }

    /// Takes over an upload or the bundle of a stick, in the background.
    pub(crate) fn take_over(&self, turn: OwnedMutexGuard<()>, job: Job, install: bool) -> Result<TaskId, Fault> {
        let this = self.myself()?;
        let task = self.tasks.begin("update-bundle", BUNDLE, true);
        let id = task.id().clone();
        self.with(|known| known.task = Some(id.clone()));
        tokio::spawn(async move {
            let cancel = this.fresh_cancel(Some(&task));
            let outcome = match this.read_bundle(&task, &cancel, job).await {
                Ok(true) => this.advance(&task, &cancel, if install { Through::Staged } else { Through::Verified }).await,
                Ok(false) => Ok(End::Nothing),
                // Nothing of the attempt before is touched by a bundle that was refused.
                Err(fault) => {
                    let outcome = this.aside(Err(fault)).await;
                    return this.finish(&task, turn, outcome);
                }
            };
            this.close(&task, turn, outcome).await;
        });
        Ok(id)
    }

    async fn read_bundle(self: &Arc<Self>, task: &Task, cancel: &Arc<AtomicBool>, job: Job) -> Result<bool, Fault> {
        let stick = match job {
            Job::Upload { id, path } => {
                let taken = self.take_bundle(task, cancel, Place::File(path)).await?;
                let uploads = self.uploads();
                blocking(move || Ok(uploads.remove(&id)?)).await?;
                return self.offer(taken, Origin::Upload).await;
            }
            Job::Stick(stick) => stick,
        };
        let sticks = self.sources.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let sticks = sticks.ok_or_else(|| Fault::Problem(Problem::new(ProblemKind::SystemService, "Sticks cannot be read on this machine.")))?;
        let key = match stick {
            Stick::Disk(key) => key,
            Stick::Any => only_stick(sticks.storage.as_ref()).await?,
        };
        let source = sticks.sources.open(&key).await?;
        let taken = self.take_bundle(task, cancel, Place::Stick(source.path.clone())).await;
        sticks.sources.close(&source).await;
        self.offer(taken?, Origin::Stick).await
    }

    /// Opens, believes, stores what is trusted, and takes over what is of use. The system in it, if there is one, lies checked afterwards.
    async fn take_bundle(self: &Arc<Self>, task: &Task, cancel: &Arc<AtomicBool>, at: Place) -> Result<Taken, Fault> {
        task.step("open");
        let mut scale = Scale {
            trusted: self.trusted()?,
            identity: self.identity()?,
            clock: self.clock().await?,
            installed: self.installed(),
            places: self.places.clone(),
        };
        let looked = scale.clone();
        let (at, accepted) = blocking(move || at.find(&looked)).await?;
        self.store_trusted(accepted.trusted.clone()).await?;
        // A source that shows another release when it is read a second time is measured by what the first one said.
        scale.trusted = accepted.trusted.clone();
        task.done("open");

        task.step("read");
        let total = at.size();
        let teller = self.teller(task.id().clone(), "read", total);
        let flag = cancel.clone();
        let taken = blocking(move || at.take(&scale, &teller, &flag)).await?;
        self.set_progress(None);
        // What a bundle says counts as an offer once the bundle was found whole.
        let channel = self.with(|known| known.channel.clone());
        let seen = believed(&channel, &accepted.release, accepted.release_digest, false);
        self.store_channel(Channel { fresh_until: None, ..seen }).await?;
        for entry in &taken.added {
            self.told_of(entry.kind);
            let sentence = format!("{}.", crate::fault::sentence(&entry.subject()));
            self.note("added", &entry.version, &self.machine.version, Some(sentence)).await;
        }
        task.done("read");
        Ok(taken)
    }

    /// Makes the system of a bundle the one that waits to be installed; false when it has none.
    async fn offer(&self, taken: Taken, origin: Origin) -> Result<bool, Fault> {
        let Some(entry) = taken.system else {
            if taken.added.is_empty() && !taken.known {
                return Err(Fault::NothingInside { detail: taken.why });
            }
            return Ok(false);
        };
        self.chosen(&entry, origin, Asked::Person).await?;
        self.step(Event::Checked).await?;
        Ok(true)
    }
}

/// The one removable disk that carries files.
async fn only_stick(storage: &dyn Storage) -> Result<String, Fault> {
    let overview = storage.overview().await?;
    let mut sticks = overview.disks.iter().filter(|disk| disk.importable && disk.removable && disk.role != Role::System);
    let hint = "Plug in one stick with the bundle on it.";
    match (sticks.next(), sticks.next()) {
        (Some(one), None) => Ok(one.key.clone()),
        (None, _) => Err(Problem::new(ProblemKind::NotFound, "No stick with a readable file system is plugged in.").hint(hint).into()),
        (Some(_), Some(_)) => Err(Problem::new(ProblemKind::Conflict, "More than one stick is plugged in.").hint(hint).into()),
    }
}

/// Where a bundle lies.
enum Place {
    File(PathBuf),
    Folder(PathBuf),
    /// Somewhere on this stick.
    Stick(PathBuf),
}

/// What was taken over.
#[derive(Default)]
struct Taken {
    system: Option<Entry>,
    added: Vec<Entry>,
    /// True when something in it was here already.
    known: bool,
    /// Why the rest was left, after a colon.
    why: String,
}

impl Place {
    /// The bundle itself, believed. Of several on a stick the one with the highest release; the first refusal when none is believed.
    fn find(self, scale: &Scale) -> Result<(Self, Accepted), Fault> {
        let Self::Stick(root) = self else {
            let accepted = self.accepted(scale)?;
            return Ok((self, accepted));
        };
        let (mut best, mut refused): (Option<(Self, Accepted)>, Option<Fault>) = (None, None);
        for place in candidates(&root) {
            match place.accepted(scale) {
                Ok(found) if best.as_ref().is_none_or(|(_, best)| found.release.version > best.release.version) => best = Some((place, found)),
                Ok(_) => {}
                Err(fault) => refused = refused.or(Some(fault)),
            }
        }
        let nothing = || {
            let problem = Problem::new(ProblemKind::NotFound, "There is no update bundle on the stick.");
            Fault::Problem(problem.hint("Put a file that ends in .wob, or the folder of a channel, at the top of the stick."))
        };
        best.ok_or_else(|| refused.unwrap_or_else(nothing))
    }

    fn accepted(&self, scale: &Scale) -> Result<Accepted, Fault> {
        Ok(match self {
            Self::File(path) => warden_bundle::open(plain(path)?, &scale.trusted, &scale.identity, &scale.clock)?.accepted().clone(),
            Self::Folder(path) | Self::Stick(path) => {
                warden_bundle::open_folder(path, &scale.trusted, &scale.identity, &scale.clock)?.accepted().clone()
            }
        })
    }

    fn take(&self, scale: &Scale, teller: &Teller, cancel: &AtomicBool) -> Result<Taken, Fault> {
        match self {
            Self::File(path) => take(&mut warden_bundle::open(plain(path)?, &scale.trusted, &scale.identity, &scale.clock)?, scale, teller, cancel),
            Self::Folder(path) | Self::Stick(path) => {
                take(&mut warden_bundle::open_folder(path, &scale.trusted, &scale.identity, &scale.clock)?, scale, teller, cancel)
            }
        }
    }

    /// Bytes to be read, for progress; of a folder those of its targets.
    fn size(&self) -> u64 {
        match self {
            Self::File(path) => fs::metadata(path).map_or(0, |about| about.len()),
            Self::Folder(path) | Self::Stick(path) => {
                let files = fs::read_dir(path.join("targets")).into_iter().flatten().flatten();
                files.filter_map(|file| file.metadata().ok()).map(|about| about.len()).sum()
            }
        }
    }
}

/// A file that is one, and no link.
fn plain(path: &Path) -> Result<io::BufReader<fs::File>, Fault> {
    let failed = || Fault::io(format!("{} cannot be opened", path.display()));
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed())?;
    if !file.metadata().map_err(failed())?.is_file() {
        return Err(failed()(io::Error::other("it is no plain file")));
    }
    Ok(io::BufReader::with_capacity(256 << 10, file))
}

/// Bundles at the top of a stick, and folders of channels there or one level below.
fn candidates(root: &Path) -> Vec<Place> {
    let is_channel = |path: &Path| path.join("metadata/timestamp.json").is_file();
    let mut found = Vec::new();
    if is_channel(root) {
        found.push(Place::Folder(root.to_owned()));
    }
    let mut entries: Vec<_> = fs::read_dir(root).into_iter().flatten().flatten().take(MOST_LOOKED * 16).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type());
        if kind.as_ref().is_ok_and(fs::FileType::is_file) && is_bundle(&path) {
            found.push(Place::File(path));
        } else if kind.is_ok_and(|kind| kind.is_dir()) && is_channel(&path) {
            found.push(Place::Folder(path));
        }
    }
    found.truncate(MOST_LOOKED);
    found
}

/// Takes over what is of use, each target checked while it is read.
fn take<S: Source>(opened: &mut Opened<S>, scale: &Scale, teller: &Teller, cancel: &AtomicBool) -> Result<Taken, Fault> {
    let accepted = opened.accepted().clone();
    let best = accepted.best_os(&scale.installed).map(|(entry, _)| entry.sha256);
    let mut taken = Taken::default();
    while let Some(digest) = opened.next_target()? {
        teller.moved(opened.progress());
        let (entry, direction) = match accepted.admit(&digest, &scale.installed) {
            Ok(found) => found,
            Err(refusal) => {
                if taken.why.is_empty() {
                    taken.why = format!(": {}", refusal.to_string().trim_end_matches('.'));
                }
                continue;
            }
        };
        if entry.kind == Kind::Os && (Some(digest) != best || direction == Direction::Same) {
            taken.known |= direction == Direction::Same;
            continue;
        }
        let Some(path) = place(&scale.places, entry) else { continue };
        let lies = if entry.kind == Kind::Os { whole(&path, entry) } else { is_there(&scale.places, entry) };
        if !lies {
            let folder = path.parent().unwrap_or(Path::new("/"));
            preflight::room(entry, Room { free: free(folder)?, there: 0 })?;
            let (file, beside) = hidden(&path, entry.kind)?;
            let begun = opened.progress();
            let mut out = Watched { file, moved: begun, teller, cancel };
            let written =
                opened.copy_to(&mut out).map_err(Fault::from).and_then(|()| out.file.sync_all().map_err(Fault::io("the disk cannot be written")));
            if let Err(fault) = written {
                let _gone_already = fs::remove_file(&beside);
                return Err(if cancel.load(Ordering::Relaxed) { Fault::Cancelled } else { fault });
            }
            name(&beside, &path, entry)?;
        }
        match entry.kind {
            Kind::Os => taken.system = Some(entry.clone()),
            _ if lies => taken.known = true,
            _ => taken.added.push(entry.clone()),
        }
    }
    tracing::info!(release = accepted.release.version, system = taken.system.is_some(), added = taken.added.len(), at = %clock::now(), "a bundle was read");
    Ok(taken)
}

fn whole(path: &Path, entry: &Entry) -> bool {
    fs::File::open(path).is_ok_and(|file| PartCheck::resume(entry, file).is_ok_and(|check| check.finish().is_ok()))
}

/// A file that tells of its bytes and ends when somebody cancels.
struct Watched<'a> {
    file: fs::File,
    moved: u64,
    teller: &'a Teller,
    cancel: &'a AtomicBool,
}

impl Write for Watched<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(io::Error::other("cancelled"));
        }
        let written = self.file.write(bytes)?;
        self.moved += written as u64;
        self.teller.moved(self.moved);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
