//! A hub on loopback for the tests of downloads, and a room that fetches from it.
//!
//! In: files of repositories, and paths that it refuses. Out: revisions, trees and files with ranges, and how often it was asked. Each
//! connection brings one answer; the threads end with the test's process.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use sha2::{Digest, Sha256};
use warden_domain::{
    change::Changes,
    download::{Download, DownloadState, Downloads, NewDownload},
    gpu::{Gpus, NoGpus},
    ids::{AccountId, DownloadId},
    model::Layout,
    tasks::Tasks,
};
use warden_models::{Downloader, DownloaderParts, HubParts, HubRoom, Models, ModelsConfig, Rules};
use warden_store::Store;

/// Every repository is at this commit.
const COMMIT: &str = "00112233445566778899aabbccddeeff00112233";

#[derive(Default)]
struct Holdings {
    /// Bytes by `owner/name` and path.
    files: BTreeMap<(String, String), Vec<u8>>,
    /// Paths that are not handed out.
    refused: BTreeSet<String>,
    /// Paths whose bytes come wrong.
    wrong: BTreeSet<String>,
    /// Repositories of which nothing is answered for now.
    held: BTreeSet<String>,
    asked: Vec<String>,
}

/// The hub.
#[derive(Clone)]
pub struct Hub {
    address: String,
    holds: Arc<Mutex<Holdings>>,
}

impl Hub {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let hub = Self { address: format!("http://{}", listener.local_addr().unwrap()), holds: Arc::default() };
        let desk = hub.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let desk = desk.clone();
                std::thread::spawn(move || desk.serve(stream));
            }
        });
        hub
    }

    pub fn add(&self, repo: &str, path: &str, bytes: Vec<u8>) {
        self.holds.lock().unwrap().files.insert((repo.to_owned(), path.to_owned()), bytes);
    }

    pub fn refuse(&self, path: &str) {
        self.holds.lock().unwrap().refused.insert(path.to_owned());
    }

    pub fn garble(&self, path: &str) {
        self.holds.lock().unwrap().wrong.insert(path.to_owned());
    }

    pub fn mend(&self) {
        let mut holds = self.holds.lock().unwrap();
        holds.refused.clear();
        holds.wrong.clear();
    }

    pub fn asked(&self) -> usize {
        self.holds.lock().unwrap().asked.len()
    }

    /// How often something of a repository was asked for.
    pub fn asked_of(&self, repo: &str) -> usize {
        self.holds.lock().unwrap().asked.iter().filter(|path| path.contains(repo)).count()
    }

    /// Keeps everybody waiting who asks for this repository, until it is let go.
    pub fn hold(&self, repo: &str) {
        self.holds.lock().unwrap().held.insert(repo.to_owned());
    }

    pub fn let_go(&self) {
        self.holds.lock().unwrap().held.clear();
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        let path = lines.next().and_then(|line| line.split(' ').nth(1).map(str::to_owned)).unwrap_or_default();
        let mut from = None;
        for line in lines.take_while(|line| !line.is_empty()) {
            if let Some(range) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
                let (begin, end) = range.split_once('-').unwrap();
                from = Some((begin.parse::<usize>().unwrap(), end.parse::<usize>().ok()));
            }
        }
        self.holds.lock().unwrap().asked.push(path.clone());
        while self.holds.lock().unwrap().held.iter().any(|repo| path.contains(repo)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (status, head, body) = self.answer(&path, from);
        let _who_goes_away_early = write!(stream, "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n{head}\r\n", body.len())
            .and_then(|()| stream.write_all(&body));
    }

    fn answer(&self, path: &str, range: Option<(usize, Option<usize>)>) -> (u16, String, Vec<u8>) {
        let holds = self.holds.lock().unwrap();
        let path = path.split('?').next().unwrap_or_default().trim_start_matches('/');
        let words: Vec<&str> = path.split('/').collect();
        match words.as_slice() {
            ["api", "models", _, _, "revision", _] => (200, String::new(), format!(r#"{{"sha":"{COMMIT}","gated":false}}"#).into_bytes()),
            ["api", "models", owner, name, "tree", _] => {
                let repo = format!("{owner}/{name}");
                let mut list = Vec::new();
                for ((_, path), bytes) in holds.files.iter().filter(|((of, _), _)| *of == repo) {
                    let sum = hex::encode(Sha256::digest(bytes));
                    let size = bytes.len();
                    list.push(format!(r#"{{"type":"file","path":"{path}","oid":"","size":1,"lfs":{{"oid":"{sum}","size":{size}}}}}"#));
                }
                (200, String::new(), format!("[{}]", list.join(",")).into_bytes())
            }
            [owner, name, "resolve", _, rest @ ..] => {
                let file = rest.join("/");
                let Some(mut bytes) = holds.files.get(&(format!("{owner}/{name}"), file.clone())).cloned().filter(|_| !holds.refused.contains(&file))
                else {
                    return (404, "x-error-code: EntryNotFound\r\n".to_owned(), Vec::new());
                };
                if let Some(last) = bytes.last_mut().filter(|_| holds.wrong.contains(&file)) {
                    *last ^= 1;
                }
                let Some((begin, end)) = range else { return (200, String::new(), bytes) };
                let end = end.map_or(bytes.len(), |end| bytes.len().min(end + 1));
                let mut head = String::new();
                write!(head, "content-range: bytes {begin}-{}/{}\r\n", end.saturating_sub(1), bytes.len()).unwrap();
                (206, head, bytes[begin.min(end)..end].to_vec())
            }
            _ => (404, String::new(), Vec::new()),
        }
    }
}

/// A room with its hub.
pub struct Room {
    pub dir: tempfile::TempDir,
    pub hub: Hub,
    pub models: Arc<Models>,
    pub downloads: Arc<Downloader>,
    store: Store,
}

pub async fn room() -> Room {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("models")).unwrap();
    let (hub, store) = (Hub::start(), Store::open(&dir.path().join("state")).unwrap());
    let config = ModelsConfig { models_dir: dir.path().join("models"), allowed_roots: vec![] };
    let models = Models::new(store.clone(), config, Changes::new());
    let downloads = downloader(&dir, &hub, &store, &models).await;
    Room { dir, hub, models, downloads, store }
}

async fn hub_room(dir: &tempfile::TempDir, hub: &Hub, store: &Store, gpus: Arc<dyn Gpus>) -> Arc<HubRoom> {
    let (store, state_dir, endpoint) = (store.clone(), dir.path().join("state"), Some(hub.address.clone()));
    HubRoom::open(HubParts { store, state_dir, endpoint, gpus, version: "0.0.0" }).await.unwrap()
}

async fn downloader(dir: &tempfile::TempDir, hub: &Hub, store: &Store, models: &Arc<Models>) -> Arc<Downloader> {
    let parts = DownloaderParts {
        hub: hub_room(dir, hub, store, Arc::new(NoGpus)).await,
        registry: models.clone(),
        store: store.clone(),
        models_dir: dir.path().join("models"),
        tasks: Tasks::new(Changes::new()),
        changes: Changes::new(),
        rules: Rules { pause: Duration::from_millis(20), tries: 3, ..Rules::default() },
    };
    Downloader::open(parts).await.unwrap()
}

impl Room {
    /// A room that looks at the hub, with these cards.
    pub async fn looks(&self, gpus: Arc<dyn Gpus>) -> Arc<HubRoom> {
        hub_room(&self.dir, &self.hub, &self.store, gpus).await
    }

    /// The same downloads as the next run of the agent finds them.
    pub async fn next_run(&mut self) {
        self.downloads = downloader(&self.dir, &self.hub, &self.store, &self.models).await;
    }

    /// A path inside the models folder.
    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join("models").join(path)
    }

    pub async fn begin(&self, wish: NewDownload) -> Download {
        self.downloads.begin(&AccountId::random(), wish).await.unwrap()
    }

    /// Waits until it is over, whatever the end.
    pub async fn over(&self, id: &DownloadId) -> Download {
        for _ in 0..1000 {
            let seen = self.downloads.get(id).await.unwrap();
            if matches!(seen.state, DownloadState::Done | DownloadState::Failed | DownloadState::Paused) {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the download never ends");
    }
}

/// A wish for a repository.
pub fn wish(repo: &str) -> NewDownload {
    NewDownload {
        repo: repo.to_owned(),
        revision: String::new(),
        filename: None,
        served_name: None,
        context: None,
        slots: None,
        layout: Layout::default(),
        load: false,
    }
}
