//! The hub as the port: discoveries and verdicts, each kept for a while, so that a page that is looked at twice asks the hub once.

use std::{
    collections::HashMap,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use http::Uri;
use serde_json::Value;
use warden_domain::{
    Problem, ProblemKind,
    engine::EngineKind,
    fit::{FitAsk, FitTable},
    gpu::{GpuSnapshot, Gpus},
    hub::{Care, Choice, ChoiceFit, Discovery, Hub, HubChange, HubSettings, RepoAsk},
};
use warden_store::Store;

use super::{
    address::{Repo, escaped},
    classify,
    client::Client,
    client::Wanted,
    config,
    fault::{Fault, Subject},
    header::{self, Unread},
    keep::{Keep, Reaching},
    memory, tree,
};
use crate::{
    fit::{Missing, Place, Question, Shape, Weights, judge, shape_of_config, shape_of_gguf},
    gguf::{Keys, Reach},
};

/// A discovery is believed for so long.
const FRESH: Duration = Duration::from_secs(60);
/// Discoveries and headers kept at most.
const KEPT: usize = 64;
const MOST_PAGES: usize = 40;
const PAGE_LIMIT: usize = 8 << 20;
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

struct Found {
    at: Instant,
    discovery: Arc<Discovery>,
    config: Option<Arc<Value>>,
}

/// A choice with its repository.
pub(crate) struct Chosen {
    pub(crate) discovery: Arc<Discovery>,
    pub(crate) choice: Choice,
    pub(crate) config: Option<Arc<Value>>,
}

type Known<K, V> = Mutex<HashMap<K, V>>;

/// The hub.
pub struct HubRoom {
    client: Client,
    keep: Keep,
    gpus: Arc<dyn Gpus>,
    found: Known<(String, Repo), Found>,
    /// Headers by address of hub, repository, commit and path; a commit never changes.
    headers: Known<String, Arc<Keys>>,
    /// One look at the hub at a time per room: two people who ask for the same thing get one answer.
    turn: tokio::sync::Mutex<()>,
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
            found: Mutex::default(),
            headers: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
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

    async fn found(&self, repo: &Repo) -> Result<(Arc<Discovery>, Option<Arc<Value>>), Problem> {
        let key = (self.keep.now().endpoint.clone(), repo.clone());
        let _turn = self.turn.lock().await;
        if let Some(known) = self.found.lock().unwrap_or_else(PoisonError::into_inner).get(&key).filter(|found| found.at.elapsed() < FRESH) {
            return Ok((known.discovery.clone(), known.config.clone()));
        }
        let (discovery, config) = self.look(repo).await.map_err(|fault| fault.problem(&self.subject(repo)))?;
        let (discovery, config) = (Arc::new(discovery), config.map(Arc::new));
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.retain(|_, found| found.at.elapsed() < FRESH);
        if found.len() < KEPT {
            found.insert(key, Found { at: Instant::now(), discovery: discovery.clone(), config: config.clone() });
        }
        Ok((discovery, config))
    }

    async fn look(&self, repo: &Repo) -> Result<(Discovery, Option<Value>), Fault> {
        let wanted = self.wanted(&format!("api/models/{}/revision/{}", repo.name, escaped(&repo.revision).replace('/', "%2F")))?;
        let (_, body) = self.client.small(&wanted, "the answer about a revision", PAGE_LIMIT).await?;
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
            choice.quantisation = config.as_ref().and_then(config::format);
        }
        let discovery = Discovery {
            repo: repo.name.clone(),
            revision: repo.revision.clone(),
            commit: revision.commit,
            gated: revision.gated,
            files,
            choices,
            config: config::chosen(config.as_ref()),
        };
        Ok((discovery, config))
    }

    async fn tree(&self, repo: &Repo, commit: &str) -> Result<Vec<tree::Entry>, Fault> {
        let mut wanted = self.wanted(&format!("api/models/{}/tree/{commit}?recursive=true", repo.name))?;
        let mut entries = Vec::new();
        for _ in 0..MOST_PAGES {
            let (headers, body) = self.client.small(&wanted, "a list of files", PAGE_LIMIT).await?;
            entries.extend(tree::page(&body)?);
            let Some(next) = tree::next_page(&wanted.uri, &headers) else { return Ok(entries) };
            wanted.uri = next;
        }
        Err(Fault::TooLarge { what: "a list of files".to_owned(), limit: (MOST_PAGES * PAGE_LIMIT) as u64 })
    }

    async fn config(&self, repo: &Repo, commit: &str) -> Result<Option<Value>, Fault> {
        let wanted = self.file(&repo.name, commit, "config.json")?;
        match self.client.small(&wanted, "config.json", CONFIG_LIMIT).await {
            Ok((_, body)) => Ok(serde_json::from_slice(&body).ok()),
            // The list of a gated repository is open, its files are not: that is told where a file is wanted.
            Err(Fault::Answer(refusal)) if matches!(refusal.status, 401 | 403) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// What is known of the header of a file without asking for it.
    pub(super) fn known(&self, file: &Wanted) -> Option<Arc<Keys>> {
        self.headers.lock().unwrap_or_else(PoisonError::into_inner).get(&file.uri.to_string()).cloned()
    }

    pub(super) async fn keys(&self, discovery: &Discovery, choice: &Choice, whole: bool) -> Result<Arc<Keys>, Unread> {
        let malformed = || Unread::Hub(Fault::Malformed { what: "a choice without a file".to_owned() });
        let first = choice.files.first().ok_or_else(malformed)?;
        let wanted = self.file(&discovery.repo, &discovery.commit, &first.path).map_err(Unread::Hub)?;
        let key = wanted.uri.to_string();
        if let Some(keys) = self.known(&wanted).filter(|keys| !whole || keys.reach == Reach::Whole) {
            return Ok(keys);
        }
        let keys = Arc::new(header::keys(&self.client, &wanted, first.size.0, whole).await?);
        let mut headers = self.headers.lock().unwrap_or_else(PoisonError::into_inner);
        if headers.len() >= KEPT {
            headers.clear();
        }
        headers.insert(key, keys.clone());
        Ok(keys)
    }

    async fn table(
        &self,
        ask: &FitAsk,
        found: (&Discovery, Option<&Value>),
        choice: &Choice,
        place: &Place,
        care: Care,
    ) -> Result<FitTable, Problem> {
        let (discovery, config) = found;
        let repo = Repo { name: discovery.repo.clone(), revision: discovery.revision.clone() };
        let mut missing: Missing = choice.incomplete.iter().map(|why| format!("all parts: {why}")).collect();
        let whole = care == Care::Whole;
        let (shape, weights, whole_header) = match choice.engine {
            EngineKind::Vllm => {
                let shape = config.map_or_else(|| Err(vec!["config.json".to_owned()]), shape_of_config);
                (shape, Weights { all: choice.weights.0, ..Weights::default() }, true)
            }
            EngineKind::LlamaCpp => match self.keys(discovery, choice, whole).await {
                Ok(keys) => {
                    missing.extend(no_model(&keys));
                    let weights = Weights::of_gguf(choice.weights.0, choice.files.len(), &keys);
                    (shape_of_gguf(&keys), weights, keys.reach == Reach::Whole)
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
            utilisation: ask.utilisation.unwrap_or(0.9),
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
fn no_model(keys: &Keys) -> Option<String> {
    let kind = keys.text("general.type").unwrap_or("model");
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
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(settings)
    }

    async fn discover(&self, ask: &RepoAsk) -> Result<Discovery, Problem> {
        let (discovery, _) = self.found(&Repo::parse(ask)?).await?;
        let mut discovery = (*discovery).clone();
        // What the headers say of the number format is better than what the names say.
        let headers = self.headers.lock().unwrap_or_else(PoisonError::into_inner);
        for choice in discovery.choices.iter_mut().filter(|choice| choice.engine == EngineKind::LlamaCpp) {
            let uri: Option<Uri> = self.file(&discovery.repo, &discovery.commit, &choice.filename).ok().map(|wanted| wanted.uri);
            let keys = uri.and_then(|uri| headers.get(&uri.to_string()));
            if choice.quantisation.is_none() {
                choice.quantisation = keys.and_then(|keys| keys.number("general.file_type")).and_then(classify::file_type).map(str::to_owned);
            }
        }
        Ok(discovery)
    }

    async fn fit(&self, ask: &FitAsk, care: Care) -> Result<Vec<ChoiceFit>, Problem> {
        if let Some(slots) = ask.slots.filter(|slots| !(1..=MOST_SLOTS).contains(slots)) {
            return Err(Problem::new(ProblemKind::Invalid, format!("{slots} is not a number of requests a model can work on at the same time."))
                .hint(format!("Use 1 to {MOST_SLOTS}."))
                .param("max_batch_size"));
        }
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
