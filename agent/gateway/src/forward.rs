//! One call from its bytes to the engine's answer: reads the body, places, sends (twice at most), and hands over to the relay.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Response as HttpResponse, StatusCode, header},
    response::Response,
};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use warden_domain::{
    Problem, ProblemKind,
    ids::{ReplicaId, RequestId},
    key::Caller,
    replica::{Replica, ServedModel},
    usage::Outcome,
};

use crate::{
    Gateway,
    engine::SendFailure,
    errors,
    flight::Flight,
    flights::Seat,
    headers, place,
    relay::{self, RelayTerms},
    routes::Call,
    scan,
    tap::{JsonTap, SseTap, Tap},
};

/// Pause before a second try, in which an engine that just restarted gets its socket up.
const BREATH: Duration = Duration::from_millis(50);
/// Most of a refusal's body that is read to understand it.
const REFUSAL: usize = 64 * 1024;

/// A chosen replica with the request's seat on it.
struct Placed {
    model: ServedModelRef,
    replica: Replica,
    seat: Seat,
}

/// What is kept of a model once a request was placed.
#[derive(Clone)]
struct ServedModelRef {
    id: warden_domain::ids::ModelId,
    name: String,
}

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
    let asked = scan::read(&held.bytes)?;
    let hide_usage = call.streams && asked.stream && !asked.wants_usage;
    let bytes = if hide_usage { scan::with_usage(held.bytes.clone())? } else { held.bytes.clone() };

    gateway.refuse_when_stopping()?;
    let placed = place(gateway, &asked.model, None)?;
    let entry = gateway.parts.ledger.open().ok_or_else(|| {
        Problem::new(ProblemKind::Overloaded, "Usage cannot be recorded at this moment, so no request is taken.")
            .hint("The disk may be full or broken; the console says more.")
            .retry_after(Duration::from_secs(10))
    })?;
    let mut flight = Flight::new(entry, placed.seat, request, caller, placed.model.id.clone());
    // Counted first, asked again then: a drain that began in between either sees this flight or is seen here.
    if let Err(problem) = gateway.refuse_when_stopping() {
        return Err(ended(flight, Outcome::ShutDown, problem));
    }

    let sent = tokio::select! {
        sent = send(gateway, &mut flight, &placed.model, placed.replica, call, bytes) => sent,
        () = gateway.stop.cancelled() => return Err(ended(flight, Outcome::ShutDown, Gateway::stopping())),
    };
    drop(held);
    let answer = match sent {
        Ok(answer) => answer,
        Err(problem) => return Err(ended(flight, Outcome::EngineFailed, problem)),
    };
    if answer.status() == StatusCode::SERVICE_UNAVAILABLE {
        return Err(ended(flight, Outcome::EngineFailed, busy(&placed.model.name, answer).await));
    }
    Ok(carry(gateway, flight, call, hide_usage, answer))
}

/// Chooses a replica and takes a seat on it, then makes sure it is still offered: a model that is being unloaded waits for seats,
/// so a seat taken too late must be given back.
fn place(gateway: &Gateway, name: &str, avoid: Option<&ReplicaId>) -> Result<Placed, Problem> {
    for _ in 0..8 {
        let table = gateway.parts.serving.table();
        let Some(model) = table.models.get(name) else { return Err(place::not_loaded(name, &table)) };
        let flights = &gateway.parts.flights;
        let Some(replica) = place::choose(model, avoid, |id| flights.of_replica(&model.id, id)) else { return Err(place::not_loaded(name, &table)) };
        let seat = flights.board(&model.id, &replica.id);
        if still_offered(gateway, model, replica) {
            return Ok(Placed { model: ServedModelRef { id: model.id.clone(), name: model.served_name.clone() }, replica: replica.clone(), seat });
        }
    }
    Err(unreachable(name))
}

fn still_offered(gateway: &Gateway, model: &ServedModel, replica: &Replica) -> bool {
    gateway
        .parts
        .serving
        .table()
        .models
        .get(&model.served_name)
        .is_some_and(|m| m.id == model.id && m.replicas.iter().any(|r| r.id == replica.id && r.launch == replica.launch))
}

/// Sends, and once more when the connection was gone before any answer.
async fn send(
    gateway: &Gateway,
    flight: &mut Flight,
    model: &ServedModelRef,
    first: Replica,
    call: &Call,
    body: Bytes,
) -> Result<HttpResponse<Incoming>, Problem> {
    let (started, request) = (Instant::now(), flight.request().clone());
    let failure = match once(gateway, &request, &first, call, body.clone()).await? {
        Ok(answer) => return Ok(answer),
        Err(failure) => failure,
    };
    tracing::warn!(%request, replica = %first.id, %failure, "an engine did not take a request");
    if matches!(failure, SendFailure::Garbled(_)) || started.elapsed() > gateway.limits.retry_within {
        return Err(unreachable(&model.name));
    }
    tokio::time::sleep(BREATH).await;
    let again = place(gateway, &model.name, Some(&first.id)).map_err(|_| unreachable(&model.name))?;
    flight.change_seat(again.seat);
    match once(gateway, &request, &again.replica, call, body).await? {
        Ok(answer) => Ok(answer),
        Err(failure) => {
            tracing::warn!(%request, replica = %again.replica.id, %failure, "an engine did not take a request, for the second time");
            Err(unreachable(&model.name))
        }
    }
}

async fn once(
    gateway: &Gateway,
    request: &RequestId,
    replica: &Replica,
    call: &Call,
    body: Bytes,
) -> Result<Result<HttpResponse<Incoming>, SendFailure>, Problem> {
    let post = gateway.engines.post(&replica.endpoint, call.path, request, body);
    tokio::time::timeout(gateway.limits.head, post).await.map_err(|_| {
        Problem::new(ProblemKind::UpstreamTimeout, format!("The engine gave no answer within {} s.", gateway.limits.head.as_secs()))
            .hint("Ask for a streamed answer, or unload and load the model in the console.")
    })
}

/// Hands the answer over to the relay.
fn carry(gateway: &Gateway, mut flight: Flight, call: &Call, hide_usage: bool, answer: HttpResponse<Incoming>) -> Response {
    let (head, upstream) = answer.into_parts();
    let is_stream =
        head.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).is_some_and(|v| v.trim_start().starts_with("text/event-stream"));
    let tap = if is_stream { Tap::Sse(SseTap::new(hide_usage)) } else { Tap::Json(JsonTap::default()) };
    let outcome = match head.status.as_u16() {
        ..400 => Outcome::Completed,
        400..500 => Outcome::Refused,
        _ => Outcome::EngineFailed,
    };
    flight.sent(head.status.as_u16());
    let length = (!is_stream).then(|| http_body::Body::size_hint(&upstream).exact()).flatten();
    let terms = RelayTerms {
        engine_pause: gateway.limits.engine_pause,
        client_pause: gateway.limits.client_pause,
        stop: gateway.stop.clone(),
        outcome,
        no_completion: !call.streams,
        length,
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

/// Ends a flight that gets one of our own errors.
fn ended(mut flight: Flight, outcome: Outcome, problem: Problem) -> Problem {
    flight.sent(problem.kind.status());
    flight.end(outcome);
    problem
}

/// The engine said 503: it is loading, or full.
async fn busy(model: &str, answer: HttpResponse<Incoming>) -> Problem {
    let body = Limited::new(answer.into_body(), REFUSAL);
    let text = match tokio::time::timeout(Duration::from_secs(5), body.collect()).await {
        Ok(Ok(whole)) => String::from_utf8_lossy(&whole.to_bytes()).into_owned(),
        _ => String::new(),
    };
    let loading = text.contains("Loading model");
    let message = if loading {
        format!("The model {model:?} is still loading.")
    } else {
        format!("The model {model:?} has no room for another request at this moment.")
    };
    Problem::new(ProblemKind::Overloaded, message).hint("Try again in a few seconds.").retry_after(Duration::from_secs(if loading { 5 } else { 2 }))
}

fn unreachable(model: &str) -> Problem {
    Problem::new(ProblemKind::Upstream, format!("The engine of the model {model:?} cannot be reached; it may just have stopped."))
        .hint("Try again; if it stays so, look at the model in the console.")
}

/// The answer to a problem, whoever met it.
pub(crate) fn refuse(problem: &Problem) -> Response {
    errors::answer(problem)
}
