//! One call from its bytes to the task that answers it: reads the body, finds out what is asked, and hands over to an errand.

use std::sync::Arc;

use axum::{
    body::Body,
    http::{HeaderMap, Version, header},
    response::Response,
};
use warden_domain::{
    Problem,
    ids::{KeyId, RequestId},
    key::Caller,
};
use warden_schedule::identity::{self, Asked};

use crate::{
    Gateway,
    errand::{Errand, Job},
    line,
    pass::Ask,
    patience,
    routes::Call,
    wish::Wish,
};

/// How a client is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    /// By a connection that carries this answer alone, and is given up when it does not get on.
    OwnConnection,
    /// Other answers go over the same connection, or somebody else reads.
    Shared,
}

impl Client {
    /// A client that asks over HTTP of this version.
    pub(crate) fn over(version: Version) -> Self {
        if version <= Version::HTTP_11 { Self::OwnConnection } else { Self::Shared }
    }
}

/// Answers one call.
pub(crate) async fn call(
    gateway: &Arc<Gateway>,
    client: Client,
    request: RequestId,
    caller: Caller,
    call: &'static Call,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let mut held = gateway.bodies.read(headers, body, &gateway.limits).await?;
    gateway.refuse_when_stopping()?;
    let kind = headers.get(header::CONTENT_TYPE).filter(|_| call.form).cloned();
    let (model, streamed, engine_streams, tap, for_engine, scan) = {
        let wish = Wish::read(call, kind.as_ref(), &held.bytes)?;
        if tracing::enabled!(tracing::Level::DEBUG) {
            note_leftovers(&wish, &request);
        }
        let model = wish.model().to_owned();
        let table = gateway.parts.serving.table();
        let served = table.models.get(&model);
        // As soon as the model is known, so that nobody who waits holds two bodies.
        let for_engine = served.map(|served| wish.for_engine(call, &held.bytes, served)).transpose()?;
        let engine = served.map(|served| served.engine);
        let engine_streams = engine.map_or(wish.streams(), |engine| wish.engine_streams(call, engine));
        // Only calls that can be streamed are turns of a conversation.
        let (streams, tap) = (wish.streams(), wish.tap(call, &request, engine)?);
        let scan = if call.streams { wish.talk(&held.bytes)? } else { None };
        (model, streams, engine_streams, tap, for_engine, scan)
    };
    let asked = scan.map(|scan| {
        let ids = identity::find_ids(|name| headers.get(name).and_then(|v| v.to_str().ok()), &scan);
        Asked::new(caller.key.as_ref().map_or(caller.name.as_str(), KeyId::as_str), &ids, scan)
    });
    let patience = patience::of(headers, streamed, &gateway.limits);
    let ask = Ask { asked, streamed: engine_streams, patience, priority: caller.priority };
    if let Some(for_engine) = for_engine {
        held.readdress(for_engine);
    }
    let (line, receiver) = line::open(gateway.limits.client_pause, tap.is_stream().then_some(gateway.limits.keep_alive));
    let errand =
        Errand { gateway: Arc::clone(gateway), request, caller, call, kind, line, tap, held: None, flight: None, complete: false, watch: None };
    let work = errand.run(Job { model, ask, held });
    match client {
        Client::OwnConnection => receiver.doing(work).answer().await,
        Client::Shared => {
            // Large, and moved many times on its way into a task; boxed, only its address is.
            tokio::spawn(Box::pin(work));
            receiver.answer().await
        }
    }
}

/// Fields that are neither used nor left out on purpose are named, never their values.
fn note_leftovers(wish: &Wish<'_>, request: &RequestId) {
    let left = wish.leftovers();
    if !left.is_empty() {
        tracing::debug!(%request, fields = ?left.names(), "fields of a request that nobody reads");
    }
}
