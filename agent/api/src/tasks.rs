//! Long work: its steps, and the wish to end it.

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;
use warden_access::http::{ProblemResponse, SignedIn};
use warden_domain::{
    ids::TaskId,
    steps::{StepState, Steps},
};

use crate::{
    ApiParts,
    openapi::ErrorBody,
    roles::{self, Change},
};

/// A piece of long work.
#[derive(Debug, Serialize, ToSchema)]
pub struct TaskDocument {
    id: String,
    /// `adopt-disk`, `import-model`…
    kind: String,
    /// `running`, `done` or `failed`.
    state: &'static str,
    steps: Vec<StepPart>,
    /// The sentence of the failure.
    failure: Option<String>,
    /// True once somebody asked to end it.
    cancelling: bool,
}

/// One step.
#[derive(Debug, Serialize, ToSchema)]
pub struct StepPart {
    key: String,
    title: String,
    /// `pending`, `running`, `done`, `skipped` or `failed`.
    state: &'static str,
    /// How far, in bytes; `null` when it does not say.
    done_bytes: Option<u64>,
    total_bytes: Option<u64>,
    #[schema(value_type = Option<String>, format = DateTime)]
    started: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    ended: Option<Timestamp>,
}

/// Work since the agent started, the newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct TaskList {
    tasks: Vec<TaskDocument>,
}

fn document(id: &TaskId, steps: Steps) -> TaskDocument {
    let state = match (&steps.failure, steps.over()) {
        (Some(_), _) => "failed",
        (None, true) => "done",
        (None, false) => "running",
    };
    let part = |step: warden_domain::steps::Step| StepPart {
        key: step.key,
        title: step.title,
        state: match step.state {
            StepState::Pending => "pending",
            StepState::Running => "running",
            StepState::Done => "done",
            StepState::Skipped => "skipped",
            StepState::Failed => "failed",
        },
        done_bytes: step.progress.as_ref().filter(|p| p.unit == "B").map(|p| p.done),
        total_bytes: step.progress.as_ref().filter(|p| p.unit == "B").and_then(|p| p.total),
        started: step.started,
        ended: step.ended,
    };
    TaskDocument {
        id: id.to_string(),
        kind: steps.kind,
        state,
        steps: steps.steps.into_iter().map(part).collect(),
        failure: steps.failure,
        cancelling: steps.cancelling,
    }
}

/// Long work since the agent started.
#[utoipa::path(get, path = "/api/tasks", tag = "tasks", responses((status = 200, body = TaskList)))]
pub async fn list(State(parts): State<ApiParts>, _: SignedIn) -> Result<Json<TaskList>, ProblemResponse> {
    Ok(Json(TaskList { tasks: parts.tasks.list().into_iter().map(|(id, steps)| document(&id, steps)).collect() }))
}

/// One piece of long work.
#[utoipa::path(get, path = "/api/tasks/{id}", tag = "tasks", params(("id" = String, Path)), responses((status = 200, body = TaskDocument), (status = 404, description = "`not_found`", body = ErrorBody)))]
pub async fn show(State(parts): State<ApiParts>, _: SignedIn, Path(id): Path<String>) -> Result<Json<TaskDocument>, ProblemResponse> {
    let id = TaskId::from_stored(id);
    Ok(Json(document(&id, parts.tasks.get(&id)?)))
}

/// Asks long work to end at its next safe point.
#[utoipa::path(post, path = "/api/tasks/{id}/cancel", tag = "tasks", params(("id" = String, Path)), responses(
    (status = 202, body = TaskDocument), (status = 404, description = "`not_found`", body = ErrorBody), (status = 409, description = "`conflict`: over, or not to be broken off", body = ErrorBody)))]
pub async fn cancel(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<TaskDocument>), ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    let id = TaskId::from_stored(id);
    parts.tasks.cancel(&id)?;
    Ok((StatusCode::ACCEPTED, Json(document(&id, parts.tasks.get(&id)?))))
}
