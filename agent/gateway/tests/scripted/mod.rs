//! A gateway over fakes, with a scripted engine behind a Unix socket: it answers what the test wrote down, and breaks off where the
//! test says so.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    http::{Request, Response},
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, UnixListener, UnixStream},
};
use tower::ServiceExt;
use warden_domain::{
    Problem,
    engine::{Capacity, EngineKind, ReplicaSample},
    ids::{KeyId, ModelId, ReplicaId},
    key::{Caller, KeyDirectory, KeyRefusal, Priority},
    model::{ModelState, RunawayGuard},
    replica::{Demand, Endpoint, InFlight, NoDemand, Replica, ReplicaTable, Sampled, ServedModel, Serving},
    units::Tokens,
    usage::{Finished, Ledger, LedgerEntry},
};
use warden_gateway::{FlightTable, Gateway, GatewayLimits, GatewayParts, Impatient};

/// What the engine does with a request.
#[derive(Clone)]
pub enum Act {
    /// Writes these bytes and closes or keeps the connection as they say.
    Write(String),
    /// Writes, one after the other with a pause in between, then closes.
    Slowly(Vec<String>, Duration),
    /// Closes without a byte.
    Close,
    /// Never answers.
    Hang,
    /// Writes the head of a stream, then events without end until nobody reads.
    Endless,
}

pub struct Engine {
    pub socket: PathBuf,
    pub seen: Arc<Mutex<Vec<(String, String)>>>,
    /// Connections the gateway closed while the engine was busy.
    pub left: Arc<Mutex<usize>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Engine {
    /// Answers the n-th request with the n-th act; the last act repeats.
    pub fn start(dir: &tempfile::TempDir, name: &str, acts: Vec<Act>) -> Self {
        let socket = dir.path().join(format!("{name}.sock"));
        let listener = UnixListener::bind(&socket).unwrap();
        let (seen, left) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
        let (seen_in, left_in) = (Arc::clone(&seen), Arc::clone(&left));
        let task = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                tokio::spawn(serve(stream, acts.clone(), Arc::clone(&seen_in), Arc::clone(&left_in)));
            }
        });
        Self { socket, seen, left, task }
    }

    pub fn bodies(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|(_, body)| body.clone()).collect()
    }

    /// Waits until the gateway closed a busy connection.
    pub async fn was_left(&self) {
        until(|| *self.left.lock().unwrap() > 0, "the engine is still busy for nobody").await;
    }
}

async fn serve(mut stream: UnixStream, acts: Vec<Act>, seen: Arc<Mutex<Vec<(String, String)>>>, left: Arc<Mutex<usize>>) {
    while let Some(request) = read_request(&mut stream).await {
        let turn = {
            let mut seen = seen.lock().unwrap();
            seen.push(request);
            seen.len() - 1
        };
        match acts[turn.min(acts.len() - 1)].clone() {
            Act::Write(text) => {
                if stream.write_all(text.as_bytes()).await.is_err() {
                    return;
                }
                if text.contains("connection: close") || !text.contains("\r\n\r\n") {
                    return;
                }
            }
            Act::Slowly(pieces, pause) => {
                for piece in pieces {
                    if stream.write_all(piece.as_bytes()).await.is_err() {
                        *left.lock().unwrap() += 1;
                        return;
                    }
                    tokio::time::sleep(pause).await;
                }
                return;
            }
            Act::Close => return,
            Act::Hang => {
                let _ = stream.read(&mut [0; 16]).await;
                *left.lock().unwrap() += 1;
                return;
            }
            Act::Endless => {
                let _ = stream.write_all(STREAM_HEAD.as_bytes()).await;
                let event = chunked(&format!("data: {{\"choices\":[{{\"text\":\"{}\"}}]}}\n\n", "x".repeat(4000)));
                while stream.write_all(event.as_bytes()).await.is_ok() {
                    tokio::task::yield_now().await;
                }
                *left.lock().unwrap() += 1;
                return;
            }
        }
    }
}

async fn read_request(stream: &mut UnixStream) -> Option<(String, String)> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 65536]);
    loop {
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..at]).to_lowercase();
            let length: usize = head.lines().find_map(|l| l.strip_prefix("content-length: ")).map_or(0, |v| v.trim().parse().unwrap());
            if bytes.len() >= at + 4 + length {
                return Some((head, String::from_utf8_lossy(&bytes[at + 4..at + 4 + length]).into_owned()));
            }
        }
        match stream.read(&mut piece).await {
            Ok(n) if n > 0 => bytes.extend_from_slice(&piece[..n]),
            _ => return None,
        }
    }
}

pub const STREAM_HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\naccess-control-allow-origin: *\r\n\r\n";
pub const HELLO: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello\"}}]}\n\n";
pub const USAGE: &str =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":29,\"completion_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n";
pub const DONE: &str = "data: [DONE]\n\n";

pub fn chunked(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

pub fn whole_stream(events: &[&str]) -> Act {
    Act::Write(format!("{STREAM_HEAD}{}0\r\n\r\n", events.iter().map(|e| chunked(e)).collect::<String>()))
}

pub fn json(status: &str, body: &str) -> Act {
    Act::Write(format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
}

struct FakeKeys;

impl KeyDirectory for FakeKeys {
    fn identify(&self, secret: &str) -> Result<Caller, KeyRefusal> {
        match secret {
            "vw_good" => Ok(Caller { key: Some(KeyId::from_stored("key_good")), name: "app".to_owned(), priority: Priority::USUAL }),
            "vw_high" => Ok(Caller { key: Some(KeyId::from_stored("key_high")), name: "urgent".to_owned(), priority: Priority::new(9).unwrap() }),
            "vw_low" => Ok(Caller { key: Some(KeyId::from_stored("key_low")), name: "batch".to_owned(), priority: Priority::new(0).unwrap() }),
            "vw_old" => Err(KeyRefusal::Revoked),
            s if s.starts_with("vw_") => Err(KeyRefusal::Unknown),
            _ => Err(KeyRefusal::Malformed),
        }
    }
}

pub struct FakeServing(
    Mutex<Arc<ReplicaTable>>,
    Mutex<Arc<BTreeMap<ReplicaId, Sampled>>>,
    Mutex<EngineKind>,
    Mutex<Option<(usize, Arc<ReplicaTable>)>>,
);

impl Default for FakeServing {
    fn default() -> Self {
        Self(Mutex::default(), Mutex::default(), Mutex::new(EngineKind::Vllm), Mutex::default())
    }
}

impl FakeServing {
    /// Of what kind the engines are that are offered from now on.
    pub fn kind(&self, kind: EngineKind) {
        *self.2.lock().unwrap() = kind;
    }

    /// What an engine says of itself.
    pub fn figures(&self, replica: &str, launch: &str, sample: ReplicaSample) {
        let told = Sampled { launch: launch.to_owned(), at: warden_domain::clock::now(), sample };
        *self.1.lock().unwrap() = Arc::new(BTreeMap::from([(ReplicaId::new(replica).unwrap(), told)]));
    }

    pub fn offer(&self, sockets: &[PathBuf]) {
        self.offer_with(&sockets.iter().map(|s| (s.clone(), "1")).collect::<Vec<_>>(), Capacity::Unknown);
    }

    /// Offers an engine that nobody sees the first so many times that somebody looks.
    pub fn offer_after(&self, looks: usize, socket: &PathBuf) {
        self.offer(std::slice::from_ref(socket));
        let table = std::mem::take(&mut *self.0.lock().unwrap());
        *self.3.lock().unwrap() = Some((looks, table));
    }

    /// Says of all models whether they take images.
    pub fn images(&self, images: Option<bool>) {
        let mut table = self.0.lock().unwrap();
        Arc::make_mut(&mut table).models.values_mut().for_each(|model| model.images = images);
    }

    /// What is done about answers that run away, of all models.
    pub fn guard(&self, guard: RunawayGuard) {
        let mut table = self.0.lock().unwrap();
        Arc::make_mut(&mut table).models.values_mut().for_each(|model| model.runaway = guard);
    }

    /// Offers engines under their launches; none at all: the model is not loaded.
    pub fn offer_with(&self, engines: &[(PathBuf, &str)], capacity: Capacity) {
        if engines.is_empty() {
            *self.0.lock().unwrap() = Arc::default();
            return;
        }
        // An engine keeps the id of its socket, whoever else is offered beside it.
        let replicas = engines
            .iter()
            .map(|(s, launch)| Replica {
                id: ReplicaId::new(format!("tiny-{}", s.file_stem().unwrap().to_str().unwrap())).unwrap(),
                launch: (*launch).to_owned(),
                endpoint: Endpoint::Unix(s.clone()),
                capacity,
            })
            .collect();
        let model = ServedModel {
            id: ModelId::from_stored("mdl_tiny"),
            served_name: "tiny".to_owned(),
            engine: *self.2.lock().unwrap(),
            context: Some(Tokens(2048)),
            images: None,
            runaway: RunawayGuard::Log,
            created: 7,
            replicas,
        };
        *self.0.lock().unwrap() = Arc::new(ReplicaTable { models: BTreeMap::from([("tiny".to_owned(), model)]) });
    }
}

#[async_trait::async_trait]
impl Serving for FakeServing {
    fn table(&self) -> Arc<ReplicaTable> {
        let mut later = self.3.lock().unwrap();
        match &mut *later {
            Some((0, table)) => *self.0.lock().unwrap() = Arc::clone(table),
            Some((looks, _)) => *looks -= 1,
            None => {}
        }
        Arc::clone(&self.0.lock().unwrap())
    }
    fn samples(&self) -> Arc<BTreeMap<ReplicaId, Sampled>> {
        Arc::clone(&self.1.lock().unwrap())
    }
    fn states(&self) -> Arc<BTreeMap<ModelId, ModelState>> {
        Arc::default()
    }
    async fn load(&self, _: &ModelId) -> Result<(), Problem> {
        Ok(())
    }
    async fn unload(&self, _: &ModelId) -> Result<(), Problem> {
        Ok(())
    }
    async fn reload(&self, _: &ModelId) -> Result<warden_domain::replica::Reload, Problem> {
        Ok(warden_domain::replica::Reload::Rolling)
    }
    async fn log_tail(&self, _: &ModelId, _: usize) -> Result<Vec<String>, Problem> {
        Ok(Vec::new())
    }
}

#[derive(Clone, Default)]
pub struct FakeLedger {
    pub charged: Arc<Mutex<Vec<Finished>>>,
    /// Requests that were admitted.
    pub opened: Arc<Mutex<usize>>,
    pub full: Arc<Mutex<bool>>,
}

impl Ledger for FakeLedger {
    fn open(&self) -> Option<Box<dyn LedgerEntry>> {
        let open = !*self.full.lock().unwrap();
        *self.opened.lock().unwrap() += usize::from(open);
        open.then(|| Box::new(FakeEntry(Arc::clone(&self.charged))) as Box<dyn LedgerEntry>)
    }
}

struct FakeEntry(Arc<Mutex<Vec<Finished>>>);

impl LedgerEntry for FakeEntry {
    fn finish(self: Box<Self>, finished: Finished) {
        self.0.lock().unwrap().push(finished);
    }
}

pub struct Bench {
    pub dir: tempfile::TempDir,
    pub gateway: Arc<Gateway>,
    pub serving: Arc<FakeServing>,
    pub flights: Arc<FlightTable>,
    pub ledger: FakeLedger,
    patience: Duration,
}

impl Bench {
    pub fn new(limits: GatewayLimits) -> Self {
        Self::demanding(limits, Arc::new(NoDemand))
    }

    /// The same where requests may load models.
    pub fn demanding(limits: GatewayLimits, demand: Arc<dyn Demand>) -> Self {
        let (serving, flights, ledger) = (Arc::new(FakeServing::default()), FlightTable::new(), FakeLedger::default());
        let parts =
            GatewayParts { keys: Arc::new(FakeKeys), serving: serving.clone(), demand, ledger: Arc::new(ledger.clone()), flights: flights.clone() };
        let patience = limits.client_pause;
        Self { dir: tempfile::tempdir().unwrap(), gateway: Gateway::new(parts, limits), serving, flights, ledger, patience }
    }

    /// A bench with one engine that is offered as `tiny`.
    pub fn with(acts: Vec<Act>) -> (Self, Engine) {
        Self::with_limits(acts, GatewayLimits::default())
    }

    pub fn with_limits(acts: Vec<Act>, limits: GatewayLimits) -> (Self, Engine) {
        let bench = Self::new(limits);
        let engine = Engine::start(&bench.dir, "e0", acts);
        bench.serving.offer(std::slice::from_ref(&engine.socket));
        (bench, engine)
    }

    pub fn router(&self) -> Router {
        let gateway = self.gateway.clone();
        Router::new().fallback(move |request: axum::extract::Request| gateway.clone().serve(request))
    }

    pub async fn ask(&self, request: Request<Body>) -> Response<Body> {
        self.router().oneshot(request).await.unwrap()
    }

    pub async fn chat(&self, body: impl Into<Body>) -> Response<Body> {
        self.ask(post("/v1/chat/completions", body)).await
    }

    /// The one charge of the one request of a test.
    pub async fn the_charge(&self) -> Finished {
        until(|| !self.ledger.charged.lock().unwrap().is_empty(), "nothing was charged").await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        let charged = self.ledger.charged.lock().unwrap();
        assert_eq!(charged.len(), 1, "exactly one charge per request: {charged:?}");
        assert_eq!(self.flights.of_model(&ModelId::from_stored("mdl_tiny")), 0, "the seat is free");
        charged[0].clone()
    }

    /// Serves on a loopback port, for tests about connections.
    pub async fn listen(&self) -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (router, patience) = (self.router(), self.patience);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let router = router.clone();
                let service = hyper::service::service_fn(move |request| router.clone().oneshot(request));
                let stream = TokioIo::new(Impatient::new(stream, patience));
                tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(stream, service));
            }
        });
        address
    }
}

pub fn post(path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post(path).header("authorization", "Bearer vw_good").body(body.into()).unwrap()
}

pub async fn text(response: Response<Body>) -> String {
    String::from_utf8(axum::body::to_bytes(response.into_body(), 100_000_000).await.unwrap().to_vec()).unwrap()
}

/// What a client reads, and whether the answer was cut.
pub async fn until_cut(response: Response<Body>) -> (String, bool) {
    let (mut body, mut said) = (response.into_body(), Vec::new());
    while let Some(frame) = http_body_util::BodyExt::frame(&mut body).await {
        match frame {
            Ok(frame) => said.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Err(_) => return (String::from_utf8(said).unwrap(), true),
        }
    }
    (String::from_utf8(said).unwrap(), false)
}

pub fn raw_post(body: &str) -> String {
    raw_post_to("/v1/chat/completions", body)
}

pub fn raw_post_to(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer vw_good\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

pub async fn until(mut done: impl FnMut() -> bool, what: &str) {
    let limit = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < limit, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
