//! A hub in memory: one repository, verdicts that a test chose, and downloads that stand where a test put them.

use std::sync::Arc;

use async_trait::async_trait;
use warden_domain::{
    Problem, ProblemKind,
    download::{Download, DownloadFile, DownloadState, Downloads, NewDownload},
    engine::EngineKind,
    fit::{FitAsk, FitRow, FitTable, FitWhere, KvType, Verdict},
    gpu::{GpuCard, GpuReading, GpuSnapshot, PcieLink},
    hub::{Care, Choice, ChoiceFit, Discovery, FileKind, Hub, HubChange, HubFile, HubSettings, Promise, RepoAsk, RepoConfig},
    ids::{AccountId, DownloadId, GpuId},
    units::{Bytes, Tokens},
};

use super::{World, earlier, not_found};

/// The one repository that exists.
pub const REPO: &str = "acme/small-model";

/// What the hub remembers.
#[derive(Default)]
pub struct HubMemory {
    /// Another address than the usual one.
    pub endpoint: Option<String>,
    /// A token was given.
    pub has_token: bool,
    /// Limit of downloads.
    pub limit: Option<Bytes>,
    /// Downloads, newest first.
    pub downloads: Vec<Download>,
    /// Cards of this machine.
    pub cards: u32,
}

fn file(path: &str, size: u64) -> HubFile {
    HubFile { path: path.to_owned(), size: Bytes(size), kind: FileKind::Gguf, promise: Promise::Sha256("ab".repeat(32)) }
}

/// A file as a choice of its own.
fn choice(path: &str, quantisation: &str, size: u64, incomplete: Option<&str>) -> Choice {
    Choice {
        filename: path.to_owned(),
        quantisation: Some(quantisation.to_owned()),
        engine: EngineKind::LlamaCpp,
        files: vec![file(path, size)],
        weights: Bytes(size),
        size: Bytes(size),
        incomplete: incomplete.map(str::to_owned),
    }
}

fn discovery() -> Discovery {
    let choices = vec![
        choice("small-Q4_K_M.gguf", "Q4_K_M", 400 << 20, None),
        choice("small-Q8_0.gguf", "Q8_0", 800 << 20, None),
        choice("small-F16.gguf", "F16", 80 << 30, None),
        choice("odd-mamba.gguf", "Q8_0", 90 << 20, None),
        choice("cut-00001-of-00002.gguf", "Q8_0", 90 << 20, Some("1 of its 2 parts are not in the repository.")),
    ];
    Discovery {
        repo: REPO.to_owned(),
        revision: "main".to_owned(),
        commit: "0123456789abcdef0123456789abcdef01234567".to_owned(),
        gated: Some(false),
        files: choices.iter().flat_map(|choice| choice.files.clone()).collect(),
        choices,
        config: RepoConfig::default(),
    }
}

fn table(choice: &Choice, ask: &FitAsk) -> FitTable {
    let known = choice.filename.starts_with("small");
    let row = |key, bytes| FitRow {
        key,
        bytes: Bytes(bytes),
        least: Bytes(bytes),
        most: Bytes(bytes + bytes / 10),
        words: "As told.",
        figures: "1 x 2".to_owned(),
    };
    let rows = if known {
        vec![row("weights", choice.weights.0), row("kv", 96 << 20), row("compute", 20 << 20)]
    } else {
        vec![row("weights", choice.weights.0)]
    };
    let verdict = match choice.filename.as_str() {
        "small-Q4_K_M.gguf" => Verdict::Fits,
        "small-Q8_0.gguf" => Verdict::Tight,
        "small-F16.gguf" => Verdict::WontFit,
        _ => Verdict::Unknown,
    };
    let cards = match &ask.at {
        FitWhere::Host => 0,
        FitWhere::Indices(list) => list.len(),
        FitWhere::Cards(list) => list.len(),
    };
    FitTable {
        verdict,
        notes: Vec::new(),
        missing: if known { Vec::new() } else { vec!["general.architecture = mamba".to_owned()] },
        sum: known.then(|| rows.iter().map(|row| row.bytes).sum()),
        most: known.then(|| rows.iter().map(|row| row.most).sum()),
        rows,
        available: Some(Bytes(1 << 30)),
        total: Some(Bytes(2 << 30)),
        place: "1.0 GiB / 2.0 GiB".to_owned(),
        engine: EngineKind::LlamaCpp,
        context: Some(ask.context.unwrap_or(Tokens(4096))),
        slots: ask.slots.unwrap_or(4),
        kv: KvType::F16,
        cards,
        recommended_context: (verdict == Verdict::Tight).then_some(Tokens(2048)),
        whole_header: true,
        trained_context: Some(Tokens(32768)),
    }
}

impl World {
    /// A download in a state.
    pub fn add_download(&self, name: &str, state: DownloadState) -> DownloadId {
        let id = DownloadId::from_stored(format!("dow_{name}"));
        let running = state == DownloadState::Running;
        let stands = matches!(state, DownloadState::Failed | DownloadState::Waiting);
        let download = Download {
            id: id.clone(),
            repo: REPO.to_owned(),
            commit: discovery().commit,
            served_name: name.to_owned(),
            load: false,
            files: vec![DownloadFile { path: "small-Q4_K_M.gguf".to_owned(), size: Bytes(400 << 20), done: Bytes(100 << 20) }],
            size: Bytes(400 << 20),
            done: if state == DownloadState::Done { Bytes(400 << 20) } else { Bytes(100 << 20) },
            state,
            rate: running.then_some(Bytes(5 << 20)),
            seconds_left: running.then_some(61),
            reason: stands
                .then(|| Problem::new(ProblemKind::Upstream, "The hub <x> cannot be reached: it refuses the connection.").hint("Check the network.")),
            waits_until: None,
            model: None,
            task: None,
            created_at: earlier(90),
        };
        self.edit(|m| m.hub.downloads.insert(0, download));
        id
    }

    fn step(&self, id: &DownloadId, state: DownloadState) -> Result<Download, Problem> {
        self.failing()?;
        self.edit(|m| {
            let download = m.hub.downloads.iter_mut().find(|download| download.id == *id).ok_or_else(|| not_found("download", id.as_str()))?;
            download.state = state;
            Ok(download.clone())
        })
    }
}

#[async_trait]
impl Hub for World {
    async fn settings(&self) -> Result<HubSettings, Problem> {
        let memory = self.memory.lock().unwrap();
        let endpoint = memory.hub.endpoint.clone().unwrap_or_else(|| "https://hub.example".to_owned());
        Ok(HubSettings { endpoint, has_token: memory.hub.has_token, limit: memory.hub.limit })
    }

    async fn configure(&self, change: HubChange) -> Result<HubSettings, Problem> {
        self.failing()?;
        self.edit(|m| {
            if let Some(endpoint) = change.endpoint {
                m.hub.endpoint = Some(endpoint).filter(|text| !text.is_empty());
            }
            if let Some(token) = change.token {
                m.hub.has_token = !token.expose().is_empty();
            }
            if let Some(limit) = change.limit {
                m.hub.limit = limit;
            }
        });
        self.settings().await
    }

    async fn discover(&self, ask: &RepoAsk) -> Result<Discovery, Problem> {
        self.failing()?;
        if ask.repo.trim() == REPO { Ok(discovery()) } else { Err(not_found("repository", &ask.repo)) }
    }

    async fn fit(&self, ask: &FitAsk, care: Care) -> Result<Vec<ChoiceFit>, Problem> {
        let found = self.discover(&RepoAsk { repo: ask.repo.clone(), revision: ask.revision.clone() }).await?;
        let wanted = |choice: &&Choice| ask.filename.as_ref().map_or(care == Care::Quick, |name| *name == choice.filename);
        Ok(found.choices.iter().filter(wanted).map(|choice| ChoiceFit { filename: choice.filename.clone(), table: table(choice, ask) }).collect())
    }

    fn cards(&self) -> Arc<GpuSnapshot> {
        let card = |index: u32| GpuCard {
            index,
            id: GpuId::from_stored(format!("GPU-{index}")),
            minor: None,
            name: Some("Card <9>".to_owned()),
            pci: None,
            memory_total: Some(Bytes(24 << 30)),
            memory_used: Some(Bytes(1 << 30)),
            utilisation_ratio: None,
            temperature: None,
            temperature_limit: None,
            power: None,
            power_cap: None,
            link: PcieLink::default(),
            holders: None,
        };
        let cards = (0..self.memory.lock().unwrap().hub.cards).map(card).collect();
        Arc::new(GpuSnapshot { reading: GpuReading::Live, driver: None, simulated: false, cards })
    }
}

#[async_trait]
impl Downloads for World {
    async fn list(&self) -> Result<Vec<Download>, Problem> {
        Ok(self.memory.lock().unwrap().hub.downloads.clone())
    }

    async fn get(&self, id: &DownloadId) -> Result<Download, Problem> {
        let memory = self.memory.lock().unwrap();
        memory.hub.downloads.iter().find(|download| download.id == *id).cloned().ok_or_else(|| not_found("download", id.as_str()))
    }

    async fn begin(&self, _: &AccountId, wish: NewDownload) -> Result<Download, Problem> {
        self.failing()?;
        let id = self.add_download(&wish.served_name.unwrap_or_else(|| "small-Q4_K_M".to_owned()), DownloadState::Running);
        Downloads::get(self, &id).await
    }

    async fn pause(&self, id: &DownloadId) -> Result<Download, Problem> {
        self.step(id, DownloadState::Paused)
    }

    async fn resume(&self, id: &DownloadId) -> Result<Download, Problem> {
        self.step(id, DownloadState::Running)
    }

    async fn cancel(&self, id: &DownloadId) -> Result<(), Problem> {
        self.failing()?;
        self.edit(|m| m.hub.downloads.retain(|download| download.id != *id));
        Ok(())
    }
}
