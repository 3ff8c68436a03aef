//! Importing a model from a stick or another disk that carries files.
//!
//! A source and a file on it in, a registered model out. The source is mounted for reading, looked at, copied from, and given back in every
//! case. Space is checked before the first byte. One import at a time.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
};

use async_trait::async_trait;
use tokio::sync::Mutex;
use warden_domain::{
    Problem, ProblemKind, clock,
    ids::{AccountId, TaskId},
    model::{NewModel, Registry},
    storage::{Import, Imports, ModelDisks, OpenSource, SourceModel, Sources},
    tasks::{Task, Tasks},
    units::Bytes,
};
use warden_store::{
    Store,
    audit::{self, AuditRow},
    models,
};

use crate::{
    candidates,
    copy::{self, Copied, Watcher},
    inspect::{inspect, parts_of},
    name,
    place::Places,
    registry::{Models, blocking},
};

const STEPS: &[(&str, &str)] = &[
    ("open", "Open the stick for reading"),
    ("check", "Check the model and the space for it"),
    ("copy", "Copy it and compute its SHA-256"),
    ("compare", "Read the copy back and compare"),
    ("register", "Register the model"),
    ("close", "Give the stick back"),
];
/// Left free besides the model itself.
const MARGIN: u64 = 64 << 20;
/// The task is told of progress after so many bytes.
const TOLD_EVERY: u64 = 16 << 20;

/// Imports models.
pub struct Importer {
    sources: Arc<dyn Sources>,
    disks: Arc<dyn ModelDisks>,
    registry: Arc<Models>,
    store: Store,
    models_dir: PathBuf,
    tasks: Tasks,
    this: Weak<Self>,
    turn: Mutex<()>,
}

/// What is to be copied where.
struct Load {
    /// Pairs of file on the source and file to be, the first one is the model's.
    files: Vec<(PathBuf, PathBuf, Option<String>)>,
    size: u64,
}

impl Importer {
    /// An importer that puts models into `models_dir` or onto recorded disks.
    #[must_use]
    pub fn new(
        sources: Arc<dyn Sources>,
        disks: Arc<dyn ModelDisks>,
        registry: Arc<Models>,
        store: Store,
        models_dir: PathBuf,
        tasks: Tasks,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self { sources, disks, registry, store, models_dir, tasks, this: this.clone(), turn: Mutex::new(()) })
    }

    fn target(&self, wish: &Import) -> Result<PathBuf, Problem> {
        let Some(id) = &wish.to else { return Ok(self.models_dir.clone()) };
        self.disks.roots().into_iter().find(|root| root.id == *id).map(|root| root.path).ok_or_else(|| {
            Problem::new(ProblemKind::DiskMissing, "The model storage chosen is not there.")
                .hint("GET /api/storage lists the disks that are mounted.")
                .param("to")
        })
    }

    async fn run(&self, task: &Task, by: &AccountId, wish: &Import) -> Result<(), Problem> {
        task.step("open");
        let source = self.sources.open(&wish.source).await?;
        task.done("open");
        let outcome = self.from(&source, task, by, wish).await;
        if outcome.is_ok() {
            task.step("close");
        }
        self.sources.close(&source).await;
        if outcome.is_ok() {
            task.done("close");
        }
        outcome
    }

    async fn from(&self, source: &OpenSource, task: &Task, by: &AccountId, wish: &Import) -> Result<(), Problem> {
        task.step("check");
        let target = self.target(wish)?;
        let (root, file) = (source.path.clone(), PathBuf::from(&wish.file));
        let load = blocking(move || plan(&root, &file, &target)).await?;
        let served_name = match &wish.served_name {
            Some(name) => name.clone(),
            None => load.files.first().map(|(from, ..)| name::suggest(from)).unwrap_or_default(),
        };
        name::check(&served_name)?;
        let wanted = served_name.clone();
        if self.store.read(move |db| models::name_is_taken(db, &wanted)).await? {
            return Err(Problem::new(ProblemKind::Conflict, format!("A model named {served_name} is registered already."))
                .hint("Give this one another name.")
                .param("served_model_name"));
        }
        task.done("check");

        let size = load.size;
        let (path, hashes) = self.carry(task, load).await?;

        task.step("register");
        let new = NewModel { path: path.clone(), served_name: Some(served_name), ..NewModel::default() };
        let model = self.registry.register(new).await.map_err(|problem| {
            let hint = format!("The copy lies at {}; it can be registered from there. {}", path.display(), problem.hint.clone().unwrap_or_default());
            problem.hint(hint.trim_end().to_owned())
        })?;
        let subject = format!("{} from {} sha256 {}", model.config.served_name, source.key, hashes.join(" "));
        tracing::info!(model = %model.id, subject, bytes = size, "model imported");
        let row = AuditRow { at: clock::now(), account: Some(by.clone()), action: "model.import", subject: Some(subject), outcome: "ok" };
        self.store.write(move |tx| audit::insert(tx, &row)).await?;
        task.done("register");
        Ok(())
    }

    /// Copies, compares, and gives the copies their names; where the model lies and the SHA-256 of its files.
    async fn carry(&self, task: &Task, load: Load) -> Result<(PathBuf, Vec<String>), Problem> {
        task.step("copy");
        // The task is the worker's for the time of the copy.
        let handle = TaskHandle { tasks: self.tasks.clone(), id: task.id().clone(), flag: task.flag() };
        let (copies, size) = {
            let handle = handle.clone();
            blocking(move || {
                let mut told = Told { handle: &handle, key: "copy", done: 0, last: 0, total: load.size };
                let made: Result<Vec<Copied>, Problem> =
                    load.files.iter().map(|(from, to, promised)| copy::copy(from, to, promised.as_deref(), &mut told)).collect();
                Ok((made?, load.size))
            })
            .await?
        };
        task.done("copy");
        task.step("compare");
        let copies = blocking(move || {
            let mut told = Told { handle: &handle, key: "compare", done: 0, last: 0, total: size };
            for copy in &copies {
                copy.compare(&mut told)?;
            }
            Ok(copies)
        })
        .await?;
        let hashes = copies.iter().map(|copy| copy.sha256.clone()).collect();
        let paths = blocking(move || copies.into_iter().map(Copied::name).collect::<Result<Vec<_>, _>>()).await?;
        task.done("compare");
        let first = paths.into_iter().next().ok_or_else(|| Problem::internal("An import without a file."))?;
        Ok((first, hashes))
    }
}

#[async_trait]
impl Imports for Importer {
    async fn look(&self, source: &str) -> Result<Vec<SourceModel>, Problem> {
        let _turn = self.turn.try_lock().map_err(|_| {
            Problem::new(ProblemKind::Conflict, "An import is going on.").hint("Wait until it is through; GET /api/tasks shows how far it is.")
        })?;
        let open = self.sources.open(source).await?;
        let root = open.path.clone();
        let found = blocking(move || Ok(listed(&root))).await;
        self.sources.close(&open).await;
        found
    }

    async fn begin(&self, by: &AccountId, wish: Import) -> Result<TaskId, Problem> {
        if let Some(name) = &wish.served_name {
            name::check(name)?;
        }
        self.target(&wish)?;
        let Some(this) = self.this.upgrade() else { return Err(Problem::new(ProblemKind::ShuttingDown, "The agent is stopping.")) };
        let task = self.tasks.begin("import-model", STEPS, true);
        let (id, by) = (task.id().clone(), by.clone());
        tokio::spawn(async move {
            let turn = this.turn.lock().await;
            let outcome = this.run(&task, &by, &wish).await;
            drop(turn);
            if let Err(problem) = outcome {
                tracing::warn!(source = wish.source, file = wish.file, %problem, "an import ended early");
                task.fail(&problem);
            }
        });
        Ok(id)
    }
}

/// The models on a source.
fn listed(root: &Path) -> Vec<SourceModel> {
    let places = Places::new(root.to_owned(), Vec::new());
    let real = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let with = |path: &Path| matches!(copy::promised(path), Ok(Some(_)));
    let none = BTreeSet::new();
    // A folder is registered where it lies, and not copied.
    let found = candidates::find(&places, &none, &none);
    found.iter().filter(|c| c.path.is_file()).map(|c| SourceModel::from((c, real.as_path(), with(&c.path)))).collect()
}

/// What to copy, when the model is whole and there is room for it.
fn plan(root: &Path, file: &Path, target: &Path) -> Result<Load, Problem> {
    let found = inspect(&Places::new(root.to_owned(), Vec::new()).resolve(file).map_err(|problem| problem.param("file"))?)?;
    if found.path.is_dir() {
        return Err(Problem::new(
            ProblemKind::BadModelFile,
            format!("{} is a model of many files, which cannot be copied in one go.", file.display()),
        )
        .hint("Copy the folder into the models folder by hand, then register it.")
        .param("file"));
    }
    copy::sweep(target);
    let mut files = Vec::new();
    for part in parts_of(&found.path)? {
        let name = part.file_name().ok_or_else(|| Problem::internal("A model file without a name."))?.to_owned();
        let promised = copy::promised(&part)?;
        files.push((part, target.join(name), promised));
    }
    let size = found.facts.size.0;
    let room = nix::sys::statvfs::statvfs(target)
        .map_err(|cause| Problem::from_io(&format!("asking {} for its free space", target.display()), &cause.into()))?;
    let free = room.blocks_available().saturating_mul(room.fragment_size());
    if free < size.saturating_add(MARGIN) {
        return Err(Problem::new(
            ProblemKind::DiskFull,
            format!(
                "The model has {}, and {} has {} free; {} more are kept free. Nothing was copied.",
                Bytes(size),
                target.display(),
                Bytes(free),
                Bytes(MARGIN)
            ),
        )
        .hint("Remove models that are not needed, or choose another model storage."));
    }
    Ok(Load { files, size })
}

/// What a blocking worker needs of its task.
#[derive(Clone)]
struct TaskHandle {
    tasks: Tasks,
    id: TaskId,
    flag: Arc<std::sync::atomic::AtomicBool>,
}

struct Told<'a> {
    handle: &'a TaskHandle,
    key: &'static str,
    done: u64,
    last: u64,
    total: u64,
}

impl Watcher for Told<'_> {
    fn moved(&mut self, bytes: u64) -> Result<(), Problem> {
        if self.handle.flag.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(Problem::new(ProblemKind::Conflict, "The import was cancelled; nothing of it is left on the disk.")
                .hint("Begin it again when it is wanted."));
        }
        self.done += bytes;
        if self.done - self.last >= TOLD_EVERY || self.done >= self.total {
            self.last = self.done;
            self.handle.tasks.advance(&self.handle.id, self.key, self.done, self.total);
        }
        Ok(())
    }
}
