//! Downloads of models: begin, look, pause, resume, give up.

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use warden_access::http::{ProblemResponse, SignedIn};
use warden_domain::{
    download::{Download, NewDownload},
    ids::DownloadId,
    model::Layout,
    units::Tokens,
};

use crate::{
    ApiParts,
    body::JsonBody,
    model_settings,
    openapi::ErrorBody,
    roles::{self, Change},
};

/// What is wanted.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DownloadBody {
    /// `owner/name`.
    #[serde(alias = "repo_id")]
    hf_repo: String,
    /// Branch, tag or commit; `main` when absent.
    revision: Option<String>,
    /// A choice, by any of its files; may be left out when there is only one.
    filename: Option<String>,
    /// Name to serve it under; made from the file name when absent.
    served_model_name: Option<String>,
    /// Context window per request, in tokens.
    context: Option<u64>,
    /// Requests at the same time, 1 to 64.
    slots: Option<u16>,
    /// Engines beside each other, 1 to 16.
    replicas: Option<u16>,
    /// Cards by their ids; processors when empty.
    gpus: Vec<String>,
    /// Load it as soon as it is registered.
    load: bool,
}

/// One file of a download.
#[derive(Debug, Serialize, ToSchema)]
pub struct DownloadFilePart {
    path: String,
    size_bytes: u64,
    done_bytes: u64,
}

/// Why it waits or failed.
#[derive(Debug, Serialize, ToSchema)]
pub struct DownloadReason {
    message: String,
    hint: Option<String>,
}

/// A download.
#[derive(Debug, Serialize, ToSchema)]
pub struct DownloadDocument {
    id: String,
    hf_repo: String,
    /// The commit it takes.
    commit: String,
    served_model_name: String,
    load: bool,
    /// `queued`, `running`, `waiting`, `paused`, `failed` or `done`.
    status: &'static str,
    size_bytes: u64,
    /// Bytes that are here.
    done_bytes: u64,
    files: Vec<DownloadFilePart>,
    /// `null` while nothing comes.
    bytes_per_second: Option<u64>,
    seconds_left: Option<u64>,
    reason: Option<DownloadReason>,
    /// When a waiting one goes on.
    #[schema(value_type = Option<String>, format = DateTime)]
    waits_until: Option<Timestamp>,
    /// The model it became.
    model_id: Option<String>,
    /// Its steps: `GET /api/tasks/{id}`.
    task: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

/// All downloads, the newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct DownloadList {
    downloads: Vec<DownloadDocument>,
}

fn document(download: Download) -> DownloadDocument {
    DownloadDocument {
        id: download.id.to_string(),
        hf_repo: download.repo,
        commit: download.commit,
        served_model_name: download.served_name,
        load: download.load,
        status: download.state.as_str(),
        size_bytes: download.size.0,
        done_bytes: download.done.0,
        files: download
            .files
            .into_iter()
            .map(|file| DownloadFilePart { path: file.path, size_bytes: file.size.0, done_bytes: file.done.0 })
            .collect(),
        bytes_per_second: download.rate.map(|b| b.0),
        seconds_left: download.seconds_left,
        reason: download.reason.map(|problem| DownloadReason { message: problem.message, hint: problem.hint }),
        waits_until: download.waits_until,
        model_id: download.model.map(|id| id.to_string()),
        task: download.task.map(|id| id.to_string()),
        created_at: download.created_at,
    }
}

/// Downloads, the newest first.
#[utoipa::path(get, path = "/api/models/downloads", tag = "models", responses((status = 200, body = DownloadList)))]
pub async fn list(State(parts): State<ApiParts>, _: SignedIn) -> Result<Json<DownloadList>, ProblemResponse> {
    Ok(Json(DownloadList { downloads: parts.downloads.list().await?.into_iter().map(document).collect() }))
}

/// Checks name, room and access, then fetches a choice of a repository in the background.
#[utoipa::path(post, path = "/api/models/downloads", tag = "models", request_body = DownloadBody, responses(
    (status = 202, body = DownloadDocument),
    (status = 403, description = "`auth_required`: gated or private", body = ErrorBody),
    (status = 404, description = "`not_found`: no such repository, revision or file", body = ErrorBody),
    (status = 409, description = "`conflict`: the name is taken, or it is being fetched already", body = ErrorBody),
    (status = 422, description = "`invalid_value` or `bad_model_file`", body = ErrorBody),
    (status = 429, description = "`too_many_requests`: the hub asks to wait", body = ErrorBody),
    (status = 502, description = "`upstream_unreachable`", body = ErrorBody),
    (status = 507, description = "`disk_full`: not enough room, with numbers", body = ErrorBody)))]
pub async fn begin(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    JsonBody(body): JsonBody<DownloadBody>,
) -> Result<(StatusCode, Json<DownloadDocument>), ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    let wish = NewDownload {
        repo: body.hf_repo,
        revision: body.revision.unwrap_or_default(),
        filename: body.filename,
        served_name: body.served_model_name,
        context: body.context.map(Tokens),
        slots: body.slots,
        layout: Layout { replicas: body.replicas.unwrap_or(1), gpus: model_settings::cards(body.gpus), ..Layout::default() },
        load: body.load,
    };
    let download = parts.downloads.begin(&principal.account, wish).await?;
    Ok((StatusCode::ACCEPTED, Json(document(download))))
}

/// One download.
#[utoipa::path(get, path = "/api/models/downloads/{id}", tag = "models", params(("id" = String, Path)), responses((status = 200, body = DownloadDocument), (status = 404, description = "`not_found`", body = ErrorBody)))]
pub async fn show(State(parts): State<ApiParts>, _: SignedIn, Path(id): Path<String>) -> Result<Json<DownloadDocument>, ProblemResponse> {
    Ok(Json(document(parts.downloads.get(&DownloadId::from_stored(id)).await?)))
}

/// Stops a download; what is here stays.
#[utoipa::path(post, path = "/api/models/downloads/{id}/pause", tag = "models", params(("id" = String, Path)), responses(
    (status = 202, body = DownloadDocument), (status = 404, description = "`not_found`", body = ErrorBody), (status = 409, description = "`conflict`: it does not run", body = ErrorBody)))]
pub async fn pause(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<DownloadDocument>), ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    Ok((StatusCode::ACCEPTED, Json(document(parts.downloads.pause(&DownloadId::from_stored(id)).await?))))
}

/// Goes on with a paused or failed download from its checked bytes.
#[utoipa::path(post, path = "/api/models/downloads/{id}/resume", tag = "models", params(("id" = String, Path)), responses(
    (status = 202, body = DownloadDocument), (status = 404, description = "`not_found`", body = ErrorBody), (status = 409, description = "`conflict`: it runs or is done", body = ErrorBody)))]
pub async fn resume(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<DownloadDocument>), ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    Ok((StatusCode::ACCEPTED, Json(document(parts.downloads.resume(&DownloadId::from_stored(id)).await?))))
}

/// Gives a download up and removes what is unfinished; of one that is done only its entry here goes.
#[utoipa::path(delete, path = "/api/models/downloads/{id}", tag = "models", params(("id" = String, Path)), responses(
    (status = 204), (status = 404, description = "`not_found`", body = ErrorBody)))]
pub async fn cancel(State(parts): State<ApiParts>, SignedIn(principal): SignedIn, Path(id): Path<String>) -> Result<StatusCode, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    parts.downloads.cancel(&DownloadId::from_stored(id)).await?;
    Ok(StatusCode::NO_CONTENT)
}
