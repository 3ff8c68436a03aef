//! The downloads as the port: begins, pauses, resumes, forgets. One runs at a time; the others wait their turn.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use async_trait::async_trait;
use warden_domain::{
    Problem, ProblemKind,
    change::{Changes, Topic},
    clock,
    download::{Download, DownloadState, Downloads, NewDownload},
    engine::EngineKind,
    hub::RepoAsk,
    ids::{AccountId, DownloadId},
    model::Registry,
    replica::Serving,
    tasks::Tasks,
};
use warden_store::{Store, models};

use super::{
    disk,
    live::{Live, Wish},
    owner::owner,
    record::{Record, RecordFile},
    transfer::Rules,
    work,
};
use crate::{
    hub::{Chosen, HubRoom, Repo, is_projector},
    name,
    registry::{Models, blocking, context_fits_the_model, context_is_sane, slots},
};

/// Downloads kept at most; the oldest that are done go first.
const KEPT: usize = 50;

/// What the room is made from.
pub struct DownloaderParts {
    /// Where they come from.
    pub hub: Arc<HubRoom>,
    /// Where they go in the end.
    pub registry: Arc<Models>,
    /// For names that are taken, and the record of deeds.
    pub store: Store,
    /// Where the files go.
    pub models_dir: PathBuf,
    /// Long work.
    pub tasks: Tasks,
    /// News.
    pub changes: Changes,
    /// The rules of transfers.
    pub rules: Rules,
}

pub(crate) struct Inner {
    pub(crate) hub: Arc<HubRoom>,
    pub(crate) registry: Arc<Models>,
    pub(crate) store: Store,
    pub(crate) models_dir: PathBuf,
    pub(crate) tasks: Tasks,
    pub(crate) rules: Rules,
    pub(crate) serving: OnceLock<Arc<dyn Serving>>,
    pub(crate) turn: tokio::sync::Mutex<()>,
    changes: Changes,
    all: Mutex<BTreeMap<DownloadId, Arc<Live>>>,
    /// One wish at a time is looked at, so that two of them never promise the same room or name.
    begins: tokio::sync::Mutex<()>,
}

impl Inner {
    fn lives(&self) -> Vec<Arc<Live>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn live(&self, id: &DownloadId) -> Result<Arc<Live>, Problem> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned().ok_or_else(|| {
            let shown: String = id.as_str().chars().filter(|c| !c.is_control()).take(60).collect();
            Problem::new(ProblemKind::NotFound, format!("There is no download {shown}.")).hint("GET /api/models/downloads lists those that exist.")
        })
    }

    pub(crate) fn forget(&self, id: &DownloadId) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        self.changes.publish(Topic::Models);
    }

    fn remember(&self, record: Record) -> Arc<Live> {
        let id = record.id.clone();
        let live = Live::new(record, self.models_dir.clone(), self.changes.clone());
        self.all.lock().unwrap_or_else(PoisonError::into_inner).insert(id, live.clone());
        live
    }
}

/// The downloads.
pub struct Downloader {
    inner: Arc<Inner>,
}

impl Downloader {
    /// Reads what was written down; nothing runs before `start`.
    ///
    /// # Errors
    /// When the folder of models cannot be looked at.
    pub async fn open(parts: DownloaderParts) -> Result<Arc<Self>, Problem> {
        let folder = parts.models_dir.clone();
        let records = blocking(move || Ok(Record::all(&folder))).await?;
        let inner = Arc::new(Inner {
            hub: parts.hub,
            registry: parts.registry,
            store: parts.store,
            models_dir: parts.models_dir,
            tasks: parts.tasks,
            rules: parts.rules,
            serving: OnceLock::new(),
            turn: tokio::sync::Mutex::default(),
            changes: parts.changes,
            all: Mutex::default(),
            begins: tokio::sync::Mutex::default(),
        });
        for record in records {
            inner.remember(record);
        }
        Ok(Arc::new(Self { inner }))
    }

    /// Goes on with what ran when the agent ended. `serving` loads what is to be loaded at once.
    pub fn start(&self, serving: Arc<dyn Serving>) {
        let _only_once = self.inner.serving.set(serving);
        let mut lives = self.inner.lives();
        lives.sort_by_key(|live| live.record().created_at);
        for live in lives {
            if matches!(live.state(), DownloadState::Queued | DownloadState::Running | DownloadState::Waiting) {
                tracing::info!(repo = live.record().repo, "a download goes on after a restart");
                self.spawn(live, None);
            }
        }
    }

    fn spawn(&self, live: Arc<Live>, by: Option<AccountId>) {
        tokio::spawn(work::run(self.inner.clone(), live, by));
    }

    /// Checks that names and folder are free, here and among the downloads under way.
    async fn check_free(&self, record: &Record) -> Result<(), Problem> {
        for live in self.inner.lives() {
            let other = live.record();
            if other.state == DownloadState::Done {
                continue;
            }
            // Models of one repository share its image part: whoever comes second finds it there.
            let own = |record: &Record| record.files.iter().map(|file| file.path.clone()).filter(|path| !is_projector(path)).collect::<Vec<_>>();
            let same_file = other.folder == record.folder && own(&other).iter().any(|path| own(record).contains(path));
            if same_file {
                return Err(Problem::new(ProblemKind::Conflict, format!("{} is being downloaded already.", record.repo))
                    .hint("Look at the page of models for how far it is; resume it there if it stands still."));
            }
            if other.served_name == record.served_name {
                return Err(taken(&record.served_name));
            }
        }
        let wanted = record.served_name.clone();
        if self.inner.store.read(move |db| models::name_is_taken(db, &wanted)).await? {
            return Err(taken(&record.served_name));
        }
        let models = self.inner.registry.list().await?;
        let targets: Vec<PathBuf> = record.files.iter().map(|file| record.target(&self.inner.models_dir, file)).collect();
        let name =
            blocking(move || Ok(targets.iter().find_map(|target| owner(&models, target)).map(|model| model.config.served_name.clone()))).await?;
        match name {
            None => Ok(()),
            Some(name) => Err(Problem::new(ProblemKind::Conflict, format!("This file is here already: it is that of the model {name}."))
                .hint(format!("Use {name}, or remove it first; the same file under another name can be registered from its path."))),
        }
    }

    async fn record(&self, wish: &NewDownload) -> Result<(Chosen, Record), Problem> {
        if let Some(name) = &wish.served_name {
            name::check(name)?;
        }
        // What the registry would refuse after the last byte is refused before the first one.
        slots(wish.slots)?;
        context_is_sane(wish.context)?;
        wish.layout.check()?;
        let repo = Repo::parse(&RepoAsk { repo: wish.repo.clone(), revision: wish.revision.clone() })?;
        let chosen = self.inner.hub.choice(&repo, wish.filename.as_deref()).await?;
        let Chosen { discovery, choice, .. } = &chosen;
        if let Some(why) = &choice.incomplete {
            return Err(Problem::new(ProblemKind::BadModelFile, format!("{} of {} is not whole: {why}", choice.filename, repo.name))
                .hint("Choose another file, or tell the owner of the repository."));
        }
        let file = |file: &warden_domain::hub::HubFile| RecordFile {
            path: file.path.clone(),
            size: file.size,
            promise: file.promise.clone(),
            safe: 0,
            prefix: String::new(),
            done: false,
            ours: false,
        };
        // Files of weights are named alike everywhere; their repository is not.
        let named_after = if choice.engine == EngineKind::Vllm { &repo.name } else { &choice.filename };
        let record = Record {
            id: DownloadId::random(),
            created_at: clock::now(),
            served_name: wish.served_name.clone().unwrap_or_else(|| name::suggest(Path::new(named_after))),
            engine: choice.engine,
            folder: Record::folder_for(&repo.name, &discovery.commit, choice.engine),
            repo: repo.name.clone(),
            revision: repo.revision.clone(),
            commit: discovery.commit.clone(),
            context: wish.context,
            slots: wish.slots,
            layout: wish.layout.clone(),
            load: wish.load,
            files: choice.files.iter().map(file).collect(),
            state: DownloadState::Queued,
            reason: None,
            model: None,
        };
        Ok((chosen, record))
    }

    /// Removes records of the oldest finished downloads; their models stay.
    async fn make_room_in_list(&self) {
        let mut done: Vec<Record> = self.inner.lives().iter().map(|live| live.record()).filter(|r| r.state == DownloadState::Done).collect();
        done.sort_by_key(|record| record.created_at);
        for record in done.iter().take(done.len().saturating_sub(KEPT)) {
            if let Ok(live) = self.inner.live(&record.id) {
                work::clear(&self.inner, &live).await;
            }
        }
    }
}

fn taken(name: &str) -> Problem {
    Problem::new(ProblemKind::Conflict, format!("A model named {name} is registered already, or on its way."))
        .hint("Give this one another name.")
        .param("served_model_name")
}

fn over(what: &str, hint: &str) -> Problem {
    Problem::new(ProblemKind::Conflict, what).hint(hint)
}

#[async_trait]
impl Downloads for Downloader {
    async fn list(&self) -> Result<Vec<Download>, Problem> {
        let mut all: Vec<Download> = self.inner.lives().iter().map(|live| live.shown()).collect();
        all.sort_by(|a, b| b.created_at.cmp(&a.created_at).then_with(|| a.id.cmp(&b.id)));
        Ok(all)
    }

    async fn get(&self, id: &DownloadId) -> Result<Download, Problem> {
        Ok(self.inner.live(id)?.shown())
    }

    async fn begin(&self, by: &AccountId, wish: NewDownload) -> Result<Download, Problem> {
        let _turn = self.inner.begins.lock().await;
        let (chosen, record) = self.record(&wish).await?;
        self.check_free(&record).await?;
        let promised = self.inner.lives().iter().map(|live| live.record()).filter(|r| r.state != DownloadState::Done).map(|r| r.needed()).sum();
        let (needed, folder) = (record.needed(), self.inner.models_dir.clone());
        blocking(move || disk::check(needed, promised, disk::free(&folder)?, &folder)).await?;
        context_fits_the_model(wish.context, self.inner.hub.before(&chosen).await?)?;
        let (saved, folder) = (record.clone(), self.inner.models_dir.clone());
        blocking(move || saved.save(&folder)).await?;
        tracing::info!(repo = record.repo, commit = record.commit, name = record.served_name, bytes = record.size().0, "a download was asked for");
        let live = self.inner.remember(record);
        self.spawn(live.clone(), Some(by.clone()));
        self.make_room_in_list().await;
        Ok(live.shown())
    }

    async fn pause(&self, id: &DownloadId) -> Result<Download, Problem> {
        let live = self.inner.live(id)?;
        match live.state() {
            DownloadState::Queued | DownloadState::Running | DownloadState::Waiting => live.want(Wish::Pause),
            DownloadState::Paused => {}
            DownloadState::Failed => return Err(over("This download does not run.", "Resume it, or cancel it.")),
            DownloadState::Done => return Err(over("This download is done.", "Its model is on the list.")),
        }
        Ok(live.shown())
    }

    async fn resume(&self, id: &DownloadId) -> Result<Download, Problem> {
        let live = self.inner.live(id)?;
        let kept = live.clone();
        if let Err(state) = blocking(move || Ok(kept.again())).await? {
            return Err(match state {
                DownloadState::Done => over("This download is done.", "Its model is on the list."),
                DownloadState::Paused | DownloadState::Failed => over("This download was given up.", "Begin it again when it is wanted."),
                _ if live.wish() == Wish::Pause => over("This download is just being paused.", "Try again in a moment."),
                _ => over("This download runs.", "Wait, or pause it."),
            });
        }
        self.spawn(live.clone(), None);
        Ok(live.shown())
    }

    async fn cancel(&self, id: &DownloadId) -> Result<(), Problem> {
        let live = self.inner.live(id)?;
        let kept = live.clone();
        if blocking(move || Ok(kept.give_up())).await? {
            work::clear(&self.inner, &live).await;
        }
        Ok(())
    }
}
