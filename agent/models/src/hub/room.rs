//! The hub as the port: discoveries and verdicts, each kept for a while, so that a page that is looked at twice asks the hub once.

use std::{path::PathBuf, pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use tokio::sync::Semaphore;
use warden_domain::{
    Problem, ProblemKind,
    engine::EngineKind,
    fit::{FitAsk, FitTable},
    gpu::{GpuSnapshot, Gpus},
    hub::{Care, Choice, ChoiceFit, Discovery, Hub, HubChange, HubSettings, RepoAsk, RepoConfig},
    share::CARD_SHARE,
};
use warden_store::Store;

use super::{
    address::{Repo, escaped},
    classify,
    client::Client,
    client::Wanted,
    fault::{Fault, Subject},
    header::{self, Unread},
    keep::{Keep, Reaching},
    memory,
    shelf::{Shelf, Turns},
    told::{Config, Header},
    tree,
};
use crate::{
    fit::{Missing, Place, Question, Shape, Weights, judge},
    gguf::Reach,
    registry::context_is_sane,
};

/// A discovery is believed for so long.
const FRESH: Duration = Duration::from_secs(60);
/// Discoveries and headers kept at most.
const KEPT: usize = 64;
/// Files of all discoveries that are kept, and layers of all headers.
const KEPT_PARTS: usize = 50_000;
/// Files of a repository; the largest hold some thousands.
const MOST_FILES: usize = 20_000;
const MOST_PAGES: usize = 100;
/// The answer about a revision lists all files once more.
const REVISION_LIMIT: usize = 4 << 20;
const PAGE_LIMIT: usize = 2 << 20;
/// Long headers held in memory at a time.
const LONG_HEADERS: usize = 4;
const CONFIG_LIMIT: usize = 1 << 20;
/// Headers read at once.
const AT_ONCE: usize = 4;
/// Choices of a repository that are judged.
const MOST_CHOICES: usize = 60;
const USUAL_SLOTS: u16 = 4;
const MOST_SLOTS: u16 = 64;

/// What the hub room is made from.
pub struct HubParts {
    /// For the settings.
    pub store: Store,
    /// The token's file lies here.
    pub state_dir: PathBuf,
    /// Another address than the public hub's, from the configuration file.
    pub endpoint: Option<String>,
    /// The cards of this machine.
    pub gpus: Arc<dyn Gpus>,
    /// Version of the agent, for the client's name.
    pub version: &'static str,
}

/// A repository at a commit, with what its `config.json` says.
pub(super) type Found = (Arc<Discovery>, Option<Arc<Config>>);

/// A choice with its repository.
pub(crate) struct Chosen {
    pub(crate) discovery: Arc<Discovery>,
    pub(crate) choice: Choice,
    pub(crate) config: Option<Arc<Config>>,
}

/// The hub.
pub struct HubRoom {
    client: Client,
    keep: Keep,
    gpus: Arc<dyn Gpus>,
    /// Repositories by address of hub, name and revision.
    found: Shelf<Found>,
    /// One look at each of them at a time.
    turns: Turns,
    /// Headers by address of hub, repository, commit and path; a commit never changes.
    headers: Shelf<Arc<Header>>,
    long_headers: Semaphore,
}

impl HubRoom {
    /// Opens the room; asks nobody yet.
    ///
    /// # Errors
    /// `Invalid` for an address that cannot be used; the store's own.
    pub async fn open(parts: HubParts) -> Result<Arc<Self>, Problem> {
        Ok(Arc::new(Self {
            client: Client::new(parts.version)?,
            keep: Keep::open(parts.store, &parts.state_dir, parts.endpoint.as_deref()).await?,
            gpus: parts.gpus,
            found: Shelf::new(KEPT, KEPT_PARTS, Some(FRESH)),
            turns: Turns::default(),
            headers: Shelf::new(KEPT, KEPT_PARTS, None),
            long_headers: Semaphore::new(LONG_HEADERS),
        }))
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn reaching(&self) -> Arc<Reaching> {
        self.keep.now()
    }

    /// Whom a sentence about this repository is about.
    pub(crate) fn subject(&self, repo: &Repo) -> Subject {
        let now = self.keep.now();
        Subject { endpoint: now.endpoint.clone(), repo: repo.name.clone(), revision: repo.revision.clone(), with_token: now.token.is_some() }
    }

    /// Where a file of a commit lies.
    pub(crate) fn file(&self, repo: &str, commit: &str, path: &str) -> Result<Wanted, Fault> {
        self.wanted(&format!("{repo}/resolve/{commit}/{}", escaped(path)))
    }

    fn wanted(&self, rest: &str) -> Result<Wanted, Fault> {
        let now = self.keep.now();
        let uri = format!("{}/{rest}", now.endpoint).parse().map_err(|_| Fault::Malformed { what: "its address makes no whole one".to_owned() })?;
        Ok(Wanted { uri, range: None, token: now.token.clone() })
    }

    async fn found(&self, repo: &Repo) -> Result<Found, Problem> {
        let now = self.keep.now();
        let question = format!("{} {}@{}", now.endpoint, repo.name, repo.revision);
        if let Some(found) = self.found.get(&question) {
            return Ok(found);
        }
        let turn = self.turns.of(&question);
        let _turn = turn.lock().await;
        if let Some(found) = self.found.get(&question) {
            return Ok(found);
        }
        let (discovery, config) = self.look(repo).await.map_err(|fault| fault.problem(&self.subject(repo)))?;
        let found = (Arc::new(discovery), config.map(Arc::new));
        // What was seen with another token or at another address is nothing to keep.
        if Arc::ptr_eq(&now, &self.keep.now()) {
            self.found.put(question, found.0.files.len(), found.clone());
        }
        Ok(found)
    }

    async fn look(&self, repo: &Repo) -> Result<(Discovery, Option<Config>), Fault> {
        let wanted = self.wanted(&format!("api/models/{}/revision/{}", repo.name, escaped(&repo.revision).replace('/', "%2F")))?;
        let (_, body) = self.client.small(&wanted, "the answer about a revision", REVISION_LIMIT).await?;
        let revision = tree::revision(&body)?;
        if revision.disabled {
            let refusal = super::fault::Refusal {
                status: 403,
                code: String::new(),
                message: "Access to this resource is disabled.".to_owned(),
                wait: None,
                request_id: String::new(),
                elsewhere: false,
            };
            return Err(Fault::Answer(refusal));
        }
        let files = classify::files(self.tree(repo, &revision.commit).await?);
        let config = match files.iter().find(|file| file.path == "config.json") {
            Some(file) if file.size.0 <= CONFIG_LIMIT as u64 => self.config(repo, &revision.commit).await?,
            _ => None,
        };
        let mut choices = classify::choices(&files);
        for choice in choices.iter_mut().filter(|choice| choice.engine == EngineKind::Vllm) {
            choice.quantisation = config.as_ref().and_then(|config| config.format.clone());
        }
        let discovery = Discovery {
            repo: repo.name.clone(),
            revision: repo.revision.clone(),
            commit: revision.commit,
            gated: revision.gated,
            files,
            choices,
            config: config.as_ref().map_or_else(RepoConfig::default, |config| config.shown.clone()),
        };
        Ok((discovery, config))
    }

    async fn tree(&self, repo: &Repo, commit: &str) -> Result<Vec<tree::Entry>, Fault> {
        let mut wanted = self.wanted(&format!("api/models/{}/tree/{commit}?recursive=true", repo.name))?;
        let mut entries = Vec::new();
        for _ in 0..MOST_PAGES {
            let (headers, body) = self.client.small(&wanted, "a list of files", PAGE_LIMIT).await?;
            let room = MOST_FILES.saturating_sub(entries.len());
            entries.extend(tree::page(&body, room).map_err(|fault| match fault {
                Fault::TooMany { what, .. } => Fault::TooMany { what, limit: MOST_FILES },
                fault => fault,
            })?);
            let Some(next) = tree::next_page(&wanted.uri, &headers) else { return Ok(entries) };
            wanted.uri = next;
        }
        Err(Fault::TooMany { what: "pages of files".to_owned(), limit: MOST_PAGES })
    }

    async fn config(&self, repo: &Repo, commit: &str) -> Result<Option<Config>, Fault> {
        let wanted = self.file(&repo.name, commit, "config.json")?;
        match self.client.small(&wanted, "config.json", CONFIG_LIMIT).await {
            Ok((_, body)) => Ok(Config::read(&body)),
            // The list of a gated repository is open, its files are not: that is told where a file is wanted.
            Err(Fault::Answer(refusal)) if matches!(refusal.status, 401 | 403) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// What is known of the header of a file without asking for it.
    pub(super) fn known(&self, file: &Wanted) -> Option<Arc<Header>> {
        self.headers.get(&file.uri.to_string())
    }

    pub(super) async fn header(&self, discovery: &Discovery, choice: &Choice, whole: bool) -> Result<Arc<Header>, Unread> {
        let malformed = || Unread::Hub(Fault::Malformed { what: "a choice without a file".to_owned() });
        let first = choice.files.first().ok_or_else(malformed)?;
        let wanted = self.file(&discovery.repo, &discovery.commit, &first.path).map_err(Unread::Hub)?;
        if let Some(header) = self.known(&wanted).filter(|header| !whole || header.reach == Reach::Whole) {
            return Ok(header);
        }
        let keys = header::keys(&self.client, &wanted, first.size.0, whole, &self.long_headers).await?;
        let header = Arc::new(Header::of(&keys));
        let layers = header.shape.as_ref().map_or(0, |shape| shape.layers.len());
        self.headers.put(wanted.uri.to_string(), layers, header.clone());
        Ok(header)
    }

    async fn table(
        &self,
        ask: &FitAsk,
        found: (&Discovery, Option<&Config>),
        choice: &Choice,
        place: &Place,
        care: Care,
    ) -> Result<FitTable, Problem> {
        let (discovery, config) = found;
        let repo = Repo { name: discovery.repo.clone(), revision: discovery.revision.clone() };
        let mut missing: Missing = choice.incomplete.iter().map(|why| format!("all parts: {why}")).collect();
        let whole = care == Care::Whole;
        let projector = choice.projector().map(|file| file.size.0);
        let parts = choice.files.len() - usize::from(projector.is_some());
        let (shape, weights, whole_header) = match choice.engine {
            EngineKind::Vllm => {
                let shape = config.map_or_else(|| Err(vec!["config.json".to_owned()]), |config| config.shape.clone());
                (shape, Weights { all: choice.weights.0, ..Weights::default() }, true)
            }
            EngineKind::LlamaCpp => match self.header(discovery, choice, whole).await {
                Ok(header) => {
                    missing.extend(no_model(&header));
                    let weights = Weights::of_gguf(choice.weights.0, parts, header.tensors.as_ref());
                    (header.shape.clone(), Weights { projector, ..weights }, header.reach == Reach::Whole)
                }
                Err(Unread::Hub(fault)) if whole => return Err(fault.problem(&self.subject(&repo))),
                Err(unread) => {
                    let why = match unread {
                        Unread::Hub(fault) => fault.problem(&self.subject(&repo)).message,
                        Unread::File(fault) => fault.to_string(),
                    };
                    (Err(vec![format!("the header: {why}")]), Weights { all: choice.weights.0, ..Weights::default() }, false)
                }
            },
        };
        if ask.engine.is_some_and(|engine| engine != choice.engine) {
            missing.push(format!("backend: {} does not load these files here", ask.engine.unwrap_or(choice.engine).as_str()));
        }
        Ok(judge(&Question {
            shape: shape.as_ref().map_or_else(Err, |shape: &Shape| Ok(shape)),
            weights,
            place,
            engine: choice.engine,
            context: ask.context,
            slots: ask.slots.unwrap_or(USUAL_SLOTS),
            kv: ask.kv,
            utilisation: ask.utilisation.unwrap_or(CARD_SHARE),
            whole_header,
            missing,
        }))
    }

    /// The repository with one choice of it.
    pub(crate) async fn choice(&self, repo: &Repo, filename: Option<&str>) -> Result<Chosen, Problem> {
        let (discovery, config) = self.found(repo).await?;
        let choice = chosen(&discovery, filename)?.clone();
        Ok(Chosen { discovery, choice, config })
    }
}

/// A file that is no whole model says so in its header.
fn no_model(header: &Header) -> Option<String> {
    let kind = header.kind.as_deref().unwrap_or("model");
    matches!(kind, "adapter" | "mmproj").then(|| format!("a whole model: this file is an {kind}"))
}

/// The choice that holds a file, or the only one.
fn chosen<'a>(discovery: &'a Discovery, filename: Option<&str>) -> Result<&'a Choice, Problem> {
    let names = || discovery.choices.iter().take(12).map(|choice| choice.filename.as_str()).collect::<Vec<_>>().join(", ");
    match filename.map(str::trim).filter(|name| !name.is_empty()) {
        Some(name) => discovery.choices.iter().find(|choice| choice.files.iter().any(|file| file.path == name)).ok_or_else(|| {
            let shown: String = name.chars().filter(|c| !c.is_control()).take(120).collect();
            Problem::new(ProblemKind::NotFound, format!("{} holds no model {shown}.", discovery.repo))
                .hint(format!("It holds: {}.", names()))
                .param("filename")
        }),
        None => match discovery.choices.as_slice() {
            [one] => Ok(one),
            [] => Err(Problem::new(ProblemKind::Invalid, format!("{} holds no model that an engine of this box loads.", discovery.repo))
                .hint("Look for a repository with GGUF or safetensors files; many models have one with GGUF in its name.")
                .param("repo_id")),
            _ => Err(Problem::new(ProblemKind::Invalid, format!("{} holds several models.", discovery.repo))
                .hint(format!("Name one of them: {}.", names()))
                .param("filename")),
        },
    }
}

#[async_trait]
impl Hub for HubRoom {
    async fn settings(&self) -> Result<HubSettings, Problem> {
        Ok(self.keep.settings())
    }

    async fn configure(&self, change: HubChange) -> Result<HubSettings, Problem> {
        let settings = self.keep.change(change).await?;
        // Another token may see more.
        self.found.clear();
        Ok(settings)
    }

    async fn discover(&self, ask: &RepoAsk) -> Result<Discovery, Problem> {
        let (discovery, _) = self.found(&Repo::parse(ask)?).await?;
        let mut discovery = (*discovery).clone();
        // What the headers say of the number format is better than what the names say.
        for choice in discovery.choices.iter_mut().filter(|choice| choice.engine == EngineKind::LlamaCpp && choice.quantisation.is_none()) {
            let wanted = self.file(&discovery.repo, &discovery.commit, &choice.filename).ok();
            let header = wanted.and_then(|wanted| self.known(&wanted));
            choice.quantisation = header.and_then(|header| header.file_type).and_then(classify::file_type).map(str::to_owned);
        }
        Ok(discovery)
    }

    async fn fit(&self, ask: &FitAsk, care: Care) -> Result<Vec<ChoiceFit>, Problem> {
        if let Some(slots) = ask.slots.filter(|slots| !(1..=MOST_SLOTS).contains(slots)) {
            return Err(Problem::new(ProblemKind::Invalid, format!("{slots} is not a number of requests a model can work on at the same time."))
                .hint(format!("Use 1 to {MOST_SLOTS}."))
                .param("max_batch_size"));
        }
        context_is_sane(ask.context).map_err(|problem| problem.param("max_model_len"))?;
        let repo = Repo::parse(&RepoAsk { repo: ask.repo.clone(), revision: ask.revision.clone() })?;
        let place = memory::place(&ask.at, self.gpus.as_ref())?;
        let (discovery, config) = self.found(&repo).await?;
        let choices: Vec<&Choice> = match (&ask.filename, care) {
            (None, Care::Quick) => discovery.choices.iter().take(MOST_CHOICES).collect(),
            (filename, _) => vec![chosen(&discovery, filename.as_deref())?],
        };
        let found = (discovery.as_ref(), config.as_deref());
        let (place, found) = (&place, found);
        let mut tables: Vec<Pin<Box<dyn Future<Output = Result<ChoiceFit, Problem>> + Send + '_>>> = Vec::new();
        for choice in choices {
            tables.push(Box::pin(async move {
                let table = self.table(ask, found, choice, place, care).await?;
                Ok(ChoiceFit { filename: choice.filename.clone(), table })
            }));
        }
        let judged: Vec<Result<ChoiceFit, Problem>> = stream::iter(tables).buffered(AT_ONCE).collect().await;
        judged.into_iter().collect()
    }

    fn cards(&self) -> Arc<GpuSnapshot> {
        self.gpus.snapshot()
    }
}
