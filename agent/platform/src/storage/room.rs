//! The room itself: the bus, the remembered disks, what is shown of both, and the watch that mounts what is plugged in.
//!
//! In: news of the disk manager and wishes of an admin. Out: the ports of the domain. One thing is done to disks at a time. What pages and
//! models see is a picture that is made anew whenever the disk manager says that something changed.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use futures_util::StreamExt;
use tokio::{
    sync::{Mutex, Notify},
    time::{sleep, timeout},
};
use warden_domain::{
    Problem, ProblemKind,
    change::{Changes, Topic},
    clock,
    ids::{AccountId, DiskId, TaskId},
    storage::{Adoption, AdoptionPlan, Disk, ModelDisks, ModelRoot, Overview, Presence, Recorded, Storage, Volume},
    tasks::Tasks,
    units::Bytes,
};
use warden_store::{
    Store,
    audit::{self, AuditRow},
    disks,
};
use zbus::{Connection, MatchRule, MessageStream, Variant, connection, fdo::ObjectManagerProxy, message::Type};

use super::{
    adoption, classify, decide,
    missing::{degraded, name_of},
    objects::Objects,
    reunite::{self, Found, mount_point},
    udisks::{BLOCKS, FilesystemProxy, NAME, ROOT, kind_of, quietly, said, too_slow},
};

/// Bounds connecting; calls themselves are not bounded, because formatting a large disk takes its time.
const CONNECT: Duration = Duration::from_secs(20);
/// A file system that takes longer is taken for broken: while it is waited for nothing else can be done to any disk.
const MOUNTS: Duration = Duration::from_secs(60);
/// The same for giving it back, which writes what memory holds.
const UNMOUNTS: Duration = Duration::from_secs(180);
/// Even without news the disks are looked at again this often.
const TICK: Duration = Duration::from_secs(20);
/// News within this time make one look.
const GATHER: Duration = Duration::from_millis(400);
/// A lost bus is tried again after this.
const AGAIN: Duration = Duration::from_secs(3);

/// What is known of disks at one moment.
#[derive(Clone, Debug, Default)]
struct Picture {
    disks: Vec<Disk>,
    volumes: Vec<Volume>,
    /// Why the disks could not be looked at last time.
    trouble: Option<Problem>,
}

/// Model disks and sticks of this machine.
pub struct StorageRoom {
    pub(super) store: Store,
    pub(super) tasks: Tasks,
    pub(super) changes: Changes,
    bus: Mutex<Option<Connection>>,
    picture: ArcSwap<Picture>,
    /// Something may have changed.
    news: Arc<Notify>,
    /// For work that outlives the call that asked for it.
    this: Weak<Self>,
    /// Held while something is done to a disk.
    pub(super) turn: Mutex<()>,
}

impl StorageRoom {
    /// Reads what is remembered and begins to watch. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn start(store: Store, tasks: Tasks, changes: Changes) -> Result<Arc<Self>, Problem> {
        let recorded = store.read(disks::list).await?;
        // Nothing is called missing before the first look.
        let volumes = recorded.into_iter().map(|recorded| Volume { recorded, presence: Presence::Mounting }).collect();
        let picture = ArcSwap::from_pointee(Picture { volumes, ..Picture::default() });
        let room = Arc::new_cyclic(|this| Self {
            store,
            tasks,
            changes,
            bus: Mutex::new(None),
            picture,
            news: Arc::new(Notify::new()),
            this: this.clone(),
            turn: Mutex::new(()),
        });
        tokio::spawn(watch(Arc::downgrade(&room)));
        tokio::spawn(listen(room.news.clone(), Arc::downgrade(&room)));
        Ok(room)
    }

    /// The remembered disks as last seen.
    ///
    /// # Errors
    /// Why they could not be looked at last time.
    pub(super) fn volumes(&self) -> Result<Vec<Volume>, Problem> {
        let picture = self.picture.load();
        picture.trouble.clone().map_or_else(|| Ok(picture.volumes.clone()), Err)
    }

    /// The connection, made anew when the last one was lost.
    pub(super) async fn bus(&self) -> Result<Connection, Problem> {
        let mut held = self.bus.lock().await;
        if let Some(connection) = held.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        let connecting = async { connection::Builder::system().build().await };
        let connection = timeout(CONNECT, connecting).await.map_err(|_| no_bus("it did not answer in time"))?;
        let connection = connection.map_err(|cause| no_bus(&cause.to_string()))?;
        *held = Some(connection.clone());
        Ok(connection)
    }

    /// What the disk manager says now.
    pub(super) async fn objects(&self) -> Result<Objects, Problem> {
        let bus = self.bus().await?;
        let look = async {
            ObjectManagerProxy::builder(&bus).destination(NAME).path(ROOT).build().await?.get_managed_objects().await.map_err(zbus::Error::from)
        };
        // The first call starts the disk manager, which probes every disk first.
        let tree = timeout(Duration::from_secs(60), look).await.map_err(|_| no_bus("the disk manager did not answer in time"))?;
        Ok(Objects::read(&tree.map_err(|cause| said("list the disks", &cause))?))
    }

    /// A file system's calls.
    pub(super) async fn filesystem(&self, block: &str) -> Result<FilesystemProxy<'static>, Problem> {
        let bus = self.bus().await?;
        let proxy = async { FilesystemProxy::builder(&bus).path(format!("{BLOCKS}{block}")).build().await };
        proxy.await.map_err(|cause: zbus::Error| said("reach the file system", &cause))
    }

    /// Looks at everything, mounts remembered disks that are there, and shows the result. Never formats.
    pub(super) async fn look(&self) -> Result<(), Problem> {
        let recorded = self.store.read(disks::list).await?;
        let outcome = self.objects().await;
        let picture = match outcome {
            Ok(mut all) => {
                let mut volumes = Vec::with_capacity(recorded.len());
                for disk in &recorded {
                    let presence = self.bring_back(disk, &all).await;
                    volumes.push(Volume { recorded: disk.clone(), presence });
                }
                if volumes.iter().any(|v| matches!(v.presence, Presence::Mounted { .. })) {
                    all = self.objects().await.unwrap_or(all);
                }
                Picture { disks: classify::disks(&all, &recorded), volumes, trouble: None }
            }
            Err(problem) => {
                let before = self.picture.load();
                Picture { disks: before.disks.clone(), volumes: before.volumes.clone(), trouble: Some(problem) }
            }
        };
        self.show(picture);
        Ok(())
    }

    fn show(&self, picture: Picture) {
        let before = self.picture.swap(Arc::new(picture.clone()));
        let places = |p: &Picture| p.volumes.iter().map(|v| (v.recorded.id.clone(), place_of(v))).collect::<Vec<_>>();
        if before.disks != picture.disks || places(&before) != places(&picture) || before.trouble != picture.trouble {
            self.changes.publish(Topic::Storage);
        }
    }

    /// Mounts a remembered disk where it belongs, when it is there and is not mounted.
    async fn bring_back(&self, disk: &Recorded, all: &Objects) -> Presence {
        match reunite::find(disk, all) {
            Found::Mounted(path) => mounted(path),
            Found::Nowhere => Presence::Missing,
            Found::Misplaced(_) => unusable(
                "It is mounted in another place than its own, because a second device carries its label. Remove that one and restart the appliance.",
            ),
            Found::Impostor(serial) => unusable(&format!(
                "A disk with the same file system has the serial number {} instead of {}: it may be a copy. Plug in the original, or forget this one and adopt the other.",
                serial.as_deref().unwrap_or("(none)"),
                disk.serial
            )),
            Found::Here(block) => match self.mount(&block, "noatime,noexec").await {
                Ok(path) if path == mount_point(&disk.label) => {
                    tracing::info!(disk = %disk.id, label = %disk.label, path = %path.display(), "model storage mounted");
                    mounted(path)
                }
                Ok(path) => {
                    self.unmount(&block).await;
                    unusable(&format!("It would be mounted at {}, because a second device carries its label. Remove that one.", path.display()))
                }
                Err(problem) => unusable(&problem.full_text()),
            },
        }
    }

    /// Mounts a block and says where. Mounted by somebody in between is fine.
    pub(super) async fn mount(&self, block: &str, options: &'static str) -> Result<PathBuf, Problem> {
        let filesystem = self.filesystem(block).await?;
        let mounting = filesystem.mount(quietly([("options", Variant::from(options))]));
        let path = timeout(MOUNTS, mounting).await.map_err(|_| too_slow("mounted"))?;
        path.map(PathBuf::from).map_err(|cause| said("mount the disk", &cause))
    }

    /// Unmounts a block; one that is not mounted is fine.
    pub(super) async fn unmount(&self, block: &str) {
        if let Err(problem) = self.try_unmount(block).await {
            tracing::warn!(block, %problem, "a file system could not be unmounted");
        }
    }

    async fn try_unmount(&self, block: &str) -> Result<(), Problem> {
        let filesystem = self.filesystem(block).await?;
        let gone = timeout(UNMOUNTS, filesystem.unmount(quietly([]))).await.map_err(|_| too_slow("unmounted"))?;
        match gone {
            Ok(()) => Ok(()),
            Err(cause) if kind_of(&cause) == "NotMounted" => Ok(()),
            Err(cause) => Err(said("unmount the disk", &cause)),
        }
    }

    /// Looks once nothing is being done to a disk.
    async fn look_when_free(&self) -> Result<(), Problem> {
        let _turn = self.turn.lock().await;
        self.look().await
    }

    /// Writes what was done into the record, in a transaction of its own or together with `more`.
    pub(super) async fn record(
        &self,
        by: &AccountId,
        action: &'static str,
        subject: String,
        more: impl FnOnce(&warden_store::rusqlite::Transaction<'_>) -> Result<(), warden_store::StoreError> + Send + 'static,
    ) -> Result<(), Problem> {
        let row = AuditRow { at: clock::now(), account: Some(by.clone()), action, subject: Some(subject), outcome: "ok" };
        self.store
            .write(move |tx| {
                more(tx)?;
                audit::insert(tx, &row)
            })
            .await?;
        Ok(())
    }
}

#[async_trait]
impl Storage for StorageRoom {
    async fn overview(&self) -> Result<Overview, Problem> {
        let picture = self.picture.load_full();
        if let Some(problem) = &picture.trouble {
            return Err(problem.clone());
        }
        let volumes: Vec<Volume> = picture.volumes.iter().map(|v| Volume { presence: measured(&v.presence), ..v.clone() }).collect();
        let degraded = volumes.iter().filter_map(|v| degraded(&v.recorded, &v.presence)).map(|said| said.to_string()).collect();
        Ok(Overview { disks: picture.disks.clone(), volumes, degraded, elsewhere: false })
    }

    async fn plan(&self, disk: &str) -> Result<AdoptionPlan, Problem> {
        let recorded = self.store.read(disks::list).await?;
        decide::plan(&classify::disks(&self.objects().await?, &recorded), disk)
    }

    async fn adopt(&self, by: &AccountId, wish: Adoption) -> Result<TaskId, Problem> {
        let plan = self.plan(&wish.disk).await?;
        decide::confirmed(&plan, wish.serial.as_deref())?;
        let Some(room) = self.this.upgrade() else { return Err(Problem::new(ProblemKind::ShuttingDown, "The agent is stopping.")) };
        Ok(adoption::begin(room, by.clone(), plan))
    }

    async fn forget(&self, by: &AccountId, id: &DiskId) -> Result<(), Problem> {
        let _turn = self.turn.lock().await;
        let recorded = self.store.read(disks::list).await?;
        let disk = recorded
            .iter()
            .find(|d| d.id == *id)
            .ok_or_else(|| Problem::new(ProblemKind::NotFound, "No recorded disk has this id.").hint("GET /api/storage lists the recorded disks."))?;
        // A disk manager that does not answer must not keep a disk that is gone on the list for ever.
        if let Ok(all) = self.objects().await
            && let Some(block) =
                all.blocks.values().find(|b| b.uuid.as_deref() == Some(&disk.fs_uuid) && b.mounts.as_ref().is_some_and(|m| !m.is_empty()))
        {
            self.try_unmount(&block.name).await?;
        }
        let gone = id.clone();
        self.record(by, "storage.forget", disk.label.clone(), move |tx| disks::delete(tx, &gone).map(drop)).await?;
        tracing::info!(disk = %id, label = %disk.label, "model storage forgotten; what is on it stays");
        self.look().await
    }
}

impl ModelDisks for StorageRoom {
    fn roots(&self) -> Vec<ModelRoot> {
        let picture = self.picture.load();
        let root = |v: &Volume| match &v.presence {
            Presence::Mounted { path, .. } => Some(ModelRoot { id: v.recorded.id.clone(), path: path.clone() }),
            _ => None,
        };
        picture.volumes.iter().filter_map(root).collect()
    }

    fn absent(&self, path: &Path) -> Option<Problem> {
        let picture = self.picture.load();
        let volume = picture.volumes.iter().find(|v| path.starts_with(mount_point(&v.recorded.label)))?;
        let name = name_of(&volume.recorded);
        let problem = |message: String| Problem::new(ProblemKind::DiskMissing, message).hint("The model loads by itself once the disk is there.");
        match &volume.presence {
            Presence::Mounted { .. } => None,
            Presence::Mounting => Some(problem(format!("{name}, which holds this model, is still being looked for."))),
            Presence::Missing => Some(problem(format!("{name}, which holds this model, is missing. Plug it in again."))),
            Presence::Unusable { reason } => Some(problem(format!("{name}, which holds this model, cannot be used. {reason}"))),
        }
    }
}

/// Free space is asked at each look, because it changes without news.
fn measured(presence: &Presence) -> Presence {
    match presence {
        Presence::Mounted { path, .. } => mounted(path.clone()),
        other => other.clone(),
    }
}

fn mounted(path: PathBuf) -> Presence {
    let room = nix::sys::statvfs::statvfs(&path).ok();
    let bytes = |blocks: u64, s: &nix::sys::statvfs::Statvfs| Bytes(blocks.saturating_mul(s.fragment_size()));
    let (free, total) = (room.as_ref().map(|s| bytes(s.blocks_available(), s)), room.as_ref().map(|s| bytes(s.blocks(), s)));
    Presence::Mounted { path, free, total }
}

fn unusable(reason: &str) -> Presence {
    Presence::Unusable { reason: reason.to_owned() }
}

/// Without the free space, whose change is no news.
fn place_of(volume: &Volume) -> Presence {
    match &volume.presence {
        Presence::Mounted { path, .. } => Presence::Mounted { path: path.clone(), free: None, total: None },
        other => other.clone(),
    }
}

fn no_bus(cause: &str) -> Problem {
    Problem::new(ProblemKind::SystemService, format!("Disks cannot be looked at: {cause}."))
        .hint("It is tried again by itself. Restart the appliance if it stays so.")
        .retry_after(Duration::from_secs(10))
}

/// Looks at once, then whenever there is news, and every now and then.
async fn watch(room: Weak<StorageRoom>) {
    loop {
        let Some(strong) = room.upgrade() else { return };
        if let Err(problem) = strong.look_when_free().await {
            tracing::warn!(%problem, "disks could not be looked at");
        }
        let news = strong.news.clone();
        drop(strong);
        if timeout(TICK, news.notified()).await.is_ok() {
            // What comes in quick succession is one event to us: a disk is announced with each of its partitions.
            sleep(GATHER).await;
        }
    }
}

/// Takes in what the disk manager says, on a connection of its own and without ever waiting for the room: signals that nobody takes in
/// would hold up the answers to calls on the same connection.
async fn listen(news: Arc<Notify>, room: Weak<StorageRoom>) {
    while room.strong_count() > 0 {
        match subscribe().await {
            Ok(mut signals) => {
                news.notify_one();
                while timeout(TICK, signals.next()).await.map_or(room.strong_count() > 0, |signal| signal.is_some()) {
                    news.notify_one();
                }
            }
            Err(problem) => tracing::warn!(%problem, "news of disks cannot be heard; they are looked at every now and then"),
        }
        sleep(AGAIN).await;
    }
}

async fn subscribe() -> Result<MessageStream, Problem> {
    let rule = MatchRule::builder().msg_type(Type::Signal).sender(NAME).build().map_err(|cause| no_bus(&cause.to_string()))?;
    let listening = async {
        let bus = connection::Builder::system().build().await?;
        MessageStream::for_match_rule(rule, &bus, None).await
    };
    let listening = timeout(CONNECT, listening).await.map_err(|_| no_bus("the bus did not answer in time"))?;
    listening.map_err(|cause| no_bus(&cause.to_string()))
}
