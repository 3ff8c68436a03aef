//! `POST /v1/messages/count_tokens`: how long a prompt is, by the engine that would read it.
//!
//! Outside of scheduling: it takes no place, is not charged, and works beside whatever runs. A few at a time, so that a burst of them
//! does not crowd an engine; the others wait here.

use std::{sync::Arc, time::Duration};

use axum::{body::Body, http::HeaderMap, response::Response};
use http_body_util::{BodyExt, Limited};
use warden_domain::{Problem, ProblemKind, engine::EngineKind, ids::RequestId, replica::ServedModel};

use crate::{
    Gateway, demand,
    dialects::{
        Target,
        messages::{self, MessagesRequest},
        refusal as engines_refusal,
    },
    faults, listing, patience, refusal, scan,
    spliced::Spliced,
};

/// Longest wait for an engine's count.
const LIMIT: Duration = Duration::from_secs(60);
/// Most of an engine's answer that is read. One that lists the tokens lists many.
const ANSWER: usize = 64 * 1024 * 1024;

/// Answers one call.
pub(crate) async fn call(gateway: &Arc<Gateway>, request: &RequestId, headers: &HeaderMap, body: Body) -> Result<Response, Problem> {
    let mut held = gateway.bodies.read(headers, body, &gateway.limits).await?;
    gateway.refuse_when_stopping()?;
    let model = MessagesRequest::read(&held.bytes)?.model().to_owned();
    scan::talk(&held.bytes)?;
    demand::answered(gateway, &model, patience::of(headers, false, &gateway.limits)).await?;
    let (served, bytes) = {
        let wish = MessagesRequest::read(&held.bytes)?;
        let table = gateway.parts.serving.table();
        let served = table.models.get(wish.model()).cloned().ok_or_else(|| refusal::not_loaded(wish.model(), &table))?;
        let target = Target { model: &served.served_name, engine: served.engine, images: served.images, window: served.context };
        let bytes = wish.count(&target)?;
        (served, bytes)
    };
    held.readdress(bytes.into());
    let _one_of_few = gateway.counts.acquire().await.map_err(|_| Gateway::stopping())?;
    let counted = tokio::time::timeout(LIMIT, count(gateway, request, &served, held.for_engine.clone().unwrap_or_default())).await;
    let tokens = counted.map_err(|_| faults::no_answer(LIMIT))??;
    Ok(listing::json(messages::counted(tokens)))
}

async fn count(gateway: &Gateway, request: &RequestId, served: &ServedModel, body: Spliced) -> Result<u64, Problem> {
    let path = match served.engine {
        EngineKind::LlamaCpp => "/v1/chat/completions/input_tokens",
        EngineKind::Vllm => "/tokenize",
    };
    let mut failed = None;
    // Whoever answers first; all replicas of a model count alike.
    for replica in &served.replicas {
        let Ok(answer) = gateway.engines.post(&replica.endpoint, path, request, None, body.clone()).await else { continue };
        let (head, rest) = answer.into_parts();
        let Ok(words) = Limited::new(rest, ANSWER).collect().await else { continue };
        let words = words.to_bytes();
        if head.status.is_success() {
            return messages::read_count(&words).ok_or_else(faults::unusable);
        }
        if head.status.as_u16() == 404 {
            return Err(Problem::new(ProblemKind::Upstream, format!("The engine of the model {:?} cannot count tokens.", served.served_name)));
        }
        if head.status.is_client_error() {
            return Err(engines_refusal::problem(head.status.as_u16(), &words));
        }
        failed = Some(engines_refusal::problem(head.status.as_u16(), &words));
    }
    Err(failed.unwrap_or_else(|| faults::unreachable(&served.served_name)))
}
