//! Updates and the health gate on the local socket. Whoever may open the socket stands at the box, or is the gate; its file permissions are
//! its authority.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Body,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};
use warden_access::http::ProblemResponse;
use warden_domain::{
    Problem, ProblemKind,
    ids::TaskId,
    key::{Caller, Priority},
    tasks::Tasks,
    update::{Stick, UpdatePhase, Updates},
};
use warden_gateway::Gateway;

/// The largest answer of a model to one token.
const ANSWER: usize = 1 << 20;

/// What these routes need.
#[derive(Clone)]
pub struct LocalUpdates {
    /// Updates.
    pub updates: Arc<dyn Updates>,
    /// Long work.
    pub tasks: Tasks,
    /// The data plane, for the gate's token.
    pub gateway: Arc<Gateway>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FromStick {
    #[serde(default)]
    source: Option<String>,
    install: bool,
    /// Restart into it once it is installed.
    #[serde(default)]
    restart: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneToken {
    model: String,
}

/// `GET /updates`, `POST /updates/from-stick`, `POST /updates/restart`, `POST /gate/token`.
pub fn router(parts: LocalUpdates) -> Router {
    Router::new()
        .route("/updates", get(show))
        .route("/updates/from-stick", post(take_from_stick))
        .route("/updates/restart", post(restart))
        .route("/gate/token", post(token))
        .with_state(parts)
}

/// The same document as `GET /api/updates`.
async fn show(State(parts): State<LocalUpdates>) -> Json<warden_api::UpdateDocument> {
    Json(warden_api::update_document(parts.updates.view().await))
}

/// Takes over a bundle on a stick; with `install` a system in it is installed. 202 with the task.
async fn take_from_stick(State(parts): State<LocalUpdates>, Json(wish): Json<FromStick>) -> Result<Response, ProblemResponse> {
    let task = parts.updates.take_from_stick(wish.source.map_or(Stick::Any, Stick::Disk), wish.install).await?;
    if wish.install && wish.restart {
        tokio::spawn(restart_after(parts, task.clone()));
    }
    Ok((StatusCode::ACCEPTED, Json(json!({"task": task.to_string()}))).into_response())
}

/// Whoever asked stands at the machine and said that it may restart: once the work is through, it does.
async fn restart_after(parts: LocalUpdates, task: TaskId) {
    loop {
        match parts.tasks.get(&task) {
            Ok(steps) if !steps.over() => tokio::time::sleep(Duration::from_millis(500)).await,
            Ok(steps) if steps.failure.is_none() && parts.updates.standing().0 == UpdatePhase::Staged => break,
            _ => return,
        }
    }
    // The turn of the install ends a moment after its task.
    for _ in 0..10 {
        match parts.updates.restart().await {
            Ok(()) => return,
            Err(problem) => tracing::warn!(%problem, "the restart into the new system is tried again"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Restarts into what is staged. 202.
async fn restart(State(parts): State<LocalUpdates>) -> Result<StatusCode, ProblemResponse> {
    parts.updates.restart().await?;
    Ok(StatusCode::ACCEPTED)
}

/// One token from a model's real engine through the gateway: 200 `{"tokens": 1}`, or why there is none.
async fn token(State(parts): State<LocalUpdates>, Json(wish): Json<OneToken>) -> Result<Json<Value>, ProblemResponse> {
    let ask = json!({"model": wish.model, "messages": [{"role": "user", "content": "1"}], "max_tokens": 1, "stream": false, "temperature": 0});
    let caller = Caller { key: None, name: "health check".to_owned(), priority: Priority::USUAL };
    let answer = parts.gateway.chat_as(caller, Body::from(ask.to_string())).await;
    let status = answer.status();
    let body = axum::body::to_bytes(answer.into_body(), ANSWER).await.unwrap_or_default();
    let said: Value = serde_json::from_slice(&body).unwrap_or_default();
    let tokens = said["usage"]["completion_tokens"].as_u64().unwrap_or(0);
    if status == StatusCode::OK && tokens > 0 {
        return Ok(Json(json!({"tokens": tokens})));
    }
    let why = said["error"]["message"].as_str().unwrap_or("it gave no token");
    let kind = if status == StatusCode::NOT_FOUND { ProblemKind::ModelNotFound } else { ProblemKind::EngineFailed };
    Err(Problem::new(kind, format!("The model {} did not answer: {why}", wish.model)).into())
}
