//! An engine that does nothing but answer, as fast as it can, over a Unix socket or a loopback port.
//!
//! In: the command line of llama-server, of which `--host`, `--port` and `--alias` count, or that of vLLM, of which `--uds` and
//! `--served-model-name` do. What an answer looks like, the request itself says
//! through its `max_tokens` (see [`crate::bodies::Answer`]), because that is the one member every gateway lets through. It speaks chat and,
//! for gateways that pass Messages on, Messages; it keeps the pages that gateways ask for before they send anything.

mod answer;

use std::{
    convert::Infallible,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{Request, Response, body::Incoming, header, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
};

use answer::{Body, Dialect};

/// Requests at a time it says it takes.
const SLOTS: u32 = 4096;

/// What the command line says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Place {
    host: String,
    port: u16,
    alias: String,
}

impl Place {
    fn read(arguments: &[String]) -> Self {
        let after = |name: &str| arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1)).cloned();
        Self {
            host: after("--uds").or_else(|| after("--host")).unwrap_or_else(|| "127.0.0.1".to_owned()),
            port: after("--port").and_then(|port| port.parse().ok()).unwrap_or(0),
            alias: after("--served-model-name").or_else(|| after("--alias")).unwrap_or_else(|| "bench".to_owned()),
        }
    }
}

/// What it knows of itself.
struct Engine {
    alias: String,
    /// Answers that are being sent.
    open: AtomicU64,
    /// Requests answered, whatever became of the answer.
    asked: AtomicU64,
}

/// Counts one answer until it is dropped.
struct Open(Arc<Engine>);

impl Open {
    fn new(engine: &Arc<Engine>) -> Self {
        engine.open.fetch_add(1, Ordering::Relaxed);
        engine.asked.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(engine))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves until it is ended from outside.
///
/// # Errors
/// A sentence when it cannot listen.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let place = Place::read(arguments);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| format!("no runtime: {e}"))?;
    runtime.block_on(serve(place))
}

async fn serve(place: Place) -> Result<(), String> {
    let engine = Arc::new(Engine { alias: place.alias, open: AtomicU64::new(0), asked: AtomicU64::new(0) });
    let said = |e: std::io::Error| format!("the engine cannot listen on {}: {e}", place.host);
    match place.host.parse::<IpAddr>() {
        Ok(ip) => {
            let listener = TcpListener::bind((ip, place.port)).await.map_err(said)?;
            let local = listener.local_addr().map_err(said)?;
            // Whoever started it with port 0 reads this.
            println!("listening {local}");
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let _a_little_slower = stream.set_nodelay(true);
                connection(stream, &engine);
            }
        }
        Err(_) => {
            let listener = UnixListener::bind(&place.host).map_err(said)?;
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                connection(stream, &engine);
            }
        }
    }
}

fn connection(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, engine: &Arc<Engine>) {
    let engine = Arc::clone(engine);
    tokio::spawn(async move {
        let service = service_fn(|request| answer_to(request, Arc::clone(&engine)));
        let _client_went_away = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    });
}

async fn answer_to(request: Request<Incoming>, engine: Arc<Engine>) -> Result<Response<Body>, Infallible> {
    let dialect = match request.uri().path() {
        "/v1/chat/completions" => Dialect::Chat,
        "/v1/messages" => Dialect::Messages,
        path => return Ok(page(path, &engine)),
    };
    let open = Open::new(&engine);
    let Ok(body) = request.into_body().collect().await else {
        return Ok(Response::new(Body::whole(Bytes::new(), None)));
    };
    let (wanted, streamed) = answer::wanted(&body.to_bytes());
    let mut response = Response::new(Body::of(dialect, wanted, streamed, &engine.alias, open));
    let kind = if streamed.is_some() { "text/event-stream" } else { "application/json" };
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    Ok(response)
}

/// What gateways look at before and between requests.
fn page(path: &str, engine: &Engine) -> Response<Body> {
    let open = engine.open.load(Ordering::Relaxed);
    let asked = engine.asked.load(Ordering::Relaxed);
    let (kind, text) = match path {
        "/props" => ("application/json", format!(r#"{{"default_generation_settings":{{"n_ctx":1048576}},"total_slots":{SLOTS}}}"#)),
        "/metrics" => (
            "text/plain; version=0.0.4",
            format!(
                "# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing {open}\n\
                 # TYPE llamacpp:requests_deferred gauge\nllamacpp:requests_deferred 0\n\
                 # TYPE llamacpp:n_decode_total counter\nllamacpp:n_decode_total {asked}\n\
                 # TYPE vllm:num_requests_running gauge\nvllm:num_requests_running {open}\n\
                 # TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting 0\n\
                 # TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{{block_size=\"16\",num_gpu_blocks=\"100000000\"}} 1\n"
            ),
        ),
        "/v1/models" => (
            "application/json",
            format!(
                r#"{{"object":"list","data":[{{"id":"{}","object":"model","created":1,"owned_by":"bench","max_model_len":1048576}}]}}"#,
                engine.alias
            ),
        ),
        "/get_model_info" | "/model_info" => ("application/json", format!(r#"{{"model_path":"{0}","served_model_name":"{0}"}}"#, engine.alias)),
        "/get_server_info" | "/server_info" => {
            ("application/json", format!(r#"{{"model_path":"{0}","served_model_name":"{0}","max_total_num_tokens":1048576}}"#, engine.alias))
        }
        "/version" => ("application/json", r#"{"version":"0.12.0"}"#.to_owned()),
        _ => ("application/json", r#"{"status":"ok"}"#.to_owned()),
    };
    let mut response = Response::new(Body::whole(Bytes::from(text), None));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_starts_with_the_command_line_of_llama_server() {
        let line = "--threads 2 --fit off --model /m.gguf --alias bench --host /run/a.sock --ctx-size 4096 --parallel 4 --metrics --offline";
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        assert_eq!(Place::read(&arguments), Place { host: "/run/a.sock".to_owned(), port: 0, alias: "bench".to_owned() });
    }
}
