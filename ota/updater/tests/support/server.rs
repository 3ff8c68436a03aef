//! A channel's server: serves a folder with ranges, and misbehaves where a test says so.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};

/// What goes wrong with targets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// The connection ends after so many bytes of each answer.
    CutAfter(usize),
    /// One byte is another one.
    Flip(usize),
    /// It goes on after its end, for ever.
    Endless,
    /// Ranges are not known.
    NoRanges,
    /// Hardly anything comes.
    Drip,
    /// Another place than asked for.
    WrongRange,
    /// 503.
    Busy,
    /// Somewhere else.
    Moved,
    /// Steady, slow enough to be watched: 64 KiB each 20 ms.
    Slow,
}

/// What was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    pub path: String,
    pub range: Option<String>,
    pub if_range: Option<String>,
}

struct Shared {
    folder: PathBuf,
    fault: Mutex<Fault>,
    asked: Mutex<Vec<Asked>>,
}

pub struct Server {
    shared: Arc<Shared>,
    pub address: String,
}

impl Server {
    pub async fn start(folder: &Path) -> Self {
        let shared = Arc::new(Shared { folder: folder.to_owned(), fault: Mutex::default(), asked: Mutex::default() });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let app = Router::new().fallback(serve).with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { shared, address }
    }

    pub fn set(&self, fault: Fault) {
        *self.shared.fault.lock().unwrap() = fault;
    }

    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.shared.asked.lock().unwrap())
    }

    /// Waits until something below this path was asked for.
    pub async fn was_asked(&self, under: &str) {
        let begun = std::time::Instant::now();
        while !self.shared.asked.lock().unwrap().iter().any(|asked| asked.path.starts_with(under)) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{under} was not asked for");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Ranges that were asked of targets.
    pub fn ranges(&self) -> Vec<Option<String>> {
        self.asked().into_iter().filter(|asked| asked.path.starts_with("/targets/")).map(|asked| asked.range).collect()
    }
}

async fn serve(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let text = |name| request.headers().get(name).and_then(|v: &axum::http::HeaderValue| v.to_str().ok()).map(str::to_owned);
    let (range, if_range) = (text(header::RANGE), text(header::IF_RANGE));
    shared.asked.lock().unwrap().push(Asked { path: path.clone(), range: range.clone(), if_range });
    let Ok(mut content) = std::fs::read(shared.folder.join(path.trim_start_matches('/'))) else { return StatusCode::NOT_FOUND.into_response() };
    if !path.starts_with("/targets/") {
        return content.into_response();
    }
    let fault = *shared.fault.lock().unwrap();
    let total = content.len();
    match fault {
        Fault::Busy => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Fault::Moved => return (StatusCode::FOUND, [(header::LOCATION, "http://elsewhere.example/x")]).into_response(),
        Fault::Flip(at) => content[at] ^= 1,
        Fault::Endless => {
            let more = stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from(vec![7; 64 << 10])));
            return Response::new(Body::from_stream(stream::iter([Ok(Bytes::from(content))]).chain(more)));
        }
        Fault::Drip => {
            let drip = stream::iter(content).then(|byte| async move {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Ok::<_, Infallible>(Bytes::from(vec![byte]))
            });
            return Response::new(Body::from_stream(drip));
        }
        _ => {}
    }
    let from = range.filter(|_| fault != Fault::NoRanges).and_then(|r| r.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    let piece = content.split_off(from.unwrap_or(0).min(total));
    let body = match fault {
        Fault::CutAfter(bytes) if bytes < piece.len() => {
            let head = Ok(Bytes::from(piece[..bytes].to_vec()));
            // What was sent before the cut is on its way by then; a cut at once would take the head of the answer with it.
            let cut = stream::once(async {
                tokio::time::sleep(Duration::from_millis(30)).await;
                Err(std::io::Error::other("cut"))
            });
            Body::from_stream(stream::iter([head]).chain(cut))
        }
        Fault::Slow => {
            let pieces: Vec<Bytes> = piece.chunks(64 << 10).map(Bytes::copy_from_slice).collect();
            Body::from_stream(stream::iter(pieces).then(|piece| async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                Ok::<_, Infallible>(piece)
            }))
        }
        _ => Body::from(piece),
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(header::ETAG, axum::http::HeaderValue::from_static("\"one\""));
    if let Some(from) = from {
        let from = if fault == Fault::WrongRange { from + 1 } else { from };
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let range = format!("bytes {from}-{}/{total}", total - 1);
        response.headers_mut().insert(header::CONTENT_RANGE, range.parse().unwrap());
    }
    response
}
