//! One request after the other on a connection: the engine's own pages, or what the script says.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use warden_fake_engine::{
    SCRIPT,
    script::{Act, Asked, Chat, Script},
};

use crate::{
    figures::Figures,
    notes::{End, Note},
    perform,
    start::Wanted,
    wire::{Request, Wire},
};

/// Calls that take a slot.
const SLOTTED: [&str; 3] = ["/v1/chat/completions", "/v1/completions", "/v1/embeddings"];

/// What the connections share.
pub struct Engine {
    folder: PathBuf,
    /// The socket's name without its end.
    pub replica: String,
    alias: String,
    open: AtomicBool,
    /// Slots and counters.
    pub figures: Arc<Figures>,
    taken: Mutex<(String, Vec<u64>)>,
}

impl Engine {
    /// An engine that loads.
    ///
    /// # Errors
    /// A sentence when its own program cannot be found.
    pub fn new(wanted: &Wanted) -> Result<Arc<Self>, String> {
        let program = std::fs::read_link("/proc/self/exe").map_err(|e| format!("/proc/self/exe: {e}"))?;
        let folder = program.parent().map(PathBuf::from).ok_or("the program lies in no folder")?;
        let replica = wanted.host.rsplit('/').next().unwrap_or_default().trim_end_matches(".sock").to_owned();
        let figures = Figures::new(wanted.slots, wanted.context);
        Ok(Arc::new(Self { folder, replica, alias: wanted.alias.clone(), open: AtomicBool::new(false), figures, taken: Mutex::default() }))
    }

    /// From now on requests are answered.
    pub fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }

    /// The script as it lies there now; none at all is an empty one.
    ///
    /// # Errors
    /// A sentence when it is no script.
    pub fn script(&self) -> Result<Script, String> {
        self.read_script().map(|(_, script)| script)
    }

    fn read_script(&self) -> Result<(String, Script), String> {
        let text = std::fs::read_to_string(self.folder.join(SCRIPT)).unwrap_or_else(|_| "{}".to_owned());
        let script = serde_json::from_str(&text).map_err(|e| format!("{SCRIPT} is no script: {e}"))?;
        Ok((text, script))
    }

    /// What the script says of a request.
    fn rule(&self, request: &Request, asked: &Body) -> Result<(Script, Option<Act>), String> {
        let (text, script) = self.read_script()?;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.0 != text {
            *taken = (text, Vec::new());
        }
        let asked = Asked { method: &request.method, path: &request.path, body: &asked.text, stream: asked.stream, replica: &self.replica };
        let act = script.pick(asked, &mut taken.1).map(|rule| rule.act.clone());
        drop(taken);
        Ok((script, act))
    }
}

/// A body as the rules and answers look at it.
pub struct Body {
    /// Its text.
    pub text: String,
    /// Its document; null when it is none.
    pub json: Value,
    /// A stream is asked for.
    pub stream: bool,
}

impl Body {
    fn of(request: &Request) -> Self {
        let text = String::from_utf8_lossy(&request.body).into_owned();
        let json: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        let stream = json["stream"] == true;
        Self { text, json, stream }
    }
}

/// Serves a connection until it ends.
pub async fn connection<S: AsyncRead + AsyncWrite>(stream: S, engine: Arc<Engine>) {
    let mut wire = Wire::new(stream);
    while let Some(request) = wire.request().await {
        if !one(&mut wire, &engine, &request).await {
            return;
        }
    }
}

/// Serves one request; false: the connection is over.
async fn one<S: AsyncRead + AsyncWrite>(wire: &mut Wire<S>, engine: &Arc<Engine>, request: &Request) -> bool {
    let body = Body::of(request);
    let ruled = engine.rule(request, &body);
    let own = matches!(&ruled, Ok((_, None))).then(|| page(engine, request)).flatten();
    if let Some((status, content_type, text)) = own {
        return perform::plain(wire, status, content_type, text.as_bytes()).await.is_ok();
    }
    let note = Note::begin(&engine.folder, &engine.replica, request);
    let end = match ruled {
        Err(sentence) => perform::json(wire, 500, &json!({"error": {"code": 500, "message": sentence, "type": "server_error"}})).await,
        Ok((script, act)) => answer(wire, engine, request, &body, &script, act).await,
    };
    let over = end.err().unwrap_or(End::Finished);
    note.end(&engine.folder, over, wire.bytes, wire.events);
    if let (End::Died, Some(how)) = (over, wire.dies) {
        perform::die(how);
    }
    over == End::Finished && request.headers.get("connection").is_none_or(|c| c != "close")
}

async fn answer<S: AsyncRead + AsyncWrite>(
    wire: &mut Wire<S>,
    engine: &Arc<Engine>,
    request: &Request,
    body: &Body,
    script: &Script,
    act: Option<Act>,
) -> Result<(), End> {
    let slot = if SLOTTED.contains(&request.path.as_str()) { wire.unless_gone(engine.figures.slot()).await? } else { None };
    match act {
        Some(Act::Chat(chat)) => perform::chat(wire, slot.as_ref(), request, body, script, &chat).await,
        Some(Act::Json(document)) => perform::json(wire, 200, &document).await,
        Some(Act::Answer(answer)) => perform::answer(wire, &answer).await,
        Some(Act::Bytes(text)) => {
            wire.send(text.as_bytes()).await?;
            Err(End::Cut)
        }
        Some(Act::Hang) => wire.unless_gone(std::future::pending()).await,
        Some(Act::Close) => Err(End::Cut),
        Some(Act::Die(how)) => {
            wire.dies = Some(how);
            Err(End::Died)
        }
        None => usual(wire, slot.as_ref(), request, body, script).await,
    }
}

/// What is answered without a rule.
async fn usual<S: AsyncRead + AsyncWrite>(
    wire: &mut Wire<S>,
    slot: Option<&crate::figures::Slot>,
    request: &Request,
    body: &Body,
    script: &Script,
) -> Result<(), End> {
    match request.path.as_str() {
        "/v1/chat/completions" | "/v1/completions" => perform::chat(wire, slot, request, body, script, &Chat::default()).await,
        "/v1/embeddings" => {
            let inputs = body.json["input"].as_array().map_or(1, Vec::len);
            let data: Vec<Value> = (0..inputs).map(|at| json!({"object": "embedding", "index": at, "embedding": [0.6, 0.8]})).collect();
            let tokens = script.tokens(&body.json["input"].to_string());
            let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
            perform::json(wire, 200, &json!({"object": "list", "model": body.json["model"], "data": data, "usage": usage})).await
        }
        "/v1/chat/completions/input_tokens" => {
            let n = script.tokens(&body.json["messages"].to_string()).max(1);
            perform::json(wire, 200, &json!({"object": "response.input_tokens", "input_tokens": n})).await
        }
        "/tokenize" => {
            let n = script.tokens(body.json["content"].as_str().unwrap_or_default());
            perform::json(wire, 200, &json!({"tokens": (0..n).collect::<Vec<u64>>()})).await
        }
        "/apply-template" => {
            let said = |m: &Value| {
                format!(
                    "<|{}|>{}",
                    m["role"].as_str().unwrap_or_default(),
                    m["content"].as_str().map_or_else(|| m["content"].to_string(), str::to_owned)
                )
            };
            let prompt: String = body.json["messages"].as_array().into_iter().flatten().map(said).collect();
            perform::json(wire, 200, &json!({"prompt": prompt + "<|assistant|>"})).await
        }
        _ => perform::json(wire, 404, &json!({"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}})).await,
    }
}

/// The engine's own pages, which the agent reads all the time: they are not noted.
fn page(engine: &Engine, request: &Request) -> Option<(u16, &'static str, String)> {
    const JSON: &str = "application/json; charset=utf-8";
    if !engine.open.load(Ordering::SeqCst) {
        let loading = json!({"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}});
        return Some((503, JSON, loading.to_string()));
    }
    match request.path.as_str() {
        "/health" | "/v1/health" => Some((200, JSON, json!({"status": "ok"}).to_string())),
        "/metrics" => Some((200, "text/plain; version=0.0.4", engine.figures.metrics())),
        "/slots" => Some((200, JSON, engine.figures.slots().to_string())),
        "/props" => Some((200, JSON, engine.figures.properties(&engine.alias, engine.script().is_ok_and(|script| script.vision)).to_string())),
        "/v1/models" | "/models" => Some((
            200,
            JSON,
            json!({"object": "list", "data": [{"id": engine.alias, "object": "model", "created": 0, "owned_by": "llamacpp"}]}).to_string(),
        )),
        _ => None,
    }
}
