//! The gateway as its neighbours see it: its parts, its router, the console's own way in, and its end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderValue, header},
    response::Response,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use warden_domain::{
    Problem, ProblemKind, clock,
    ids::RequestId,
    key::{Caller, KeyDirectory},
    replica::{Demand, Serving},
    usage::Ledger,
};

use crate::{
    FlightTable, GatewayLimits,
    body::{self, BodyRoom},
    count,
    dialects::Dialect,
    engine::EngineClient,
    errors, forward, identify, listing,
    places::Places,
    routes::{self, NotServed, Route},
};

/// Header with the id of a request, on every answer.
const REQUEST_ID: &str = "x-request-id";
/// The same where Anthropic's SDKs look.
const ANTHROPIC_REQUEST_ID: &str = "request-id";
/// Header by which Anthropic's SDKs are known.
const ANTHROPIC_VERSION: &str = "anthropic-version";
/// How often a drain looks whether everybody is gone.
const LOOK: Duration = Duration::from_millis(25);
/// Time to say goodbye to what is ended by force.
const GOODBYE: Duration = Duration::from_secs(2);

/// What the gateway needs of the other rooms.
pub struct GatewayParts {
    /// Who presents a key.
    pub keys: Arc<dyn KeyDirectory>,
    /// Which models answer where.
    pub serving: Arc<dyn Serving>,
    /// Whom it tells that a model is wanted which does not answer.
    pub demand: Arc<dyn Demand>,
    /// Where requests are charged.
    pub ledger: Arc<dyn Ledger>,
    /// The in-flight table, shared with serving.
    pub flights: Arc<FlightTable>,
}

/// The data plane.
pub struct Gateway {
    pub(crate) parts: GatewayParts,
    pub(crate) limits: GatewayLimits,
    pub(crate) bodies: BodyRoom,
    pub(crate) engines: EngineClient,
    /// The schedulers.
    pub(crate) places: Arc<Places>,
    /// Who may count a prompt.
    pub(crate) counts: Semaphore,
    /// Fires when what is still running is to be ended.
    pub(crate) stop: CancellationToken,
    closing: AtomicBool,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gateway")
    }
}

impl Gateway {
    /// A gateway over its parts.
    #[must_use]
    pub fn new(parts: GatewayParts, limits: GatewayLimits) -> Arc<Self> {
        let (bodies, engines) = (BodyRoom::new(limits.all_bodies), EngineClient::new(limits.connect));
        let places = Places::new(Arc::clone(&parts.serving), Arc::clone(&parts.flights), limits.clone());
        let counts = Semaphore::new(limits.counts);
        Arc::new(Self { counts, parts, limits, bodies, engines, places, stop: CancellationToken::new(), closing: AtomicBool::new(false) })
    }

    /// Whether a path is answered here: everything under `/v1`, and the two calls that engines have outside of it.
    #[must_use]
    pub fn takes(path: &str) -> bool {
        path.strip_prefix("/v1").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            || path == routes::TOKENIZE
            || path == routes::DETOKENIZE
    }

    /// A chat completion for somebody who is known already: the console's own chat. Body and answer are those of
    /// `POST /v1/chat/completions`, errors included.
    pub async fn chat_as(self: &Arc<Self>, caller: Caller, body: Body) -> Response {
        let request = RequestId::at(clock::now());
        let answer = forward::call(self, forward::Client::Shared, request.clone(), caller, routes::CHAT, &HeaderMap::new(), body).await;
        stamped(answer.unwrap_or_else(|problem| errors::answer(Dialect::Chat, &problem, &request)), &request)
    }

    /// Refuses new requests, waits for those in flight, and after `limit` ends the rest with an error of their dialect.
    pub async fn drain(&self, limit: Duration) {
        self.closing.store(true, Ordering::SeqCst);
        if self.empty_within(limit).await {
            return;
        }
        tracing::warn!(left = self.parts.flights.all(), "requests are still running and are ended now");
        self.stop.cancel();
        self.empty_within(GOODBYE).await;
    }

    /// Whether all requests were gone within some time.
    async fn empty_within(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while self.parts.flights.all() + self.places.waiting() > 0 {
            if Instant::now() >= until {
                return false;
            }
            tokio::time::sleep(LOOK).await;
        }
        true
    }

    /// Answers a request to one of these paths. Callers show a key; there is no session, no cookie and no cross-origin access. A client over
    /// HTTP/1 that does not read is for its connection to give up: its stream must be an `Impatient` one.
    pub async fn serve(self: Arc<Self>, request: Request) -> Response {
        let id = RequestId::at(clock::now());
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let dialect = routes::dialect(&path, request.headers().contains_key(ANTHROPIC_VERSION));
        let mut response = self.dispatch(id.clone(), request).await.unwrap_or_else(|problem| errors::answer(dialect, &problem, &id));
        if let Err(NotServed::Method { allow }) = routes::find(&method, &path) {
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        let mut response = stamped(response, &id);
        if dialect == Dialect::Messages
            && let Some(value) = response.headers().get(REQUEST_ID).cloned()
        {
            response.headers_mut().insert(ANTHROPIC_REQUEST_ID, value);
        }
        response
    }

    async fn dispatch(self: &Arc<Self>, id: RequestId, request: Request) -> Result<Response, Problem> {
        let (parts, body) = request.into_parts();
        let found = identify::caller(self.parts.keys.as_ref(), &parts.headers).and_then(|caller| {
            let route = routes::find(&parts.method, parts.uri.path()).map_err(|why| routes::refusal(&why, &parts.method, parts.uri.path()))?;
            Ok((caller, route))
        });
        let (caller, route) = match found {
            Ok(found) => found,
            Err(problem) => {
                body::let_go(&parts.headers, body);
                return Err(problem);
            }
        };
        match route {
            Route::Models => listing::page(&self.parts.serving.table(), parts.uri.query()),
            Route::Model(name) => listing::one(&self.parts.serving.table(), name),
            Route::Engine(call) => forward::call(self, forward::Client::over(parts.version), id, caller, call, &parts.headers, body).await,
            Route::Count => count::call(self, &id, &parts.headers, body).await,
        }
    }

    pub(crate) fn refuse_when_stopping(&self) -> Result<(), Problem> {
        if self.closing.load(Ordering::SeqCst) { Err(Self::stopping()) } else { Ok(()) }
    }

    pub(crate) fn stopping() -> Problem {
        Problem::new(ProblemKind::ShuttingDown, "The server is stopping.").hint("Try again in a moment.").retry_after(Duration::from_secs(5))
    }
}

fn stamped(mut response: Response, id: &RequestId) -> Response {
    if let Ok(value) = HeaderValue::from_str(id.as_str()) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}
