//! One call from its bytes to the engine's answer: reads the body, waits for a place, sends (twice at most), and hands over to the relay.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header, response::Parts},
    response::Response,
};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use warden_domain::{
    Problem, ProblemKind,
    ids::{KeyId, RequestId},
    key::Caller,
    model::RunawayGuard,
    replica::Replica,
    usage::Outcome,
};
use warden_schedule::{
    Return,
    identity::{self, Asked as Turn},
};

use crate::{
    Gateway, demand,
    dialects::chat::unseen,
    engine::SendFailure,
    errors,
    flight::Flight,
    headers, multipart,
    pass::{Ask, Pass},
    patience,
    relay::{self, RelayTerms, Upstream},
    routes::{self, Call},
    runaway::{Guard, Limits},
    scan::{self, Asked},
    tap::{JsonTap, SseTap, Tap},
};

/// Pause before a second try, in which an engine that just restarted gets its socket up.
const BREATH: Duration = Duration::from_millis(50);
/// Most of a refusal's body that is read to understand it.
const REFUSAL: usize = 64 * 1024;

/// Answers one call.
pub(crate) async fn call(
    gateway: &Arc<Gateway>,
    request: RequestId,
    caller: &Caller,
    call: &Call,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let held = gateway.bodies.read(headers, body, &gateway.limits).await?;
    let asked = if call.form { Asked::from(multipart::read(headers.get(header::CONTENT_TYPE), &held.bytes)?) } else { scan::read(&held.bytes)? };
    let hide_usage = call.streams && asked.stream && !asked.wants_usage;
    let bytes = if hide_usage { scan::with_usage(held.bytes.clone())? } else { held.bytes.clone() };

    gateway.refuse_when_stopping()?;
    demand::answered(gateway, &asked.model, patience::of(headers, asked.stream, &gateway.limits)).await?;
    let bytes = if reads_text_only(gateway, call, &asked.model) { unseen::without_images(bytes)? } else { bytes };
    let pass = Pass::enter(&gateway.places, &asked.model, ask(gateway, caller, call, headers, &held.bytes, asked.stream))?;
    let entry = gateway.parts.ledger.open().ok_or_else(|| {
        Problem::new(ProblemKind::Overloaded, "Usage cannot be recorded at this moment, so no request is taken.")
            .hint("The disk may be full or broken; the console says more.")
            .retry_after(Duration::from_secs(10))
    })?;
    let mut flight = Flight::new(entry, pass, request, caller);
    let sent = tokio::select! {
        sent = send(gateway, &mut flight, Post { call, kind: headers.get(header::CONTENT_TYPE).filter(|_| call.form), bytes }) => sent,
        () = gateway.stop.cancelled() => return Err(ended(flight, Outcome::ShutDown, Gateway::stopping())),
    };
    drop(held);
    let answer = match sent {
        Ok(answer) => answer,
        Err(Unsent::Stopping) => return Err(ended(flight, Outcome::ShutDown, Gateway::stopping())),
        Err(Unsent::TurnedAway(problem)) => return Err(ended(flight, Outcome::TurnedAway, problem)),
        Err(Unsent::Failed(problem)) => return Err(ended(flight, Outcome::EngineFailed, problem)),
    };
    if answer.head.status == StatusCode::SERVICE_UNAVAILABLE {
        let problem = busy(flight.model(), answer.body).await;
        return Err(ended(flight, Outcome::EngineFailed, problem));
    }
    if call.optional && matches!(answer.head.status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED) {
        let problem = not_offered(flight.model(), call.path);
        return Err(ended(flight, Outcome::Refused, problem));
    }
    Ok(carry(gateway, flight, call, hide_usage, answer))
}

/// What is sent to an engine.
#[derive(Clone)]
struct Post<'a> {
    call: &'a Call,
    /// The kind of body, where it is no JSON.
    kind: Option<&'a HeaderValue>,
    bytes: Bytes,
}

/// Whether this is a chat with a model that is known to see no images.
fn reads_text_only(gateway: &Gateway, call: &Call, model: &str) -> bool {
    call.path == routes::CHAT.path && gateway.parts.serving.table().models.get(model).is_some_and(|model| model.images == Some(false))
}

/// What the request brings to the scheduler.
fn ask(gateway: &Gateway, caller: &Caller, call: &Call, headers: &HeaderMap, body: &[u8], streamed: bool) -> Ask {
    // Only calls that can be streamed are turns of a conversation.
    let scan = if call.streams { identity::scan(body) } else { None };
    let asked = scan.map(|scan| {
        let ids = identity::find_ids(|name| headers.get(name).and_then(|v| v.to_str().ok()), &scan);
        let key = caller.key.as_ref().map_or(caller.name.as_str(), KeyId::as_str);
        Turn::new(key, &ids, scan)
    });
    Ask { asked, streamed, patience: patience::of(headers, streamed, &gateway.limits), priority: caller.priority }
}

/// Why there is no answer of an engine.
enum Unsent {
    /// The agent stops.
    Stopping,
    /// It got no place.
    TurnedAway(Problem),
    /// Anything else.
    Failed(Problem),
}

impl From<Problem> for Unsent {
    fn from(problem: Problem) -> Self {
        Self::Failed(problem)
    }
}

/// Sends once there is a replica, and once more elsewhere when no byte of an answer had come.
async fn send(gateway: &Gateway, flight: &mut Flight, post: Post<'_>) -> Result<Answer, Unsent> {
    let request = flight.request().clone();
    let first = flight.place().await.map_err(Unsent::TurnedAway)?;
    // Counted first, asked again then: a drain that began in between either sees this flight or is seen here.
    gateway.refuse_when_stopping().map_err(|_| Unsent::Stopping)?;
    let started = Instant::now();
    let failure = match once(gateway, &request, &first, post.clone()).await? {
        // Nothing of an answer was forwarded yet. An engine that fails at once would otherwise look like the one with the least to do.
        Ok(answer) if fails(answer.head.status) && has_another(gateway, flight.model()) => SendFailure::Refused(answer.head.status.as_u16()),
        Ok(answer) => return Ok(answer),
        Err(failure) => failure,
    };
    tracing::warn!(%request, replica = %first.id, %failure, "an engine did not take a request");
    let why = match failure {
        SendFailure::Connect(_) | SendFailure::Refused(_) => Return::Unreachable,
        SendFailure::Closed(_) => Return::BrokeOff,
        SendFailure::Garbled(_) => return Err(unreachable(flight.model()).into()),
    };
    if started.elapsed() > gateway.limits.retry_within {
        return Err(unreachable(flight.model()).into());
    }
    flight.back(why);
    let again = flight.place().await.map_err(|_| unreachable(flight.model()))?;
    if again.id == first.id {
        tokio::time::sleep(BREATH).await;
    }
    match once(gateway, &request, &again, post).await? {
        Ok(answer) => Ok(answer),
        Err(failure) => {
            tracing::warn!(%request, replica = %again.id, %failure, "an engine did not take a request, for the second time");
            Err(unreachable(flight.model()).into())
        }
    }
}

/// Whether it is the engine that fails, and not the request.
const fn fails(status: StatusCode) -> bool {
    matches!(status, StatusCode::INTERNAL_SERVER_ERROR | StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE)
}

/// Whether another replica of the model answers.
fn has_another(gateway: &Gateway, model: &str) -> bool {
    gateway.parts.serving.table().models.get(model).is_some_and(|model| model.replicas.len() > 1)
}

/// An engine's answer from its head to its first bytes: until they are here, nothing was promised to the client.
struct Answer {
    head: Parts,
    body: Upstream,
}

async fn once(gateway: &Gateway, request: &RequestId, replica: &Replica, post: Post<'_>) -> Result<Result<Answer, SendFailure>, Problem> {
    let post = gateway.engines.post(&replica.endpoint, post.call.path, request, post.kind, post.bytes);
    let answer = tokio::time::timeout(gateway.limits.head, post).await.map_err(|_| {
        Problem::new(ProblemKind::UpstreamTimeout, format!("The engine gave no answer within {} s.", gateway.limits.head.as_secs()))
            .hint("Ask for a streamed answer, or unload and load the model in the console.")
    })?;
    let (head, mut rest) = match answer {
        Ok(answer) => answer.into_parts(),
        Err(failure) => return Ok(Err(failure)),
    };
    let first = tokio::time::timeout(gateway.limits.engine_pause, relay::first_bytes(&mut rest)).await;
    Ok(match first.map_err(|_| relay::silent(gateway.limits.engine_pause))? {
        Ok(first) => Ok(Answer { head, body: Upstream { first, rest } }),
        Err(cause) => Err(SendFailure::Closed(cause.to_string())),
    })
}

/// Hands the answer over to the relay.
fn carry(gateway: &Gateway, mut flight: Flight, call: &Call, hide_usage: bool, answer: Answer) -> Response {
    let Answer { head, body: upstream } = answer;
    let is_stream =
        head.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).is_some_and(|v| v.trim_start().starts_with("text/event-stream"));
    let tap = if is_stream { Tap::Sse(SseTap::new(hide_usage)) } else { Tap::Json(JsonTap::default()) };
    let outcome = match head.status.as_u16() {
        ..400 => Outcome::Completed,
        400..500 => Outcome::Refused,
        _ => Outcome::EngineFailed,
    };
    flight.sent(head.status.as_u16());
    let length = (!is_stream).then(|| upstream.length()).flatten();
    let runaway = guard(gateway, flight.model());
    let terms = RelayTerms {
        engine_pause: gateway.limits.engine_pause,
        client_pause: gateway.limits.client_pause,
        stop: gateway.stop.clone(),
        outcome,
        no_completion: !call.streams,
        length,
        guard: (is_stream && runaway != RunawayGuard::Off).then(|| Guard::new(Limits::default())),
        enforce: runaway == RunawayGuard::Enforce,
    };
    let mut response = Response::new(Body::new(relay::start(flight, upstream, tap, terms)));
    *response.status_mut() = head.status;
    *response.headers_mut() = headers::onward(&head.headers, length.is_some());
    if is_stream {
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    }
    response
}

/// What is done about answers of this model that run away.
fn guard(gateway: &Gateway, model: &str) -> RunawayGuard {
    gateway.parts.serving.table().models.get(model).map_or_else(RunawayGuard::default, |model| model.runaway)
}

/// Ends a flight that gets one of our own errors.
fn ended(mut flight: Flight, outcome: Outcome, problem: Problem) -> Problem {
    flight.sent(problem.kind.status());
    flight.end(outcome);
    problem
}

/// The engine said 503: it is loading, or full.
async fn busy(model: &str, answer: Upstream) -> Problem {
    let mut text = answer.first.map(|first| String::from_utf8_lossy(&first).into_owned()).unwrap_or_default();
    let body = Limited::new(answer.rest, REFUSAL);
    if let Ok(Ok(rest)) = tokio::time::timeout(Duration::from_secs(5), body.collect()).await {
        text.push_str(&String::from_utf8_lossy(&rest.to_bytes()));
    }
    let loading = text.contains("Loading model");
    let message = if loading {
        format!("The model {model:?} is still loading.")
    } else {
        format!("The model {model:?} has no room for another request at this moment.")
    };
    Problem::new(ProblemKind::Overloaded, message).hint("Try again in a few seconds.").retry_after(Duration::from_secs(if loading { 5 } else { 2 }))
}

fn not_offered(model: &str, path: &str) -> Problem {
    Problem::new(ProblemKind::NotFound, format!("The engine of the model {model:?} does not offer {path}."))
        .hint("Ask a model whose engine has it: what vLLM and llama.cpp offer depends on the kind of model.")
}

fn unreachable(model: &str) -> Problem {
    Problem::new(ProblemKind::Upstream, format!("The engine of the model {model:?} cannot be reached; it may just have stopped."))
        .hint("Try again; if it stays so, look at the model in the console.")
}

/// The answer to a problem, whoever met it.
pub(crate) fn refuse(problem: &Problem) -> Response {
    errors::answer(problem)
}
